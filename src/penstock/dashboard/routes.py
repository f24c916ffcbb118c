"""The pages by their paths: template, view model and title of each."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple

import msgspec

from penstock.dashboard.auth import Verb
from penstock.dashboard.context import PageContext
from penstock.dashboard.pages import (
    activity,
    doctor,
    failures,
    groups,
    job,
    jobs,
    limits,
    new_job,
    overview,
    queue,
    queues,
    schedules,
    workers,
)  # fmt: skip

__all__ = ["PAGES", "Page"]


class Page(NamedTuple):
    """A page: its title, its template, the function of its view model, and the verb that a viewer needs."""

    title: str
    template: str
    view: Callable[[PageContext], Awaitable[msgspec.Struct]]
    #: The entry of the navigation that it belongs to.
    section: str
    verb: Verb | None = None


#: Every page by its path.
PAGES: dict[str, Page] = {
    "": Page("Overview", "overview.html", overview.view, ""),
    "queues": Page("Queues", "queues.html", queues.view, "queues"),
    "queue": Page("Queue", "queue.html", queue.view, "queues"),
    "jobs": Page("Jobs", "jobs.html", jobs.view, "jobs"),
    "job": Page("Job", "job.html", job.view, "jobs"),
    "groups": Page("Groups", "groups.html", groups.view, "groups"),
    "group": Page("Group", "group.html", groups.view_group, "groups"),
    "workers": Page("Workers", "workers.html", workers.view, "workers"),
    "worker": Page("Worker", "worker.html", workers.view_worker, "workers"),
    "failures": Page("Failures", "failures.html", failures.view, "failures"),
    "error-group": Page("Error group", "error_group.html", failures.view_group, "failures"),
    "schedules": Page("Schedules", "schedules.html", schedules.view, "schedules"),
    "limits": Page("Limits", "limits.html", limits.view, "limits"),
    "doctor": Page("Doctor", "doctor.html", doctor.view, "doctor"),
    "activity": Page("Activity", "activity.html", activity.view, "activity"),
    "new": Page("New job", "new_job.html", new_job.view, "jobs", "enqueue"),
}
