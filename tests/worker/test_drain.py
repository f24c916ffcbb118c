"""drain(): every due job is run, whatever its outcome."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from penstock import Entry, Failure, Job, Outcome, Penstock, PermanentError, Retry, State, Worker
from penstock.testing import Clock
from penstock.worker import claimer, runtime

Runs = list[tuple[Any, ...]]


async def state(app: Penstock, id: str = "a", queue: str = "q") -> State | None:
    status = await app.queue(queue).status(id)
    return None if status is None else status.state


async def test_due_jobs_are_run_and_later_ones_left_alone(app: Penstock, clock: Clock) -> None:
    """drain() ends when nothing is due, and goes on from there when time has passed."""
    app.listen("q", lambda payload: payload)
    await app.queue("q").enqueue_many([Entry(n, id=f"j{n}") for n in range(30)])
    await app.queue("q").enqueue("later", id="later", delay=60)
    await Worker(app).drain()
    counts = await app.queue("q").counts()
    assert (counts[State.COMPLETED], counts[State.SCHEDULED]) == (30, 1)
    clock.advance(60)
    await Worker(app).drain()
    assert await app.queue("q").result("later") == "later"


async def test_follow_ups_are_drained_too(app: Penstock) -> None:
    """Jobs that appear while draining are run before it ends; those of a failed run never appear."""
    runs: Runs = []

    @app.handler("q", max_retries=0)
    async def handle(payload: int, job: Job) -> None:
        runs.append((job.queue, payload))
        job.then("q", payload - 1) if payload else job.then("end", "x", id="end")
        if payload == 2:
            raise ValueError("the chain breaks")

    app.listen("end", lambda payload: runs.append(("end", payload)))
    await app.queue("q").enqueue(1)
    await app.queue("q").enqueue(3)
    await Worker(app).drain()
    assert runs[-1] == ("end", "x")
    assert sorted(runs[:-1]) == [("q", 0), ("q", 1), ("q", 2), ("q", 3)]


async def test_a_failing_job_is_retried_after_its_backoff(app: Penstock, clock: Clock) -> None:
    """Each drain runs it once; the delay doubles; the last failure is final."""
    runs: Runs = []

    @app.handler("q", max_retries=2)
    async def handle(payload: int, job: Job) -> None:
        runs.append((job.attempt, job.retries))
        raise ValueError("no")

    await app.queue("q").enqueue(1, id="a")
    for delay in (2, 4):
        await Worker(app).drain()
        assert await state(app) is State.RETRYING
        clock.advance(delay - 0.001)
        await Worker(app).drain()
        assert await state(app) is State.RETRYING
        clock.advance(0.001)
    await Worker(app).drain()
    assert runs == [(1, 0), (2, 1), (3, 2)]
    status = await app.queue("q").status("a")
    assert status is not None
    assert (status.state, status.attempts, status.retries) == (State.FAILED, 3, 2)
    assert status.error is not None
    assert (status.error.type, status.error.kind) == ("ValueError", "retriable")
    assert "test_drain.py" in status.error.traceback


async def test_drain_can_wait_for_later_jobs(app: Penstock, clock: Clock) -> None:
    """With scheduled=True it waits for backoffs and later jobs; the clock moves while it waits."""
    runs: Runs = []
    app.on("retrying")(lambda event: clock.advance(5))

    @app.handler("q", min_backoff=5, max_backoff=5)
    async def handle(payload: int, job: Job) -> None:
        runs.append((job.attempt,))
        if job.attempt == 1:
            raise ValueError("once")

    await app.queue("q").enqueue(1)
    async with asyncio.timeout(10):
        await Worker(app).drain(scheduled=True)
    assert runs == [(1,), (2,)]


async def test_short_backoffs_need_no_slow_poll(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that never polls runs every retry: it keeps its promise to look again when the backoff is over."""
    monkeypatch.setattr(claimer, "SLOW_POLL", 3600.0)
    monkeypatch.setattr(runtime, "DRAIN_POLL", 3600.0)
    app = Penstock("memory:")

    @app.handler("q", min_backoff=0.05, max_backoff=0.05)
    async def handle(payload: int, job: Job) -> None:
        if job.attempt < 4:
            raise ValueError("again")

    async with app:
        await app.queue("q").enqueue_many(range(200))
        await Worker(app).drain(scheduled=True)


async def test_a_handler_chooses_the_time_of_its_retry(app: Penstock, clock: Clock) -> None:
    """Retry(delay), retry_at and Retry(count=False) are granted exactly."""
    asked = [Retry(delay=100, count=False), Retry(at=clock.time() + 300), None]

    @app.handler("q", max_retries=1)
    async def handle(payload: int, job: Job) -> int:
        error = asked[job.attempt - 1]
        if error is not None:
            raise error
        return job.retries

    await app.queue("q").enqueue(1, id="a")
    await Worker(app).drain()
    clock.advance(99)
    await Worker(app).drain()
    assert (await app.queue("q").counts())[State.RETRYING] == 1
    clock.advance(1)
    await Worker(app).drain()
    clock.advance(200)
    await Worker(app).drain()
    assert await app.queue("q").result("a") == 1


async def test_a_permanent_error_is_not_retried(app: Penstock) -> None:
    """One run, and the job has failed."""
    runs: Runs = []

    @app.handler("q")
    def handle(payload: int) -> None:
        runs.append((payload,))
        raise PermanentError("never")

    await app.queue("q").enqueue(1, id="a")
    await Worker(app).drain()
    assert (await state(app), len(runs)) == (State.FAILED, 1)


async def test_a_jobs_own_limits_win(app: Penstock) -> None:
    """max_attempts given at enqueue ends a job that its handler would go on with."""

    @app.handler("q", min_backoff=0)
    async def handle(payload: int) -> None:
        raise ValueError("no")

    await app.queue("q").enqueue(1, id="a", max_attempts=3)
    await app.queue("q").enqueue(1, id="b", max_retries=0)
    await Worker(app).drain(scheduled=True)
    attempts = {s.id: s.attempts for s in await app.queue("q").find("failed")}
    assert attempts == {"a": 3, "b": 1}


async def test_a_fail_handler_gets_the_payload_the_job_and_the_error(app: Penstock) -> None:
    """Payload, job and error arrive in <queue>/failures, once, even when the worker names only the queue."""
    failures: list[Failure] = []

    async def on_failure(failure: Failure, job: Job) -> None:
        assert job.queue == "q/failures"
        failures.append(failure)

    @app.handler("q", on_failure=on_failure, max_retries=0)
    async def handle(payload: dict[str, int]) -> None:
        raise ValueError("no")

    await app.queue("q").enqueue({"n": 1}, id="a", headers={"trace": "7"})
    await Worker(app, queues=["q"]).drain()
    [failure] = failures
    assert (failure.payload, failure.job.id, failure.job.queue, failure.job.attempt) == ({"n": 1}, "a", "q", 1)
    assert (failure.error.type, failure.error.message, failure.error.kind) == ("ValueError", "no", "retriable")
    assert failure.job.headers == {"trace": "7"}
    assert (await app.queue("q/failures").counts())[State.COMPLETED] == 1


async def test_an_undecodable_payload_fails_for_good(app: Penstock) -> None:
    """The job fails without a run or a retry, `invalid_data` is emitted, and the fail handler gets the bytes."""
    events: Runs = []
    failures: list[Any] = []
    app.on("invalid_data")(lambda event: events.append((event.id,)))

    @app.handler("q", on_failure=lambda failure: failures.append(failure.payload))
    async def handle(payload: int) -> None:
        raise AssertionError("must not be called")

    await app.queue("q").enqueue("text", id="a")
    await Worker(app).drain()
    status = await app.queue("q").status("a")
    assert status is not None
    assert status.error is not None
    assert (status.state, status.error.kind, status.payload) == (State.FAILED, "permanent", "text")
    assert (events, failures) == ([("a",)], [b'"text"'])


async def test_a_result_that_cannot_be_encoded_fails_for_good(app: Penstock) -> None:
    """A result that cannot be encoded is a permanent failure after one run."""
    app.listen("q", lambda payload: object())
    await app.queue("q").enqueue(1, id="a")
    await Worker(app).drain()
    status = await app.queue("q").status("a")
    assert status is not None
    assert status.error is not None
    assert (status.state, status.error.kind, status.attempts) == (State.FAILED, "permanent", 1)


async def test_a_handler_that_exits_does_not_take_the_worker_along(app: Penstock) -> None:
    """SystemExit and a stray CancelledError are failures of the job."""

    @app.handler("q", max_retries=0)
    async def handle(payload: str) -> None:
        if payload == "exit":
            raise SystemExit(3)
        raise asyncio.CancelledError

    @app.handler("threads", max_retries=0)
    def handle_in_thread(payload: int) -> None:
        raise StopIteration

    await app.queue("q").enqueue_many(["exit", "cancel"])
    await app.queue("threads").enqueue(1)
    await Worker(app).drain()
    assert sorted(s.error.type for s in await app.queue("q").find("failed") if s.error) == [
        "CancelledError",
        "SystemExit",
    ]
    assert (await app.queue("threads").counts())[State.FAILED] == 1


async def test_batches_come_in_order_with_one_outcome_each(app: Penstock) -> None:
    """A batch handler gets lists, and its list of results and outcomes is taken apart again."""
    batches: list[list[int]] = []

    @app.handler("q", batch_size=4, concurrency=1, min_backoff=0)
    async def handle(payloads: list[int], jobs: list[Job]) -> list[Any]:
        batches.append(payloads)
        assert [job.id for job in jobs] == [f"j{n}" for n in payloads]
        return [
            Outcome.fail(PermanentError("odd")) if n == 1
            else Outcome.retry(delay=60) if n == 2
            else Outcome.complete(n) if n == 3
            else n
            for n in payloads
        ]  # fmt: skip

    await app.queue("q").enqueue_many([Entry(n, id=f"j{n}") for n in range(6)])
    await Worker(app).drain()
    assert batches == [[0, 1, 2, 3], [4, 5]]
    states = {s.id: str(s.state) for s in await app.queue("q").find()}
    assert states == {
        "j0": "completed", "j1": "failed", "j2": "retrying", "j3": "completed", "j4": "completed", "j5": "completed",
    }  # fmt: skip
    assert await app.queue("q").result("j3") == 3


async def test_a_poison_job_does_not_take_its_neighbours_down(app: Penstock) -> None:
    """After a batch has failed as a whole its jobs come back one by one, for as long as they fail."""
    batches: list[list[int]] = []

    @app.handler("q", batch_size=4, concurrency=1, min_backoff=0, max_retries=2)
    async def handle(payloads: list[int]) -> None:
        batches.append(payloads)
        if 2 in payloads:
            raise ValueError("poison")

    await app.queue("q").enqueue_many(range(4))
    await Worker(app).drain(scheduled=True)
    assert batches[0] == [0, 1, 2, 3]
    assert sorted(batches[1:]) == [[0], [1], [2], [2], [3]]
    counts = await app.queue("q").counts()
    assert (counts[State.COMPLETED], counts[State.FAILED]) == (3, 1)


async def test_a_neighbour_cannot_use_up_the_last_retry(app: Penstock) -> None:
    """A job on its last retry that fails with a batch has one more run by itself, and is not counted over its limit."""
    batches: list[list[str]] = []

    @app.handler("q", batch_size=2, concurrency=1, min_backoff=0, max_retries=1)
    async def handle(payloads: list[str]) -> list[Any] | None:
        batches.append(payloads)
        if len(batches) == 1:
            return [Outcome.fail("not yet")] * 2
        if "poison" in payloads:
            raise ValueError("poison")
        return None

    await app.queue("q").enqueue_many([Entry(name, id=name) for name in ("weak", "poison")])
    await Worker(app).drain(scheduled=True)
    assert batches[:2] == [["weak", "poison"]] * 2
    assert sorted(batches[2:]) == [["poison"], ["weak"]]
    ends = {s.id: (s.state, s.retries) for s in await app.queue("q").find()}
    assert ends == {"weak": ("completed", 1), "poison": ("failed", 1)}


async def test_a_run_that_waits_for_another_job_is_drained(app: Penstock) -> None:
    """A handler that calls what the same worker serves gets its answer."""
    app.listen("inner", lambda payload: payload + 1)

    @app.handler("outer")
    async def outer(payload: int) -> int:
        return await app.queue("inner").call(payload, timeout=30)

    await app.queue("outer").enqueue(1, id="a")
    await Worker(app).drain()
    assert await app.queue("outer").result("a") == 2


async def test_a_job_that_becomes_due_between_two_looks_is_drained(
    app: Penstock, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that is for later at the one look and due at the next is run, too."""
    ran: list[int] = []
    counts = app.storage.counts

    async def late(queue: str) -> Any:
        clock.advance(2)
        return await counts(queue)

    monkeypatch.setattr(app.storage, "counts", late)
    app.listen("q", ran.append)
    await app.queue("q").enqueue(1, delay=1)
    await Worker(app).drain(scheduled=True)
    assert ran == [1]


async def test_a_batch_without_retries_fails_as_one(app: Penstock) -> None:
    """Where failures are not repeated, a failure that is shared is not either."""

    @app.handler("q", batch_size=2, max_retries=0)
    async def handle(payloads: list[int]) -> None:
        raise ValueError("no")

    await app.queue("q").enqueue_many(range(2))
    await Worker(app).drain(scheduled=True)
    assert [(s.attempts, s.state) for s in await app.queue("q").find()] == [(1, "failed")] * 2


@pytest.mark.parametrize("answer", ["three", [1], {"a": 1}])
async def test_a_batch_answer_of_the_wrong_shape_is_a_failure(app: Penstock, answer: Any) -> None:
    """A batch handler that returns a list of another length, or no list, fails with an error that names the fault."""
    app.listen("q", lambda payloads: answer, batch_size=3, max_retries=0)
    await app.queue("q").enqueue_many(range(3))
    await Worker(app).drain()
    errors = [s.error for s in await app.queue("q").find("failed")]
    assert len(errors) == 3
    assert all(error and error.type == "TypeError" and "batch handler" in error.message for error in errors)


async def test_groups_run_in_order_one_at_a_time(app: Penstock) -> None:
    """Jobs of one group never overlap and keep their order, retries included."""
    order: dict[str, list[int]] = {"a": [], "b": []}
    active: set[str | None] = set()

    @app.handler("q", size=1, min_backoff=0)
    async def handle(payload: int, job: Job) -> None:
        assert job.group is not None
        assert job.group not in active
        active.add(job.group)
        await asyncio.sleep(0)
        active.discard(job.group)
        if payload == 3 and job.attempt < 3:
            raise ValueError("again")
        order[job.group].append(payload)

    await app.queue("q").enqueue_many([Entry(n, group=g) for n in range(10) for g in "ab"])
    await Worker(app).drain(scheduled=True)
    assert order == {"a": list(range(10)), "b": list(range(10))}


async def test_sync_handlers_run_side_by_side(app: Penstock) -> None:
    """Threads do not wait for each other, and may report progress and check for cancellation."""
    import threading

    barrier = threading.Barrier(3, timeout=10)

    @app.handler("q")
    def handle(payload: int, job: Job) -> str:
        barrier.wait()
        job.progress(0.5)
        assert not job.cancelled
        return threading.current_thread().name

    answers = await app.queue("q").enqueue_many(range(3))
    await Worker(app).drain()
    for answer in answers:
        assert "penstock" in await app.queue("q").result(answer.id)


async def test_drain_is_for_a_worker_that_is_not_started(app: Penstock) -> None:
    """A started worker refuses to drain or to start again."""
    app.listen("q", lambda payload: None)
    async with Worker(app) as worker:
        with pytest.raises(RuntimeError, match="started already"):
            await worker.drain()


async def test_a_drain_without_handlers_emits_no_queues(app: Penstock) -> None:
    """drain() returns at once, and `no_queues` is emitted."""
    events: list[str] = []
    app.on("no_queues")(lambda event: events.append(event.name))
    await Worker(app).drain()
    assert events == ["no_queues"]


def test_a_worker_that_drained_in_one_event_loop_drains_in_the_next(tmp_path: Path) -> None:
    """A worker can be started again in another event loop, and runs the jobs that came meanwhile."""
    app = Penstock(f"sqlite:{tmp_path / 'jobs.db'}")
    ran: list[int] = []

    @app.handler("q")
    async def handle(payload: int) -> None:
        ran.append(payload)

    worker = Worker(app)

    async def add_and_drain(payload: int) -> None:
        async with app:
            await app.queue("q").enqueue(payload)
            await worker.drain()

    for number in range(3):
        asyncio.run(add_and_drain(number))
    assert ran == [0, 1, 2]
