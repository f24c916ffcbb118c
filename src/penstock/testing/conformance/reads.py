"""Reading, waiting and listening: what everybody sees."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from penstock.model.clock import Clock
from penstock.model.job import NewJob, State
from penstock.storage.base import FIND_ORDER, EventRecord, Fail, Release, Storage
from penstock.testing.conformance.case import HOUR, LEASE, SECOND, Case, find_all, ids, scenario

__all__ = ["ReadTests"]

#: How long (s) something that should happen at once may take on a machine that is busy.
TIMEOUT = 20.0


class ReadTests:
    """Tests of the reads, the waits, the feed, presence, and opening and closing."""

    def make(self, clock: Clock) -> Storage:
        raise NotImplementedError

    # reads ---------------------------------------------------------------------------------------

    @scenario
    async def test_every_job_is_listed_once(self, case: Case) -> None:
        """Pages lead from one to the next, state by state, and agree with the counts."""
        for number in range(10):
            await case.put(f"j{number}", delay=HOUR if number % 3 == 0 else None)
        run, failing = await case.claim(2)
        await case.settle(failing, Fail(b"e", HOUR))
        for limit in (1, 3, 100):
            found = await find_all(case.storage, "q", limit=limit)
            assert sorted(ids(found)) == [f"j{number}" for number in range(10)]
            order = [FIND_ORDER.index(job.state) for job in found]
            assert order == sorted(order)
        counted = await case.storage.counts("q")
        assert counted == {
            **dict.fromkeys(State, 0),
            State.RUNNING: 1,
            State.FAILED: 1,
            State.QUEUED: 4,
            State.SCHEDULED: 4,
        }
        assert ids(await find_all(case.storage, "q", State.RUNNING)) == [run.id]

    @scenario
    async def test_what_is_not_there_is_none(self, case: Case) -> None:
        """Reads of queues and jobs that nobody put answer with nothing, and leave nothing behind."""
        assert await case.storage.get("q", ["a", "b"]) == [None, None]
        assert (await case.storage.find("q")).jobs == []
        assert set((await case.storage.counts("q")).values()) == {0}
        assert (await case.storage.peek("q"), await case.storage.paused("q")) == (None, None)
        assert await case.storage.why("q", "a") is None
        assert await case.storage.queues() == []

    @scenario
    async def test_why_says_where_a_job_stands(self, case: Case) -> None:
        """How many are before it, and which job of its group holds it up."""
        await case.put("a")
        await case.put("b", group="g")
        await case.put("c", group="g")
        second, third = await case.storage.why("q", "b"), await case.storage.why("q", "c")
        assert second is not None
        assert third is not None
        assert (second.state, second.ahead, second.head) == (State.QUEUED, 1, None)
        assert third.head is not None
        assert third.head.id == "b"

    @scenario
    async def test_time_is_that_of_the_clock(self, case: Case) -> None:
        """The storage's time is the clock's, in milliseconds."""
        before = await case.storage.time()
        case.pass_ms(1234)
        assert (before, await case.storage.time()) == (case.now - 1234, case.now)

    # presence ------------------------------------------------------------------------------------

    @scenario
    async def test_workers_are_listed_while_they_are_there(self, case: Case) -> None:
        """Sorted by id, until their time is over or they leave."""
        for worker, ttl in (("v", HOUR), ("u", SECOND), ("w", HOUR)):
            await case.storage.beat(worker, ttl, b"info")
        found = await case.storage.workers()
        assert [(each.id, each.info) for each in found] == [("u", b"info"), ("v", b"info"), ("w", b"info")]
        case.pass_ms(SECOND)
        await case.storage.beat("w", 0)
        assert [each.id for each in await case.storage.workers()] == ["v"]

    # waits ---------------------------------------------------------------------------------------

    @scenario
    async def test_whoever_waits_for_work_is_woken(self, case: Case) -> None:
        """When something comes into any of the queues, and when a run gives its job back."""
        wait = case.storage.wait_work
        await assert_woken(lambda: wait(["q", "other"], TIMEOUT), lambda: case.put("a", queue="other"))
        run = await case.claim_one("other")
        await assert_woken(lambda: wait(["q", "other"], TIMEOUT), lambda: case.settle(run, Release()))

    @scenario
    async def test_whoever_waits_for_an_end_is_woken(self, case: Case) -> None:
        """When the job ends, and at once when it has ended."""
        await case.put("a")
        run = await case.claim_one()
        wait = case.storage.wait_done
        await assert_woken(lambda: wait("q", "a", TIMEOUT), lambda: case.settle(run))
        assert await wait("q", "a", TIMEOUT)

    @scenario
    async def test_whoever_runs_hears_of_a_cancel(self, case: Case) -> None:
        """The worker of a run that is asked to end is woken; what was asked between two waits is heard, too."""
        await case.put("a")
        await case.claim_one()
        wait, cancel = case.storage.wait_cancel, case.storage.cancel
        await assert_woken(lambda: wait("w", TIMEOUT), lambda: cancel("q", ["a"], "signal"))
        await cancel("q", ["a"], "kill")
        assert await wait("w", TIMEOUT)

    @scenario
    async def test_a_job_that_is_waited_for_can_be_read_once_it_ended(self, case: Case) -> None:
        """A job with a waiter that would not be kept stays for a while, and its id is free."""
        await case.put("a", waiter="me")
        await case.settle(await case.claim_one(), Fail(b"e", 0))
        assert await case.state("a") is State.FAILED
        assert (await case.put("a")).state is State.QUEUED

    # feed ----------------------------------------------------------------------------------------

    @scenario
    async def test_every_transition_is_told(self, case: Case) -> None:
        """The feed of a queue has its transitions in order, with attempt, worker and result; and announcements."""
        feed = case.storage.events("q")
        first = asyncio.ensure_future(anext(feed))
        mark = EventRecord("idle", "q", "mark", 0)
        while not first.done():  # until it is heard, nobody may be listening yet
            await case.storage.announce([mark])
            await asyncio.wait((first,), timeout=0.05)
        await case.storage.put([NewJob(queue=queue, id="a", payload=b"") for queue in ("other", "q")])
        await case.settle(await case.claim_one())
        heard: list[EventRecord] = []
        async with asyncio.timeout(TIMEOUT):
            while len(heard) < 3:
                note = await anext(feed)
                heard += [note] if note.id != mark.id else []
        assert [(n.name, n.queue, n.attempt, n.worker, n.result) for n in heard] == [
            ("enqueued", "q", 0, None, None), ("started", "q", 1, "w", None), ("completed", "q", 1, "w", b"r"),
        ]  # fmt: skip
        assert {note.at for note in heard} == {case.now}
        if (aclose := getattr(feed, "aclose", None)) is not None:
            await aclose()

    # open and close ------------------------------------------------------------------------------

    @scenario
    async def test_opening_and_closing_can_be_repeated(self, case: Case) -> None:
        """Both are idempotent, and a closed storage can be opened again."""
        await case.storage.open()
        await case.storage.close()
        await case.storage.close()
        await case.storage.open()
        assert (await case.put("b")).state is State.QUEUED
        assert ids(await case.claim(lease=LEASE)) == ["b"]


async def assert_woken(wait: Callable[[], Awaitable[object]], cause: Callable[[], Awaitable[object]]) -> None:
    """Whoever waits is woken, long before the time is over, because of something that happens meanwhile."""
    waiting = asyncio.ensure_future(wait())
    for _ in range(10):  # a hint may be wrong; then one waits again
        await asyncio.wait((waiting,), timeout=0.1)
        if not waiting.done():
            break
        waiting = asyncio.ensure_future(wait())
    began = time.monotonic()
    await cause()
    assert await waiting, "nobody was woken"
    assert time.monotonic() - began < TIMEOUT / 2, "somebody was woken late"
