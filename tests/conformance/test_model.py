"""Random walks: every storage gives the same answers as the model to the same calls (invariant 10).

In CI each storage gets its share of examples. `PENSTOCK_SOAK_SECONDS` walks with random seeds until
the time is over. A failure prints the calls that lead to it, shortened, and a blob to repeat it.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test
from msgspec.structs import replace

from penstock.job import FINISHED, NewJob, Snapshot, State, Update
from penstock.storage.base import (
    CANCEL_MODES,
    FIND_ORDER,
    Cancel,
    Complete,
    Ended,
    Fail,
    Held,
    Release,
    Request,
    Retried,
    Settlement,
    Stall,
    Standing,
    Storage,
)
from tests.model import Model
from tests.servers import Servers
from tests.support import HOUR, LEASE, SECOND, Backend, Clock, find_all, forget_all, make_backend, new_namespace

#: Two queues of one family, its fail queue, and one of another family.
QUEUES = ("q", "q/side", "q/failures", "other")
IDS = ("a", "b", "c", "d", "e")
GROUPS = ("g", "h")
WORKERS = ("v", "w")

#: Examples of each storage in an ordinary run; the whole must stay within two minutes on two cores.
EXAMPLES = {"model": 50, "memory": 150, "sqlite": 60, "redis": 80, "valkey": 30, "cluster": 20}
STEPS = 30

SOAK = float(os.environ.get("PENSTOCK_SOAK_SECONDS", 0))

#: A failing walk is walked again many times to shorten it.
patient = pytest.mark.timeout(600 + SOAK)

queues = st.sampled_from(QUEUES)
ids = st.sampled_from(IDS)
small_bytes = st.sampled_from([b"", b"1", b"2", b"\x00\xff"])
spans = st.sampled_from([0, 1, SECOND, LEASE, HOUR])
ttls = st.sampled_from([0, 0, 1, SECOND, HOUR, None])
#: A time relative to the clock: the past, now, soon, later.
offsets = st.sampled_from([-HOUR, -1, 0, 1, SECOND, LEASE, HOUR])

updates = st.builds(
    Update,
    payload=st.booleans(),
    run_at=st.sampled_from([True, False, "if_later", "if_earlier"]),
    reset_counts=st.sampled_from([None, True, False]),
    limits=st.booleans(),
)


@st.composite
def new_jobs(draw: Any, queue: st.SearchStrategy[str] = queues) -> dict[str, Any]:
    """A job to put; its `at` is relative to the clock, which the rule knows."""
    group = draw(st.sampled_from([None, None, *GROUPS]))
    when = draw(st.sampled_from(["none", "none", "run_at", "delay"]))
    return {
        "queue": draw(queue),
        "id": draw(ids),
        "payload": draw(small_bytes),
        "headers": draw(small_bytes),
        "limits": draw(small_bytes),
        "group": group,
        "priority": 0 if group else draw(st.sampled_from([0, 0, 1, -1, 1000])),
        "update": draw(st.none() | updates),
        "at": draw(offsets) if when == "run_at" else None,
        "delay": draw(spans) if when == "delay" else None,
    }


@st.composite
def ends(draw: Any) -> dict[str, Any]:
    """A way to end a run; jobs that follow stay within the family of the run's queue."""
    kind = draw(st.sampled_from(["complete", "complete", "retried", "retried", "fail", "cancel", "release", "stall"]))
    then = st.lists(new_jobs(st.sampled_from(["", "/failures", "/side"])), max_size=2)
    match kind:
        case "complete":
            return {"kind": kind, "result": draw(small_bytes), "ttl": draw(ttls), "then": draw(then)}
        case "fail":
            count = draw(st.sampled_from([None, "timeouts"]))
            return {"kind": kind, "error": draw(small_bytes), "ttl": draw(ttls), "count": count, "then": draw(then)}
        case "cancel":
            return {"kind": kind, "ttl": draw(ttls)}
        case "retried":
            return {
                "kind": kind,
                "at": draw(st.none() | offsets),
                "delay": draw(spans),
                "count": draw(st.sampled_from(["retries", "timeouts", None])),
                "place": draw(st.sampled_from(["keep", "due"])),
                "solo": draw(st.booleans()),
                "error": draw(small_bytes),
            }
        case _:
            return {"kind": kind}


class Walk(RuleBasedStateMachine):
    """The model and one storage, driven by the same calls on one clock."""

    backend: ClassVar[Backend]

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.clock = Clock()
        self.model = Model(self.clock.ms)
        self.backend.namespace = new_namespace()
        self.storage: Storage = self.backend.build(self.clock)
        self.runner.run(self.storage.open())
        self.tokens: list[Held] = []
        self.settled: list[Settlement] = []
        self.made = 0
        self.looks = True
        self.asked = 0

    def teardown(self) -> None:
        try:
            self.compare()
            self.runner.run(forget_all(self.storage))
        finally:
            self.runner.run(self.storage.close())
            self.backend.clear()
            self.runner.close()

    def known(self, settlement: Settlement) -> bool:
        """Whether this software can have run that job."""
        return True

    def told(self, standing: Standing | None) -> Standing | None:
        """What of a standing is the same on both sides: all of it."""
        return standing

    # calls ---------------------------------------------------------------------------------------

    def both(self, verb: str, *args: Any, unordered: bool = False) -> Any:
        """Make one call on both sides and compare the answers, then everything that can be read."""
        self.model.now = self.clock.ms
        if verb == "settle":
            args = ([s for s in args[0] if self.known(s)],)
        expected = getattr(self.model, verb)(*args)
        answer = self.runner.run(getattr(self.storage, verb)(*args))
        if verb == "claim":
            assert answer.claims == expected.claims, f"{verb}{args}:\n got {answer}\nwant {expected}"
            assert answer.corrupt == []
        elif unordered:
            assert sorted(map(repr, answer)) == sorted(map(repr, expected)), f"{verb}{args}"
        else:
            assert answer == expected, f"{verb}{args}:\n got {answer}\nwant {expected}"
        if self.looks:
            self.compare()
        return expected

    def job(self, spec: dict[str, Any], queue: str | None = None) -> NewJob:
        at = spec["at"]
        fields = {name: value for name, value in spec.items() if name not in ("at", "queue")}
        run_at = None if at is None else self.clock.ms + at
        return NewJob(queue=queue or spec["queue"], run_at=run_at, **fields)

    def ended(self, spec: dict[str, Any], queue: str) -> Ended:
        family = queue.partition("/")[0]
        then = tuple(self.job(s, family + s["queue"]) for s in spec.get("then", ()))
        match spec["kind"]:
            case "complete":
                return Complete(spec["result"], spec["ttl"], then)
            case "fail":
                return Fail(spec["error"], spec["ttl"], spec["count"], then)
            case "cancel":
                return Cancel(spec["ttl"])
            case "release":
                return Release()
            case "stall":
                return Stall()
        options = {name: value for name, value in spec.items() if name not in ("kind", "at")}
        return Retried(at=None if spec["at"] is None else self.clock.ms + spec["at"], **options)

    # rules ---------------------------------------------------------------------------------------

    @initialize(specs=st.lists(new_jobs(), max_size=6), looks=st.booleans())
    def begin(self, specs: list[dict[str, Any]], looks: bool) -> None:
        """Some walks are looked at after every step, others at their end only: that must make no difference."""
        self.looks = looks
        self.both("put", [self.job(spec) for spec in specs])

    @rule(spec=new_jobs())
    def put_one(self, spec: dict[str, Any]) -> None:
        self.both("put", [self.job(spec)])

    @rule(specs=st.lists(new_jobs(), min_size=2, max_size=6))
    def put_many(self, specs: list[dict[str, Any]]) -> None:
        self.both("put", [self.job(spec) for spec in specs])

    @rule(queue=queues, group=st.sampled_from([None, *GROUPS]), count=st.integers(1, 4))
    def put_fresh(self, queue: str, group: str | None, count: int) -> None:
        """Ids that were just made up; they are not looked for again, but they are listed and run."""
        jobs: list[NewJob] = []
        for _ in range(count):
            self.made += 1
            jobs.append(NewJob(queue=queue, id=f"fresh{self.made}", payload=b"f", fresh=True, group=group))
        self.both("put", jobs)

    @rule(
        names=st.lists(queues, min_size=1, max_size=3, unique=True),
        limit=st.integers(1, 4),
        size=st.sampled_from([1, 1, 2, 3]),
        worker=st.sampled_from(WORKERS),
        lease=st.sampled_from([LEASE, SECOND]),
    )
    def claim(self, names: list[str], limit: int, size: int, worker: str, lease: int) -> None:
        self.made += 1
        requests = [Request(name, limit, size) for name in names]
        claimed = self.both("claim", requests, worker, lease, f"token{self.made:011}")
        self.tokens += [Held(claim.queue, claim.id, claim.token) for claim in claimed.claims]

    @precondition(lambda self: self.tokens)
    @rule(data=st.data(), spec=ends())
    def settle_one(self, data: st.DataObject, spec: dict[str, Any]) -> None:
        """The newest runs most of the time; an old one has a stale token."""
        recent = self.tokens[-4:]
        held = data.draw(st.sampled_from(recent) | st.sampled_from(self.tokens), "held")
        settlement = Settlement(held.queue, held.id, held.token, self.ended(spec, held.queue))
        self.settled.append(settlement)
        self.both("settle", [settlement])

    @precondition(lambda self: self.tokens)
    @rule(data=st.data(), specs=st.lists(ends(), min_size=2, max_size=4))
    def settle_many(self, data: st.DataObject, specs: list[dict[str, Any]]) -> None:
        """Few runs and many outcomes, so that one run is often settled twice in one call."""
        settlements: list[Settlement] = []
        recent = st.sampled_from(self.tokens[-2:]) | st.sampled_from(self.tokens[-8:])
        for spec in specs:
            held = data.draw(recent, "held")
            settlements.append(Settlement(held.queue, held.id, held.token, self.ended(spec, held.queue)))
        self.settled += settlements
        self.both("settle", settlements)

    @precondition(lambda self: self.settled)
    @rule(data=st.data())
    def settle_again(self, data: st.DataObject) -> None:
        self.both("settle", [data.draw(st.sampled_from(self.settled[-6:]), "settlement")])

    @precondition(lambda self: self.tokens)
    @rule(data=st.data(), spec=ends())
    def settle_with_a_forged_token(self, data: st.DataObject, spec: dict[str, Any]) -> None:
        held = data.draw(st.sampled_from(self.tokens[-8:]), "held")
        self.both("settle", [Settlement(held.queue, held.id, "forged", self.ended(spec, held.queue))])

    @precondition(lambda self: self.tokens)
    @rule(data=st.data(), lease=st.sampled_from([LEASE, LEASE, SECOND, HOUR]))
    def renew(self, data: st.DataObject, lease: int) -> None:
        named = data.draw(st.lists(st.sampled_from(self.tokens[-8:]), max_size=5, unique_by=repr), "named")
        self.both("renew", "w", named, lease)

    @rule(names=st.lists(queues, min_size=1, max_size=4, unique=True))
    def reap(self, names: list[str]) -> None:
        self.both("reap", names, unordered=True)

    @rule(
        queue=queues, named=st.lists(ids, min_size=1, max_size=3, unique=True), mode=st.sampled_from(CANCEL_MODES),
        ttl=ttls,
    )  # fmt: skip
    def cancel(self, queue: str, named: list[str], mode: str, ttl: int | None) -> None:
        self.both("cancel", queue, named, mode, ttl)

    @rule(queue=queues, named=st.lists(ids, min_size=1, max_size=3, unique=True))
    def revive(self, queue: str, named: list[str]) -> None:
        self.both("revive", queue, named)

    @rule(names=st.lists(queues, min_size=1, max_size=4, unique=True))
    def purge(self, names: list[str]) -> None:
        self.both("purge", names)

    @rule(queue=queues, paused=st.booleans())
    def set_paused(self, queue: str, paused: bool) -> None:
        self.both("set_paused", queue, paused)
        since = self.model.all[queue].paused if queue in self.model.all else None
        assert self.runner.run(self.storage.paused(queue)) == since

    @rule(queue=queues, sure=st.sampled_from([False, False, True]))
    def delete_queue(self, queue: str, sure: bool) -> None:
        if sure:
            self.both("delete_queue", queue)

    @rule(queue=queues, id=ids, ttl=ttls)
    def set_ttl(self, queue: str, id: str, ttl: int | None) -> None:
        self.both("set_ttl", queue, id, ttl)

    @precondition(lambda self: self.tokens)
    @rule(data=st.data(), progress=small_bytes)
    def report(self, data: st.DataObject, progress: bytes) -> None:
        self.both("report", data.draw(st.sampled_from(self.tokens[-8:]), "held"), progress)

    @rule(ms=st.sampled_from([0, 1, SECOND, LEASE, HOUR]))
    def move_the_clock(self, ms: int) -> None:
        self.clock.advance(ms=ms)
        self.model.now = self.clock.ms
        if self.looks:
            self.compare()

    # reads ---------------------------------------------------------------------------------------

    def compare(self) -> None:
        """Everything that can be read is the same on both sides."""
        self.runner.run(self._compare(self.model))

    async def _compare(self, seen: Model) -> None:
        names = await self.storage.queues()
        assert names == seen.queues()
        for queue in QUEUES:
            found, expected = arranged(await find_all(self.storage, queue)), arranged(seen.find(queue))
            assert found == expected, f"find({queue!r}):\n got {found}\nwant {expected}"
            counted = await self.storage.counts(queue)
            assert counted == seen.counts(queue), f"counts({queue!r}): got {counted}, want {seen.counts(queue)}"
            first = await self.storage.peek(queue)
            assert first == seen.peek(queue), f"peek({queue!r}): got {first}, want {seen.peek(queue)}"
            known = await self.storage.get(queue, IDS)
            assert known == seen.get(queue, IDS)
            self.asked += 1
            id = IDS[self.asked % len(IDS)]
            told, standing = self.told(await self.storage.why(queue, id)), self.told(seen.why(queue, id))
            assert told == standing, f"why({queue!r}, {id!r}): got {told}, want {standing}"
            check_invariants(found, counted)


class WalkWithSetbacks(Walk):
    """The same walk, on a clock that is now and then set back a little."""

    @rule(ms=st.sampled_from([1, 5, SECOND]))
    def set_the_clock_back(self, ms: int) -> None:
        self.move_the_clock(-ms)


class WalkWithFormats(Walk):
    """The same walk, by old and new software in turn: what one writes the other need not know."""

    @rule(format=st.sampled_from([1, 2, 3]))
    def change_the_software(self, format: int) -> None:
        self.model.format = format
        setattr(self.storage, "format", format)  # noqa: B010 - not part of the protocol
        if self.looks:
            self.compare()

    def known(self, settlement: Settlement) -> bool:
        """Whether the software of now may have claimed this: nobody settles what he could not run."""
        queue = self.model.all.get(settlement.queue)
        job = queue.jobs.get(settlement.id) if queue else None
        return job is None or job.format <= self.model.format

    def told(self, standing: Standing | None) -> Standing | None:
        """Whether somebody has passed over what stands before it makes a difference to its place."""
        return standing and replace(standing, ahead=None, head=self.told(standing.head))


def arranged(found: list[Snapshot]) -> list[Snapshot]:
    """Queued jobs without a group that only newer software can run come last, whether passed over yet or not."""
    odd = [job for job in found if job.state is State.QUEUED and job.group is None and job.format is not None]
    rest = [job for job in found if job not in odd]
    after = sum(job.state in (State.RUNNING, State.QUEUED) for job in rest)
    return rest[:after] + sorted(odd, key=lambda job: job.id) + rest[after:]


def check_invariants(found: list[Snapshot], counted: dict[State, int]) -> None:
    """What must hold whatever happened, as far as it shows in the public reads."""
    assert {state: sum(job.state is state for job in found) for state in State} == counted
    order = [FIND_ORDER.index(job.state) for job in found]
    assert order == sorted(order)
    plain = [job.id for job in found if job.state is not State.BLOCKED]
    assert len(plain) == len(set(plain)), "an id in two places"
    running = {job.id for job in found if job.state is State.RUNNING}
    for job in found:
        assert job.state is not State.BLOCKED or job.id in running, f"{job.id} is blocked by nobody"
        assert (job.worker is not None) or job.state is not State.RUNNING, f"{job.id} runs nowhere"
        assert (job.finished is not None) == (job.state in FINISHED)
        assert (job.result is not None) == (job.state is State.COMPLETED)
        assert job.progress is None or job.state is State.RUNNING
        assert min(job.attempts, job.retries, job.stalls, job.timeouts) >= 0


def walk(kind: type[Walk], backend: Backend, examples: int, *, derandomize: bool) -> None:
    machine = type(f"{kind.__name__}_{backend.name}", (kind,), {"backend": backend})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples, stateful_step_count=STEPS, deadline=None, derandomize=derandomize,
            database=None, report_multiple_bugs=False,
            print_blob=True, phases=[Phase.explicit, Phase.generate, Phase.target, Phase.shrink],
            suppress_health_check=list(HealthCheck),  # type: ignore[arg-type]
        ),
    )  # fmt: skip


def walk_on(kind: type[Walk], backend: Backend, examples: int) -> None:
    """A fixed number of fixed examples, or random ones until the soak is over."""
    if not SOAK:
        walk(kind, backend, examples, derandomize=True)
        return
    until = time.monotonic() + SOAK
    while time.monotonic() < until:
        walk(kind, backend, 50, derandomize=False)


@patient
def test_a_random_walk_agrees_with_the_model(backend: Backend) -> None:
    """Whatever is called in whatever order, the storage answers as the model does."""
    walk_on(Walk, backend, EXAMPLES[backend.name])


@patient
def test_a_random_walk_on_a_clock_that_is_set_back_agrees_with_the_model(backend: Backend) -> None:
    """A clock that goes back a little changes none of that."""
    walk_on(WalkWithSetbacks, backend, EXAMPLES[backend.name] // 3)


@patient
def test_a_random_walk_of_old_and_new_software_agrees_with_the_model(backend: Backend) -> None:
    """Whoever does not know a format passes it over, and nothing else changes."""
    walk_on(WalkWithFormats, backend, EXAMPLES[backend.name] // 3)


def main() -> None:
    """`python -m tests.conformance.test_model redis`: one storage, random seeds, until interrupted."""
    import sys

    servers = Servers()
    with tempfile.TemporaryDirectory() as directory:
        backend = make_backend(sys.argv[1], servers, Path(directory), new_namespace())
        while True:
            walk(Walk, backend, 50, derandomize=False)
            print(".", end="", flush=True)


if __name__ == "__main__":
    main()
