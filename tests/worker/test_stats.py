"""Times of runs: counted by the worker, sent with its heartbeat, and the same jobs with and without them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from penstock import Penstock, State, Worker
from penstock.errors import StorageUnavailable
from penstock.model.handler import Handler
from penstock.model.job import Claim
from penstock.model.options import HandlerOptions
from penstock.storage.observing import RunTimes
from penstock.testing import Clock, FaultyStorage
from penstock.worker.run import Run, RunJob
from penstock.worker.runtime import WorkerRuntime
from penstock.worker.stats import MEASURED, RunStats
from penstock.worker.supervisor.child_runtime import ChildRuntime
from tests.worker.support import IgnoringServices


async def nothing(payload: object) -> None: ...


def settled(queue: str, took: float, due: int, began: float) -> RunJob:
    """Return a job whose run began and took these seconds."""
    claim = Claim(queue, "a", "token", b"", run_at=due)
    job = RunJob(claim, HandlerOptions(), IgnoringServices())
    run = Run(Handler(queue, nothing, HandlerOptions()), [job], 1)
    run.began, run.took = began, took
    return job


class Recorder:
    """A host whose storage keeps what is sent to it."""

    def __init__(self) -> None:
        self.sent: list[Sequence[RunTimes]] = []
        self.down = False
        self.storage = self

    async def record_stats(self, worker: str, times: Sequence[RunTimes]) -> int:
        if self.down:
            raise StorageUnavailable("down")
        self.sent.append(times)
        return 5_000

    def error_groups(self) -> None: ...


async def test_of_many_jobs_settled_together_a_few_are_measured_and_count_for_all() -> None:
    """The counts are those of all jobs; waits are from the due time to the begin, by the storage's clock."""
    host = Recorder()
    stats = RunStats(host, "w")  # type: ignore[arg-type]
    stats.count([settled("q", 1, 0, 1)])  # the storage's time is not known yet
    stats.set_clock(1_000_000, 100.0)
    stats.count([settled("q", 0.25, 999_000, 100.5) for _ in range(100)])
    stats.count([settled("r", 0.25, 999_000, 0.0)])  # it never began
    host.down = True
    with pytest.raises(StorageUnavailable):
        await stats.send(100.0)
    stats.count([settled("q", 0.25, 999_000, 100.5) for _ in range(MEASURED - 1)])
    host.down = False
    await stats.send(100.0)
    await stats.send(100.0)
    [[times], []] = host.sent
    assert (times.queue, times.run.count, times.wait.count) == ("q", 107, 107)
    assert times.run.mean == pytest.approx(0.25)
    assert times.wait.mean == pytest.approx(1.5)


@pytest.mark.parametrize("setting", ["on", "off"])
async def test_jobs_run_alike_with_statistics_and_without(
    app: Penstock, clock: Clock, trouble: FaultyStorage, monkeypatch: pytest.MonkeyPatch, setting: str
) -> None:
    """`PENSTOCK_STATS=off` measures nothing and takes no samples, and changes no answer (S24)."""
    monkeypatch.setenv("PENSTOCK_STATS", setting)

    @app.handler("q", max_retries=0)
    async def handle(payload: int) -> int:
        if payload:
            raise ValueError(f"bad {payload}")
        return payload

    queue = app.queue("q")
    for payload in (0, 1, 2):
        await queue.enqueue(payload, id=f"{payload}")
    await Worker(app).drain()
    info = await queue.stats()
    assert (info.counts[State.COMPLETED], info.counts[State.FAILED], info.totals.finished) == (1, 2, 3)
    [group] = await queue.failures()
    assert (group.type, group.open, group.count) == ("ValueError", 2, 2)
    status = await queue.status("0")
    assert status is not None
    assert status.duration is not None
    assert info.run.count == (3 if setting == "on" else 0)
    assert await queue.history() == []
    clock.advance(seconds=60)
    await Worker(app).drain()
    assert len(await app.history()) == (1 if setting == "on" else 0)


async def test_a_storage_that_refuses_statistics_stops_no_worker(app: Penstock, trouble: FaultyStorage) -> None:
    """Jobs run while the call fails, and are measured when it works again."""

    @app.handler("q")
    async def handle(payload: int) -> None: ...

    trouble.fail("record_stats", times=2)
    await app.queue("q").enqueue(1)
    await Worker(app).drain()
    assert (await app.queue("q").counts())[State.COMPLETED] == 1


async def test_a_worker_without_runs_has_queues_sampled_at_its_interval() -> None:
    """Nothing was measured: counts are sent at the given interval, which is longer for a child than for a worker."""
    host = Recorder()
    stats = RunStats(host, "w", 60.0)  # type: ignore[arg-type]
    for now in range(0, 180, 5):
        await stats.try_send(100.0 + now)
    assert len(host.sent) == 3
    assert ChildRuntime._sample_every == 300.0 > WorkerRuntime._sample_every
