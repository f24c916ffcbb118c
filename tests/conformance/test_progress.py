"""report: attach progress to a run."""

from __future__ import annotations

import pytest

from penstock.storage.base import ClaimRef, Storage
from tests.support import (
    LEASE,
    SECOND,
    Clock,
    cancel_run,
    claim1,
    complete,
    fail,
    find_all,
    get1,
    held,
    new,
    put1,
    release,
    report_progress,
    retried,
    settle1,
    stall,
)

pytestmark = pytest.mark.one_per_engine


async def test_progress_is_shown_while_a_job_runs(storage: Storage) -> None:
    """The last report of a run is shown with its job, by get and by find."""
    await put1(storage, "q", "a")
    claim = await claim1(storage)
    assert (await get1(storage)).progress is None
    for report in (b"\x00\xff half", b"done"):
        assert await report_progress(storage, held(claim), report) is True
        assert (await get1(storage)).progress == report
    assert [job.progress for job in await find_all(storage)] == [b"done"]


async def test_empty_progress_is_progress(storage: Storage) -> None:
    """A report of no bytes is a report."""
    await put1(storage, "q", "a")
    assert await report_progress(storage, held(await claim1(storage)), b"")
    assert (await get1(storage)).progress == b""


@pytest.mark.parametrize("ending", [complete, fail, cancel_run, release, stall, retried])
async def test_progress_ends_with_its_run(storage: Storage, ending) -> None:
    """After a run was settled, by any resolution, its progress is not shown any more."""
    await put1(storage, "q", "a")
    claim = await claim1(storage)
    await report_progress(storage, held(claim), b"half")
    await settle1(storage, ending(claim))
    assert (await get1(storage)).progress is None


async def test_a_lost_claim_cannot_report(storage: Storage, clock: Clock) -> None:
    """A report with a stale token is refused, and that of the new run stays (invariant 8)."""
    await put1(storage, "q", "a")
    stale = await claim1(storage)
    clock.advance(ms=LEASE)
    await storage.reap(["q"])
    assert await report_progress(storage, held(stale), b"stale") is False
    fresh = await claim1(storage)
    await report_progress(storage, held(fresh), b"fresh")
    assert await report_progress(storage, held(stale), b"stale") is False
    assert (await get1(storage)).progress == b"fresh"


async def test_a_report_on_a_job_that_is_not_running_is_refused(storage: Storage) -> None:
    """A report on a waiting, finished or unknown job answers False and creates nothing."""
    assert await report_progress(storage, ClaimRef("q", "a", "t"), b"x") is False
    await storage.put([new("q", "a")])
    assert await report_progress(storage, ClaimRef("q", "a", ""), b"x") is False
    claim = await claim1(storage)
    await settle1(storage, complete(claim))
    assert await report_progress(storage, held(claim), b"x") is False


async def test_a_report_does_not_renew_the_lease(storage: Storage, clock: Clock) -> None:
    """A report is no heartbeat: the lease ends at its deadline."""
    await put1(storage, "q", "a")
    claim = await claim1(storage)
    clock.advance(ms=LEASE - SECOND)
    await report_progress(storage, held(claim), b"half")
    clock.advance(ms=SECOND)
    assert len(await storage.reap(["q"])) == 1
