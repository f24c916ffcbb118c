"""The model beside a simulated storage."""

from __future__ import annotations

from typing import Any

from penstock.model.job import NewJob, State
from sim.ledger import Ledger
from sim.shadow import Shadow


def test_a_read_of_the_checks_ends_expired_jobs_of_the_model_too() -> None:
    """A job that expires at a read of the storage has ended at the same time in the model."""
    clock: list[int] = [1000]
    server: Any = None
    shadow = Shadow(Ledger(lambda: 0.0, lambda: clock[0]), server, lambda: clock[0])
    shadow.model.put([NewJob(queue="q", id="a", payload=b"", start_within=10)])
    clock[0] = 1020
    shadow.repeat("counts", ("q",))
    clock[0] = 2000
    shadow.repeat("time", ())
    [job] = shadow.model.find("q")
    assert (job.state, job.finished) == (State.CANCELLED, 1020)
