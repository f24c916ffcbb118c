"""renew: running → running with a longer lease, for the named claims."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.storage.base import CANCEL_MODES, ClaimRef, Renewal
from penstock.storage.sqlite.transaction import Transaction

__all__ = ["renew"]

_LOST, _KEPT = Renewal(False), Renewal(True)


def renew(tx: Transaction, held: Sequence[ClaimRef], lease: int) -> list[Renewal]:
    """Extend the leases of the named claims; a claim that is not named expires."""
    named: dict[str, list[ClaimRef]] = {}
    for claim in held:
        named.setdefault(claim.queue, []).append(claim)
    kept: dict[ClaimRef, Renewal] = {}
    for name, claims in named.items():
        queue = tx.queue(name)
        if queue is None:
            continue
        rows = tx.run_with_list("renew_known", (queue.k,), [claim.id for claim in claims])
        found = {(id, token): (n, cancel) for id, token, n, cancel in rows}
        ours = {claim: row for claim in claims if (row := found.get((claim.id, claim.token)))}
        tx.run_with_list("renew_lease", (tx.now + lease,), [n for n, _ in ours.values()])
        kept |= {claim: _renewal(cancel) for claim, (_, cancel) in ours.items()}
    return [kept.get(claim, _LOST) for claim in held]


def _renewal(cancel: Any) -> Renewal:
    """Return the answer for a renewed claim; a cancel mode that cannot be read counts as none."""
    return Renewal(True, cancel) if cancel in CANCEL_MODES else _KEPT
