"""Conformance tests of the verbs of producers: put, update, cancel, discard, revive, pause, delete, purge."""

from __future__ import annotations

from penstock.errors import QueueFull
from penstock.model.clock import Clock
from penstock.model.job import NewJob, State, Update
from penstock.model.pause import Pause
from penstock.storage.base import (
    EXPIRED,
    Cancel,
    CancelAnswer,
    Complete,
    Fail,
    Put,
    PutStatus,
    Release,
    Report,
    Reported,
    Retried,
    Storage,
)
from penstock.testing.conformance.case import HOUR, LEASE, SECOND, Case, claim_ref, ids, scenario

__all__ = ["ProducerTests"]


class ProducerTests:
    """Tests of `put`, `cancel`, `discard`, `revive`, `set_pause`, `delete_queue`, `set_ttl` and `purge`."""

    def make(self, clock: Clock) -> Storage:
        raise NotImplementedError

    # put -----------------------------------------------------------------------------------------

    @scenario
    async def test_a_job_is_stored_as_it_was_put(self, case: Case) -> None:
        """A job that was put is read with the same payload, headers, bounds, group and times, to the byte."""
        every = bytes(range(256))
        answer = await case.put("a", every, headers=every, bounds=b"\x00", group="g")
        assert answer == Put(PutStatus.QUEUED, State.QUEUED)
        job = await case.job("a")
        assert (job.payload, job.headers, job.bounds, job.group) == (every, every, b"\x00", "g")
        assert (job.created, job.run_at, job.attempts) == (case.now, case.now, 0)

    @scenario
    async def test_names_are_opaque(self, case: Case) -> None:
        """Names of queues and ids may be any text of up to 512 bytes, with braces, colons, newlines and NUL."""
        names = ["{q}", "a:b", "*", "/", "line\nfeed", "nul\x00", "é" * 256, " ", "q/{x}/failures", "'; drop table"]
        for name in names:
            assert (await case.put(name, queue=name)).status is PutStatus.QUEUED
        assert await case.storage.queues() == sorted(names)
        for name in names:
            assert ids(await case.claim(queue=name)) == [name]

    @scenario
    async def test_a_put_above_max_queued_changes_nothing(self, case: Case) -> None:
        """With `max_queued` the jobs of a put are all stored or none, and duplicates are not refused."""
        await case.storage.put([NewJob(queue="q", id="a", payload=b"")], 2)
        jobs = [NewJob(queue="q", id=id, payload=b"", delay=HOUR) for id in "bc"]
        refused: list[QueueFull] = []
        try:
            await case.storage.put(jobs, 2)
        except QueueFull as full:
            refused.append(full)
        assert [(full.waiting, full.max_queued, full.count) for full in refused] == [(1, 2, 2)]
        assert await case.storage.get("q", ["b", "c"]) == [None, None]
        assert [put.status for put in await case.storage.put(jobs[:1], 2)] == [PutStatus.SCHEDULED]
        assert [put.status for put in await case.storage.put(jobs[:1], 2)] == [PutStatus.DUPLICATE]

    @scenario
    async def test_a_taken_id_changes_nothing(self, case: Case) -> None:
        """A put of an id that is queued or running is answered as a duplicate and changes nothing."""
        await case.put("a", b"first")
        assert await case.put("a", b"second") == Put(PutStatus.DUPLICATE, State.QUEUED)
        await case.claim_one()
        assert await case.put("a", b"third") == Put(PutStatus.DUPLICATE, State.RUNNING)
        assert (await case.job("a")).payload == b"first"

    @scenario
    async def test_put_answers_in_the_order_of_its_jobs(self, case: Case) -> None:
        """One put may name several queues, and an id twice: the second of these is the duplicate."""
        jobs = [NewJob(queue=queue, id=id, payload=b"") for queue, id in (("q", "a"), ("other", "a"), ("q", "a"))]
        answers = await case.storage.put(jobs)
        assert [each.status for each in answers] == [PutStatus.QUEUED, PutStatus.QUEUED, PutStatus.DUPLICATE]

    @scenario
    async def test_a_job_for_later_waits_for_the_storages_clock(self, case: Case) -> None:
        """A job with a `run_at` or a `delay` is scheduled until that time of the storage's clock."""
        await case.put("at", run_at=case.now + HOUR)
        await case.put("delayed", delay=HOUR)
        assert await case.claim() == []
        assert await case.state("at") is State.SCHEDULED
        case.pass_ms(HOUR - 1)
        assert await case.claim() == []
        case.pass_ms(1)
        assert await case.state("delayed") is State.QUEUED
        assert ids(await case.claim()) == ["at", "delayed"]

    @scenario
    async def test_an_update_changes_a_waiting_job_in_place(self, case: Case) -> None:
        """An update of a retried job changes its payload, keeps its position and sets its counts to zero."""
        await case.put("a", b"old")
        await case.put("b")
        await case.settle(await case.claim_one(), Retried())
        answer = await case.put("a", b"new", update=Update(run_at=False))
        assert answer == Put(PutStatus.UPDATED, State.QUEUED)
        first = await case.claim_one()
        assert (first.id, first.payload, first.attempts, first.retries) == ("a", b"new", 1, 0)

    @scenario
    async def test_an_update_of_a_running_job_waits_behind_it(self, case: Case) -> None:
        """An update of a running job is blocked behind it as its one successor until the run ends for good."""
        await case.put("a", b"one")
        run = await case.claim_one()
        assert await case.put("a", b"two", update=Update()) == Put(PutStatus.BLOCKED, State.BLOCKED)
        assert await case.put("a", b"three", update=Update()) == Put(PutStatus.UPDATED, State.BLOCKED)
        assert await case.claim() == []
        await case.settle(run)
        again = await case.claim_one()
        assert (again.payload, again.attempts) == (b"three", 1)

    @scenario
    async def test_a_successor_is_folded_into_a_retry(self, case: Case) -> None:
        """If the run is retried, its successor is merged into it: one job with the new payload."""
        await case.put("a", b"one")
        run = await case.claim_one()
        await case.put("a", b"two", update=Update())
        await case.settle(run, Retried())
        assert (await case.storage.counts("q"))[State.BLOCKED] == 0
        assert (await case.claim_one()).payload == b"two"

    @scenario
    async def test_a_result_is_kept_for_its_time(self, case: Case) -> None:
        """A put of a completed job's id is answered with its result until its TTL is over; then the id is free."""
        await case.put("a")
        await case.settle(await case.claim_one(), Complete(b"", HOUR))
        assert await case.put("a") == Put(PutStatus.COMPLETED, State.COMPLETED, b"")
        case.pass_ms(HOUR)
        assert await case.state("a") is None
        assert (await case.put("a")).status is PutStatus.QUEUED

    @scenario
    async def test_failed_and_cancelled_ids_are_free(self, case: Case) -> None:
        """A put of an id whose job failed or was cancelled replaces that job by a new one."""
        for end in (Fail(b"e", HOUR), Cancel(HOUR)):
            await case.put("a")
            await case.settle(await case.claim_one(), end)
            assert (await case.put("a")).status is PutStatus.QUEUED
            await case.storage.delete_queue("q")

    # cancel and revive ---------------------------------------------------------------------------

    @scenario
    async def test_a_waiting_job_is_cancelled(self, case: Case) -> None:
        """A cancelled waiting job is kept for its TTL and never claimed; an unknown id is answered as not found."""
        await case.put("a")
        answers = await case.storage.cancel("q", ["a", "b"], ttl=HOUR)
        assert answers == [CancelAnswer("cancelled"), CancelAnswer("not_found")]
        assert await case.claim() == []
        assert await case.state("a") is State.CANCELLED

    @scenario
    async def test_a_cancelled_job_is_cancelled_once(self, case: Case) -> None:
        """A second cancel answers `already`: of a cancelled job, and of a run whose end was requested."""
        await case.put("a")
        await case.storage.cancel("q", ["a"], ttl=HOUR)
        assert await case.storage.cancel("q", ["a"], ttl=HOUR) == [CancelAnswer("cancelled", already=True)]
        await case.put("b")
        await case.claim_one()
        await case.storage.cancel("q", ["b"], "signal", HOUR)
        again = CancelAnswer("cancel_requested", running=True, already=True)
        assert await case.storage.cancel("q", ["b"], "signal", HOUR) == [again]
        assert await case.storage.cancel("q", ["b"], "kill", HOUR) == [CancelAnswer("cancel_requested", running=True)]
        assert await case.storage.cancel("q", ["b"], "signal", HOUR) == [again]

    @scenario
    async def test_a_running_job_is_cancelled_as_asked(self, case: Case) -> None:
        """A cancel of a running job is refused by default; with "signal" `renew` reports it, and a retry cancels it."""
        await case.put("a")
        run = await case.claim_one()
        assert await case.storage.cancel("q", ["a"]) == [CancelAnswer("running", running=True)]
        answers = await case.storage.cancel("q", ["a"], "signal", HOUR)
        assert answers == [CancelAnswer("cancel_requested", running=True)]
        [renewal] = await case.storage.renew("w", [claim_ref(run)], LEASE)
        assert (renewal.kept, renewal.cancel) == (True, "signal")
        assert (await case.settle(run, Retried())).state is State.CANCELLED

    @scenario
    async def test_a_value_counts_even_after_a_cancel(self, case: Case) -> None:
        """A run that completes after a cancel was requested is completed."""
        await case.put("a")
        run = await case.claim_one()
        await case.storage.cancel("q", ["a"], "kill")
        assert (await case.settle(run)).state is State.COMPLETED

    @scenario
    async def test_a_job_expires_unless_its_first_run_has_begun(self, case: Case) -> None:
        """A job that has not begun at its start-by time is cancelled with the error `EXPIRED`; one that has, never."""
        for id in ("begun", "in time", "late"):
            await case.put(id, start_within=SECOND, group="g" if id == "late" else None)
        await case.settle(await case.claim_one(), Release())
        await case.put("behind", group="g")
        case.pass_ms(SECOND - 1)
        assert ids(await case.claim(2)) == ["begun", "in time"]
        case.pass_ms(1)
        assert await case.state("late") is State.CANCELLED
        assert (await case.job("late")).error == EXPIRED
        assert ids(await case.claim()) == ["behind"]
        assert (await case.storage.counts("q"))[State.CANCELLED] == 1

    @scenario
    async def test_a_discarded_job_is_gone(self, case: Case) -> None:
        """A waiting or finished job that is discarded is gone and its group goes on; a running one is refused."""
        for id in ("done", "head", "next"):
            await case.put(id, group=None if id == "done" else "g")
        await case.settle(await case.claim_one())
        assert await case.storage.discard("q", ["done", "head"], State.QUEUED) == ["kept", "cancelled"]
        assert await case.storage.discard("q", ["done", "done"]) == ["discarded", "not_found"]
        assert ids(await case.claim()) == ["next"]
        assert await case.storage.discard("q", ["next"]) == ["running"]

    @scenario
    async def test_failed_jobs_are_revived(self, case: Case) -> None:
        """`revive` queues a failed job again behind the others; queued and unknown ids are answered with False."""
        await case.put("a")
        await case.put("b")
        await case.settle(await case.claim_one(), Fail(b"e", HOUR))
        assert await case.storage.revive("q", ["a", "b", "c"]) == [True, False, False]
        assert await case.order() == ["b", "a"]

    @scenario
    async def test_completed_jobs_are_revived_if_asked(self, case: Case) -> None:
        """`revive` leaves a completed job as it is, and with `completed` queues it again without its result."""
        await case.put("a")
        await case.settle(await case.claim_one(), Complete(b"r", HOUR))
        assert await case.storage.revive("q", ["a"]) == [False]
        assert await case.state("a") is State.COMPLETED
        assert await case.storage.revive("q", ["a"], True) == [True]
        again = await case.claim_one()
        assert (again.id, again.attempts) == ("a", 1)

    # queues --------------------------------------------------------------------------------------

    @scenario
    async def test_a_paused_queue_gives_nothing(self, case: Case) -> None:
        """A paused queue accepts jobs and gives none; `set_pause` answers whether it changed anything."""
        assert await case.storage.set_pause("q", True)
        assert not await case.storage.set_pause("q", True)
        await case.put("a")
        assert (await case.claim(), await case.storage.peek("q")) == ([], None)
        assert await case.storage.paused("q") == Pause(case.now)
        assert await case.storage.set_pause("q", False)
        assert ids(await case.claim()) == ["a"]

    @scenario
    async def test_a_deleted_queue_is_gone(self, case: Case) -> None:
        """`delete_queue` removes every job in every state, and a running one loses its claim."""
        await case.put("a")
        await case.put("b", delay=HOUR)
        run = await case.claim_one()
        assert await case.storage.delete_queue("q") == 2
        assert await case.storage.queues() == []
        assert (await case.settle(run)).lost
        report = Report(queue="q", id="a", token=run.token, progress=b"p")
        assert await case.storage.report([report]) == [Reported(False)]

    @scenario
    async def test_purge_removes_finished_jobs_after_their_ttl(self, case: Case) -> None:
        """`purge` removes finished jobs whose TTL is over; `set_ttl` changes that TTL."""
        for id in "abc":
            await case.put(id)
            await case.settle(await case.claim_one(), Complete(b"r", SECOND))
        assert await case.storage.set_ttl("q", "a", None)
        assert await case.storage.set_ttl("q", "b", HOUR)
        assert not await case.storage.set_ttl("q", "unknown", HOUR)
        case.pass_ms(SECOND)
        assert await case.storage.purge(["q"]) == 1
        case.pass_ms(HOUR)
        await case.storage.purge(["q"])
        assert [await case.state(id) for id in "abc"] == [State.COMPLETED, None, None]
