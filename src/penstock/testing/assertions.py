"""`assert_enqueued`: an assertion about the jobs of a queue, whose failure lists them."""

from __future__ import annotations

import difflib
import pprint
from collections.abc import Coroutine, Mapping
from typing import Any, TypedDict, Unpack, overload

from penstock.client.answers import JobStatus
from penstock.client.app import Penstock
from penstock.errors import InvalidPayload
from penstock.model.clock import Moment, Span, milliseconds, span_ms
from penstock.model.job import State
from penstock.model.serde import Serde, decode, encode
from penstock.sync import Penstock as SyncPenstock
from penstock.testing.apps import AnyApp, async_app_of, resolve_for

__all__ = ["JobCriteria", "assert_enqueued"]

#: How many jobs a failure lists.
MAX_LISTED = 20


class JobCriteria(TypedDict, total=False):
    """The properties by which a job can be looked for."""

    payload: Any
    id: str
    state: State | str
    group: str | None
    priority: int
    run_at: Moment
    delay: Span
    headers: Mapping[str, str]


@overload
def assert_enqueued(
    app: Penstock, queue: str, *, count: int | None = None, **wanted: Unpack[JobCriteria]
) -> Coroutine[Any, Any, list[JobStatus]]: ...


@overload
def assert_enqueued(
    app: SyncPenstock, queue: str, *, count: int | None = None, **wanted: Unpack[JobCriteria]
) -> list[JobStatus]: ...


def assert_enqueued(
    app: AnyApp, queue: str, *, count: int | None = None, **wanted: Unpack[JobCriteria]
) -> Coroutine[Any, Any, list[JobStatus]] | list[JobStatus]:
    """Assert that a queue has a job like this, or exactly `count` of them (0 for none), and return them.

    A job is looked for by any of `payload`, `id`, `state`, `group`, `priority`, `run_at`, `delay` (since it was
    enqueued) and `headers`, in every state that is kept. The failure lists the jobs that were found instead.
    """
    for name in wanted:
        if name not in JobCriteria.__annotations__:
            raise TypeError(f"a job has no {name!r}; known: {', '.join(JobCriteria.__annotations__)}")
    return resolve_for(app, _assert_enqueued(async_app_of(app), queue, count, wanted))


async def _assert_enqueued(app: Penstock, queue: str, count: int | None, wanted: JobCriteria) -> list[JobStatus]:
    __tracebackhide__ = True
    jobs = await _jobs(app, queue)
    serde = app.codec(queue).payload
    found = [job for job in jobs if not _mismatches(job, wanted, serde)]
    if len(found) == count or (count is None and found):
        return found
    raise AssertionError(await _failure_message(app, queue, count, wanted, jobs, found))


async def _jobs(app: Penstock, queue: str) -> list[JobStatus]:
    jobs: list[JobStatus] = []
    cursor: str | None = None
    while True:
        page = await app.queue(queue).find(after=cursor, limit=500)
        jobs += page
        cursor = page.cursor
        if cursor is None:
            return jobs


def _mismatches(job: JobStatus, wanted: JobCriteria, serde: Serde) -> list[str]:
    """Return the names of the criteria that a job does not meet."""
    return [name for name, value in wanted.items() if not _matches(job, name, value, serde)]


def _matches(job: JobStatus, name: str, value: Any, serde: Serde) -> bool:
    match name:
        case "payload":
            return job.payload == value or job.payload == _round_trip(value, serde)
        case "run_at":
            return milliseconds(job.run_at, name) == milliseconds(value, name)
        case "delay":
            return round((job.run_at - job.created_at).total_seconds() * 1000) == span_ms(value, name)
        case _:
            return getattr(job, name) == value


def _round_trip(payload: Any, serde: Serde) -> Any:
    """Return a payload as the storage would return it: a dataclass becomes an object, a tuple a list."""
    try:
        return decode(serde, encode(serde, payload, "payload"))
    except InvalidPayload:  # for example unittest.mock.ANY, which has no encoding but can be compared
        return payload


# the message of a failure -------------------------------------------------------------------------


async def _failure_message(
    app: Penstock, queue: str, count: int | None, wanted: JobCriteria, jobs: list[JobStatus], found: list[JobStatus]
) -> str:
    criteria = ", ".join(f"{name}={value!r}" for name, value in wanted.items())
    like = f" with {criteria}" if criteria else ""
    lines = [
        f"no job in {queue!r}{like}" if count is None else f"{len(found)} jobs in {queue!r}{like}, not {count}",
    ]
    lines.append(f"in {queue!r}: {_format_count(len(jobs))}")
    lines += [f"  {_describe_job(job)}" for job in jobs[:MAX_LISTED]]
    if len(jobs) > MAX_LISTED:
        lines.append(f"  and {len(jobs) - MAX_LISTED} more")
    if jobs and not found:
        lines += _closest(jobs, wanted, app.codec(queue).payload)
    others = [name for name in await app.queues() if name != queue]
    if others:
        lines.append(f"other queues: {', '.join(map(repr, others))}")
    return "\n".join(lines)


def _closest(jobs: list[JobStatus], wanted: JobCriteria, serde: Serde) -> list[str]:
    """Return lines with the differences of the job that meets the most criteria."""
    job = min(jobs, key=lambda job: len(_mismatches(job, wanted, serde)))
    lines = [f"closest is {job.id!r} (- wanted, + found):"]
    for name in _mismatches(job, wanted, serde):
        value: Any = dict[str, Any](wanted)[name]
        expected = _round_trip(value, serde) if name == "payload" else value
        actual = (job.run_at - job.created_at).total_seconds() if name == "delay" else getattr(job, name)
        lines.append(f"  {name}:")
        differing = difflib.ndiff(_pretty(expected), _pretty(actual))
        lines += [f"    {line}" for line in differing if not line.startswith("?")]
    return lines


def _describe_job(job: JobStatus) -> str:
    more = {"group": job.group, "priority": job.priority or None, "error": job.error and job.error.type}
    rest = "".join(f" {name}={value!r}" for name, value in more.items() if value is not None)
    return f"{job.state:<9} {job.id!r} payload={job.payload!r}{rest}"


def _format_count(jobs: int) -> str:
    return "nothing" if not jobs else "1 job" if jobs == 1 else f"{jobs} jobs"


def _pretty(value: Any) -> list[str]:
    return pprint.pformat(value, width=100).splitlines()
