"""Rows of schedules, for the pages Schedules and Queue."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec
from cronsim import CronSim, CronSimError

from penstock.client.schedule_info import ScheduleInfo
from penstock.dashboard.context import PageContext
from penstock.dashboard.formatting import duration
from penstock.dashboard.values import preview
from penstock.model.cron import Cron
from penstock.model.every import Every
from penstock.model.job import State

__all__ = ["ScheduleRow", "schedule_rows", "when_words"]


class ScheduleRow(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule in a table: when it ticks in words and as it is given, its next and last tick, and their counts.

    `last_state` is the state of the job of the last tick, None if there is no such job, or not any more.
    """

    queue: str
    name: str
    words: str
    given: str
    zone: str
    next_at: datetime | None
    last_at: datetime | None
    last_id: str | None
    last_state: State | None
    fired: int
    skipped: int
    missed: int
    dropped: int
    source: str
    paused_since: datetime | None
    retired_since: datetime | None
    changed: list[str]
    note: str
    payload: str


async def schedule_rows(context: PageContext, queue: str, infos: Sequence[ScheduleInfo]) -> list[ScheduleRow]:
    """Return the rows of schedules of a queue; the jobs of their last ticks are read in one call, if there are any."""
    ids = [info.last_id for info in infos if info.last_id is not None]
    jobs = await (await context.storage()).get(queue, ids) if ids else []
    states = {job.id: job.state for job in jobs if job is not None}
    return [schedule_row(context, info, states.get(info.last_id or "")) for info in infos]


def schedule_row(context: PageContext, info: ScheduleInfo, last_state: State | None) -> ScheduleRow:
    """Return the row of a schedule."""
    words, given, zone = when_words(info.when)
    codec = context.app.codec(info.queue)
    payload = f"from {info.payload_function}" if info.payload_function else ""
    return ScheduleRow(
        queue=info.queue,
        name=info.name,
        words=words,
        given=given,
        zone=zone,
        next_at=info.next_at,
        last_at=info.last_at,
        last_id=info.last_id,
        last_state=last_state,
        fired=info.fired,
        skipped=info.skipped,
        missed=info.missed,
        dropped=info.dropped,
        source=info.source,
        paused_since=info.paused_since,
        retired_since=info.retired_since,
        changed=info.changed,
        note=context.text(info.note),
        payload=payload or preview(info.payload, codec.payload, context.redactor, admin=context.admin),
    )


def when_words(when: object) -> tuple[str, str, str]:
    """Return when a schedule ticks: in words, as it is given, and its time zone."""
    if isinstance(when, Cron):
        try:
            words = CronSim(when.expression, datetime.now(UTC)).explain()
        except CronSimError:
            words = when.expression
        return words, when.expression, when.tz
    if isinstance(when, Every):
        text = f"every {duration(when.span)}"
        return text, text, ""
    return str(when), str(when), ""
