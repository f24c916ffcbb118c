"""Optional parts of a storage: statistics, records about operators, and histories of jobs.

Pages work without them: a storage that has none gives no charts, no error groups and no activity. A wrapper forwards
methods, so names are looked for: `isinstance` would miss those on Python 3.12.
"""

from __future__ import annotations

from typing import Any, cast

from penstock.storage.auditing import Auditing
from penstock.storage.base import Storage
from penstock.storage.observing import observing_of
from penstock.storage.recording import Recording

__all__ = ["auditing_of", "observing_of", "recording_of"]


def auditing_of(storage: Storage) -> Auditing | None:
    """Return the storage if it keeps records about operators, else None."""
    found: Any = storage
    return cast("Auditing", found) if hasattr(found, "log_activity") and hasattr(found, "put_bulk") else None


def recording_of(storage: Storage) -> Recording | None:
    """Return the storage if it keeps histories with its jobs, else None."""
    found: Any = storage
    return cast("Recording", found) if hasattr(found, "read") and hasattr(found, "wait_history") else None
