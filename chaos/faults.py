"""The faults: what is done to processes, servers, connections and disks. Which, when and for how long, a seed says.

A fault is an async function of the stage. It writes when it begins and when it is over, whom it hit, and leaves
everything as it should be: what was stopped goes on, what was killed is started again.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
from collections.abc import Awaitable, Callable
from typing import Any

from chaos.places import ServerPlace, SqlitePlace
from chaos.processes import Process
from chaos.stage import Stage

__all__ = ["FAULTS", "TAKING_TURNS", "Fault", "draw_faults"]

Fault = Callable[[Stage, random.Random], Awaitable[dict[str, Any]]]


def duration(draw: random.Random, lease: float) -> float:
    """How long a fault lasts: mostly short, sometimes past a lease."""
    return round(draw.choice((draw.uniform(0.02, 0.5), draw.uniform(0.1, 1.2), lease + draw.uniform(0.5, 2.0))), 3)


# processes ----------------------------------------------------------------------------------------


async def kill_child(stage: Stage, draw: random.Random) -> dict[str, Any]:
    children = stage.a_worker(draw).children()
    if not children:
        return {"pids": []}
    pid = draw.choice(sorted(children))
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    return {"pids": [pid]}


async def stop_child(stage: Stage, draw: random.Random) -> dict[str, Any]:
    children, span = stage.a_worker(draw).children(), duration(draw, stage.lease)
    if not children:
        return {"pids": []}
    pid = draw.choice(sorted(children))
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGSTOP)
        await asyncio.sleep(span)
        os.kill(pid, signal.SIGCONT)
    return {"pids": [pid], "span": span}


async def stop_parent(stage: Stage, draw: random.Random) -> dict[str, Any]:
    """Only the process that keeps the leases stands still."""
    worker, span = stage.a_worker(draw), duration(draw, stage.lease)
    worker.signal(signal.SIGSTOP)
    await asyncio.sleep(span)
    worker.signal(signal.SIGCONT)
    return {"pids": [worker.pid], "span": span}


async def stop_worker(stage: Stage, draw: random.Random) -> dict[str, Any]:
    """A machine that sleeps: the worker and all its children."""
    worker, span = stage.a_worker(draw), duration(draw, stage.lease)
    pids = worker.signal_all(signal.SIGSTOP)
    await asyncio.sleep(span)
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
    return {"pids": pids, "span": span}


async def kill_worker(stage: Stage, draw: random.Random) -> dict[str, Any]:
    """A machine that goes dark: the worker and all its children at once."""
    async with stage.replacing:
        worker = stage.a_worker(draw)
        pids = worker.signal_all(signal.SIGKILL)
        await asyncio.sleep(draw.uniform(0.0, 0.5))
        stage.replace(worker)
    return {"pids": pids}


async def kill_parent(stage: Stage, draw: random.Random) -> dict[str, Any]:
    """Only the worker's main process; the children must notice."""
    async with stage.replacing:
        worker = stage.a_worker(draw)
        pids = worker.all()
        worker.signal(signal.SIGKILL)
        await asyncio.sleep(draw.uniform(0.0, 0.5))
        stage.replace(worker)
    return {"pids": pids}


async def roll(stage: Stage, draw: random.Random) -> dict[str, Any]:
    """A deploy: SIGTERM, perhaps a second one, and a new worker beside the old one until that has ended."""
    async with stage.replacing:
        worker = stage.a_worker(draw)
        worker.signal(signal.SIGTERM)
        if draw.random() < 0.3:
            await asyncio.sleep(draw.uniform(0.0, 0.5))
            worker.signal(signal.SIGTERM)
        clock = draw.choice((0, 0, 3600, -3600)) if stage.place.own_clock else 0
        stage.retire(worker, clock=clock)
    return {"pids": [worker.pid], "clock": clock}


async def wrong_clock(stage: Stage, draw: random.Random) -> dict[str, Any]:
    """A worker is replaced by one whose clock is an hour wrong."""
    async with stage.replacing:
        worker, clock = stage.a_worker(draw), draw.choice((3600, -3600))
        worker.signal(signal.SIGTERM)
        stage.retire(worker, clock=clock)
    return {"pids": [worker.pid], "clock": clock}


async def kill_producer(stage: Stage, draw: random.Random) -> dict[str, Any]:
    producer = stage.a_producer(draw)
    if producer is None:
        return {"pids": []}
    producer.signal(signal.SIGKILL)
    return {"pids": [producer.pid]}


# servers ------------------------------------------------------------------------------------------


def _server(stage: Stage) -> ServerPlace:
    assert isinstance(stage.place, ServerPlace)
    return stage.place


async def kill_server(stage: Stage, draw: random.Random) -> dict[str, Any]:
    """The server crashes and comes back with what its append-only file has."""
    place = _server(stage)
    stage.note("server", did="killed", fsync=place.fsync)
    place.server.kill()
    await asyncio.sleep(draw.choice((0.0, draw.uniform(0.0, 1.0), draw.uniform(0.0, stage.lease + 1))))
    await asyncio.to_thread(place.server.restart)
    await asyncio.to_thread(place.until_loaded)
    stage.note("server", did="back")
    return {}


async def restart_server(stage: Stage, draw: random.Random) -> dict[str, Any]:
    """The server is told to stop, and started again."""
    place = _server(stage)
    assert place.server.process is not None
    place.server.process.terminate()
    await asyncio.to_thread(place.server.process.wait)
    await asyncio.sleep(draw.uniform(0.0, 0.5))
    await asyncio.to_thread(place.server.restart)
    await asyncio.to_thread(place.until_loaded)
    stage.note("server", did="back")
    return {}


async def stop_server(stage: Stage, draw: random.Random) -> dict[str, Any]:
    """The server stands still."""
    place, span = _server(stage), duration(draw, stage.lease)
    assert place.server.process is not None
    place.server.process.send_signal(signal.SIGSTOP)
    await asyncio.sleep(span)
    place.server.process.send_signal(signal.SIGCONT)
    return {"span": span}


async def maxmemory(stage: Stage, draw: random.Random) -> dict[str, Any]:
    place, span = _server(stage), duration(draw, stage.lease)
    await stage.on_server("CONFIG", "SET", "maxmemory", "1mb")
    await asyncio.sleep(span)
    await stage.on_server("CONFIG", "SET", "maxmemory", "0")
    return {"span": span, "at": place.server.port}


async def script_flush(stage: Stage, draw: random.Random) -> dict[str, Any]:
    await stage.on_server("SCRIPT", "FLUSH", draw.choice(("SYNC", "ASYNC")))
    return {}


async def client_kill(stage: Stage, draw: random.Random) -> dict[str, Any]:
    kind = draw.choice(("normal", "normal", "pubsub"))
    return {"killed": await stage.on_server("CLIENT", "KILL", "TYPE", kind), "type": kind}


# connections --------------------------------------------------------------------------------------


async def lose_reply(stage: Stage, draw: random.Random) -> dict[str, Any]:
    proxy, after = stage.a_proxy(draw), draw.choice(("cut", "cut", "silence"))
    fault = proxy.lose_reply("EVALSHA", nth=draw.randint(1, 5), times=draw.choice((1, 1, 3)), then=after)
    return await _met(stage, draw, proxy, fault, after)


async def lose_request(stage: Stage, draw: random.Random) -> dict[str, Any]:
    proxy, after = stage.a_proxy(draw), draw.choice(("cut", "cut", "silence"))
    fault = proxy.lose_request("EVALSHA", nth=draw.randint(1, 5), times=draw.choice((1, 1, 3)), then=after)
    return await _met(stage, draw, proxy, fault, after)


async def _met(stage: Stage, draw: random.Random, proxy: Any, fault: Any, after: str) -> dict[str, Any]:
    """Wait for the command that meets the fault; whatever is silent is cut after a while."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(2.0):
            while not fault.spent:  # noqa: ASYNC110 - it is the proxy's thread that knows
                await asyncio.sleep(0.02)
    if after == "silence":
        await asyncio.sleep(duration(draw, stage.lease))
        proxy.cut()
    proxy.forget(fault)
    return {"times": fault.count, "then": after}


async def delay(stage: Stage, draw: random.Random) -> dict[str, Any]:
    proxy, span, late = stage.a_proxy(draw), duration(draw, stage.lease), round(draw.uniform(0.01, 0.6), 3)
    proxy.delay(late)
    await asyncio.sleep(span)
    proxy.delay(0)
    return {"span": span, "late": late}


async def cut(stage: Stage, draw: random.Random) -> dict[str, Any]:
    return {"connections": stage.a_proxy(draw).cut(reset=draw.random() < 0.5)}


async def half_open(stage: Stage, draw: random.Random) -> dict[str, Any]:
    proxy, span = stage.a_proxy(draw), duration(draw, stage.lease)
    count = proxy.silence(new=draw.random() < 0.5)
    await asyncio.sleep(span)
    proxy.heal()
    proxy.cut()
    return {"connections": count, "span": span}


async def refuse(stage: Stage, draw: random.Random) -> dict[str, Any]:
    proxy, span = stage.a_proxy(draw), duration(draw, stage.lease)
    proxy.refuse()
    proxy.cut()
    await asyncio.sleep(span)
    proxy.heal()
    return {"span": span}


# files --------------------------------------------------------------------------------------------


async def full_disk(stage: Stage, draw: random.Random) -> dict[str, Any]:
    place, span = stage.place, duration(draw, stage.lease)
    assert isinstance(place, SqlitePlace)
    if not place.small:
        return {"skipped": "no disk of its own"}
    size = await asyncio.to_thread(place.fill)
    await asyncio.sleep(span)
    place.heal()
    return {"span": span, "bytes": size}


async def kill_writer(stage: Stage, draw: random.Random) -> dict[str, Any]:
    """A process is killed with a transaction half written."""
    place, span = stage.place, round(draw.uniform(0.0, 0.6), 3)
    assert isinstance(place, SqlitePlace)
    writer: Process = stage.start_writer(str(place.path), "half")
    await stage.said(writer, "written")
    await asyncio.sleep(span)
    writer.remove()
    return {"pids": [writer.pid], "span": span}


async def lock_file(stage: Stage, draw: random.Random) -> dict[str, Any]:
    """A process holds the file's lock for longer than anybody should."""
    place, span = stage.place, duration(draw, stage.lease)
    assert isinstance(place, SqlitePlace)
    writer = stage.start_writer(str(place.path), "lock")
    await stage.said(writer, "written")
    await asyncio.sleep(span)
    writer.remove()
    return {"pids": [writer.pid], "span": span}


FAULTS: dict[str, Fault] = {
    each.__name__: each
    for each in (
        kill_child, stop_child, stop_parent, stop_worker, kill_worker, kill_parent, roll, kill_producer, wrong_clock,
        kill_server, restart_server, stop_server, maxmemory, script_flush, client_kill, lose_reply, lose_request,
        delay, cut, half_open, refuse, full_disk, kill_writer, lock_file,
    )
}  # fmt: skip


#: One of these at a time: each does something to the server or the disk as a whole.
TAKING_TURNS = {"kill_server", "restart_server", "stop_server", "maxmemory", "full_disk"}


def draw_faults(seed: str, count: int, weights: dict[str, float]) -> list[tuple[str, int]]:
    """The names of the faults of a run and a seed for each."""
    draw = random.Random(f"{seed}/faults")
    names = draw.choices(list(weights), list(weights.values()), k=count)
    return [(name, draw.getrandbits(32)) for name in names]
