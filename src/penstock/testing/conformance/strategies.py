"""Hypothesis strategies of the random walk: few queues, ids and times, so that calls affect each other."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from penstock.errors import ErrorKind, JobError
from penstock.model.history import LOG_LEVELS, NewLine
from penstock.model.job import Update
from penstock.model.limit import Limit
from penstock.storage.limiting import Scope

SECOND = 1_000
LEASE = 10_000
HOUR = 3_600_000

#: Two queues of one family, its fail queue, and one of another family.
QUEUES = ("q", "q/side", "q/failures", "other")
IDS = ("a", "b", "c", "d", "e")
GROUPS = ("g", "h")
WORKERS = ("v", "w")

queues = st.sampled_from(QUEUES)
ids = st.sampled_from(IDS)
small_bytes = st.sampled_from([b"", b"1", b"2", b"\x00\xff"])
#: Errors of failed jobs: with a key, with another one, and such as no worker writes.
errors = st.sampled_from([
    JobError("A", "a" * 250, key="0123456789abcdef").encode(),
    JobError("B", "\u20ac" * 90, ErrorKind.TIMEOUT, key="fedcba9876543210").encode(),
    JobError("C", "c").encode(), b"", b"1",
])  # fmt: skip
lines = st.lists(
    st.builds(
        NewLine, st.sampled_from(["", "one", "é" * 9_000]), st.sampled_from(LOG_LEVELS), st.sampled_from([0, 1, SECOND])
    ),
    max_size=3,
).map(tuple)
spans = st.sampled_from([0, 1, SECOND, LEASE, HOUR])
ttls = st.sampled_from([0, 0, 1, SECOND, HOUR, None])
#: A time relative to the clock: the past, now, soon, later.
offsets = st.sampled_from([-HOUR, -1, 0, 1, SECOND, LEASE, HOUR])

updates = st.builds(
    Update,
    payload=st.booleans(),
    run_at=st.sampled_from([True, False, "if_later", "if_earlier"]),
    reset_counts=st.sampled_from([None, True, False]),
    bounds=st.booleans(),
    priority=st.booleans(),
    group=st.booleans(),
)


#: The scopes of limits: those of the queues above.
SCOPES = (
    Scope("family", "q"),
    *(Scope("queue", queue) for queue in QUEUES),
    *(Scope("groups", queue) for queue in QUEUES),
    *(Scope("group", queue, group) for queue in QUEUES for group in GROUPS),
)
scopes = st.sampled_from(SCOPES)


@st.composite
def limits(draw: st.DrawFn, group: bool) -> Limit:
    """Draw a limit, of groups or not, with numbers so small that it is reached."""
    concurrency = draw(st.sampled_from([None, 1, 2, 3]))
    rate = draw(st.sampled_from([None, None, "1/s", "3/s", "1000/s", "2/h"]))
    options: dict[str, Any] = {}
    if rate is not None:
        options = {"burst": draw(st.sampled_from([1, 1, 2, 5])), "by": draw(st.sampled_from(["starts", "cost"]))}
    if group:
        options["weight"] = draw(st.sampled_from([1, 1, 2, 3]))
        options["ordered"] = draw(st.sampled_from([None, False]))
    return Limit(concurrency=concurrency, rate=rate, **options)


@st.composite
def new_jobs(draw: st.DrawFn, queue: st.SearchStrategy[str] = queues) -> dict[str, Any]:
    """Draw the fields of a job to put; its `at` and `by` are relative to the clock, which only the walk knows."""
    group = draw(st.sampled_from([None, None, *GROUPS]))
    when = draw(st.sampled_from(["none", "none", "run_at", "delay"]))
    expiry = draw(st.sampled_from(["none", "none", "none", "start_by", "start_within"]))
    return {
        "queue": draw(queue),
        "id": draw(ids),
        "payload": draw(small_bytes),
        "headers": draw(small_bytes),
        "bounds": draw(small_bytes),
        "group": group,
        "priority": 0 if group else draw(st.sampled_from([0, 0, 1, -1, 1000])),
        "update": draw(st.none() | updates),
        "at": draw(offsets) if when == "run_at" else None,
        "delay": draw(spans) if when == "delay" else None,
        "by": draw(offsets) if expiry == "start_by" else None,
        "cost": draw(st.sampled_from([1, 1, 1, 2, 1_000_000_000])),
        "window": draw(st.sampled_from([None, None, SECOND, LEASE, HOUR])),
        "max_wait": draw(st.sampled_from([None, None, None, SECOND, LEASE])),
        "start_within": draw(spans) if expiry == "start_within" else None,
    }


@st.composite
def resolutions(draw: st.DrawFn) -> dict[str, Any]:
    """Draw the fields of a resolution; follow-up jobs stay within the family of the run's queue."""
    kind = draw(st.sampled_from(["complete", "complete", "retried", "retried", "fail", "cancel", "release", "stall"]))
    then = st.lists(new_jobs(st.sampled_from(["", "/failures", "/side"])), max_size=2)
    match kind:
        case "complete":
            return {"kind": kind, "result": draw(small_bytes), "ttl": draw(ttls), "then": draw(then)}
        case "fail":
            count = draw(st.sampled_from([None, "timeouts"]))
            fields = {"kind": kind, "error": draw(errors), "ttl": draw(ttls), "count": count, "then": draw(then)}
            return fields | {"ran": draw(st.booleans())}
        case "cancel":
            return {"kind": kind, "ttl": draw(ttls), "ran": draw(st.booleans())}
        case "retried":
            return {
                "kind": kind,
                "at": draw(st.none() | offsets),
                "delay": draw(spans),
                "count": draw(st.sampled_from(["retries", "timeouts", None])),
                "position": draw(st.sampled_from(["keep", "due"])),
                "solo": draw(st.booleans()),
                "error": draw(small_bytes),
                "pause": draw(st.sampled_from([None, None, "group", "queue"])),
            }
        case _:
            return {"kind": kind}
