"""Conformance tests of the verbs of workers: claim, settle, renew, reap, report."""

from __future__ import annotations

import asyncio

from penstock.model.clock import Clock
from penstock.model.job import NewJob, State
from penstock.storage.base import (
    Cancel,
    Complete,
    Fail,
    Reaped,
    Release,
    Report,
    Reported,
    Request,
    Retried,
    Settled,
    Stall,
    Storage,
)
from penstock.testing.conformance.case import HOUR, LEASE, SECOND, Case, claim_ref, ids, scenario

__all__ = ["WorkerTests"]


class WorkerTests:
    """Tests of `claim`, `settle`, `renew`, `reap` and `report`."""

    shared = True

    def make(self, clock: Clock) -> Storage:
        raise NotImplementedError

    # order ---------------------------------------------------------------------------------------

    @scenario
    async def test_order_is_priority_then_time_then_acceptance(self, case: Case) -> None:
        """Jobs are claimed by priority, then due time, then acceptance; never by id."""
        for id, priority in (("z", 0), ("y", 0), ("low", -1), ("x", 0), ("high", 5)):
            await case.put(id, priority=priority)
        await case.put("early", run_at=case.now - HOUR)
        peeked = await case.storage.peek("q")
        assert peeked is not None
        assert peeked.id == "high"
        assert await case.order() == ["high", "early", "z", "y", "x", "low"]

    @scenario
    async def test_a_claim_takes_what_it_asks_for(self, case: Case) -> None:
        """A claim gives up to its limit of each queue, in order, counts an attempt and records the worker."""
        for id in "abc":
            await case.put(id)
        await case.put("d", queue="other")
        requests = [Request("q", 2), Request("other", 2), Request("empty", 2)]
        claims = (await case.storage.claim(requests, "me", LEASE, "t")).claims
        assert [(claim.queue, claim.id, claim.token, claim.attempts) for claim in claims] == [
            ("q", "a", "t", 1), ("q", "b", "t", 1), ("other", "d", "t", 1),
        ]  # fmt: skip
        assert (await case.job("a")).worker == "me"

    @scenario
    async def test_a_batch_has_consecutive_jobs(self, case: Case) -> None:
        """Consecutive jobs get one batch number, and the limit of a claim counts batches."""
        for id in "abcde":
            await case.put(id)
        claims = await case.claim(2, batch=2)
        assert [(claim.id, claim.batch) for claim in claims] == [("a", 0), ("b", 0), ("c", 1), ("d", 1)]

    @scenario
    async def test_a_group_runs_one_at_a_time_in_order(self, case: Case) -> None:
        """A group's next job is claimed only when the one before has ended for good, retries included."""
        for id in "abc":
            await case.put(id, group="g")
        first = await case.claim_one()
        assert await case.claim() == []
        await case.settle(first, Retried(delay=HOUR))
        assert await case.claim() == []
        case.pass_ms(HOUR)
        assert await case.order() == ["a", "b", "c"]

    @scenario
    async def test_groups_take_turns(self, case: Case) -> None:
        """Groups are served in turn: one with many jobs delays another group by one job."""
        for number in range(5):
            await case.put(f"many{number}", group="many")
        await case.put("one", group="one")
        assert (await case.order())[:2] == ["many0", "one"]

    @scenario
    async def test_no_job_is_claimed_twice(self, case: Case) -> None:
        """Claims at the same time never give one job twice, and together give all of them."""
        jobs = [NewJob(queue="q", id=f"j{number}", payload=b"") for number in range(100)]
        await case.storage.put(jobs)
        peers = [case.peer() for _ in range(3)] if self.shared else []
        for peer in peers:
            await peer.open()
        try:
            storages = peers or [case.storage] * 3
            calls = [storages[n % 3].claim([Request("q", 7)], f"w{n}", LEASE, f"t{n}") for n in range(20)]
            claimed = [claim.id for answer in await asyncio.gather(*calls) for claim in answer.claims]
        finally:
            for peer in peers:
                await peer.close()
        assert sorted(claimed) == sorted(job.id for job in jobs)

    # settle --------------------------------------------------------------------------------------

    @scenario
    async def test_a_run_completes(self, case: Case) -> None:
        """A completed job keeps its result, even empty bytes, and its worker, for its TTL."""
        await case.put("a")
        assert await case.settle(await case.claim_one(), Complete(b"", HOUR)) == Settled(State.COMPLETED)
        job = await case.job("a")
        assert (job.result, job.worker, job.finished, job.expires) == (b"", "w", case.now, case.now + HOUR)

    @scenario
    async def test_a_stale_token_changes_nothing(self, case: Case) -> None:
        """Settle, renew and report with a stale token are answered as lost and change nothing."""
        await case.put("a")
        run = await case.claim_one()
        forged = type(run)(run.queue, run.id, "forged", run.payload)
        assert await case.settle(forged, Fail(b"e", HOUR)) == Settled(None, lost=True)
        [renewal] = await case.storage.renew("w", [claim_ref(forged)], LEASE)
        assert not renewal.kept
        forged = Report(queue="q", id="a", token="forged", progress=b"p")
        assert await case.storage.report([forged]) == [Reported(False)]
        assert (await case.settle(run)).state is State.COMPLETED

    @scenario
    async def test_the_same_settlement_twice_is_one(self, case: Case) -> None:
        """A repeated settle is answered as before and done once; another resolution of the run is answered as lost."""
        await case.put("a")
        run = await case.claim_one()
        end = Complete(b"r", HOUR, (NewJob(queue="q/side", id="then", payload=b""),))
        assert await case.settle(run, end) == await case.settle(run, end) == Settled(State.COMPLETED)
        assert (await case.settle(run, Fail(b"e", HOUR))).lost
        assert (await case.storage.counts("q/side"))[State.QUEUED] == 1

    @scenario
    async def test_follow_ups_exist_if_the_end_is_recorded(self, case: Case) -> None:
        """Follow-up jobs are put in the same step as the resolution, and not at all if the claim is lost."""
        await case.put("a")
        run = await case.claim_one()
        case.pass_ms(LEASE)
        await case.storage.reap(["q"])
        then = (NewJob(queue="q/failures", id="f", payload=b""),)
        assert (await case.settle(run, Fail(b"e", HOUR, None, then))).lost
        assert await case.state("f", "q/failures") is None
        assert (await case.settle(await case.claim_one(), Fail(b"e", HOUR, None, then))).state is State.FAILED
        assert await case.state("f", "q/failures") is State.QUEUED
        assert (await case.job("a")).error == b"e"

    @scenario
    async def test_a_retry_waits_and_keeps_its_place(self, case: Case) -> None:
        """A retried job counts a retry, keeps its error, and is due after its delay, before jobs put later."""
        await case.put("a")
        run = await case.claim_one()
        await case.put("b")
        assert (await case.settle(run, Retried(delay=SECOND, error=b"e"))).state is State.RETRYING
        job = await case.job("a")
        assert (job.retries, job.error, job.run_at) == (1, b"e", case.now + SECOND)
        case.pass_ms(SECOND)
        assert await case.order() == ["a", "b"]

    @scenario
    async def test_a_release_restores_position_and_attempts(self, case: Case) -> None:
        """A released job has its old position and its old number of attempts."""
        await case.put("a")
        await case.put("b")
        assert (await case.settle(await case.claim_one(), Release())).state is State.QUEUED
        job = await case.job("a")
        assert (job.attempts, job.worker) == (0, None)
        assert await case.order() == ["a", "b"]

    @scenario
    async def test_a_claim_that_called_no_handler_is_no_attempt(self, case: Case) -> None:
        """A run that ends as failed or cancelled with `ran` False does not count as an attempt."""
        for end in (Fail(b"e", HOUR, ran=False), Cancel(HOUR, ran=False)):
            await case.put("a")
            await case.settle(await case.claim_one(), Stall())
            await case.settle(await case.claim_one(), end)
            assert (await case.job("a")).attempts == 1

    @scenario
    async def test_a_stall_is_counted(self, case: Case) -> None:
        """A run settled as a stall is queued at its old position, with one stall more."""
        await case.put("a")
        await case.put("b")
        await case.settle(await case.claim_one(), Stall())
        assert (await case.job("a")).stalls == 1
        assert await case.order() == ["a", "b"]

    # leases --------------------------------------------------------------------------------------

    @scenario
    async def test_a_lease_that_is_over_is_taken_back(self, case: Case) -> None:
        """A job whose lease expired is reaped and claimed by another worker; the late settle is answered as lost."""
        await case.put("kept")
        await case.put("lost")
        kept, lost = await case.claim(2)
        case.pass_ms(LEASE - 1)
        assert await case.storage.reap(["q"]) == []
        await case.storage.renew("w", [claim_ref(kept)], LEASE)
        case.pass_ms(1)
        assert await case.storage.reap(["q"]) == [Reaped("q", "lost", State.QUEUED, "w", 1)]
        again = await case.claim_one(worker="v")
        assert (again.id, again.stalls, again.attempts) == ("lost", 1, 2)
        assert (await case.settle(lost)).lost
        assert (await case.settle(kept)).state is State.COMPLETED
        assert (await case.settle(again)).state is State.COMPLETED

    @scenario
    async def test_progress_belongs_to_one_run(self, case: Case) -> None:
        """Progress is shown until its run ends, and not in the next run."""
        await case.put("a")
        run = await case.claim_one()
        report = Report(queue=run.queue, id=run.id, token=run.token, progress=b"half")
        assert await case.storage.report([report]) == [Reported(True)]
        assert (await case.job("a")).progress == b"half"
        await case.settle(run, Release())
        await case.claim_one()
        assert (await case.job("a")).progress is None

    @scenario
    async def test_a_reaped_batch_keeps_its_order(self, case: Case) -> None:
        """A reaped batch is claimed again whole and in order."""
        for id in "abc":
            await case.put(id)
        await case.claim(1, batch=3)
        case.pass_ms(LEASE)
        assert len(await case.storage.reap(["q"])) == 3
        claims = await case.claim(1, batch=3)
        assert (ids(claims), {claim.batch for claim in claims}) == (["a", "b", "c"], {0})
