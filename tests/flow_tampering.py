"""Flows and durable jobs beside plain ones, the verbs on them, and a worker: for tests of damaged records."""

from __future__ import annotations

from collections import Counter
from typing import cast

from penstock.model.flow import FlowPart, GenerationRef, JobRef, NewCheckpoint, Notice, Plan, SignalWait
from penstock.model.job import NewJob, State
from penstock.storage.base import Claim, Complete, Fail, Release, Report, Request, Settlement, Storage, Suspend
from penstock.storage.flowing import Flowing
from tests.support import DAY, HOUR, LEASE, SECOND, Clock, update
from tests.tampering import ERROR, QUEUE

__all__ = ["FLOW_IDS", "add_flows", "drain_plain", "use_flows"]

#: Every id of these flows; they are put before all other jobs.
FLOW_IDS = ("flow", "f0", "f1", "f2", "open", "late-flow", "sleeper", "caller", "child", "twin", "held")
#: Jobs of no flow, by their groups. Each is completed once.
PLAIN_IDS = {"plain": None, "grouped": "g", "grouped-too": "g"}
PARENT = GenerationRef(QUEUE, "flow", "g")


def _child(id: str, number: int, after: tuple[str, ...] = (), more: tuple[Notice, ...] = ()) -> NewJob:
    part = FlowPart(
        generation="g", parent=PARENT, dependencies=tuple(JobRef(QUEUE, each) for each in after), binds=b"b",
        notices=(Notice(QUEUE, "flow", "g", number, "ended", wants=True), *more),
    )  # fmt: skip
    return NewJob(queue=QUEUE, id=id, payload=b"", flow=part)


async def _claim(storage: Storage, token: str) -> list[Claim]:
    return (await storage.claim([Request(QUEUE, 100)], "w", LEASE, token)).claims


async def add_flows(storage: Storage) -> None:
    """Add a plan with ended and waiting children, an open one, and durable jobs with journals, signals and a twin."""
    flows = cast(Flowing, storage)
    refs = tuple(JobRef(QUEUE, id) for id in ("f0", "f1", "f2"))
    plan = FlowPart(generation="g", dependencies=refs, plan=Plan(result=0, failed_ttl=HOUR))
    to_second = Notice(QUEUE, "f2", "g", 0, "failed", wants=True)
    await storage.put(
        [
            NewJob(queue=QUEUE, id="flow", payload=b"", flow=plan),
            _child("f2", 2, ("f1",)),
            _child("f1", 1, more=(to_second,)),
            _child("f0", 0),
        ]
    )
    for id in ("open", "late-flow"):
        part = FlowPart(generation="g", dependencies=(JobRef(QUEUE, "child"),), plan=Plan(), open=True)
        await storage.put([NewJob(queue=QUEUE, id=id, payload=b"", flow=part)])
    durable = "sleeper", "caller", "twin", "held"
    await storage.put([NewJob(queue=QUEUE, id=id, payload=b"", group=f"of {id}") for id in durable])
    claims = {claim.id: claim for claim in await _claim(storage, "flows")}
    step = NewCheckpoint("step", "step", b"value")
    child = NewJob(
        queue=QUEUE, id="child", payload=b"", delay=HOUR,
        flow=FlowPart(parent=GenerationRef(QUEUE, "caller", ""), notices=(Notice(QUEUE, "caller", "g", 0, "ended"),)),
    )  # fmt: skip
    held = claims["held"]
    await storage.report([Report(queue=QUEUE, id=held.id, token=held.token, checkpoints=(step,))])
    wait = SignalWait("wait", ("one",))
    await storage.settle(
        [
            _settled(claims["f0"], Complete(b"value", HOUR)),
            _settled(claims["f1"], Fail(ERROR, HOUR)),
            _settled(claims["sleeper"], Suspend(checkpoints=(step,), delay=5 * SECOND, sleep="nap")),
            _settled(claims["caller"], Suspend(checkpoints=(step,), puts=(child,), count=1)),
            _settled(claims["twin"], Suspend(checkpoints=(step,), signal=wait)),
        ]
    )
    await storage.put([update(QUEUE, "twin", b"successor")])
    for id in ("twin", "caller"):
        await flows.signal(QUEUE, id, "two", b"kept")
    await storage.cancel(QUEUE, ["late-flow"], ttl=HOUR)  # a message goes to the outbox
    await storage.put([NewJob(queue=QUEUE, id=id, payload=b"", group=group) for id, group in PLAIN_IDS.items()])


def _settled(claim: Claim, end: Complete | Fail | Suspend | Release) -> Settlement:
    return Settlement(claim.queue, claim.id, claim.token, end)


async def use_flows(storage: Storage) -> None:
    """Call every verb of flows."""
    flows = cast(Flowing, storage)
    await storage.get(QUEUE, FLOW_IDS)
    for id in FLOW_IDS:
        await storage.why(QUEUE, id)
        await flows.read_journal(QUEUE, id)
        await flows.dependencies(QUEUE, id)
    await flows.extend(QUEUE, "open", "g", [JobRef(QUEUE, "none")], 1)
    await flows.signal(QUEUE, "caller", "one", b"value")
    found = await _claim(storage, "more flows")
    await storage.settle([_settled(claim, Release()) for claim in found if claim.id in PLAIN_IDS])
    claims = [claim for claim in found if claim.id not in PLAIN_IDS]
    for claim in claims:
        named = NewCheckpoint("more", "signal", signals=("one", "two"))
        await storage.report([Report(queue=QUEUE, id=claim.id, token=claim.token, checkpoints=(named,))])
    await storage.settle([_settled(claim, Fail(ERROR, HOUR, culprits=(0,))) for claim in claims])
    await flows.relay([QUEUE], 1)
    await storage.cancel(QUEUE, ["open"], ttl=HOUR)
    await storage.revive(QUEUE, ["f1", "flow", "open"])
    await flows.relay([QUEUE])
    await flows.signal(QUEUE, "twin", "one", b"value")
    await storage.discard(QUEUE, ["f0", "child"])
    while (await flows.relay([QUEUE])).more:
        pass


async def drain_plain(storage: Storage, clock: Clock) -> None:
    """Work as a worker does, until all is done; every job of no flow must have ended exactly once."""
    completed = Counter[str]()
    for turn in range(4):
        clock.advance(ms=70 * SECOND)
        await storage.reap([QUEUE])
        await storage.purge([QUEUE])
        while (await cast(Flowing, storage).relay([QUEUE])).more:
            pass
        for number in range(50):
            claims = await _claim(storage, f"drain {turn} {number}")
            if not claims:
                break
            answers = await storage.settle([_settled(claim, Complete(b"", HOUR)) for claim in claims])
            completed.update(claim.id for claim, answer in zip(claims, answers, strict=True) if not answer.lost)
        else:
            raise AssertionError("claims do not end")
    wrong = {id: completed[id] for id in PLAIN_IDS if completed[id] != 1}
    assert not wrong, f"completed a wrong number of times: {wrong}"
    for state in State:
        await storage.find(QUEUE, state)
    clock.advance(ms=9 * DAY)
    for _ in range(3):
        await storage.purge([QUEUE])
    await storage.delete_queue(QUEUE)
    while (await cast(Flowing, storage).relay([QUEUE])).more:
        pass
