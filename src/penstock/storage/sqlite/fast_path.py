"""The conditions of the fast paths of put, claim and settle: the one place where a case is called plain.

Each fast path must leave the same rows and answers as the general path named here. The random walks of
`tests/conformance/test_model.py` compare both with the model, and `Engine(fast=False)` takes only the general paths.

| fast path                 | general path                                      |
|---------------------------|---------------------------------------------------|
| `fast_put.put_fast`       | `put.put` in a transaction                        |
| `put._put_plain`          | `put._accept_new` for each job                    |
| `claim._claim_plain`      | `claim._select_batches` and `claim._start_runs`   |
| `claim._turns` with heads | `claim._head` for each group                      |
| `claim._claim_plain`      | `limited_claim.Selection`, if no rate holds       |
| `settle._complete_plain`  | `settle._settle_all`                              |
| `settle._Completions`     | `settle._settle` for each settlement              |
"""

from __future__ import annotations

from penstock.model.job import NewJob
from penstock.storage.base import Complete, Request, Settlement
from penstock.storage.sqlite.transaction import QueueRow, Transaction

__all__ = ["can_claim_plain", "can_complete_plain", "is_plain_completion", "is_plain_job"]


def is_plain_job(new: NewJob) -> bool:
    """Return whether a job may run at once and carries nothing but a payload and a priority."""
    return (
        new.group is None and new.delay is None and new.run_at is None
        and not new.headers and not new.bounds and new.waiter is None
        and new.start_by is None and new.start_within is None and new.cost == 1
        and new.window is None and new.flow is None
    )  # fmt: skip


def can_claim_plain(tx: Transaction, queue: QueueRow, request: Request) -> bool:
    """Return whether a claim may read its jobs column by column: no batches, groups or flows, and no damaged text.

    The rows must also never have run; `claim_plain` answers that in its last column.
    """
    return tx.fast and request.batch == 1 and not queue.has_groups and not tx.damaged and not queue.flows


def is_plain_completion(s: Settlement) -> bool:
    """Return whether a settlement completes a job, keeps its result and puts no follow-up job."""
    return type(s.resolution) is Complete and s.resolution.ttl != 0 and not s.resolution.then


def can_complete_plain(queue: QueueRow) -> bool:
    """Return whether completions of a queue affect only their own rows: no groups, no successors and no flows."""
    return not (queue.has_groups or queue.has_blocked or queue.flows)
