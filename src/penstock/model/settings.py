"""Settings that code declares (schedules and limits): whose declaration holds while several versions of code run."""

from __future__ import annotations

from collections.abc import Container

import msgspec

__all__ = ["Declarer", "holder"]


class Declarer(msgspec.Struct, frozen=True):
    """A worker that declares a setting, and the time (ms) at which it started, by the storage's clock."""

    worker: str
    started: int


def holder(record: Declarer | None, claimant: Declarer, live: Container[str]) -> Declarer:
    """Return the worker whose declaration holds: the one of the record, or the claimant, which then writes its own.

    The claimant may write if the record has no declarer, one that is not among the live workers any more, or one that
    started earlier. So the declaration of the last started live worker holds in the end, whatever the order in which
    workers start, die and look. Of two that started in the same millisecond it is the one with the greater id.
    """
    if record is None or record.worker == claimant.worker or record.worker not in live:
        return claimant
    earlier = (record.started, record.worker) < (claimant.started, claimant.worker)
    return claimant if earlier else record
