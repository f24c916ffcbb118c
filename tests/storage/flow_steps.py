"""Flows at the bounds of the scripts, for the measurement in `test_script_time.py`."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, Protocol

from penstock.model.flow import FlowPart, GenerationRef, JobRef, NewCheckpoint, Notice, Plan, SignalWait
from penstock.model.history import Report
from penstock.model.job import NewJob
from penstock.storage.base import MAX_BATCH, Claim, Complete, Request, Settlement, Suspend
from penstock.storage.redis import RedisStorage
from tests.support import HOUR, LEASE

__all__ = ["use_flows"]

QUEUE = "flows"
WIDE = MAX_BATCH - 1
MB = 1_000_000


class Steps(Protocol):
    """Measures steps."""

    async def step(self, call: Awaitable[Any]) -> Any:
        """Await a verb and note its work."""
        ...


def _flow(flow: str, count: int, wants: bool, payload: bytes = b"") -> list[NewJob]:
    """Return a plan with this many children, of which the last waits for all others."""
    refs = tuple(JobRef(QUEUE, f"{flow}/{i}") for i in range(count))
    parent = GenerationRef(QUEUE, flow, "g")
    jobs = [NewJob(queue=QUEUE, id=flow, payload=b"", flow=FlowPart(generation="g", dependencies=refs, plan=Plan()))]
    for number in reversed(range(count)):
        sent = [Notice(QUEUE, flow, "g", number, "ended")]
        if number < count - 1:
            sent.append(Notice(QUEUE, refs[-1].id, "g", number, "completed", wants=wants))
        waits = refs[:-1] if number == count - 1 else ()
        part = FlowPart(generation="g", parent=parent, notices=tuple(sent), dependencies=waits)
        jobs.append(NewJob(queue=QUEUE, id=refs[number].id, payload=payload, flow=part))
    return jobs


async def _claim(storage: RedisStorage, meter: Steps, token: str) -> list[Claim]:
    return (await meter.step(storage.claim([Request(QUEUE, MAX_BATCH)], "w", LEASE, token))).claims


async def _relay(storage: RedisStorage, meter: Steps) -> None:
    while (await meter.step(storage.relay([QUEUE]))).more:
        pass


async def _complete(storage: RedisStorage, meter: Steps, claims: list[Claim], result: bytes = b"") -> None:
    ends = [Settlement(c.queue, c.id, c.token, Complete(result, HOUR)) for c in claims]
    assert not any(answer.lost for answer in await meter.step(storage.settle(ends)))


async def use_flows(storage: RedisStorage, meter: Steps) -> None:
    """Store, run, cancel, revive and delete flows of 1,000 jobs, fans of 1,000 dependents, and journals of 1 MB."""
    await meter.step(storage.put(_flow("wide", WIDE, wants=True)))
    await _complete(storage, meter, await _claim(storage, meter, "wide"), b"v" * 1000)
    await meter.step(storage.dependencies(QUEUE, f"wide/{WIDE - 1}"))
    await _complete(storage, meter, await _claim(storage, meter, "join"))
    await _use_fan(storage, meter)
    await meter.step(storage.put(_flow("stopped", WIDE, wants=False)))
    await meter.step(storage.cancel(QUEUE, ["stopped"], ttl=HOUR))
    await _relay(storage, meter)
    assert await meter.step(storage.revive(QUEUE, ["stopped"])) == [True]
    await _relay(storage, meter)
    await _complete(storage, meter, await _claim(storage, meter, "again"))
    await _complete(storage, meter, await _claim(storage, meter, "last"))
    await _use_journal(storage, meter)
    await meter.step(storage.put(_flow("deleted", WIDE, wants=False)))
    await meter.step(storage.put(_flow("deleted-too", WIDE, wants=False)))
    await meter.step(storage.delete_queue(QUEUE))
    await _relay(storage, meter)


async def _use_fan(storage: RedisStorage, meter: Steps) -> None:
    """End a job that 1,000 others wait for."""
    refs = [JobRef(QUEUE, f"fan/{i}") for i in range(WIDE)]
    part = FlowPart(generation="g", dependencies=(JobRef(QUEUE, "hub"),))
    await meter.step(storage.put([NewJob(queue=QUEUE, id=ref.id, payload=b"", flow=part) for ref in refs]))
    sent = tuple(Notice(QUEUE, ref.id, "g", 0, "completed", wants=True) for ref in refs)
    await meter.step(storage.put([NewJob(queue=QUEUE, id="hub", payload=b"", flow=FlowPart(notices=sent))]))
    await _complete(storage, meter, await _claim(storage, meter, "hub"), b"v" * 1000)
    await _complete(storage, meter, await _claim(storage, meter, "fan"))


async def _use_journal(storage: RedisStorage, meter: Steps) -> None:
    """Fill a journal, read it, and send signals; and extend an open flow."""
    await meter.step(storage.put([NewJob(queue=QUEUE, id="durable", payload=b"")]))
    [claim] = await _claim(storage, meter, "durable")
    for number in range(0, 30, 3):
        stored = tuple(NewCheckpoint(f"s{number + i}", "step", b"v" * MB) for i in range(3))
        report = Report(queue=QUEUE, id=claim.id, token=claim.token, checkpoints=stored)
        await meter.step(storage.report([report]))
    await meter.step(storage.read_journal(QUEUE, "durable"))
    for _ in range(100):
        await meter.step(storage.signal(QUEUE, "durable", "other", b"v" * 1000))
    wait = Suspend(signal=SignalWait("wait", ("one",)))
    await meter.step(storage.settle([Settlement(QUEUE, claim.id, claim.token, wait)]))
    await meter.step(storage.signal(QUEUE, "durable", "one", b"v" * MB))
    part = FlowPart(generation="g", plan=Plan(), open=True)
    await storage.put([NewJob(queue=QUEUE, id="open", payload=b"", flow=part)])
    for first in range(0, 20 * MAX_BATCH, MAX_BATCH):
        refs = [JobRef(QUEUE, f"open/{first + i}") for i in range(MAX_BATCH)]
        await meter.step(storage.extend(QUEUE, "open", "g", refs, first))
