"""renew: running → running, for the claims that are named; and the progress that a run reports."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.storage.base import Held, Renewal
from penstock.storage.sqlite.tx import Tx

__all__ = ["renew", "report"]

_LOST, _KEPT = Renewal(False), Renewal(True)


def renew(tx: Tx, held: Sequence[Held], lease: int) -> list[Renewal]:
    """Extend the named claims; one that is not named runs out."""
    answers: list[Renewal] = []
    for claim in held:
        queue = tx.queue(claim.queue)
        rows = queue and tx.all("renew_lease", tx.now + lease, queue.k, claim.id, claim.token)
        if not rows:
            answers.append(_LOST)
        else:
            answers.append(_KEPT if rows[0][0] is None else Renewal(True, rows[0][0]))
    return answers


def report(tx: Tx, held: Held, progress: bytes) -> bool:
    """Attach progress to a run; False when the claim is lost."""
    queue = tx.queue(held.queue)
    return queue is not None and tx.do("report_progress", progress, queue.k, held.id, held.token) > 0
