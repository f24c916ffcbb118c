"""Health of a worker: whether a restart would help it, and whether it takes jobs.

A worker is healthy unless its claim loop hangs, or it gets no answers from a storage that answers others. A storage
that cannot be reached is no reason for a restart.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.aio import drive
from penstock.errors import PenstockError
from penstock.host import AppHost
from penstock.model.worker_status import WorkerStatus

__all__ = ["ANSWER_AGE", "CLAIM_AGE", "storage_answers", "why_not_ready", "why_unhealthy"]

#: How long (seconds) the claim loop may take for one step, and how long the storage may not have answered.
CLAIM_AGE, ANSWER_AGE = 30.0, 60.0


def why_unhealthy(status: WorkerStatus, answers: Callable[[], bool]) -> str | None:
    """Return why the worker should be restarted, or None; `answers` asks the storage over a new connection."""
    if status.stage in ("stopping", "stopped"):
        return None
    if status.claim_age > CLAIM_AGE:
        return f"the claim loop has not turned for {status.claim_age:.0f} s"
    if status.answer_age > ANSWER_AGE and answers():
        return f"no answer of the storage for {status.answer_age:.0f} s, though it answers a new connection"
    return None


def why_not_ready(status: WorkerStatus) -> str | None:
    """Return why the worker takes no jobs now, or None."""
    if status.stage != "working":
        return f"the worker is {status.stage}"
    if status.answer_age > status.lease:
        return f"no answer of the storage for {status.answer_age:.0f} s, which is longer than a lease"
    return None


def storage_answers(host: AppHost) -> bool:
    """Ask the storage over a new connection; False if it does not answer, or no connection can be made here."""
    storage = host.blocking_storage()
    if storage is None or storage.shares_connection:
        return False
    try:
        drive(storage.open())
        drive(storage.time())
        return True
    except (PenstockError, OSError):
        return False
    finally:
        drive(storage.close())
