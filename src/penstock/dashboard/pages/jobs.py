"""The page Jobs: a filter, states with counts, a table of jobs, and what to do with them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime

import msgspec

from penstock.client.job_filter import FilterError, FilterPage, JobFilter, find_jobs, parse_filter, quote_value
from penstock.dashboard.context import PageContext
from penstock.dashboard.pages.job_rows import JobRow, row_of_status
from penstock.dashboard.protocols import observing_of
from penstock.errors import NotSupported
from penstock.model.job import State

__all__ = ["JobsPage", "view"]

ROWS = 50

#: The order of the tabs.
STATES = (
    State.QUEUED, State.SCHEDULED, State.RUNNING, State.RETRYING, State.SUSPENDED, State.BLOCKED, State.COMPLETED,
    State.FAILED, State.CANCELLED,
)  # fmt: skip


class JobsPage(msgspec.Struct, frozen=True, kw_only=True):
    """View model of the jobs. `applied` is the filter in force; `problem` is why the given one is not."""

    at: datetime
    filter: str
    applied: str
    queue: str
    state: str
    counts: Mapping[str, int]
    total: int
    jobs: list[JobRow]
    walked: int
    newest: bool
    #: The order that the address names: "1", "0", or empty for that which fits the filter.
    order: str
    can_select: bool
    state_links: Mapping[str, str]
    after_link: str
    order_link: str
    problem: str = ""
    outage: str = ""


async def view(context: PageContext) -> JobsPage:
    """Return the view model."""
    reading = await context.reading()
    text, after = given_filter(context), context.param("after") or None
    wanted, found, problem = await search(context, text, after)
    if problem and "last" in context.request.query_params:
        # The form names the filter that it was shown with, so that the table stays as it was.
        wanted, found, _ = await search(context, context.param("last"), None)
    newest = is_newest_first(context, wanted)
    names = {wanted.queue} if wanted.queue else {queue.name for queue in reading.overview.queues}
    shown = [queue for queue in reading.overview.queues if queue.name in names]
    counts = {str(state): sum(queue.counts[state] for queue in shown) for state in STATES}
    chosen = [wanted.state] if wanted.state else list(STATES)
    keep = {"newest": context.param("newest") or None}
    can_order = observing_of(await context.storage()) is not None
    return JobsPage(
        at=reading.overview.at,
        filter=text,
        applied=wanted.text,
        queue=wanted.queue or "",
        state=str(wanted.state or ""),
        counts=counts,
        total=sum(counts[state] for state in chosen),
        jobs=[row_of_status(context, job) for job in found.jobs],
        walked=0 if wanted.indexed or wanted.id is not None else found.looked,
        newest=newest,
        can_select=any(context.viewer.may(verb) for verb in ("retry", "cancel", "run_now", "delete")),
        state_links={
            name: context.link("jobs", filter=with_state(wanted.text, name), **keep) for name in ("", *counts)
        },
        after_link=context.link("jobs", filter=wanted.text, after=found.cursor, **keep) if found.cursor else "",
        order_link=context.link("jobs", filter=wanted.text, newest="0" if newest else "1") if can_order else "",
        order=context.param("newest"),
        problem=problem,
        outage=reading.error,
    )


async def search(context: PageContext, text: str, after: str | None) -> tuple[JobFilter, FilterPage, str]:
    """Return a filter, the jobs that fit it, and why it cannot be applied, else an empty text."""
    wanted = JobFilter()
    try:
        wanted = parse_filter(text, context.redactor.hides)
        newest = is_newest_first(context, wanted)
        found = await find_jobs(context.app, wanted, after, ROWS, newest=newest, redacting=context.redactor)
    except (FilterError, NotSupported) as error:
        return wanted, FilterPage([], 0), str(error)
    return wanted, found, ""


def is_newest_first(context: PageContext, wanted: JobFilter) -> bool:
    """Return whether the newest jobs come first: by the address, else if all queues are searched together."""
    given = context.param("newest")
    return given == "1" or (given != "0" and wanted.queue is None)


def given_filter(context: PageContext) -> str:
    """Return the filter of the query; links of other pages name a queue and a state by themselves."""
    text = context.param("filter")
    for key in ("queue", "state"):
        if value := context.param(key):
            text = f"{text} {key}:{quote_value(value)}".strip()
    return text


def with_state(text: str, state: str) -> str:
    """Return a filter with another state, or with none."""
    rest = re.sub(r'(?:^|\s)state:(?:"[^"]*"|\S+)', "", text).strip()
    return f"{rest} state:{state}".strip() if state else rest
