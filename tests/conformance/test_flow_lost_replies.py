"""Flows on Redis behind a network that loses answers: each verb takes effect once, and its answer comes."""

from __future__ import annotations

from typing import cast

import pytest

from penstock.model.flow import Extended, FlowPart, JobRef, NewCheckpoint, Notice, Plan, SignalWait
from penstock.model.job import NewJob, State
from penstock.storage.base import Claim, Complete, Fail, PutStatus, Report, Settled, Settlement, Storage, Suspend
from penstock.storage.flowing import Flowing
from penstock.storage.redis.scripts import script
from tests.conformance.test_lost_replies import far, sha
from tests.proxy import Proxy
from tests.servers import Server
from tests.support import HOUR, RedisBackend, claim1, get1

__all__ = ["far"]

pytestmark = [pytest.mark.beyond_model, pytest.mark.only("redis", "valkey")]

SCRIPTS = ("put_flow", "extend", "signal", "report", "revive", "relay", "cancel", "settle")


@pytest.fixture(autouse=True)
def known_scripts(backend: RedisBackend) -> None:
    """Load the scripts, so that the first answer of each is not that it is unknown."""
    assert isinstance(backend.server, Server)
    with backend.server.client() as client:
        for name in SCRIPTS:
            client.script_load(script(name).text)


def flowing(storage: Storage) -> Flowing:
    return cast(Flowing, storage)


def flow_of_two() -> list[NewJob]:
    """Return a plan with a child, and a dependent of it."""
    refs = (JobRef("q", "a"), JobRef("q", "b"))
    part = FlowPart(generation="g", dependencies=refs, plan=Plan(failed_ttl=HOUR))
    waits = FlowPart(generation="g", dependencies=refs[:1], notices=(Notice("q", "flow", "g", 1, "ended"),))
    sends = Notice("q", "flow", "g", 0, "ended"), Notice("q", "b", "g", 0, wants=True)
    return [
        NewJob(queue="q", id="flow", payload=b"", flow=part),
        NewJob(queue="q", id="b", payload=b"", flow=waits),
        NewJob(queue="q", id="a", payload=b"", flow=FlowPart(generation="g", notices=sends)),
    ]


def ended(claim: Claim, end: Complete | Fail | Suspend) -> Settlement:
    return Settlement(claim.queue, claim.id, claim.token, end)


async def test_a_flow_is_put_once(proxy: Proxy, far: Storage, storage: Storage) -> None:
    """The answers are those of the first time, not that the ids are taken."""
    proxy.lose_reply(sha("put_flow"))
    answers = await far.put(flow_of_two())
    assert [answer.status for answer in answers] == [PutStatus.SUSPENDED, PutStatus.SUSPENDED, PutStatus.QUEUED]


async def test_the_end_of_a_child_notifies_once(proxy: Proxy, far: Storage, storage: Storage) -> None:
    """The settlement is answered as before, and the dependent runs once with the value."""
    await storage.put(flow_of_two())
    claim = await claim1(far)
    proxy.lose_reply(sha("settle"))
    assert await far.settle([ended(claim, Complete(b"v", HOUR))]) == [Settled(State.COMPLETED)]
    second = await claim1(far)
    assert second.flow is not None
    assert (second.id, second.flow.dependencies[0].value) == ("b", b"v")
    assert await far.settle([ended(second, Complete(b"", HOUR))]) == [Settled(State.COMPLETED)]
    assert (await get1(storage, "flow")).state is State.COMPLETED


async def test_a_run_is_suspended_once_and_a_signal_sent_once(proxy: Proxy, far: Storage, storage: Storage) -> None:
    """A suspension, a checkpoint and a signal whose answers are lost are stored once."""
    await storage.put([NewJob(queue="q", id="a", payload=b"")])
    claim = await claim1(far)
    proxy.lose_reply(sha("report"))
    step = NewCheckpoint("step", "step", b"v")
    [kept] = await far.report([Report(queue="q", id="a", token=claim.token, checkpoints=(step,))])  # type: ignore[attr-defined]
    assert [each.n for each in kept.checkpoints] == [1]
    proxy.lose_reply(sha("settle"))
    wish = Suspend(signal=SignalWait("wait", ("one",)))
    assert await far.settle([ended(claim, wish)]) == [Settled(State.SUSPENDED)]
    proxy.lose_reply(sha("signal"))
    assert await flowing(far).signal("q", "a", "one", b"v") == "delivered"
    again = await claim1(far)
    assert again.flow is not None
    assert [each.name for each in again.flow.checkpoints] == ["step", "wait"]
    assert (await get1(storage, "a")).flow.unread == 0  # type: ignore[union-attr]


async def test_an_open_flow_is_closed_once(proxy: Proxy, far: Storage, storage: Storage) -> None:
    """The last extension ends a flow of nothing; repeated, it does not answer that the flow is over."""
    part = FlowPart(generation="g", plan=Plan(), open=True)
    await storage.put([NewJob(queue="q", id="flow", payload=b"", flow=part)])
    proxy.lose_reply(sha("extend"))
    assert await flowing(far).extend("q", "flow", "g", [], 0, True) == Extended(0)
    assert (await get1(storage, "flow")).state is State.COMPLETED


async def test_a_flow_is_revived_once(proxy: Proxy, far: Storage, storage: Storage) -> None:
    """A revival and its messages whose answers are lost run what failed, once."""
    await storage.put(flow_of_two())
    await storage.settle([ended(await claim1(storage), Fail(b"e", HOUR))])
    proxy.lose_reply(sha("revive"))
    assert await flowing(far).revive("q", ["flow"]) == [True]
    proxy.lose_reply(sha("relay"))
    while (await flowing(far).relay(["q"])).more:
        pass
    claim = await claim1(far)
    assert (claim.id, claim.attempts) == ("a", 1)
    await far.settle([ended(claim, Complete(b"v", HOUR))])
    await far.settle([ended(await claim1(far), Complete(b"v", HOUR))])
    assert (await get1(storage, "flow")).state is State.COMPLETED
