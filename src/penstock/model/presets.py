"""Presets: defaults that reproduce the behaviour of four other job queues.

A preset fills in only the options that were not given: an option of a call, a job or a handler always
wins over it. Defects of those systems are in no preset. The comments name the entries of the ledger
in `tests/parity/ledger`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from penstock.model.job import OnConflict
from penstock.model.options import HandlerOptions, handler_options

__all__ = ["NO_PRESET", "PRESETS", "Preset", "preset_named"]


class Preset(msgspec.Struct, frozen=True, kw_only=True):
    """The defaults of an app."""

    name: str | None
    options: HandlerOptions = HandlerOptions()
    on_conflict: OnConflict = "reject"
    cancel: Literal["refuse", "forget", "signal", "kill"] = "refuse"
    lease: float = 10.0
    #: A job without a group is in the group named like its queue.
    grouped: bool = False

    def handler_options(self, given: Mapping[str, Any]) -> HandlerOptions:
        """Return a handler's options over the preset's; a given option also resets those that would defeat it."""
        for name, other, value in REPLACES:
            if name in given and other not in given and getattr(self.options, other) != value:
                given = {**given, other: value}
        return handler_options(given, self.options)

    def job_options(self, given: Mapping[str, Any], queue: str) -> Mapping[str, Any]:
        """Return the options of a job with those added that its producer left to the preset."""
        updates = given.get("on_conflict") is not None or given.get("debounce") is not None
        if self.on_conflict != "reject" and not updates:
            given = {**given, "on_conflict": self.on_conflict}
        if self.grouped and given.get("group") is None:
            if given.get("priority"):
                raise ValueError(
                    f"priority: with preset={self.name!r} a job is in its queue's group, "
                    "and priority does not reorder it"
                )
            given = {**given, "group": queue}
        return given


#: An option that is given resets another one that would defeat it: (given, the other, its value then).
REPLACES: tuple[tuple[str, str, Any], ...] = (
    ("size", "concurrency", None),  # both bound the concurrent runs
    ("max_retries", "max_attempts", None),  # both bound the number of runs
    ("result_ttl", "retain", "ttl"),  # a TTL for results asks to keep them
)

#: No preset: Penstock's own defaults.
NO_PRESET = Preset(name=None)

QUEASY = Preset(
    name="queasy",
    on_conflict="update",  # C1, C2: the same id changes the waiting job, and follows a running one
    cancel="refuse",  # C16: running jobs are not cancelled
    lease=10.0,  # C13: heartbeat 5 s, dead after 10 s
    options=HandlerOptions(
        retry_position="due",  # C7: a failed job returns at its backoff time
        max_attempts=None,  # C9: retries, stalls and timeouts are counted apart
        max_retries=10,  # C10: 11 runs
        max_stalls=3,  # C10
        max_timeouts=3,  # C9
        min_backoff=2.0,  # C11
        max_backoff=300.0,  # C11
        timeout=60.0,
        size=10,  # C21: units and sizes, 100 and 10
        retain="none",  # C3: nothing is kept of a finished job, its id is free again
    ),
)

QUEUE_FARM = Preset(
    name="queue_farm",
    grouped=True,  # QF-1: each named queue runs in order, one batch in flight (QF-41)
    on_conflict="reject",  # C1: ids are made up, so there is nothing to decide
    cancel="forget",  # QF-S9: deleting a running job makes this run its last
    lease=30.0,  # as the timeout; the heartbeat stays on, so a slow healthy job is not run twice (QF-D2)
    options=HandlerOptions(
        retry_position="keep",  # QF-44: back to the front
        max_attempts=3,  # QF-7; QF-S1: every start counts
        max_retries=None,  # QF-S1: no other limit
        max_stalls=None,  # QF-S1
        max_timeouts=None,  # QF-S1
        min_backoff=0.0,  # QF-S2: retried at once
        timeout=30.0,  # QF-6
        concurrency=1,  # QF-16
        batch_size=1,  # QF-17
        retain="none",  # QF-5: deleteJobs; retain="forever" is deleteJobs=false
    ),
)

JOB_QUEUE = Preset(
    name="job_queue",
    on_conflict="reject",  # C1, C2: duplicate; C3: the cached result
    cancel="refuse",  # C16: processing is refused
    lease=30.0,  # C13: visibility 30 s; the heartbeat stays on (PJ-D7)
    options=HandlerOptions(
        retry_position="keep",  # C7: front, as on its Redis and memory storages
        max_attempts=3,  # C10
        max_retries=None,  # C9: one limit
        max_stalls=3,  # 5.3 note 1: unlimited stalls are a defect (PJ-D6); None restores them
        max_timeouts=None,
        min_backoff=0.0,  # C11: none
        timeout=30.0,
        concurrency=1,  # C21
        retain="ttl",  # C19: results are stored
        result_ttl=3600.0,  # U12: for an hour
    ),
)

WORQR = Preset(
    name="worqr",
    on_conflict="raise",  # C5: a duplicate is an exception; without an id there are no duplicates
    cancel="signal",  # C16: the worker is notified, and must cooperate
    lease=3.0,  # C13: the worker's key lives 3 s
    options=HandlerOptions(
        retry_position="keep",  # C7: the front, as documented (not the back, as v1.2.3 does)
        max_attempts=None,  # C10: unlimited
        max_retries=None,  # C10
        max_stalls=None,  # C10
        max_timeouts=None,  # C10
        min_backoff=0.0,  # C11
        timeout=None,  # C14: persistent tasks are a feature
        retain="none",  # C19: the event has the result, which is not kept
    ),
)

PRESETS = {str(preset.name): preset for preset in (QUEASY, QUEUE_FARM, JOB_QUEUE, WORQR)}


def preset_named(name: str | None) -> Preset:
    """Return the preset of a name; None gives Penstock's own defaults."""
    if name is None:
        return NO_PRESET
    if name not in PRESETS:
        raise ValueError(f"preset must be one of {', '.join(map(repr, PRESETS))}, not {name!r}")
    return PRESETS[name]
