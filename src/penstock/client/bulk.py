"""Bulk actions: one verb on all jobs that fit a filter, previewed, done in steps, and stopped from any process.

An action is a stored record. The process that starts it runs it, and reads the record before each step, so that any
other process can stop it. A process that dies leaves a record that reads as stopped; no process resumes it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence

import msgspec
from msgspec.structs import replace

from penstock.client.answers import JobStatus
from penstock.client.job_filter import FilterError, JobFilter, Redacting, find_jobs, parse_filter
from penstock.errors import PenstockError
from penstock.host import AppHost
from penstock.model.activity import Activity, BulkAction, BulkState, BulkVerb, Via, os_user
from penstock.model.checks import check_text
from penstock.model.clock import Span, span_ms
from penstock.model.ids import new_id
from penstock.model.job import NewJob, State, Update
from penstock.storage.auditing import need_auditing
from penstock.storage.base import PutStatus, Storage
from penstock.storage.observing import need_observing

__all__ = [
    "DELAY",
    "STEP",
    "Bulk",
    "BulkPreview",
    "change_jobs",
    "preview_bulk",
    "run_bulk",
    "run_now",
    "start_bulk",
    "stop_bulk",
]

#: The jobs of one step, and the seconds from the start to the first step, in which an action can be undone.
STEP, DELAY = 500, 5.0

#: The states from which each verb takes a job.
FROM: dict[BulkVerb, frozenset[State]] = {
    "retry": frozenset({State.FAILED, State.CANCELLED}),
    "cancel": frozenset({State.SCHEDULED, State.QUEUED, State.RETRYING, State.SUSPENDED, State.BLOCKED}),
    "run_now": frozenset({State.SCHEDULED, State.RETRYING}),
    "delete": frozenset(State) - {State.RUNNING},
}

#: Moves a waiting job to now, and changes nothing else.
TO_NOW = Update(payload=False, run_at=True, reset_counts=False, bounds=False, priority=False, group=False)

#: Is called with the record of an action after each step.
OnStep = Callable[[BulkAction], object]


class BulkPreview(msgspec.Struct, frozen=True):
    """Preview of an action: the number of its jobs, or with `exact` False a lower bound of it, and five of them.

    Jobs that were enqueued or ended after `as_of` (ms of the storage's clock) are left out of the action.
    """

    verb: BulkVerb
    filter: str
    count: int
    exact: bool
    samples: list[JobStatus]
    as_of: int


class Bulk:
    """One verb on all jobs that fit a filter, made by `app.bulk`; nothing changes before `run`."""

    def __init__(self, app: AppHost, verb: BulkVerb, filter: str, *, who: str | None = None, via: Via = "python"):
        check_verb(verb)
        self._app = app
        self._via: Via = via
        self._preview: BulkPreview | None = None
        self.verb: BulkVerb = verb
        #: The text of the filter.
        self.filter = parse_filter(filter).text
        #: The name of the operator in the activity.
        self.who = os_user() if who is None else check_text(who, "who")

    def __repr__(self) -> str:
        return f"<Bulk {self.verb} {self.filter!r}>"

    async def preview(self) -> BulkPreview:
        """Count the jobs that would be changed now; a `run` after it leaves out the jobs that come later.

        A filter of `queue`, `state` and `error_group` is counted exactly; of any other, 2,000 jobs are looked at.
        """
        self._preview = await preview_bulk(self._app, self.verb, self.filter)
        return self._preview

    async def run(self, *, delay: Span = 0, on_step: OnStep | None = None) -> BulkAction:
        """Change the jobs in steps of 500, after `delay`; returns the record of the action when it has ended.

        Its state is "done", or "failed" with `error` if the storage gave one, or "stopped" (before its begin "undone")
        if a process stopped it: see `stop_bulk` of the app. `on_step` is called with the record after each step. A
        cancelled `run` stops the action. Jobs that no longer fit when their turn comes are counted as skipped.
        """
        look = self._preview
        action = await start_bulk(
            self._app, self.verb, self.filter, who=self.who, as_of=look and look.as_of,
            total=look.count if look is not None and look.exact else None, delay=delay, via=self._via,
        )  # fmt: skip
        return await run_bulk(self._app, action.id, on_step=on_step) or action


def check_verb(verb: str) -> None:
    """Raise `ValueError` for a verb that does not exist."""
    if verb not in FROM:
        raise ValueError(f"verb must be one of {', '.join(map(repr, FROM))}, not {verb!r}")


async def preview_bulk(app: AppHost, verb: BulkVerb, filter: str, redacting: Redacting | None = None) -> BulkPreview:
    """Return what an action on the jobs that fit now would do; raises `FilterError`."""
    wanted = _parse(filter, redacting)
    storage = await app.opened()
    as_of = await storage.time()
    page = await find_jobs(app, wanted, limit=2_000, as_of=as_of, redacting=redacting)
    fitting = [job for job in page.jobs if job.state in FROM[verb]]
    count, exact = len(fitting), page.cursor is None
    if wanted.indexed and not exact:
        count, exact = await _count(storage, wanted, FROM[verb]), True
    return BulkPreview(verb, wanted.text, count, exact, fitting[:5], as_of)


async def start_bulk(
    app: AppHost, verb: BulkVerb, filter: str, *, who: str, as_of: int | None = None, total: int | None = None,
    delay: Span | None = None, via: Via = "python", redacting: Redacting | None = None,
) -> BulkAction:  # fmt: skip
    """Store an action on the jobs that fit, without those newer than `as_of`; `run_bulk` carries it out.

    It begins after `delay`, by default `DELAY` seconds.
    """
    check_verb(verb)
    wanted = _parse(filter, redacting)
    storage = await app.opened()
    now = await storage.time()
    action = BulkAction(
        id=new_id(), who=who, verb=verb, filter=wanted.text, as_of=now if as_of is None else min(as_of, now),
        starts_at=now + span_ms(DELAY if delay is None else delay, "delay"), total=total, via=via,
    )  # fmt: skip
    version = await need_auditing(storage).put_bulk(action)
    return replace(action, version=version or 0, changed_at=now)


def _parse(filter: str, redacting: Redacting | None) -> JobFilter:
    return parse_filter(filter) if redacting is None else parse_filter(filter, redacting.hides)


async def _count(storage: Storage, wanted: JobFilter, states: frozenset[State]) -> int:
    """Return how many jobs fit a filter that indexes answer, in these states."""
    queues = [wanted.queue] if wanted.queue is not None else await storage.queues()
    counted = states if wanted.state is None else states & {wanted.state}
    if wanted.error_group is None:
        counts = [await storage.counts(queue) for queue in queues]
        return sum(each[state] for each in counts for state in counted)
    if State.FAILED not in counted:
        return 0
    total = 0
    for queue in queues:
        cursor: str | None = None
        while True:
            page = await need_observing(storage).error_groups(queue, cursor, 1000)
            total += sum(group.open for group in page.groups if group.key == wanted.error_group)
            cursor = page.cursor
            if cursor is None:
                break
    return total


async def stop_bulk(app: AppHost, id: str) -> BulkAction | None:
    """Stop an action, from any process; returns its record, None if there is none. One that is over stays as it is."""
    storage = await app.opened()
    while (action := await need_auditing(storage).get_bulk(id)) is not None:
        if action.state not in ("waiting", "running"):
            return action
        state: BulkState = "undone" if action.state == "waiting" else "stopped"
        version = await need_auditing(storage).put_bulk(replace(action, state=state))
        if version is not None:
            return replace(action, state=state, version=version)
    return None


async def run_bulk(
    app: AppHost, id: str, redacting: Redacting | None = None, on_step: OnStep | None = None
) -> BulkAction | None:
    """Wait until a stored action begins, and carry it out; returns its last record, None if there is none.

    An action that another process has stopped, or whose record was not changed for too long, ends here; so does one
    whose task is cancelled. Its end is in the activity.
    """
    try:
        return await _carry_out(app, id, redacting, on_step)
    except asyncio.CancelledError:
        with contextlib.suppress(PenstockError):  # it then reads as stopped after a minute
            if (stopped := await stop_bulk(app, id)) is not None:
                await _log_end(app, stopped)
        raise


async def _carry_out(app: AppHost, id: str, redacting: Redacting | None, on_step: OnStep | None) -> BulkAction | None:
    """Carry a stored action out. Its record is read before each step and written after it."""
    storage = await app.opened()
    records, cursor = need_auditing(storage), None
    while True:
        action = await records.get_bulk(id)
        if action is None:
            return None
        now = await storage.time()
        if action.state_at(now) not in ("waiting", "running"):
            return await _end(app, action, action.state_at(now))
        if now < action.starts_at:
            await asyncio.sleep(min((action.starts_at - now) / 1000, 1.0))
            continue
        version = await records.put_bulk(replace(action, state="running"))
        if version is None:
            continue  # stopped meanwhile
        action = replace(action, state="running", version=version)
        try:
            wanted = _parse(action.filter, redacting)
            page = await find_jobs(app, wanted, cursor, STEP, as_of=action.as_of, max_looked=STEP, redacting=redacting)
            action = await _step(app, action, page.jobs)
        except (PenstockError, FilterError) as error:
            return await _end(app, replace(action, error=str(error)), "failed")
        cursor = page.cursor
        if await records.put_bulk(action) is None:  # stopped during the step: its counts are kept
            stopped = await records.get_bulk(id)
            counts = {"done": action.done, "skipped": action.skipped, "failed": action.failed}
            return await _end(app, msgspec.structs.replace(stopped or action, **counts), "stopped")
        if on_step is not None:
            on_step(action)
        if cursor is None:
            done = await records.get_bulk(id)
            return await _end(app, done or action, "done")


async def _end(app: AppHost, action: BulkAction, state: BulkState) -> BulkAction:
    """Store the last state of an action, and add it to the activity."""
    ended = replace(action, state=state)
    await need_auditing(await app.opened()).put_bulk(ended)
    await _log_end(app, ended)
    return ended


async def _log_end(app: AppHost, ended: BulkAction) -> None:
    """Add the end of an action to the activity."""
    outcome = f"{ended.state}: {ended.done} done, {ended.skipped} skipped, {ended.failed} failed"
    entry = Activity(who=ended.who, verb=f"bulk {ended.verb}", via=ended.via, target=ended.filter, outcome=outcome)
    await need_auditing(await app.opened()).log_activity(entry)


async def _step(app: AppHost, action: BulkAction, jobs: Sequence[JobStatus]) -> BulkAction:
    """Do the verb to jobs, queue by queue, and count what became of them."""
    by_queue: dict[str, list[str]] = {}
    skipped = 0
    for job in jobs:
        if job.state in FROM[action.verb]:
            by_queue.setdefault(job.queue, []).append(job.id)
        else:
            skipped += 1
    done = 0
    for queue, ids in by_queue.items():
        changed = await change_jobs(app, action.verb, queue, ids, before=action.as_of)
        done += changed
        skipped += len(ids) - changed
    return replace(action, done=action.done + done, skipped=action.skipped + skipped)


async def change_jobs(app: AppHost, verb: BulkVerb, queue: str, ids: Sequence[str], before: int | None = None) -> int:
    """Do a verb to jobs of one queue and return how many it changed; with `before` (ms) no newer job is deleted."""
    storage = await app.opened()
    if verb == "retry":
        return sum(await storage.revive(queue, ids))
    if verb == "cancel":
        answers = await storage.cancel(queue, ids, ttl=app.options(queue).keep_ms)
        return sum(answer.status == "cancelled" and not answer.already for answer in answers)
    if verb == "delete":
        return sum(answer in ("cancelled", "discarded") for answer in await storage.discard(queue, ids, before=before))
    return await run_now(storage, queue, ids)


async def run_now(storage: Storage, queue: str, ids: Sequence[str]) -> int:
    """Make scheduled and retrying jobs due now; returns how many. Others stay as they are.

    A job that is claimed between the look and the change would get a successor, and one that has gone would be put
    anew: both are taken back.
    """
    moved = 0
    for found in await storage.get(queue, ids):
        if found is None or found.state not in FROM["run_now"]:
            continue
        job = NewJob(
            queue=queue, id=found.id, payload=found.payload, headers=found.headers, bounds=found.bounds, update=TO_NOW
        )
        [answer] = await storage.put([job])
        if answer.status is PutStatus.UPDATED:
            moved += 1
        elif answer.status in (PutStatus.BLOCKED, PutStatus.QUEUED):
            await storage.discard(queue, [found.id], State(answer.status.value))
    return moved
