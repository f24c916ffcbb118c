"""Settling the claims of a dead child: which of its jobs are charged a stall."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from penstock import Penstock, State
from penstock.model.job import Claim
from penstock.model.outcome import Stall
from penstock.storage.base import ClaimRef, Request, Settlement
from penstock.worker.run import RunJob
from penstock.worker.settler import Settler
from penstock.worker.supervisor import crash_recovery
from penstock.worker.supervisor.claim_table import Phase, Slot
from penstock.worker.supervisor.crash_recovery import SPARED, CrashRecovery
from tests.worker.support import IgnoringFlow

#: A child that died by itself.
DIED: Any = SimpleNamespace(fenced=False, killed=False, killed_for={}, death="signal 9", stacks=[])


class Flow(IgnoringFlow):
    """The owner of the settler, which keeps the jobs that were settled."""

    def settled(self, jobs: Any) -> None:
        assert all(isinstance(job, RunJob) for job in jobs)


async def claims_with_stalls(app: Penstock, stalls: int) -> list[Slot]:
    """Claim all jobs, with this many stalls each; returns their slots, all of runs under way."""
    claims: list[Claim] = []
    for n in range(stalls + 1):
        claims = (await app.storage.claim([Request("q", 10)], "w", 60_000, f"token-{n:010}")).claims
        if n < stalls:
            await app.storage.settle([Settlement(each.queue, each.id, each.token, Stall()) for each in claims])
    now = time.monotonic()
    return [
        Slot(position, 1, ClaimRef(c.queue, c.id, c.token), c.attempts, Phase.RUNNING, None, 0, 0, now, now + position)
        for position, c in enumerate(claims)
    ]


async def died(app: Penstock, slots: list[Slot], recovery: CrashRecovery, settler: Settler) -> dict[str, int]:
    """Have a child with these claims die; returns the stalls of its jobs afterwards."""
    recovery.add(DIED, slots, "w")
    await recovery.step()
    await settler.step()
    found = {job.id: job for job in await app.queue("q").find(State.QUEUED)}
    assert sorted(found) == sorted(slot.ref.id for slot in slots)
    return {id: job.stalls for id, job in found.items()}


@pytest.fixture
def recovery_of(app: Penstock) -> Any:
    """Return a function that builds the recovery and its settler; needs a running event loop."""

    def build() -> tuple[CrashRecovery, Settler]:
        app.listen("q", lambda payload: None, max_stalls=3)
        settler = Settler(app, "w", Flow())
        return CrashRecovery(app, app.handlers, 60.0, settler), settler

    return build


async def test_a_job_is_not_charged_its_last_stall_while_another_run_may_be_the_cause(
    app: Penstock, recovery_of: Any
) -> None:
    """Beside others, the last stall is not counted, a few times; then it is: the job may be the cause after all."""
    recovery, settler = recovery_of()
    await app.queue("q").enqueue(1, id="a")
    await app.queue("q").enqueue(1, id="b")
    slots = await claims_with_stalls(app, 2)
    for n in range(SPARED):
        assert await died(app, slots, recovery, settler) == {"a": 2, "b": 2}
        claims = (await app.storage.claim([Request("q", 10)], "w", 60_000, f"again-{n:010}")).claims
        assert [claim.attempts for claim in claims] == [3, 3]
        slots = [slot._replace(ref=ClaimRef(c.queue, c.id, c.token)) for slot, c in zip(slots, claims, strict=True)]
    assert await died(app, slots, recovery, settler) == {"a": 3, "b": 3}


@pytest.mark.parametrize("stalls", [0, 1])
async def test_an_earlier_stall_is_counted_beside_others(app: Penstock, recovery_of: Any, stalls: int) -> None:
    """Only the last stall is spared: the earlier ones lead to a run alone."""
    recovery, settler = recovery_of()
    await app.queue("q").enqueue(1, id="a")
    await app.queue("q").enqueue(1, id="b")
    slots = await claims_with_stalls(app, stalls)
    assert await died(app, slots, recovery, settler) == {"a": stalls + 1, "b": stalls + 1}


async def test_a_job_that_ran_alone_is_charged_its_last_stall(app: Penstock, recovery_of: Any) -> None:
    """Nothing else can have killed the process."""
    recovery, settler = recovery_of()
    await app.queue("q").enqueue(1, id="a")
    assert await died(app, await claims_with_stalls(app, 2), recovery, settler) == {"a": 3}


async def test_a_claim_that_cannot_be_given_back_does_not_hold_up_the_others(
    app: Penstock, recovery_of: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its lease expires; the claims behind it are settled at once."""
    recovery, settler = recovery_of()
    real = crash_recovery.outcome_of

    def outcome_of(orphan: Any, handler: Any) -> Any:
        if orphan.slot.ref.id == "a":
            raise RecursionError("a bug")
        return real(orphan, handler)

    monkeypatch.setattr(crash_recovery, "outcome_of", outcome_of)
    await app.queue("q").enqueue(1, id="a")
    await app.queue("q").enqueue(1, id="b")
    recovery.add(DIED, await claims_with_stalls(app, 0), "w")
    await recovery.step()
    await settler.step()
    assert not recovery.busy
    counts = await app.queue("q").counts()
    assert (counts[State.RUNNING], counts[State.QUEUED]) == (1, 1)
    assert "job 'a' of a dead process could not be given back" in caplog.text
