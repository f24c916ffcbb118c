"""Conformance tests of the reads, the waits and the event feed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from penstock.model.clock import Clock
from penstock.model.job import NewJob, State
from penstock.storage.base import FIND_ORDER, EventRecord, Fail, Release, Storage
from penstock.testing.conformance.case import HOUR, LEASE, SECOND, Case, find_all, ids, scenario

__all__ = ["ReadTests"]

#: Seconds that an immediate wake-up may take on a busy machine.
TIMEOUT = 20.0


class ReadTests:
    """Tests of reads, waits, the event feed, workers' heartbeats, `open` and `close`."""

    def make(self, clock: Clock) -> Storage:
        raise NotImplementedError

    # reads ---------------------------------------------------------------------------------------

    @scenario
    async def test_every_job_is_listed_once(self, case: Case) -> None:
        """`find` lists every job once, page by page and state by state, in agreement with `counts`."""
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
    async def test_reads_of_unknown_queues_and_jobs_are_empty(self, case: Case) -> None:
        """Reads of queues and jobs that were never put give nothing, and create no queue."""
        assert await case.storage.get("q", ["a", "b"]) == [None, None]
        assert (await case.storage.find("q")).jobs == []
        assert set((await case.storage.counts("q")).values()) == {0}
        assert (await case.storage.peek("q"), await case.storage.paused("q")) == (None, None)
        assert await case.storage.why("q", "a") is None
        assert await case.storage.queues() == []

    @scenario
    async def test_why_gives_the_jobs_ahead_and_the_group_head(self, case: Case) -> None:
        """`why` gives the number of jobs ahead, and the job of the group that must end first."""
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
        """`time` is the time of the clock in milliseconds."""
        before = await case.storage.time()
        case.pass_ms(1234)
        assert (before, await case.storage.time()) == (case.now - 1234, case.now)

    # heartbeats ----------------------------------------------------------------------------------

    @scenario
    async def test_workers_are_listed_while_they_are_there(self, case: Case) -> None:
        """`workers` lists workers by id until their TTL is over, or a beat with the TTL 0 removes them."""
        for worker, ttl in (("v", HOUR), ("u", SECOND), ("w", HOUR)):
            await case.storage.beat(worker, ttl, b"info")
        found = await case.storage.workers()
        assert [(each.id, each.info) for each in found] == [("u", b"info"), ("v", b"info"), ("w", b"info")]
        case.pass_ms(SECOND)
        await case.storage.beat("w", 0)
        assert [each.id for each in await case.storage.workers()] == ["v"]

    # waits ---------------------------------------------------------------------------------------

    @scenario
    async def test_put_and_release_wake_wait_work(self, case: Case) -> None:
        """`wait_work` on several queues returns when a job is put into one, and when a running job is released."""
        wait = case.storage.wait_work
        await assert_woken(lambda: wait(["q", "other"], TIMEOUT), lambda: case.put("a", queue="other"))
        run = await case.claim_one("other")
        await assert_woken(lambda: wait(["q", "other"], TIMEOUT), lambda: case.settle(run, Release()))

    @scenario
    async def test_settle_wakes_wait_done(self, case: Case) -> None:
        """`wait_done` returns when the job ends, and at once for a job that has ended."""
        await case.put("a")
        run = await case.claim_one()
        wait = case.storage.wait_done
        await assert_woken(lambda: wait("q", "a", TIMEOUT), lambda: case.settle(run))
        assert await wait("q", "a", TIMEOUT)

    @scenario
    async def test_cancel_of_a_running_job_wakes_wait_cancel(self, case: Case) -> None:
        """A cancel of a running job wakes `wait_cancel` of its worker; one between two waits ends the next at once."""
        await case.put("a")
        await case.claim_one()
        wait, cancel = case.storage.wait_cancel, case.storage.cancel
        await assert_woken(lambda: wait("w", TIMEOUT), lambda: cancel("q", ["a"], "signal"))
        await cancel("q", ["a"], "kill")
        assert await wait("w", TIMEOUT)

    @scenario
    async def test_a_job_that_is_waited_for_can_be_read_once_it_ended(self, case: Case) -> None:
        """A job with a waiter and the TTL 0 can still be read for a while, and its id is free."""
        await case.put("a", waiter="me")
        await case.settle(await case.claim_one(), Fail(b"e", 0))
        assert await case.state("a") is State.FAILED
        assert (await case.put("a")).state is State.QUEUED

    # feed ----------------------------------------------------------------------------------------

    @scenario
    async def test_the_feed_has_every_transition_in_order(self, case: Case) -> None:
        """The feed of a queue has its transitions in order, with attempt, worker and result, and announcements."""
        feed = case.storage.events("q")
        first = asyncio.ensure_future(anext(feed))
        mark = EventRecord("idle", "q", "mark", 0)
        while not first.done():  # the subscription may not be active before the first event arrives
            await case.storage.announce([mark])
            await asyncio.wait((first,), timeout=0.05)
        await case.storage.put([NewJob(queue=queue, id="a", payload=b"") for queue in ("other", "q")])
        await case.settle(await case.claim_one())
        received: list[EventRecord] = []
        async with asyncio.timeout(TIMEOUT):
            while len(received) < 3:
                event = await anext(feed)
                received += [event] if event.id != mark.id else []
        assert [(e.name, e.queue, e.attempt, e.worker, e.result) for e in received] == [
            ("enqueued", "q", 0, None, None), ("started", "q", 1, "w", None), ("completed", "q", 1, "w", b"r"),
        ]  # fmt: skip
        assert {event.at for event in received} == {case.now}
        if (aclose := getattr(feed, "aclose", None)) is not None:
            await aclose()

    # open and close ------------------------------------------------------------------------------

    @scenario
    async def test_opening_and_closing_can_be_repeated(self, case: Case) -> None:
        """`open` and `close` are idempotent, and a closed storage can be opened again."""
        await case.storage.open()
        await case.storage.close()
        await case.storage.close()
        await case.storage.open()
        assert (await case.put("b")).state is State.QUEUED
        assert ids(await case.claim(lease=LEASE)) == ["b"]


async def assert_woken(wait: Callable[[], Awaitable[object]], cause: Callable[[], Awaitable[object]]) -> None:
    """Assert that a wait returns because of `cause`, long before its timeout."""
    waiting = asyncio.ensure_future(wait())
    for _ in range(10):  # a wake-up is a hint and may come without a cause: then the wait is repeated
        await asyncio.wait((waiting,), timeout=0.1)
        if not waiting.done():
            break
        waiting = asyncio.ensure_future(wait())
    began = time.monotonic()
    await cause()
    assert await waiting, "the wait was not woken"
    assert time.monotonic() - began < TIMEOUT / 2, "the wait was woken late"
