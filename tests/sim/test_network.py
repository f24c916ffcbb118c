"""The network of a simulation: each fault of a call or a hint has the effect that its name promises."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.errors import StorageUnavailable
from penstock.testing.simulation.faults import CALL_FAULTS, HINT_FAULTS, Fault, Faults
from penstock.testing.simulation.history import History
from penstock.testing.simulation.loop import Scheduler
from penstock.testing.simulation.network import Network


class PlannedFaults(Faults):
    """Faults that hit the calls which a test names."""

    def __init__(self, planned: dict[str, str], size: float) -> None:
        self.scheduler = Scheduler(0)
        super().__init__(0, {*CALL_FAULTS, *HINT_FAULTS}, 1.0, lambda: self.scheduler.now)
        self._planned = planned
        self._size = size

    def of_call(self, node: str, verb: str, name: str, drawn: tuple[float, ...]) -> Fault | None:
        return self.of_hint(node, name, drawn)

    def of_hint(self, node: str, name: str, drawn: tuple[float, ...]) -> Fault | None:
        kind = self._planned.get(name)
        return None if kind is None else Fault(name, kind, 0.0, self._size, 0.5)


class Wire:
    """A network with one node, and the log of what happens at both ends."""

    def __init__(self, planned: dict[str, str] | None = None, size: float = 0.6) -> None:
        self.faults = PlannedFaults(planned or {}, size)
        self.scheduler = self.faults.scheduler
        self.network = Network(self.scheduler, self.faults, History(lambda: self.scheduler.now))
        self.node = self.scheduler.node("n")
        self.log: list[tuple[str, float]] = []

    def call(self, name: str, verb: str = "report") -> Any:
        future = self.network.call(self.node, verb, (name,), lambda: self._note(f"{name} done") or name)
        future.add_done_callback(lambda done: self._note(f"{name} {'failed' if done.exception() else 'answered'}"))
        return future

    def _note(self, text: str) -> None:
        self.log.append((text, self.scheduler.now))

    @property
    def texts(self) -> list[str]:
        return [text for text, _ in self.log]


def test_calls_of_one_node_are_carried_out_and_answered_in_their_order() -> None:
    """Without faults the calls of a node arrive and are answered in the order in which they were sent."""
    wire = Wire()
    for name in "abcdef":
        wire.call(name)
    wire.scheduler.run_for(1)
    assert [text for text in wire.texts if "done" in text] == [f"{name} done" for name in "abcdef"]
    assert [text for text in wire.texts if "answered" in text] == [f"{name} answered" for name in "abcdef"]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("unavailable", ["a failed"]),
        ("lost_request", ["a failed"]),
        ("lost_reply", ["a done", "a failed"]),
        ("late", ["a failed", "a done"]),
        ("slow_request", ["a done", "a answered"]),
        ("slow_reply", ["a done", "a answered"]),
        ("doubled", ["a done", "a done", "a answered"]),
    ],
)
def test_a_fault_of_a_call_has_its_effect(kind: str, expected: list[str]) -> None:
    """A call is carried out, or not, or twice, and answered or not, as the fault has it."""
    wire = Wire({"n/report/1": kind})
    future = wire.call("a")
    wire.scheduler.run_for(60)
    assert wire.texts == expected
    if "failed" in expected[-1] or "failed" in expected[0]:
        error = future.exception()
        assert isinstance(error, StorageUnavailable)
        assert error.uncertain is (kind != "unavailable")


def test_slow_messages_take_longer_than_a_lease() -> None:
    """A slow request is carried out seconds later, a slow reply arrives seconds after that."""
    for kind, seconds in (("slow_request", 7.2), ("slow_reply", 9.0)):
        wire = Wire({"n/report/1": kind})
        wire.call("a")
        wire.scheduler.run_for(60)
        assert wire.log[-1][1] == pytest.approx(seconds, abs=0.1)


def test_a_reordered_call_is_overtaken() -> None:
    """A call that is reordered is carried out after one that was sent later."""
    wire = Wire({"n/report/1": "reordered"})
    wire.call("a")
    wire.call("b")
    wire.scheduler.run_for(1)
    assert [text for text in wire.texts if "done" in text] == ["b done", "a done"]


def test_an_outage_refuses_every_call_and_a_full_server_refuses_puts() -> None:
    """During an outage no call is carried out; a full server carries out all but puts."""
    wire = Wire()
    wire.faults.outages = 1
    wire.call("a")
    wire.scheduler.run_for(1)
    wire.faults.outages, wire.faults.full = 0, 1
    wire.call("b")
    wire.call("c", "put")
    wire.scheduler.run_for(1)
    assert sorted(wire.texts) == ["a failed", "b answered", "b done", "c failed"]


def test_the_calls_of_a_killed_node_are_carried_out_and_not_answered() -> None:
    """A request that was sent before its caller died has its effect."""
    wire = Wire()
    wire.call("a")
    wire.node.kill()
    wire.scheduler.run_for(1)
    assert wire.texts == ["a done"]


def test_requests_wait_for_a_server_that_stands_still() -> None:
    """A server that stands still carries the requests out when it goes on, in their order."""
    wire = Wire()
    wire.network.server.freeze(5)
    wire.call("a")
    wire.call("b")
    wire.scheduler.run_for(10)
    done = [(text, at) for text, at in wire.log if "done" in text]
    assert [text for text, _ in done] == ["a done", "b done"]
    assert all(5 <= at < 6 for _, at in done)


def test_a_node_that_is_cut_off_gets_slow_answers_and_then_none() -> None:
    """A link that breaks is slow first; calls after that are lost until it is back."""
    wire = Wire()
    wire.node.slow_until, wire.node.slow_by, wire.node.cut_until = 5.0, 2.0, 10.0
    wire.call("a")
    wire.scheduler.run_for(6)
    wire.call("b")
    wire.scheduler.run_for(6)
    wire.call("c")
    wire.scheduler.run_for(6)
    assert wire.texts == ["a done", "a answered", "b failed", "c done", "c answered"]
    assert wire.log[1][1] == pytest.approx(2.0, abs=0.1)


def test_the_requests_of_a_backlog_arrive_at_once_and_in_order() -> None:
    """Requests that are held back are carried out when the backlog ends, also after their caller died."""
    wire = Wire()
    wire.node.held_until = 5.0
    wire.call("a")
    wire.call("b")
    wire.node.kill()
    wire.scheduler.run_for(10)
    assert wire.texts == ["a done", "b done"]
    assert all(5 <= at < 5.1 for _, at in wire.log)


def test_a_refused_request_is_not_carried_out() -> None:
    """The storage answers a request that it refuses with the error, and the next one as usual."""
    wire = Wire()
    wire.network.refuses = lambda request: ValueError("refused") if request.args == ("a",) else None
    refused, taken = wire.call("a"), wire.call("b")
    wire.scheduler.run_for(1)
    assert isinstance(refused.exception(), ValueError)
    assert taken.result() == "b"
    assert wire.texts == ["b done", "a failed", "b answered"]


@pytest.mark.parametrize(("kind", "count"), [(None, 1), ("hint_lost", 0), ("hint_twice", 2), ("hint_late", 1)])
def test_a_fault_of_a_hint_has_its_effect(kind: str | None, count: int) -> None:
    """A hint arrives once, never, twice, or seconds later."""
    wire = Wire({} if kind is None else {"n/hint/1": kind})
    arrived = list[float]()
    wire.network.hint(wire.node, lambda: arrived.append(wire.scheduler.now))
    wire.scheduler.run_for(20)
    assert len(arrived) == count
    assert not (kind == "hint_late" and arrived[0] < 5)


def test_a_clock_that_is_ahead_is_so_for_one_call() -> None:
    """The storage's clock is set ahead before the call is carried out, and back after it."""
    wire, moves = Wire({"n/report/1": "clock_ahead"}, size=0.5), list[tuple[float, int]]()
    wire.network.move_clock = lambda seconds: moves.append((seconds, len(wire.log)))
    wire.call("a")
    wire.scheduler.run_for(1)
    assert moves == [(2.0, 0), (-2.0, 1)]


def test_a_clock_can_be_moved_for_the_calls_of_one_node() -> None:
    """Its calls are carried out with the clock set ahead by what a function returns at that time."""
    wire, moves = Wire(), list[float]()
    wire.network.move_clock = moves.append
    wire.network.clocks["n"] = lambda: 3.0
    wire.call("a")
    other = wire.scheduler.node("m")
    wire.scheduler.run_for(1)
    wire.network.call(other, "report", (), lambda: None)
    wire.scheduler.run_for(1)
    assert moves == [3.0, -3.0, 0.0, -0.0]


def test_a_clock_is_ahead_for_some_verbs_and_more_often_for_some_nodes() -> None:
    """No call that ends leases meets a clock that is ahead; calls of a node with a bias meet it more often."""
    faults = Faults(0, {"clock_ahead"}, 1.0, lambda: 0.0)
    drawn = (0.0, 0.0, 2 * (sum(CALL_FAULTS.values()) + 0.01), 0.5, 0.5, 0.5)
    faults.bias["n", "clock_ahead"] = 100.0
    assert faults.of_call("n", "claim", "n/claim/1", drawn) is not None
    assert faults.of_call("n", "reap", "n/reap/1", drawn) is None
    assert faults.of_call("m", "claim", "m/claim/1", drawn) is None
    lower = (0.0, 0.0, 2 * (sum(CALL_FAULTS.values()) - 0.001), 0.5, 0.5, 0.5)
    assert faults.of_call("m", "claim", "m/claim/1", lower) is not None


def test_all_hints_can_be_lost() -> None:
    """A hint that is lost on purpose is not delivered."""
    wire, got = Wire(), list[str]()
    wire.network.loses_hints = True
    wire.network.hint(wire.node, lambda: got.append("hint"))
    wire.scheduler.run_for(1)
    assert not got
