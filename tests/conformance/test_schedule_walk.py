"""Random walks with schedules: every storage gives the same answers as the model, with any number of workers."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from penstock.model.job import NewJob, State
from penstock.storage.base import Storage
from penstock.storage.scheduling import Firing, Overlap, ScheduleRecord, Scheduling, TickJob
from penstock.testing.conformance.strategies import GROUPS, HOUR, IDS, QUEUES, SECOND, offsets, queues, spans, ttls
from penstock.testing.conformance.walk import MillisecondClock
from tests.conformance.test_model import EXAMPLES, ModelWalk, WalkWithSetbacks, patient, walk_on
from tests.support import LEASE, MINUTE, T0, Backend, claim_all, complete, find_all, forget_all, ids, share_of

NAMES = ("s", "t", "ü")
WORKERS = ("v", "w")
OVERLAPS: tuple[Overlap, ...] = ("allow", "skip", "queue", "replace", "kill")

names = st.sampled_from(NAMES)
#: A time relative to the clock, or none.
times = st.none() | offsets


@st.composite
def ticks(draw: st.DrawFn) -> dict[str, Any]:
    """Draw the job of a tick; few ids, which other rules put, claim and cancel too."""
    group = draw(st.sampled_from([None, *GROUPS]))
    return {
        "id": draw(st.sampled_from([*IDS, "s@1", "s@2", "s@3", "s@4"])),
        "at": draw(offsets),
        "group": group,
        "priority": 0 if group else draw(st.sampled_from([0, 0, 1])),
        "run_at": draw(times),
        "start_within": draw(st.none() | spans),
        "headers": draw(st.sampled_from([b"", b"h"])),
    }


@st.composite
def firings(draw: st.DrawFn) -> dict[str, Any]:
    """Draw a firing; its times are relative to the clock, and its version to that of the schedule."""
    return {
        "name": draw(names),
        "stale": draw(st.sampled_from([0, 0, 0, 1])),
        "ticks": draw(st.lists(ticks(), max_size=4)),
        "overlap": draw(st.sampled_from(OVERLAPS)),
        "missed": draw(st.integers(0, 2)),
        "cursor": draw(offsets),
        "next": draw(times),
        "manual": draw(st.booleans()),
        "room": draw(st.sampled_from([1, 2, 1000])),
        "cancel_ttl": draw(ttls),
        "expires": draw(st.sampled_from([None, None, None, SECOND, HOUR])),
    }


class ScheduleRules:
    """Rules about schedules for a walk."""

    fired: tuple[Firing, ...] = ()

    @property
    def walk(self) -> ModelWalk:
        return cast(ModelWalk, self)

    def moment(self, offset: int | None) -> int | None:
        return None if offset is None else self.walk.clock.ms + offset

    def version(self, queue: str, name: str, stale: int = 0) -> int:
        """Return the version of a schedule, 0 if there is none, plus a number that makes it wrong."""
        model = self.walk.model.model
        model.now = self.walk.clock.ms
        found = model.get_schedule(queue, name)
        return (found.version if found else 0) + stale

    def firing(self, queue: str, spec: dict[str, Any]) -> Firing:
        moved = ("cursor", "next", "expires")
        given: dict[str, Any] = {
            key: self.moment(value) if key in moved else value
            for key, value in spec.items()
            if key not in ("stale", "ticks")
        }
        jobs = [self.tick(queue, tick) for tick in spec["ticks"]]
        version = self.version(queue, spec["name"], spec["stale"])
        return Firing(queue=queue, version=version, ticks=tuple(jobs), **given)

    def tick(self, queue: str, spec: dict[str, Any]) -> TickJob:
        at, run_at = self.moment(spec["at"]), self.moment(spec["run_at"])
        rest = {key: value for key, value in spec.items() if key not in ("at", "run_at")}
        assert at is not None
        return TickJob(at, NewJob(queue=queue, payload=b"tick", run_at=run_at, **rest))

    @rule(
        queue=queues, name=names, stale=st.sampled_from([0, 0, 0, 1]), cursor=offsets, due=times,
        expires=st.sampled_from([None, None, 0, SECOND, HOUR]), counts=st.integers(0, 2),
        late=st.none() | firings(),
    )  # fmt: skip
    def set_schedule(
        self, queue: str, name: str, stale: int, cursor: int, due: int | None, expires: int | None, counts: int,
        late: dict[str, Any] | None,
    ) -> None:  # fmt: skip
        """Create or change a schedule, after ticks that were due before."""
        at = self.moment(cursor)
        assert at is not None
        record = ScheduleRecord(
            queue=queue, name=name, spec=b"spec%d" % counts, cursor=at, next=self.moment(due), fired=counts,
            expires=self.moment(expires), last_id="a" if counts else None,
        )  # fmt: skip
        firing = None if late is None else self.firing(queue, late | {"name": name})
        self.walk.both("set_schedule", record, self.version(queue, name, stale), firing)

    @rule(queue=queues, name=names, stale=st.sampled_from([0, 0, 0, 1]))
    def drop_schedule(self, queue: str, name: str, stale: int) -> None:
        self.walk.both("drop_schedule", queue, name, self.version(queue, name, stale))

    @rule(named=st.lists(st.tuples(queues, firings()), min_size=1, max_size=3))
    def fire(self, named: list[tuple[str, dict[str, Any]]]) -> None:
        self.fired = tuple(self.firing(queue, spec) for queue, spec in named)
        self.walk.both("fire", self.fired)

    @precondition(lambda self: self.fired)
    @rule()
    def fire_again(self) -> None:
        """Repeat the last firings, as a worker does whose answer was lost."""
        self.walk.both("fire", self.fired)

    @rule(named=st.lists(queues, min_size=1, max_size=3, unique=True), worker=st.sampled_from(WORKERS))
    def due(self, named: list[str], worker: str) -> None:
        self.walk.both("due", named, worker)

    @rule(queue=queues, sure=st.sampled_from([False, False, True]), settings=st.booleans())
    def delete_queue_with_settings(self, queue: str, sure: bool, settings: bool) -> None:
        if sure:
            self.walk.both("delete_queue", queue, settings)

    @rule(queue=queues, after=st.none() | names, limit=st.integers(1, 3))
    def list_schedules(self, queue: str, after: str | None, limit: int) -> None:
        self.walk.both("schedules", queue, after, limit)


class WalkWithSchedules(ScheduleRules, ModelWalk):
    """The walk with schedules: their records are compared as the jobs are."""

    async def _compare(self, reference: Storage) -> None:
        await super()._compare(reference)
        mine, theirs = cast(Scheduling, self.storage), cast(Scheduling, reference)
        for queue in QUEUES:
            assert await mine.schedules(queue) == await theirs.schedules(queue)
            for name in NAMES:
                assert await mine.get_schedule(queue, name) == await theirs.get_schedule(queue, name)


class WalkWithSchedulesAndSetbacks(WalkWithSchedules, WalkWithSetbacks):
    """The same on a clock that is set back at times."""


@patient
def test_a_random_walk_with_schedules_agrees_with_the_model(backend: Backend) -> None:
    """Schedules are set, fired and dropped between all other verbs: the storage answers as the model does."""
    walk_on(WalkWithSchedules, backend, share_of(EXAMPLES[backend.name]))


@patient
def test_a_random_walk_with_schedules_on_a_clock_that_is_set_back_agrees_with_the_model(backend: Backend) -> None:
    """On a clock that is set back at times the storage answers as the model does."""
    walk_on(WalkWithSchedulesAndSetbacks, backend, share_of(EXAMPLES[backend.name] // 3))


# several workers -----------------------------------------------------------------------------------


@dataclass
class Ticker:
    """A worker that fires a tick every minute: it looks for due schedules, and fires what it has seen, perhaps late."""

    name: str
    seen: list[ScheduleRecord] = field(default_factory=list[ScheduleRecord])
    sent: list[Firing] = field(default_factory=list[Firing])

    async def look(self, storage: Scheduling) -> None:
        self.seen = (await storage.due(["q"], self.name)).schedules

    async def fire(self, storage: Scheduling, now: int) -> None:
        self.sent = [decided(record, now) for record in self.seen]
        await storage.fire(self.sent)

    async def fire_again(self, storage: Scheduling) -> None:
        await storage.fire(self.sent)


def decided(record: ScheduleRecord, now: int) -> Firing:
    """Decide which ticks of a schedule are due: all minutes after its cursor."""
    cursor, jobs = record.cursor, list[TickJob]()
    while cursor + MINUTE <= now:
        cursor += MINUTE
        number = (cursor - T0) // MINUTE
        jobs.append(TickJob(cursor, NewJob(queue="q", id=f"{record.name}@{number:03}", payload=b"x")))
    return Firing(
        queue="q", name=record.name, version=record.version, ticks=tuple(jobs), overlap="allow", cursor=cursor,
        next=cursor + MINUTE,
    )  # fmt: skip


#: A step: a worker looks or fires, or fires again after a lost answer; jobs run and are forgotten; the clock moves.
steps = st.lists(
    st.tuples(st.sampled_from(["look", "fire", "fire", "again", "run"]), st.integers(0, 2))
    | st.tuples(st.just("time"), st.sampled_from([SECOND, MINUTE, 3 * MINUTE, -SECOND, -2 * MINUTE])),
    min_size=3,
    max_size=40,
)


async def fire_in_turns(storage: Storage, clock: MillisecondClock, plan: list[tuple[str, int]]) -> list[str]:
    """Let three workers take these steps, then one of them alone; return the ids of all jobs that were put."""
    verbs = cast(Scheduling, storage)
    await verbs.set_schedule(ScheduleRecord(queue="q", name="s", spec=b"", cursor=T0, next=T0 + MINUTE), 0)
    workers = [Ticker(name) for name in "uvw"]
    put: list[str] = []

    async def run() -> None:
        claims = await claim_all(storage, lease=LEASE)
        put.extend(ids(claims))
        await storage.settle([complete(claim, ttl=0) for claim in claims])

    clock.ms += MINUTE + SECOND  # a second late, so all of them get what is due
    for each in workers:
        await each.look(verbs)
        assert each.seen
    for step, number in plan:
        match step:
            case "look":
                await workers[number].look(verbs)
            case "fire":
                await workers[number].fire(verbs, clock.ms)
            case "again":
                await workers[number].fire_again(verbs)
            case "run":
                await run()
            case _:
                clock.ms += number
    clock.ms = max(clock.ms, T0) + 10 * MINUTE
    await workers[0].look(verbs)
    await workers[0].fire(verbs, clock.ms)
    await run()
    assert await find_all(storage, state=State.QUEUED) == []
    assert (await verbs.schedules("q")).schedules[0].fired == len(put)
    return put


@patient
@pytest.mark.one_per_engine
def test_workers_in_any_interleaving_put_the_jobs_of_one_worker(backend: Backend) -> None:
    """With lost and repeated answers, every tick up to the last becomes one job, in order."""
    clock = MillisecondClock(T0)
    storage = backend.build(cast(Any, clock))

    with asyncio.Runner() as runner:
        runner.run(storage.open())

        @settings(max_examples=share_of(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
        @given(plan=steps)
        def interleave(plan: list[tuple[str, int]]) -> None:
            clock.ms = T0
            try:
                put = runner.run(fire_in_turns(storage, clock, plan))
                last = (clock.ms - T0) // MINUTE
                assert put == [f"s@{number:03}" for number in range(1, max(last, len(put)) + 1)]
            finally:
                runner.run(forget_all(storage))

        try:
            interleave()
        finally:
            runner.run(storage.close())
