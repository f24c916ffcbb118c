"""The executor: the jobs of a run in, outcomes out, whatever the handler does."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock import ErrorKind, Penstock
from penstock.model.job import Claim
from penstock.model.outcome import Raised
from penstock.worker.executor import Executor
from penstock.worker.job_services import WorkerJobServices
from penstock.worker.run import Run, RunJob
from penstock.worker.thread_pool import ThreadPool


class OwnBaseError(BaseException):
    """An exception that `except Exception` does not catch."""


class OddSerde:
    """A serde that exits instead of decoding."""

    def dumps(self, value: Any, /) -> bytes:
        return b"x"

    def loads(self, data: bytes, type: Any, /) -> Any:
        raise SystemExit("serde")


async def outcomes_of(app: Penstock, interrupts: list[str], count: int = 1) -> list[Any]:
    """Execute a run of `count` jobs of queue "q"."""
    handler, services = app.handlers["q"], WorkerJobServices(app, "w")
    claims = [Claim(queue="q", id=str(n), token="t", payload=b"1", attempts=1) for n in range(count)]
    run = Run(handler, [RunJob(claim, handler.options, services) for claim in claims], 1)
    threads = ThreadPool()
    try:
        return list(
            await Executor(app.codec, app.max_result, threads, lambda: interrupts.append("Ctrl-C")).execute(run)
        )
    finally:
        threads.close()


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("style", ["async", "plain"])
@pytest.mark.parametrize(
    "error", [ValueError, OwnBaseError, GeneratorExit, asyncio.CancelledError, SystemExit, KeyboardInterrupt]
)
async def test_a_run_ends_with_an_outcome_whatever_its_handler_raises(
    app: Penstock, style: str, error: type[BaseException], batch: int
) -> None:
    """It is a failed attempt; only `KeyboardInterrupt` also stops the worker."""

    async def handle_async(payload: Any) -> None:
        raise error("thrown")

    def handle(payload: Any) -> None:
        raise error("thrown")

    app.listen("q", handle_async if style == "async" else handle, batch_size=batch)
    interrupts: list[str] = []
    outcomes = await outcomes_of(app, interrupts, batch)
    assert len(outcomes) == batch
    for outcome in outcomes:
        assert isinstance(outcome, Raised)
        assert (outcome.error.type, outcome.error.kind) == (error.__name__, ErrorKind.RETRIABLE)
        assert (outcome.solo, outcome.shared) == (batch > 1, batch > 1)
    assert interrupts == (["Ctrl-C"] if error is KeyboardInterrupt else [])


@pytest.mark.parametrize("batch", [1, 2])
async def test_a_serde_that_exits_fails_the_attempt(app: Penstock, batch: int) -> None:
    """A `SystemExit` of a serde ends the run as one of the handler does."""
    app.listen("q", lambda payload: None, serde=OddSerde(), batch_size=batch)
    outcomes = await outcomes_of(app, [], batch)
    assert [outcome.error.type for outcome in outcomes] == ["SystemExit"] * batch
