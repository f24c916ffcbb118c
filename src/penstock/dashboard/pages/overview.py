"""The page Overview: six numbers, charts, what needs attention, and all queues."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

import msgspec

from penstock.client.job_filter import quote_value
from penstock.dashboard.auth import Verb
from penstock.dashboard.charts import SPANS, SpanName
from penstock.dashboard.context import PageContext
from penstock.dashboard.formatting import duration, number
from penstock.dashboard.pages.error_groups import read_groups
from penstock.dashboard.pages.queue_rows import QueueRow, queue_rows
from penstock.dashboard.protocols import observing_of
from penstock.dashboard.reader import Reading
from penstock.model.job import State
from penstock.ops.overview import QueueView

__all__ = ["Attention", "Numbers", "OverviewPage", "chosen_span", "view"]

#: A queue whose oldest job waits longer than this (seconds) and that grows needs attention.
OLD = 60.0

#: How many lines of each kind are shown.
MOST_LINES = 10


class Numbers(msgspec.Struct, frozen=True, kw_only=True):
    """The six numbers: jobs, units, seconds, and jobs per minute."""

    waiting: int
    running: int
    units: int | None
    oldest: float | None
    finished: float | None
    failed: float | None
    workers: int


class Attention(msgspec.Struct, frozen=True, kw_only=True):
    """A line about a thing that an operator should look at, with an action or a link."""

    kind: Literal["paused", "failures", "no_worker", "growing", "overdue", "damaged", "doctor"]
    queue: str = ""
    #: What a line of the doctor is about, which no queue has.
    about: str = ""
    text: str
    label: str
    href: str = ""
    verb: Verb | None = None


class OverviewPage(msgspec.Struct, frozen=True, kw_only=True):
    """View model of the overview."""

    at: datetime
    numbers: Numbers
    attention: list[Attention]
    queues: list[QueueRow]
    charts: bool
    span: SpanName
    outage: str = ""


async def view(context: PageContext) -> OverviewPage:
    """Return the view model."""
    reading = await context.reading()
    return OverviewPage(
        at=reading.overview.at,
        numbers=numbers_of(reading),
        attention=attention_of(context, reading),
        queues=queue_rows(reading),
        charts=observing_of(context.app.storage) is not None,
        span=chosen_span(context),
        outage=reading.error,
    )


def chosen_span(context: PageContext) -> SpanName:
    """Return the span that the query names; the shortest without one that is known."""
    given = context.param("span")
    chosen: SpanName = "2h"
    for span in SPANS:
        if span == given:
            chosen = span
    return chosen


def numbers_of(reading: Reading) -> Numbers:
    """Return the six numbers of all queues together."""
    queues, workers = reading.overview.queues, reading.overview.workers
    oldest = min((queue.oldest for queue in queues if queue.oldest is not None), default=None)
    ended = [rate.ended for rate in reading.rates.values() if rate.ended is not None]
    failed = [rate.failed for rate in reading.rates.values() if rate.failed is not None]
    return Numbers(
        waiting=sum(queue.counts[State.QUEUED] for queue in queues),
        running=sum(queue.counts[State.RUNNING] for queue in queues),
        units=sum(worker.allowed for worker in workers) if workers else None,
        oldest=None if oldest is None else max(0.0, (reading.overview.at - oldest).total_seconds()),
        finished=sum(ended) if ended else None,
        failed=sum(failed) if failed else None,
        workers=len(workers),
    )


def attention_of(context: PageContext, reading: Reading) -> list[Attention]:
    """Return the lines, the most urgent kind first."""
    lines: list[Attention] = []
    queues = reading.overview.queues
    lines += [paused(context, reading, queue) for queue in queues if queue.paused_since and queue.open][:MOST_LINES]
    lines += new_failures(context, reading)
    lines += [
        without_worker(context, reading, queue)
        for queue in queues
        if queue.counts[State.QUEUED] and not queue.workers and queue.paused_since is None
    ][:MOST_LINES]
    lines += [line for queue in queues if (line := growing(context, reading, queue))][:MOST_LINES]
    for queue in queues:
        if queue.overdue:
            lines.append(overdue(context, queue))
        if queue.damaged:
            text = f"{number(queue.damaged)} records could not be read and were set aside"
            lines.append(
                Attention(kind="damaged", queue=queue.name, text=text, label="Doctor", href=context.link("doctor"))
            )
    return lines + [
        Attention(kind="doctor", about=each.about, text=context.text(each.message), label="Doctor",
                  href=context.link("doctor"))
        for each in reading.warnings
    ]  # fmt: skip


def paused(context: PageContext, reading: Reading, queue: QueueView) -> Attention:
    """Return the line of a paused queue with jobs that wait."""
    assert queue.paused_since is not None
    since = duration(float(int((reading.overview.at - queue.paused_since).total_seconds())))
    stats = reading.stats.get(queue.name)
    by = f" by {stats.pause.by}" if stats and stats.pause and stats.pause.by else ""
    waits = queue.counts[State.QUEUED]
    text = f"paused for {since}{by}; {number(waits)} {'job waits' if waits == 1 else 'jobs wait'}"
    return Attention(
        kind="paused", queue=queue.name, text=text, label="Resume", verb="resume",
        href=context.link("queue", name=queue.name),
    )  # fmt: skip


def new_failures(context: PageContext, reading: Reading) -> list[Attention]:
    """Return a line for each error group that was first seen since the last release, and is open."""
    return [
        Attention(
            kind="failures",
            queue=group.queue,
            text=f"{group.type}: {number(group.open)} {'job' if group.open == 1 else 'jobs'}, new {group.new_since}",
            label="Look",
            href=context.link("error-group", queue=group.queue, key=group.key),
        )
        for group in read_groups(context, reading)
        if group.new_since and group.open
    ][:MOST_LINES]


def without_worker(context: PageContext, reading: Reading, queue: QueueView) -> Attention:
    """Return the line of a queue that no live worker serves."""
    waits = "" if queue.oldest is None else f"; the oldest job waits {age(reading, queue)}"
    return Attention(
        kind="no_worker", queue=queue.name, text=f"no live worker serves it{waits}", label="Why",
        href=context.link("queue", name=queue.name),
    )  # fmt: skip


def growing(context: PageContext, reading: Reading, queue: QueueView) -> Attention | None:
    """Return the line of a queue with workers whose oldest job waits long while more arrive than end."""
    rates = reading.rates.get(queue.name)
    if queue.oldest is None or not queue.workers or queue.paused_since is not None or rates is None:
        return None
    seconds = (reading.overview.at - queue.oldest).total_seconds()
    if seconds < OLD or rates.arrived is None or rates.ended is None or rates.arrived <= rates.ended:
        return None
    text = f"falls behind: the oldest job waits {duration(seconds)}, and more arrive than end"
    return Attention(
        kind="growing", queue=queue.name, text=text, label="Look", href=context.link("queue", name=queue.name)
    )


def overdue(context: PageContext, queue: QueueView) -> Attention:
    """Return the line of a queue with expired leases."""
    many = "1 run has" if queue.overdue == 1 else f"{number(queue.overdue)} runs have"
    return Attention(
        kind="overdue", queue=queue.name, text=f"{many} an expired lease, and no worker took it back yet",
        label="Look", href=context.link("jobs", filter=f"queue:{quote_value(queue.name)} state:running"),
    )  # fmt: skip


def age(reading: Reading, queue: QueueView) -> str:
    """Return how long the oldest job of a queue waits."""
    assert queue.oldest is not None
    return duration((reading.overview.at - queue.oldest).total_seconds())
