"""Random walks: every storage gives the same answers as the model to the same calls (invariant 10).

In CI each storage gets its share of examples. `PENSTOCK_SOAK_SECONDS` walks with random seeds until
the time is over. A failure prints the calls that lead to it, shortened, and a blob to repeat it.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any, ClassVar, cast

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule
from msgspec.structs import replace

from penstock.model.clock import Clock
from penstock.model.job import NewJob, Snapshot, State
from penstock.model.limit import EVERY, Limit
from penstock.storage.base import Complete, JobPosition, Put, Settlement, Storage
from penstock.storage.limiting import LimitRecord, Scope
from penstock.storage.observing import QueueStats, Totals
from penstock.storage.redis import RedisStorage
from penstock.storage.sqlite import SqliteStorage, blocking
from penstock.storage.sqlite.blocking import BlockingSqliteStorage
from penstock.testing.conformance.strategies import GROUPS, QUEUES, limits, resolutions, scopes
from penstock.testing.conformance.walk import Walk, take_walks
from tests.servers import Servers
from tests.support import (
    LEASE,
    SECOND,
    Backend,
    ModelStorage,
    SqliteBackend,
    make_backend,
    new_namespace,
    set_limit,
    share_of,
)

#: Examples of each storage in an ordinary run; the whole must stay within two minutes on two cores.
EXAMPLES = {"model": 50, "memory": 120, "sqlite": 50, "redis": 60, "valkey": 20, "cluster": 12}

SOAK = float(os.environ.get("PENSTOCK_SOAK_SECONDS", 0))

#: A failing walk is walked again many times to shorten it.
patient = pytest.mark.timeout(600 + SOAK)


class ModelWalk(Walk):
    """The shipped walk, compared with the model."""

    backend: ClassVar[Backend]

    @staticmethod
    def make(clock: Any) -> Storage:
        raise NotImplementedError

    def make_reference(self) -> Storage:
        return cast(Storage, ModelStorage(cast(Any, self.clock)))

    @property
    def model(self) -> ModelStorage:
        return cast(ModelStorage, self.reference)

    def teardown(self) -> None:
        """Check also that the storage took no record of its own for damaged."""
        try:
            self.runner.run(self._check_damage())
        finally:
            super().teardown()

    async def _check_damage(self) -> None:
        if isinstance(self.storage, SqliteStorage | RedisStorage):
            assert [meter.damaged for meter in await self.storage.meters(QUEUES)] == [0] * len(QUEUES)


class WalkWithSetbacks(ModelWalk):
    """The same walk, on a clock that is set back at times: at once, or after one call that was made too early."""

    ahead = 0

    @rule(ms=st.sampled_from([1, 5, SECOND]))
    def set_the_clock_back(self, ms: int) -> None:
        self.move_the_clock(-ms)

    @rule(ms=st.sampled_from([1, SECOND, LEASE]))
    def let_the_clock_be_ahead(self, ms: int) -> None:
        """Move the clock forward for the next call only. No read comes between: a read would promote the due jobs."""
        self.clock.ms += ms
        self.ahead += ms

    @rule(queue=st.sampled_from(QUEUES), group=st.sampled_from([None, *GROUPS]), ms=st.sampled_from([1, SECOND]))
    def put_while_the_clock_is_ahead(self, queue: str, group: str | None, ms: int) -> None:
        """Put a job for later, and another one on a clock by which the first may be due."""
        self.made += 1
        self.both("put", [NewJob(queue=queue, id=f"later{self.made}", payload=b"l", fresh=True, delay=SECOND)])
        self.let_the_clock_be_ahead(ms)
        self.put_fresh(queue, group, 1)

    @precondition(lambda self: self.tokens)
    @rule(data=st.data(), spec=resolutions(), ms=st.sampled_from([1, SECOND]))
    def settle_while_the_clock_is_ahead(self, data: st.DataObject, spec: dict[str, Any], ms: int) -> None:
        self.let_the_clock_be_ahead(ms)
        self.settle_one(data, spec)

    def both(self, verb: str, *args: Any, unordered: bool = False) -> Any:
        if not self.ahead:
            return super().both(verb, *args, unordered=unordered)
        each_step, self.compare_each_step = self.compare_each_step, False
        answer = super().both(verb, *args, unordered=unordered)
        self.clock.ms, self.ahead, self.compare_each_step = self.clock.ms - self.ahead, 0, each_step
        if each_step:
            self.compare()
        return answer


class WalkWithFormats(ModelWalk):
    """The same walk, by old and new software in turn."""

    @rule(format=st.sampled_from([1, 2, 3]))
    def change_the_software(self, format: int) -> None:
        self.model.format = format
        setattr(self.storage, "format", format)  # noqa: B010 - not part of the protocol
        if self.compare_each_step:
            self.compare()

    def can_settle(self, settlement: Settlement) -> bool:
        """Return whether the current software can have claimed the job: it settles only runs that it could claim."""
        queue = self.model.model.all.get(settlement.queue)
        job = queue.jobs.get(settlement.id) if queue else None
        return job is None or job.format <= self.model.format

    def comparable_position(self, position: JobPosition | None) -> JobPosition | None:
        """Return a position without `ahead`, which depends on the records that claims have passed over."""
        return position and replace(position, ahead=None, head=self.comparable_position(position.head))

    def comparable_stats(self, stats: QueueStats, totals: Totals) -> QueueStats:
        """Return statistics without the age of the first job, which only newer software may be able to run."""
        stats = super().comparable_stats(stats, totals)
        return replace(stats, sample=replace(stats.sample, oldest=None))

    def comparable_limit(self, record: LimitRecord) -> LimitRecord:
        """Return a limit without the number of closed groups, which passed-over groups are not counted in."""
        return replace(record, closed=0, opens=None)

    def comparable_listing(self, found: list[Snapshot]) -> list[Snapshot]:
        """Move queued jobs without a group that only newer software can run to the end, passed over or not."""
        found = super().comparable_listing(found)
        odd = [job for job in found if job.state is State.QUEUED and job.group is None and job.format is not None]
        rest = [job for job in found if job not in odd]
        after = sum(job.state in (State.RUNNING, State.QUEUED) for job in rest)
        return rest[:after] + sorted(odd, key=lambda job: job.id) + rest[after:]


class WalkWithLimits(WalkWithSetbacks):
    """The same walk, with limits from its beginning and more jobs of groups."""

    @initialize(drawn=st.lists(st.tuples(scopes, limits(group=False), limits(group=True)), min_size=1, max_size=4))
    def begin_with_limits(self, drawn: list[tuple[Scope, Limit, Limit]]) -> None:
        for scope, limit, group_limit in drawn:
            self.change_limit(scope, group_limit if scope.kind in ("groups", "group") else limit)

    @rule(queue=st.sampled_from(QUEUES), costs=st.lists(st.sampled_from([1, 1, 2, 4]), min_size=1, max_size=6))
    def put_in_turns(self, queue: str, costs: list[int]) -> None:
        """Put jobs of all groups in turns."""
        jobs: list[NewJob] = []
        for cost in costs:
            for group in GROUPS:
                self.made += 1
                jobs.append(NewJob(queue=queue, id=f"turn{self.made}", payload=b"t", group=group, cost=cost))
        self.both("put", jobs)

    @precondition(lambda self: self.tokens)
    @rule(count=st.integers(1, 4), ttl=st.sampled_from([0, None]))
    def complete_some(self, count: int, ttl: int | None) -> None:
        """Complete the claims made first: as a rule they still run."""
        ended, self.tokens = self.tokens[:count], self.tokens[count:]
        self.both("settle", [Settlement(held.queue, held.id, held.token, Complete(b"", ttl)) for held in ended])

    @rule(ms=st.sampled_from([1, 334, 500, SECOND]))
    def wait_for_a_rate(self, ms: int) -> None:
        self.move_the_clock(ms)


class WalkWithLimitOfOne(ModelWalk):
    """The same walk, on a storage in which every group has the limit that a group without one has (P6)."""

    def __init__(self) -> None:
        super().__init__()
        self.limiting = False
        for queue in QUEUES:
            self.runner.run(set_limit(self.storage, Limit(concurrency=1), queue, EVERY))

    async def compare_queues(self, reference: Storage) -> None:
        """Assert that the storage lists the queues of the model; it has limits, which list further ones."""
        assert {*await self.storage.queues()} >= {*await reference.queues()}


class WalkAlone(ModelWalk):
    """The same walk, with more jobs that are put one by one, as `enqueue` puts them."""

    @rule(queue=st.sampled_from(QUEUES), count=st.integers(1, 3))
    def put_alone(self, queue: str, count: int) -> None:
        for _ in range(count):
            self.made += 1
            self.both("put", [NewJob(queue=queue, id=f"alone{self.made}", payload=b"a", fresh=True)])


class PutsDirectly(SqliteStorage):
    """The SQLite storage with the put of the sync client."""

    async def put(self, jobs: Sequence[NewJob], max_queued: int | None = None) -> list[Put]:
        return await BlockingSqliteStorage(self.engine).put(jobs, max_queued)


class DirectBackend(SqliteBackend):
    def build(self, clock: Clock | None = None) -> Storage:
        return PutsDirectly(self.path, clock=clock, namespace=self.namespace)


def walk(kind: type[ModelWalk], backend: Backend, examples: int, *, derandomize: bool) -> None:
    """Take walks on a backend, each in its own namespace; all of them are cleared at the end."""
    prefix = new_namespace()
    numbers = count()

    def make(clock: Any) -> Storage:
        backend.namespace = f"{prefix}-{next(numbers)}"
        return backend.build(clock)

    made = {"backend": backend, "make": staticmethod(make)}
    try:
        take_walks(type(f"{kind.__name__}_{backend.name}", (kind,), made), examples, derandomize=derandomize)
    finally:
        backend.namespace = prefix
        backend.clear()


def walk_on(kind: type[ModelWalk], backend: Backend, examples: int) -> None:
    """Walk a fixed number of fixed examples, or random ones until the soak is over."""
    if not SOAK:
        walk(kind, backend, examples, derandomize=True)
        return
    until = time.monotonic() + SOAK
    while time.monotonic() < until:
        walk(kind, backend, 50, derandomize=False)


@patient
def test_a_random_walk_agrees_with_the_model(backend: Backend) -> None:
    """Any verbs in any order: the storage answers as the model does."""
    walk_on(ModelWalk, backend, share_of(EXAMPLES[backend.name]))


@patient
def test_a_random_walk_on_a_clock_that_is_set_back_agrees_with_the_model(backend: Backend) -> None:
    """On a clock that is set back at times the storage answers as the model does."""
    walk_on(WalkWithSetbacks, backend, share_of(EXAMPLES[backend.name] // 3))


@patient
def test_a_random_walk_of_old_and_new_software_agrees_with_the_model(backend: Backend) -> None:
    """Software that cannot read a format passes over its records, and all other answers are those of the model."""
    walk_on(WalkWithFormats, backend, share_of(EXAMPLES[backend.name] // 3))


@patient
def test_a_random_walk_with_limits_agrees_with_the_model(backend: Backend) -> None:
    """With limits of families, queues and groups, pauses, costs and a clock that is set back, the model is obeyed."""
    walk_on(WalkWithLimits, backend, share_of(EXAMPLES[backend.name]))


@patient
def test_a_random_walk_with_a_limit_of_one_agrees_with_the_model_without(backend: Backend) -> None:
    """A storage in which every group has a limit of 1 answers as one without limits (P6)."""
    walk_on(WalkWithLimitOfOne, backend, share_of(EXAMPLES[backend.name] // 3))


@patient
@pytest.mark.only("memory", "sqlite")
def test_a_random_walk_of_jobs_put_alone_agrees_with_the_model(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the fast path of a single put the storage answers as after the general path, and as the model does."""
    assert isinstance(backend, SqliteBackend)
    done: list[bool] = []
    put_fast = blocking.put_fast
    monkeypatch.setattr(blocking, "put_fast", lambda *given: done.append(put_fast(*given)) or done[-1])
    walk_on(
        WalkAlone, DirectBackend(backend.name, backend.path, backend.namespace), share_of(EXAMPLES[backend.name] // 3)
    )
    assert {True, False} == set(done)


def main() -> None:
    """Walk on the storage named by the first argument with random seeds, until interrupted."""
    import sys

    servers = Servers()
    with tempfile.TemporaryDirectory() as directory:
        backend = make_backend(sys.argv[1], servers, Path(directory), new_namespace())
        while True:
            walk(ModelWalk, backend, 50, derandomize=False)
            print(".", end="", flush=True)


if __name__ == "__main__":
    main()
