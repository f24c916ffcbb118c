"""Random walk over a storage: the same random calls on it and on a reference must get the same answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, ClassVar

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test
from msgspec.structs import astuple, replace

from penstock.errors import QueueFull
from penstock.model.clock import Clock
from penstock.model.history import NewLine
from penstock.model.job import FINISHED, NewJob, Snapshot, State
from penstock.model.limit import Limit
from penstock.storage import connect
from penstock.storage.base import (
    CANCEL_MODES,
    FIND_ORDER,
    Cancel,
    CancelMode,
    ClaimRef,
    Complete,
    Fail,
    JobPosition,
    Release,
    Request,
    Resolution,
    Retried,
    Settlement,
    Stall,
    Storage,
)
from penstock.storage.limiting import Limiting, LimitRecord, Scope
from penstock.storage.observing import Observing, QueueStats, Totals, need_observing, observing_of
from penstock.storage.recording import HistoryName, Recording, Report
from penstock.testing.conformance.case import clear_storage, find_all
from penstock.testing.conformance.millisecond_clock import MillisecondClock
from penstock.testing.conformance.strategies import (
    GROUPS,
    HOUR,
    IDS,
    LEASE,
    QUEUES,
    SCOPES,
    SECOND,
    WORKERS,
    ids,
    limits,
    lines,
    new_jobs,
    offsets,
    queues,
    resolutions,
    scopes,
    small_bytes,
    ttls,
)  # fmt: skip

__all__ = ["MillisecondClock", "Walk", "take_walks"]

HISTORIES: tuple[HistoryName, ...] = ("attempts", "log")

#: Calls in one walk.
STEPS = 30


class Walk(RuleBasedStateMachine):
    """A storage and a reference, driven by the same calls on one clock."""

    #: Makes the storage under test; each walk clears it at its end.
    make: ClassVar[Callable[[Clock], Storage]]

    def __init__(self) -> None:
        super().__init__()
        # With a loop factory, the runner does not replace the event loop of this thread.
        self.runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        self.clock = MillisecondClock()
        self.storage: Storage = type(self).make(self.clock)
        self.reference: Storage = self.make_reference()
        for storage in (self.storage, self.reference):
            self.runner.run(storage.open())
        #: Whether limits can be compared: both sides have them.
        self.limiting = isinstance(self.storage, Limiting) and isinstance(self.reference, Limiting)
        #: Whether statistics can be compared, and the queues whose totals may have begun anew.
        self.observing = observing_of(self.storage) is not None and observing_of(self.reference) is not None
        self.forgotten: set[str] = set()
        #: The same of histories.
        self.recording = isinstance(self.storage, Recording) and isinstance(self.reference, Recording)
        self.tokens: list[ClaimRef] = []
        self.settled: list[Settlement] = []
        self.made = 0
        self.compare_each_step = True
        self.comparisons = 0

    def make_reference(self) -> Storage:
        """Return the storage whose answers are taken as right: the one in memory."""
        return connect("memory:", clock=self.clock)

    def teardown(self) -> None:
        """Compare once more, then clear the storage."""
        try:
            self.compare()
            self.runner.run(clear_storage(self.storage, QUEUES))
        finally:
            for storage in (self.storage, self.reference):
                self.runner.run(storage.close())
            self.runner.close()

    def can_settle(self, settlement: Settlement) -> bool:
        """Return whether this walk may send the settlement; a subclass excludes jobs of newer formats."""
        return True

    def comparable_limit(self, record: LimitRecord) -> LimitRecord:
        """Return the part of a limit that both sides must agree on: here all of it."""
        return record

    def comparable_position(self, position: JobPosition | None) -> JobPosition | None:
        """Return the part of a position that both sides must agree on: here all of it."""
        return position

    def comparable_listing(self, found: list[Snapshot]) -> list[Snapshot]:
        """Return a listing in an order that both sides must agree on.

        Runs that began in the same millisecond have none, and blocked jobs are listed as the runs they wait for.
        """
        held = (State.RUNNING, State.BLOCKED)
        return sorted(found, key=lambda job: (FIND_ORDER.index(job.state), job.id if job.state in held else ""))

    # calls ---------------------------------------------------------------------------------------

    def both(self, verb: str, *args: Any, unordered: bool = False) -> Any:
        """Make one call on both sides and compare the answers, then all reads."""
        if verb == "settle":
            args = ([s for s in args[0] if self.can_settle(s)],)
        expected = self.answer_of(self.reference, verb, args)
        answer = self.answer_of(self.storage, verb, args)
        if verb == "claim":
            assert answer.claims == expected.claims, f"{verb}{args}:\n got {answer}\nwant {expected}"
            assert answer.tick_at == expected.tick_at, f"{verb}{args}:\n got {answer}\nwant {expected}"
            assert answer.corrupt == []
        elif unordered:
            assert sorted(map(repr, answer)) == sorted(map(repr, expected)), f"{verb}{args}"
        else:
            assert answer == expected, f"{verb}{args}:\n got {answer}\nwant {expected}"
        if self.compare_each_step:
            self.compare()
        return expected

    def answer_of(self, storage: Storage, verb: str, args: tuple[Any, ...]) -> Any:
        """Make one call and return its answer, or the reason for which a put was refused."""
        try:
            return self.runner.run(getattr(storage, verb)(*args))
        except QueueFull as full:
            return f"{full} ({full.count})"

    def job(self, spec: dict[str, Any], queue: str | None = None) -> NewJob:
        at, by = spec["at"], spec["by"]
        fields = {name: value for name, value in spec.items() if name not in ("at", "by", "queue")}
        run_at = None if at is None else self.clock.ms + at
        start_by = None if by is None else self.clock.ms + by
        return NewJob(queue=queue or spec["queue"], run_at=run_at, start_by=start_by, **fields)

    def resolution(self, spec: dict[str, Any], queue: str) -> Resolution:
        family = queue.partition("/")[0]
        then = tuple(self.job(s, family + s["queue"]) for s in spec.get("then", ()))
        match spec["kind"]:
            case "complete":
                return Complete(spec["result"], spec["ttl"], then)
            case "fail":
                return Fail(spec["error"], spec["ttl"], spec["count"], then, spec["ran"])
            case "cancel":
                return Cancel(spec["ttl"], spec["ran"])
            case "release":
                return Release()
            case "stall":
                return Stall()
            case _:
                pass
        options = {name: value for name, value in spec.items() if name not in ("kind", "at")}
        if not self.limiting and spec["pause"] == "group":
            options["pause"] = "queue"
        return Retried(at=None if spec["at"] is None else self.clock.ms + spec["at"], **options)

    # rules ---------------------------------------------------------------------------------------

    @initialize(specs=st.lists(new_jobs(), max_size=6), each_step=st.booleans())
    def begin(self, specs: list[dict[str, Any]], each_step: bool) -> None:
        """Put the first jobs; some walks read after every step, others at the end: reads must change nothing."""
        self.compare_each_step = each_step
        self.both("put", [self.job(spec) for spec in specs])

    @rule(spec=new_jobs())
    def put_one(self, spec: dict[str, Any]) -> None:
        self.both("put", [self.job(spec)])

    @rule(specs=st.lists(new_jobs(), min_size=2, max_size=6))
    def put_many(self, specs: list[dict[str, Any]]) -> None:
        self.both("put", [self.job(spec) for spec in specs])

    @rule(queue=queues, specs=st.lists(new_jobs(), min_size=1, max_size=4), most=st.integers(1, 6))
    def put_bounded(self, queue: str, specs: list[dict[str, Any]], most: int) -> None:
        """Put jobs into a queue in which at most `most` jobs may wait."""
        self.both("put", [self.job(spec, queue) for spec in specs], most)

    @rule(queue=queues, group=st.sampled_from([None, *GROUPS]), count=st.integers(1, 4))
    def put_fresh(self, queue: str, group: str | None, count: int) -> None:
        """Put jobs with new ids and `fresh` set, which lets the storage skip the search for duplicates."""
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
        self.tokens += [ClaimRef(claim.queue, claim.id, claim.token) for claim in claimed.claims]

    @precondition(lambda self: self.tokens)
    @rule(data=st.data(), spec=resolutions())
    def settle_one(self, data: st.DataObject, spec: dict[str, Any]) -> None:
        """Settle one claim: mostly a recent one, else an old one, whose token may be stale."""
        recent = self.tokens[-4:]
        held = data.draw(st.sampled_from(recent) | st.sampled_from(self.tokens), "held")
        settlement = Settlement(held.queue, held.id, held.token, self.resolution(spec, held.queue))
        self.settled.append(settlement)
        self.both("settle", [settlement])

    @precondition(lambda self: self.tokens)
    @rule(data=st.data(), specs=st.lists(resolutions(), min_size=2, max_size=4))
    def settle_many(self, data: st.DataObject, specs: list[dict[str, Any]]) -> None:
        """Settle few claims with many resolutions, so that one claim is often settled twice in one call."""
        settlements: list[Settlement] = []
        recent = st.sampled_from(self.tokens[-2:]) | st.sampled_from(self.tokens[-8:])
        for spec in specs:
            held = data.draw(recent, "held")
            settlements.append(Settlement(held.queue, held.id, held.token, self.resolution(spec, held.queue)))
        self.settled += settlements
        self.both("settle", settlements)

    @precondition(lambda self: self.settled)
    @rule(data=st.data())
    def settle_again(self, data: st.DataObject) -> None:
        self.both("settle", [data.draw(st.sampled_from(self.settled[-6:]), "settlement")])

    @precondition(lambda self: self.tokens)
    @rule(data=st.data(), spec=resolutions())
    def settle_with_a_forged_token(self, data: st.DataObject, spec: dict[str, Any]) -> None:
        held = data.draw(st.sampled_from(self.tokens[-8:]), "held")
        self.both("settle", [Settlement(held.queue, held.id, "forged", self.resolution(spec, held.queue))])

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
    def cancel(self, queue: str, named: list[str], mode: CancelMode, ttl: int | None) -> None:
        self.both("cancel", queue, named, mode, ttl)

    @rule(
        queue=queues, named=st.lists(ids, min_size=1, max_size=3, unique=True),
        state=st.sampled_from([None, None, *State]), age=st.sampled_from([None, None, 0, 1, SECOND]),
    )  # fmt: skip
    def discard(self, queue: str, named: list[str], state: State | None, age: int | None) -> None:
        self.both("discard", queue, named, state, None if age is None else self.clock.ms - age)

    @rule(queue=queues, named=st.lists(ids, min_size=1, max_size=3, unique=True), completed=st.booleans())
    def revive(self, queue: str, named: list[str], completed: bool) -> None:
        self.both("revive", queue, named, completed)

    @rule(names=st.lists(queues, min_size=1, max_size=4, unique=True))
    def purge(self, names: list[str]) -> None:
        self.forgotten.update(names)
        self.both("purge", names)

    @rule(queue=queues, paused=st.booleans(), end=st.none() | offsets, by=st.sampled_from(["", "ann"]))
    def set_pause(self, queue: str, paused: bool, end: int | None, by: str) -> None:
        self.both("set_pause", queue, paused, None if end is None else self.clock.ms + end, by)
        assert self.runner.run(self.storage.paused(queue)) == self.runner.run(self.reference.paused(queue))

    @precondition(lambda self: self.limiting)
    @rule(queue=queues, group=st.sampled_from(GROUPS), paused=st.booleans(), end=st.none() | offsets)
    def set_group_pause(self, queue: str, group: str, paused: bool, end: int | None) -> None:
        self.both("set_pause", queue, paused, None if end is None else self.clock.ms + end, "", group)
        read = (self.runner.run(side.paused(queue, group)) for side in (self.storage, self.reference))
        assert next(read) == next(read)

    @precondition(lambda self: self.limiting)
    @rule(scope=scopes, data=st.data(), known=st.sampled_from([True, True, True, False]))
    def set_limit(self, scope: Scope, data: st.DataObject, known: bool) -> None:
        """Set a limit: mostly with the version that it has."""
        limit = data.draw(st.none() | limits(scope.kind in ("groups", "group")), "limit")
        self.change_limit(scope, limit, known)

    def change_limit(self, scope: Scope, limit: Limit | None, known: bool = True) -> None:
        """Set a limit on both sides."""
        versions = [
            self.runner.run(_limiting(side).get_limit(scope)).version for side in (self.storage, self.reference)
        ]
        assert versions[0] == versions[1], f"get_limit({scope})"
        rule = limit.rule("group" if scope.kind == "groups" else scope.kind, 0) if limit else None
        self.both("set_limit", scope, rule, b"", versions[0] if known else versions[0] + 1)

    @rule(queue=queues, sure=st.sampled_from([False, False, True]), settings=st.booleans())
    def delete_queue(self, queue: str, sure: bool, settings: bool) -> None:
        if sure:
            self.forgotten.discard(queue)
            self.both("delete_queue", queue, settings)

    @rule(queue=queues, id=ids, ttl=ttls)
    def set_ttl(self, queue: str, id: str, ttl: int | None) -> None:
        self.both("set_ttl", queue, id, ttl)

    @precondition(lambda self: self.tokens)
    @rule(data=st.data(), progress=st.none() | small_bytes, lines=lines, first=st.integers(1, 3))
    def report(self, data: st.DataObject, progress: bytes | None, lines: tuple[NewLine, ...], first: int) -> None:
        """Report progress and lines of a run, of which some may have been reported before."""
        held = data.draw(st.sampled_from(self.tokens[-8:]), "held")
        lines = lines if self.recording else ()
        given = Report(queue=held.queue, id=held.id, token=held.token, progress=progress, lines=lines, first=first)
        self.both("report", [given])

    @rule(ms=st.sampled_from([0, 1, SECOND, LEASE, HOUR]))
    def move_the_clock(self, ms: int) -> None:
        self.clock.ms += ms
        if self.compare_each_step:
            self.compare()

    # reads ---------------------------------------------------------------------------------------

    def compare(self) -> None:
        """Assert that all reads give the same on both sides."""
        self.runner.run(self._compare(self.reference))

    async def _compare(self, reference: Storage) -> None:
        await self.compare_queues(reference)
        if self.limiting:
            await self._compare_limits(_limiting(self.storage), _limiting(reference))
        if self.recording:
            await self._compare_histories(_recording(self.storage), _recording(reference))
        for queue in QUEUES:
            self.comparisons += 1
            id = IDS[self.comparisons % len(IDS)]
            listed = await find_all(self.storage, queue)
            if self.observing:
                newest = await find_all(self.storage, queue, newest=True)
                assert newest == [job for state in FIND_ORDER for job in reversed(listed) if job.state is state]
            found = self.comparable_listing(listed)
            counted = await self.storage.counts(queue)
            pairs: dict[str, tuple[Any, Any]] = {
                f"find({queue!r})": (found, self.comparable_listing(await find_all(reference, queue))),
                f"counts({queue!r})": (counted, await reference.counts(queue)),
                f"peek({queue!r})": (await self.storage.peek(queue), await reference.peek(queue)),
                f"get({queue!r}, {IDS})": (await self.storage.get(queue, IDS), await reference.get(queue, IDS)),
                f"why({queue!r}, {id!r})": (
                    self.comparable_position(await self.storage.why(queue, id)),
                    self.comparable_position(await reference.why(queue, id)),
                ),
            }  # fmt: skip
            for call, (got, want) in pairs.items():
                assert got == want, f"{call}:\n got {got}\nwant {want}"
            check_invariants(listed, counted)
            if self.observing:
                await self._compare_stats(queue, need_observing(reference))

    def comparable_stats(self, stats: QueueStats, totals: Totals) -> QueueStats:
        """Return the part of statistics that both sides must agree on; totals may have begun anew since a purge.

        Storages count damaged records and measured times in their own way.
        """
        if stats.queue in self.forgotten:
            assert all(a <= b for a, b in zip(astuple(stats.sample.totals), astuple(totals), strict=True))
            totals = Totals()
        else:
            totals = stats.sample.totals
        return replace(stats, sample=replace(stats.sample, totals=totals), overdue=0, damaged=0)

    async def _compare_stats(self, queue: str, reference: Observing) -> None:
        """Assert that totals, error groups and groups are the same on both sides."""
        storage = need_observing(self.storage)
        [found], [wanted] = await storage.stats([queue]), await reference.stats([queue])
        most = wanted.sample.totals
        got, want = self.comparable_stats(found, most), self.comparable_stats(wanted, most)
        assert got == want, f"stats({queue!r}):\n got {got}\nwant {want}"
        groups, expected = await storage.error_groups(queue), await reference.error_groups(queue)
        assert groups == expected, f"error_groups({queue!r}):\n got {groups}\nwant {expected}"
        for group in expected.groups:
            jobs, same = await storage.group_jobs(queue, group.key), await reference.group_jobs(queue, group.key)
            assert jobs == same, f"group_jobs({queue!r}, {group.key!r}):\n got {jobs}\nwant {same}"
        waiting, others = await storage.groups(queue), await reference.groups(queue)
        assert waiting == others, f"groups({queue!r}):\n got {waiting}\nwant {others}"

    async def compare_queues(self, reference: Storage) -> None:
        """Assert that both sides list the same queues."""
        assert await self.storage.queues() == await reference.queues()

    async def _compare_histories(self, storage: Recording, reference: Recording) -> None:
        """Assert that the histories of one job are the same on both sides."""
        queue, id = QUEUES[self.comparisons % len(QUEUES)], IDS[self.comparisons // len(QUEUES) % len(IDS)]
        for history in HISTORIES:
            found, wanted = [await side.read(queue, id, history, 0, 1000) for side in (storage, reference)]
            assert found == wanted, f"read({queue!r}, {id!r}, {history!r}):\n got {found}\nwant {wanted}"

    async def _compare_limits(self, storage: Limiting, reference: Limiting) -> None:
        """Assert that the limits of one queue and the state of one gate are the same on both sides."""
        queue = QUEUES[self.comparisons % len(QUEUES)]
        found, wanted = [
            [self.comparable_limit(record) for record in await all_limits(side, queue)] for side in (storage, reference)
        ]
        assert found == wanted, f"limits({queue!r}):\n got {found}\nwant {wanted}"
        scope = SCOPES[self.comparisons % len(SCOPES)]
        one = self.comparable_limit(await storage.get_limit(scope))
        assert one == self.comparable_limit(await reference.get_limit(scope)), f"get_limit({scope})"


def _recording(storage: object) -> Recording:
    assert isinstance(storage, Recording)
    return storage


def _limiting(storage: object) -> Limiting:
    assert isinstance(storage, Limiting)
    return storage


async def all_limits(storage: Limiting, queue: str) -> list[LimitRecord]:
    """Return the limits that hold for a queue, read in pages of 2."""
    found: list[LimitRecord] = []
    cursor: str | None = None
    while True:
        page = await storage.limits(queue, cursor, 2)
        assert len(page.limits) <= 2
        found += page.limits
        cursor = page.cursor
        if cursor is None:
            return found


def check_invariants(found: list[Snapshot], counted: dict[State, int]) -> None:
    """Assert the invariants of a queue that its reads show, independent of the reference."""
    assert {state: sum(job.state is state for job in found) for state in State} == counted
    order = [FIND_ORDER.index(job.state) for job in found]
    assert order == sorted(order)
    plain = [job.id for job in found if job.state is not State.BLOCKED]
    assert len(plain) == len(set(plain)), "an id is listed twice"
    held = {job.id for job in found if job.state is State.RUNNING or (job.flow and job.state not in FINISHED)}
    for job in found:
        assert job.state is not State.BLOCKED or job.id in held, (
            f"{job.id} is blocked, but no job of its id is running or has recorded anything"
        )
        assert (job.worker is not None) or job.state is not State.RUNNING, f"{job.id} is running without a worker"
        assert (job.finished is not None) == (job.state in FINISHED)
        assert (job.result is not None) == (job.state is State.COMPLETED)
        assert job.progress is None or job.state is State.RUNNING
        assert min(job.attempts, job.retries, job.stalls, job.timeouts) >= 0


def take_walks(walk: type[Walk], examples: int, *, derandomize: bool = True) -> None:
    """Take `examples` walks, with `derandomize` always the same ones; a failure prints its shortest list of calls."""
    run_state_machine_as_test(
        walk,
        settings=settings(
            max_examples=examples, stateful_step_count=STEPS, deadline=None, derandomize=derandomize,
            database=None, report_multiple_bugs=False,
            print_blob=True, phases=[Phase.explicit, Phase.generate, Phase.target, Phase.shrink],
            suppress_health_check=list(HealthCheck),  # type: ignore[arg-type]
        ),
    )  # fmt: skip
