"""report and read: the failed attempts of a job and the log of its runs, kept with the job."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from penstock.errors import ErrorKind, JobError
from penstock.model.history import (
    MAX_ATTEMPTS,
    MAX_LINE,
    MAX_LINES,
    MAX_LOG,
    MAX_TRACEBACK,
    Attempt,
    Line,
    NewLine,
    brief_error,
    read_attempt,
    read_line,
)
from penstock.model.job import Update
from penstock.storage.base import Fail, Report, Reported, Settlement, Storage
from penstock.storage.recording import Recording
from tests.support import (
    HOUR,
    LEASE,
    SECOND,
    T0,
    Clock,
    HasToken,
    cancel_run,
    claim1,
    complete,
    fail,
    get1,
    new,
    put1,
    release,
    retried,
    settle1,
    stall,
)

pytestmark = pytest.mark.one_per_engine


def recording(storage: Storage) -> Recording:
    assert isinstance(storage, Recording)
    return storage


async def attempts(storage: Storage, id: str = "a") -> list[Attempt]:
    page = await recording(storage).read("q", id, "attempts")
    assert page is not None
    assert not page.more
    return [cast(Attempt, read_attempt(entry)) for entry in page.entries]


async def log(storage: Storage, id: str = "a", after: int = 0) -> list[Line]:
    page = await recording(storage).read("q", id, "log", after)
    assert page is not None
    return [cast(Line, read_line(entry)) for entry in page.entries]


async def write(storage: Storage, claim: HasToken, *texts: str, first: int = 1, age: int = 0) -> bool:
    """Report lines of a run; return whether its claim is live."""
    lines = tuple(NewLine(text, age=age) for text in texts)
    report = Report(queue=claim.queue, id=claim.id, token=claim.token, lines=lines, first=first)
    [answer] = await storage.report([report])
    return answer.kept


async def run_again(storage: Storage, clock: Clock, error: bytes = b"e") -> None:
    """Let the next run of a job fail, to be repeated at once."""
    await settle1(storage, retried(await claim1(storage), error=error, delay=0))
    clock.advance(ms=SECOND)


async def test_each_failed_attempt_is_kept_with_its_times_worker_and_error(storage: Storage, clock: Clock) -> None:
    """Retried, stalled and failed runs are listed in order; the run that completes is not."""
    errors = [JobError("ValueError", f"number {n}", ErrorKind.RETRIABLE, "trace") for n in range(2)]
    await put1(storage, "q", "a")
    first = await claim1(storage, worker="v")
    clock.advance(ms=SECOND)
    await settle1(storage, retried(first, error=errors[0].encode(), delay=0))
    await settle1(storage, stall(await claim1(storage)))
    await claim1(storage)
    clock.advance(ms=LEASE)
    await storage.reap(["q"])
    await settle1(storage, fail(await claim1(storage), error=errors[1].encode()))
    found = await attempts(storage)
    assert [(each.number, each.outcome, each.worker) for each in found] == [
        (1, "retrying", "v"), (2, "stalled", "w"), (3, "stalled", "w"), (4, "failed", "w"),
    ]  # fmt: skip
    assert [each.error for each in found] == [errors[0], None, None, errors[1]]
    assert [round(each.ended_at.timestamp() * 1000) - T0 for each in found] == [
        SECOND, SECOND, SECOND + LEASE, SECOND + LEASE,
    ]  # fmt: skip
    begun = [each.started_at.timestamp() * 1000 if each.started_at else 0 for each in found]
    assert [round(at) - T0 for at in begun] == [0, SECOND, SECOND, SECOND + LEASE]


@pytest.mark.parametrize("ending", [complete, release])
async def test_a_run_that_completed_or_was_released_adds_no_attempt(storage: Storage, ending) -> None:
    """A job that completes at once has no attempts, nor has one whose run was given back."""
    await put1(storage, "q", "a")
    await settle1(storage, ending(await claim1(storage)))
    assert await attempts(storage) == []


async def test_a_claim_that_called_no_handler_adds_no_attempt(storage: Storage) -> None:
    """A job that fails because it is over its bounds was not run by that claim."""
    await put1(storage, "q", "a")
    claim = await claim1(storage)
    await settle1(storage, Settlement("q", "a", claim.token, Fail(b"e", None, ran=False)))
    assert await attempts(storage) == []


async def test_a_cancelled_run_is_an_attempt_without_an_error(storage: Storage) -> None:
    """A run that ends as cancelled is listed as cancelled, whether it ended so itself or was asked to."""
    await put1(storage, "q", "a")
    await settle1(storage, cancel_run(await claim1(storage)))
    await put1(storage, "q", "b")
    claim = await claim1(storage)
    await storage.cancel("q", ["b"], "signal", None)
    await settle1(storage, retried(claim, error=b"e"))
    for id in "ab":
        assert [(each.outcome, each.error) for each in await attempts(storage, id)] == [("cancelled", None)]


async def test_of_many_attempts_the_first_and_the_last_19_are_kept(storage: Storage, clock: Clock) -> None:
    """After 30 failing attempts the first and the last 19 are there, in order, each with its own error."""
    await put1(storage, "q", "a")
    for number in range(1, 31):
        await run_again(storage, clock, JobError("E", "same" if number % 2 else str(number)).encode())
    found = await attempts(storage)
    assert [each.number for each in found] == [1, *range(12, 31)]
    assert len(found) == MAX_ATTEMPTS
    assert [each.error.message for each in found if each.error] == [
        "same" if each.number % 2 else str(each.number) for each in found
    ]
    page = await recording(storage).read("q", "a", "attempts", 28, 1)
    assert page is not None
    assert ([entry.n for entry in page.entries], page.more) == ([29], True)


async def test_an_attempt_keeps_the_brief_error_if_there_is_one(storage: Storage) -> None:
    """The record of the job has the whole error, the attempt one whose traceback has lost its middle."""
    whole = JobError("E", "m", traceback="begin" + "é" * MAX_TRACEBACK + "end")
    await put1(storage, "q", "a")
    claim = await claim1(storage)
    await settle1(storage, Settlement("q", "a", claim.token, Fail(whole.encode(), None, brief=brief_error(whole))))
    [attempt] = await attempts(storage)
    assert attempt.error is not None
    text = attempt.error.traceback
    assert (text[:5], text[-3:], "cut" in text) == ("begin", "end", True)
    assert len(text.encode()) <= MAX_TRACEBACK
    assert (await get1(storage)).error == whole.encode()


async def test_a_log_has_the_lines_of_all_runs_in_order(storage: Storage, clock: Clock) -> None:
    """Lines have their time by the storage's clock, their attempt and their number in the log."""
    await put1(storage, "q", "a")
    claim = await claim1(storage)
    assert await write(storage, claim, "one", "zwei \x00 é", age=5)
    await settle1(storage, retried(claim, delay=0))
    clock.advance(ms=SECOND)
    assert await write(storage, await claim1(storage), "three")
    found = await log(storage)
    assert [(line.n, line.attempt, line.text) for line in found] == [
        (1, 1, "one"), (2, 1, "zwei \x00 é"), (3, 2, "three"),
    ]  # fmt: skip
    assert [round(line.at.timestamp() * 1000) - T0 for line in found] == [-5, -5, SECOND]
    assert await log(storage, after=2) == found[2:]


async def test_lines_that_are_reported_again_are_stored_once(storage: Storage) -> None:
    """A report whose answer was lost, and one that overlaps with it, add only what is new."""
    await put1(storage, "q", "a")
    claim = await claim1(storage)
    for first, texts in ((1, ["1", "2"]), (1, ["1", "2"]), (2, ["2", "3"]), (5, ["5"])):
        await write(storage, claim, *texts, first=first)
    assert [line.text for line in await log(storage)] == ["1", "2", "3", "5"]


async def test_a_run_that_has_lost_its_claim_logs_nothing(storage: Storage, clock: Clock) -> None:
    """Lines with a stale token are refused, also for jobs that are over or were never there."""
    await put1(storage, "q", "a")
    stale = await claim1(storage)
    clock.advance(ms=LEASE)
    await storage.reap(["q"])
    assert not await write(storage, stale, "late")
    fresh = await claim1(storage)
    assert not await write(storage, stale, "late")
    await settle1(storage, complete(fresh))
    assert not await write(storage, fresh, "late")
    assert await log(storage) == []
    nowhere = Report(queue="nowhere", id="a", token="t" * 16, lines=(NewLine("x"),))
    assert await storage.report([nowhere]) == [Reported(False)]


async def test_a_log_keeps_its_last_thousand_lines(storage: Storage) -> None:
    """Of more lines the oldest go, and the numbers go on."""
    await put1(storage, "q", "a")
    claim = await claim1(storage)
    for start in range(1, 1 + 1200, 300):
        await write(storage, claim, *map(str, range(start, start + 300)), first=start)
    found = await log(storage)
    assert [line.n for line in found] == list(range(201, 1201))
    assert [line.text for line in found] == [str(n) for n in range(201, 1201)]
    assert len(found) == MAX_LINES


async def test_a_log_keeps_its_last_256_kib(storage: Storage) -> None:
    """Of longer lines fewer stay, and one of more than 8 KiB is cut."""
    await put1(storage, "q", "a")
    claim = await claim1(storage)
    for n in range(1, 41):
        await write(storage, claim, f"{n:04}" + "x" * MAX_LINE, first=n)
    page = await recording(storage).read("q", "a", "log")
    assert page is not None
    sizes = [len(entry.data) for entry in page.entries]
    assert sum(sizes) <= MAX_LOG < sum(sizes) + sizes[0]
    lines = [cast(Line, read_line(entry)) for entry in page.entries]
    assert [line.text[:4] for line in lines] == [f"{n:04}" for n in range(41 - len(lines), 41)]
    assert {len(line.text.encode()) for line in lines} == {MAX_LINE}
    assert all(line.text.endswith("…") for line in lines)


async def fill(storage: Storage) -> None:
    """Put a job that has one failed attempt and one line, and is queued again; another keeps the queue from ending."""
    await put1(storage, "q", "other", delay=24 * HOUR)
    await put1(storage, "q", "a")
    claim = await claim1(storage)
    await write(storage, claim, "line")
    await settle1(storage, retried(claim, error=b"e", delay=0))


async def names(storage: Storage, id: str = "a") -> tuple[int, int]:
    """Return how many attempts and lines a job has; -1 without a job."""
    first, second = await recording(storage).read("q", id, "attempts"), await recording(storage).read("q", id, "log")
    return -1 if first is None else len(first.entries), -1 if second is None else len(second.entries)


@pytest.mark.parametrize("way", ["purge", "discard", "set_ttl", "delete_queue", "not kept", "replaced", "successor"])
async def test_histories_go_with_the_record_of_their_job(storage: Storage, clock: Clock, way: str) -> None:
    """However a record goes, a new job of the same id begins without histories."""
    await fill(storage)
    claim = await claim1(storage)
    if way == "successor":
        await put1(storage, "q", "a", update=Update())
    ttl = 0 if way == "not kept" else SECOND
    await settle1(storage, complete(claim, ttl=ttl) if way != "replaced" else fail(claim))
    if way == "purge":
        assert await names(storage) == (1, 1)
        clock.advance(ms=HOUR)
        assert await names(storage) == (-1, -1)
        await storage.purge(["q"])
    elif way == "discard":
        await storage.discard("q", ["a"])
    elif way == "set_ttl":
        await storage.set_ttl("q", "a", 0)
    elif way == "delete_queue":
        await storage.delete_queue("q")
    if way != "successor":
        await storage.put([new("q", "a")])
    assert await names(storage) == (0, 0)


async def test_a_revived_job_keeps_its_histories(storage: Storage, clock: Clock) -> None:
    """After revive the old attempts and lines are there, and new ones come after them."""
    await fill(storage)
    await settle1(storage, fail(await claim1(storage)))
    assert await storage.revive("q", ["a"]) == [True]
    await run_again(storage, clock)
    assert [(each.number, each.outcome) for each in await attempts(storage)] == [
        (1, "retrying"), (2, "failed"), (1, "retrying"),
    ]  # fmt: skip
    assert len(await log(storage)) == 1


async def test_a_history_of_no_job_is_none(storage: Storage) -> None:
    """A job that is not there has no history, one without entries an empty one."""
    assert await names(storage) == (-1, -1)
    await storage.put([new("q", "a")])
    assert await names(storage) == (0, 0)
    with pytest.raises(ValueError, match="limit"):
        await recording(storage).read("q", "a", "log", 0, 0)


@pytest.mark.beyond_model
async def test_a_reader_is_woken_by_a_line_and_by_the_end(storage: Storage) -> None:
    """wait_history ends at once if there is more, with the next line, with the end of the job, or after its time."""
    histories = recording(storage)
    await put1(storage, "q", "a")
    claim = await claim1(storage)
    assert not await histories.wait_history("q", "a", "log", 0, 0.01)
    waiting = asyncio.ensure_future(histories.wait_history("q", "a", "log", 0, 30))
    await asyncio.sleep(0)
    await write(storage, claim, "one")
    assert await waiting
    assert await histories.wait_history("q", "a", "log", 0, 30)
    waiting = asyncio.ensure_future(histories.wait_history("q", "a", "log", 1, 30))
    await asyncio.sleep(0)
    await settle1(storage, complete(claim))
    assert await waiting
