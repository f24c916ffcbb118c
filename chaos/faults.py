"""Faults of processes, servers, connections and disks; a seed determines which, when and for how long.

A fault is an async function of the setup and of a random source. It returns what it did, for the history, and repairs
it: a stopped process continues, a killed one is started again.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
from collections.abc import Awaitable, Callable
from typing import Any

from chaos.full_server import try_full_server
from chaos.processes import Process
from chaos.setup import Setup
from chaos.storages import SingleServer, SqliteFile

__all__ = ["EXCLUSIVE", "FAULTS", "Fault", "draw_faults"]

Fault = Callable[[Setup, random.Random], Awaitable[dict[str, Any]]]


def duration(draw: random.Random, lease: float) -> float:
    """Draw the duration of a fault: two in three are shorter than 1.2 s, one in three is longer than a lease."""
    return round(draw.choice((draw.uniform(0.02, 0.5), draw.uniform(0.1, 1.2), lease + draw.uniform(0.5, 2.0))), 3)


# processes ----------------------------------------------------------------------------------------


async def kill_child(setup: Setup, draw: random.Random) -> dict[str, Any]:
    children = setup.pick_worker(draw).children()
    if not children:
        return {"pids": []}
    pid = draw.choice(sorted(children))
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    return {"pids": [pid]}


async def stop_child(setup: Setup, draw: random.Random) -> dict[str, Any]:
    children, span = setup.pick_worker(draw).children(), duration(draw, setup.lease)
    if not children:
        return {"pids": []}
    pid = draw.choice(sorted(children))
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGSTOP)
        await asyncio.sleep(span)
        os.kill(pid, signal.SIGCONT)
    return {"pids": [pid], "span": span}


async def stop_parent(setup: Setup, draw: random.Random) -> dict[str, Any]:
    """Stop only the worker's main process, which renews the leases."""
    worker, span = setup.pick_worker(draw), duration(draw, setup.lease)
    worker.signal(signal.SIGSTOP)
    await asyncio.sleep(span)
    worker.signal(signal.SIGCONT)
    return {"pids": [worker.pid], "span": span}


async def stop_worker(setup: Setup, draw: random.Random) -> dict[str, Any]:
    """Stop a worker and all its children, as a machine that is suspended."""
    worker, span = setup.pick_worker(draw), duration(draw, setup.lease)
    pids = worker.signal_all(signal.SIGSTOP)
    await asyncio.sleep(span)
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
    return {"pids": pids, "span": span}


async def kill_worker(setup: Setup, draw: random.Random) -> dict[str, Any]:
    """Kill a worker and all its children at once, as a machine that loses power."""
    async with setup.worker_lock:
        worker = setup.pick_worker(draw)
        pids = worker.signal_all(signal.SIGKILL)
        await asyncio.sleep(draw.uniform(0.0, 0.5))
        setup.replace(worker)
    return {"pids": pids}


async def kill_parent(setup: Setup, draw: random.Random) -> dict[str, Any]:
    """Kill only the worker's main process; its children must notice and exit."""
    async with setup.worker_lock:
        worker = setup.pick_worker(draw)
        pids = worker.all()
        worker.signal(signal.SIGKILL)
        await asyncio.sleep(draw.uniform(0.0, 0.5))
        setup.replace(worker)
    return {"pids": pids}


async def roll(setup: Setup, draw: random.Random) -> dict[str, Any]:
    """Replace a worker as a deploy does: SIGTERM, in 30 % a second one, and a new worker while the old one drains."""
    async with setup.worker_lock:
        worker = setup.pick_worker(draw)
        worker.signal(signal.SIGTERM)
        if draw.random() < 0.3:
            await asyncio.sleep(draw.uniform(0.0, 0.5))
            worker.signal(signal.SIGTERM)
        clock = draw.choice((0, 0, 3600, -3600)) if setup.storage.own_clock else 0
        setup.retire(worker, clock=clock)
    return {"pids": [worker.pid], "clock": clock}


async def deploy(setup: Setup, draw: random.Random) -> dict[str, Any]:
    """Replace all workers by such of the other version of the code, one by one, each while the old one drains."""
    async with setup.worker_lock:
        setup.version = 1 - setup.version
        workers = list(setup.workers)
        for worker in workers:
            worker.signal(signal.SIGTERM)
            setup.retire(worker)
            await asyncio.sleep(draw.uniform(0.2, 2.0))
    return {"pids": [worker.pid for worker in workers], "version": setup.version}


async def jump_clock(setup: Setup, draw: random.Random) -> dict[str, Any]:
    """Let the clock of all processes jump ahead or back, to at most 20 seconds from the true time."""
    ahead = draw.choice((0, draw.randint(-1000, 1000), draw.randint(-4000, 4000), draw.randint(-20_000, 20_000)))
    jump = setup.set_clock(ahead)
    await asyncio.sleep(setup.lease + draw.uniform(0.0, 1.0))
    return {"jump": jump}


async def wrong_clock(setup: Setup, draw: random.Random) -> dict[str, Any]:
    """Replace a worker by one whose clock is an hour wrong."""
    async with setup.worker_lock:
        worker, clock = setup.pick_worker(draw), draw.choice((3600, -3600))
        worker.signal(signal.SIGTERM)
        setup.retire(worker, clock=clock)
    return {"pids": [worker.pid], "clock": clock}


async def kill_producer(setup: Setup, draw: random.Random) -> dict[str, Any]:
    producer = setup.pick_producer(draw)
    if producer is None:
        return {"pids": []}
    producer.signal(signal.SIGKILL)
    return {"pids": [producer.pid]}


# servers ------------------------------------------------------------------------------------------


def _server_of(setup: Setup) -> SingleServer:
    assert isinstance(setup.storage, SingleServer)
    return setup.storage


async def kill_server(setup: Setup, draw: random.Random) -> dict[str, Any]:
    """Kill the server and start it again from its append-only file."""
    storage = _server_of(setup)
    setup.record("server", did="killed", fsync=storage.fsync)
    storage.server.kill()
    await asyncio.sleep(draw.choice((0.0, draw.uniform(0.0, 1.0), draw.uniform(0.0, setup.lease + 1))))
    await asyncio.to_thread(storage.server.restart)
    await asyncio.to_thread(storage.wait_until_loaded)
    setup.record("server", did="back")
    return {}


async def restart_server(setup: Setup, draw: random.Random) -> dict[str, Any]:
    """Stop the server with SIGTERM and start it again."""
    storage = _server_of(setup)
    assert storage.server.process is not None
    storage.server.process.terminate()
    await asyncio.to_thread(storage.server.process.wait)
    await asyncio.sleep(draw.uniform(0.0, 0.5))
    await asyncio.to_thread(storage.server.restart)
    await asyncio.to_thread(storage.wait_until_loaded)
    setup.record("server", did="back")
    return {}


async def stop_server(setup: Setup, draw: random.Random) -> dict[str, Any]:
    """Stop the server process and let it continue."""
    storage, span = _server_of(setup), duration(draw, setup.lease)
    assert storage.server.process is not None
    storage.server.process.send_signal(signal.SIGSTOP)
    await asyncio.sleep(span)
    storage.server.process.send_signal(signal.SIGCONT)
    return {"span": span}


async def maxmemory(setup: Setup, draw: random.Random) -> dict[str, Any]:
    """Leave the server less memory than it uses, and try which requests it refuses meanwhile."""
    storage, span = _server_of(setup), duration(draw, setup.lease)
    await setup.run_on_server("CONFIG", "SET", "maxmemory", "1")
    try:
        setup.record("full", wrong=await try_full_server(storage.url))
        await asyncio.sleep(span)
    finally:
        await setup.run_on_server("CONFIG", "SET", "maxmemory", "0")
    return {"span": span, "at": storage.server.port}


async def script_flush(setup: Setup, draw: random.Random) -> dict[str, Any]:
    await setup.run_on_server("SCRIPT", "FLUSH", draw.choice(("SYNC", "ASYNC")))
    return {}


async def client_kill(setup: Setup, draw: random.Random) -> dict[str, Any]:
    kind = draw.choice(("normal", "normal", "pubsub"))
    return {"killed": await setup.run_on_server("CLIENT", "KILL", "TYPE", kind), "type": kind}


# connections --------------------------------------------------------------------------------------


async def lose_reply(setup: Setup, draw: random.Random) -> dict[str, Any]:
    proxy, after = setup.pick_proxy(draw), draw.choice(("cut", "cut", "silence"))
    fault = proxy.lose_reply("EVALSHA", nth=draw.randint(1, 5), times=draw.choice((1, 1, 3)), then=after)
    return await _wait_until_hit(setup, draw, proxy, fault, after)


async def lose_request(setup: Setup, draw: random.Random) -> dict[str, Any]:
    proxy, after = setup.pick_proxy(draw), draw.choice(("cut", "cut", "silence"))
    fault = proxy.lose_request("EVALSHA", nth=draw.randint(1, 5), times=draw.choice((1, 1, 3)), then=after)
    return await _wait_until_hit(setup, draw, proxy, fault, after)


async def _wait_until_hit(setup: Setup, draw: random.Random, proxy: Any, fault: Any, after: str) -> dict[str, Any]:
    """Wait until the fault has hit its commands; cut a connection that was left without replies after a while."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(2.0):
            while not fault.spent:  # noqa: ASYNC110 - the proxy counts in a thread of its own
                await asyncio.sleep(0.02)
    if after == "silence":
        await asyncio.sleep(duration(draw, setup.lease))
        proxy.cut()
    proxy.forget(fault)
    return {"times": fault.count, "then": after}


async def delay(setup: Setup, draw: random.Random) -> dict[str, Any]:
    proxy, span, late = setup.pick_proxy(draw), duration(draw, setup.lease), round(draw.uniform(0.01, 0.6), 3)
    proxy.delay(late)
    await asyncio.sleep(span)
    proxy.delay(0)
    return {"span": span, "late": late}


async def cut(setup: Setup, draw: random.Random) -> dict[str, Any]:
    return {"connections": setup.pick_proxy(draw).cut(reset=draw.random() < 0.5)}


async def half_open(setup: Setup, draw: random.Random) -> dict[str, Any]:
    proxy, span = setup.pick_proxy(draw), duration(draw, setup.lease)
    count = proxy.silence(new=draw.random() < 0.5)
    await asyncio.sleep(span)
    proxy.heal()
    proxy.cut()
    return {"connections": count, "span": span}


async def refuse(setup: Setup, draw: random.Random) -> dict[str, Any]:
    proxy, span = setup.pick_proxy(draw), duration(draw, setup.lease)
    proxy.refuse()
    proxy.cut()
    await asyncio.sleep(span)
    proxy.heal()
    return {"span": span}


# files --------------------------------------------------------------------------------------------


async def full_disk(setup: Setup, draw: random.Random) -> dict[str, Any]:
    storage, span = setup.storage, duration(draw, setup.lease)
    assert isinstance(storage, SqliteFile)
    if not storage.own_disk:
        return {"skipped": "no disk of its own"}
    size = await asyncio.to_thread(storage.fill)
    await asyncio.sleep(span)
    storage.heal()
    return {"span": span, "bytes": size}


async def kill_writer(setup: Setup, draw: random.Random) -> dict[str, Any]:
    """Kill a process with half a transaction written."""
    storage, span = setup.storage, round(draw.uniform(0.0, 0.6), 3)
    assert isinstance(storage, SqliteFile)
    writer: Process = setup.start_writer(str(storage.path), "half")
    await setup.wait_for_output(writer, "written")
    await asyncio.sleep(span)
    writer.remove()
    return {"pids": [writer.pid], "span": span}


async def lock_file(setup: Setup, draw: random.Random) -> dict[str, Any]:
    """Hold the file's write lock for the whole duration."""
    storage, span = setup.storage, duration(draw, setup.lease)
    assert isinstance(storage, SqliteFile)
    writer = setup.start_writer(str(storage.path), "lock")
    await setup.wait_for_output(writer, "written")
    await asyncio.sleep(span)
    writer.remove()
    return {"pids": [writer.pid], "span": span}


FAULTS: dict[str, Fault] = {
    each.__name__: each
    for each in (
        kill_child, stop_child, stop_parent, stop_worker, kill_worker, kill_parent, roll, kill_producer, deploy,
        jump_clock, wrong_clock, kill_server, restart_server, stop_server, maxmemory, script_flush, client_kill,
        lose_reply, lose_request, delay, cut, half_open, refuse, full_disk, kill_writer, lock_file,
    )
}  # fmt: skip


#: Faults of the whole server or the whole disk, which run one at a time.
EXCLUSIVE = {"kill_server", "restart_server", "stop_server", "maxmemory", "full_disk"}


def draw_faults(seed: str, count: int, weights: dict[str, float]) -> list[tuple[str, int]]:
    """Draw the names of the faults of a run and a seed for each."""
    draw = random.Random(f"{seed}/faults")
    names = draw.choices(list(weights), list(weights.values()), k=count)
    return [(name, draw.getrandbits(32)) for name in names]
