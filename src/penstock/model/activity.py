"""Records about operators: who changed what, bulk actions, releases, and requests to workers."""

from __future__ import annotations

import getpass
import os
from typing import Literal

import msgspec
from msgspec.structs import replace

from penstock.errors import UNREADABLE, escaped

__all__ = [
    "ACTIVITY_MS",
    "BULK_MS",
    "MAX_ACTIVITY",
    "MAX_BULK",
    "MAX_IDS",
    "MAX_RELEASES",
    "MAX_RELEASE_NAME",
    "REQUEST_MS",
    "SILENT_MS",
    "Activity",
    "ActivityPage",
    "BulkAction",
    "BulkState",
    "BulkVerb",
    "Release",
    "Via",
    "WorkerRequest",
    "os_user",
]

#: The entries of the activity at most, and how long (ms) one is kept.
MAX_ACTIVITY, ACTIVITY_MS = 10_000, 90 * 86_400_000
#: The ids that an entry of the activity lists at most.
MAX_IDS = 10
#: The releases that are kept at most, and the characters of the name of one.
MAX_RELEASES, MAX_RELEASE_NAME = 50, 200
#: The bulk actions that are kept at most, and how long (ms) one is kept after its last change.
MAX_BULK, BULK_MS = 1_000, 86_400_000
#: A bulk action that has not begun or is under way, and whose record has not changed for this time (ms), has stopped.
SILENT_MS = 60_000

#: How long (ms) a request to a worker is kept for its next heartbeat.
REQUEST_MS = 60_000

#: The program through which an operator acted.
Via = Literal["cli", "dashboard", "django", "python"]

#: What a worker may be asked for: to claim no more jobs, or to stop as after SIGTERM.
WorkerRequest = Literal["quiet", "stop"]

#: What a bulk action does to each of its jobs.
BulkVerb = Literal["retry", "cancel", "run_now", "delete"]

#: `waiting` until its start, then `running`; `done` at the end of its jobs; `undone` if it was stopped before its
#: start, `stopped` if later; `failed` if the storage or the filter gave an error.
BulkState = Literal["waiting", "running", "done", "undone", "stopped", "failed"]


class Activity(msgspec.Struct, frozen=True, kw_only=True):
    """An entry of the audit log: who asked for which change, through what, and with which outcome.

    `at` (ms) is set by the storage. `role` and `address` are those of a viewer of the dashboard, empty elsewhere.
    `target` is the filter, or the name of a group, schedule, limit or worker; `ids` are the first `MAX_IDS` of `count`
    jobs.
    Payloads and results are in no entry.
    """

    who: str
    verb: str
    via: Via = "python"
    queue: str | None = None
    target: str = ""
    ids: tuple[str, ...] = ()
    count: int = 0
    outcome: str = ""
    role: str = ""
    address: str = ""
    at: int = 0

    def encode(self) -> bytes:
        """Return its stored form, without its time; it lists `MAX_IDS` ids at most."""
        return _encode(replace(self, ids=self.ids[:MAX_IDS], count=max(self.count, len(self.ids)), at=0))

    @classmethod
    def decode(cls, data: bytes, at: int) -> Activity | None:
        """Decode a stored entry; unreadable bytes give None."""
        try:
            return replace(_decode_activity(data), at=at)
        except UNREADABLE:
            return None


class ActivityPage(msgspec.Struct, frozen=True):
    """A page of the activity, newest first; `cursor` leads to the next one, None at the end."""

    entries: list[Activity]
    cursor: str | None = None


class BulkAction(msgspec.Struct, frozen=True, kw_only=True):
    """One verb on many jobs, as it is stored. Times are milliseconds of the storage's clock.

    `filter` is the text that selects the jobs; those accepted, or that ended, after `as_of` are left out. `done` is the
    number of jobs that it changed, `skipped` of those that no longer fitted, `failed` of those that gave an error.
    `error` is why it failed. `changed_at` and `version` are set by the storage with each change.
    """

    id: str
    who: str
    verb: BulkVerb
    filter: str
    as_of: int
    starts_at: int
    state: BulkState = "waiting"
    total: int | None = None
    done: int = 0
    skipped: int = 0
    failed: int = 0
    error: str = ""
    via: Via = "python"
    changed_at: int = 0
    version: int = 0

    def state_at(self, now: int) -> BulkState:
        """Return its state at a time (ms): one whose process has died is stopped, and is not resumed."""
        open_ended = self.state in ("waiting", "running")
        last = max(self.changed_at, self.starts_at if self.state == "waiting" else 0)
        return "stopped" if open_ended and now - last > SILENT_MS else self.state

    def encode(self) -> bytes:
        """Return its stored form, without the two fields that the storage sets."""
        return _encode(replace(self, changed_at=0, version=0))

    @classmethod
    def decode(cls, data: bytes, changed_at: int, version: int) -> BulkAction | None:
        """Decode a stored action; unreadable bytes give None."""
        try:
            return replace(_decode_bulk(data), changed_at=changed_at, version=version)
        except UNREADABLE:
            return None


class Release(msgspec.Struct, frozen=True):
    """A release: its name, and when (ms) it was first noted."""

    name: str
    at: int


def os_user() -> str:
    """Return the name of the user of this process, or the number if it has none."""
    try:
        return escaped(getpass.getuser())
    except (OSError, KeyError, ImportError):
        return str(os.getuid()) if hasattr(os, "getuid") else "unknown"


_encode = msgspec.msgpack.Encoder().encode
_decode_activity = msgspec.msgpack.Decoder(Activity).decode
_decode_bulk = msgspec.msgpack.Decoder(BulkAction).decode
