"""Penstock without `await`: the same app, queues, tasks, workers and errors for code that has no event loop."""

from penstock.model.plain_job import Cursor, Job
from penstock.sync.app import Penstock
from penstock.sync.bulk import Bulk
from penstock.sync.events import EventStream
from penstock.sync.flow import Flow, Started
from penstock.sync.queue import Queue
from penstock.sync.reservation import Reservation
from penstock.sync.schedules import Schedules
from penstock.sync.streams import Stream
from penstock.sync.task import Task, TaskCall
from penstock.sync.worker import Worker

__all__ = [
    "Bulk",
    "Cursor",
    "EventStream",
    "Flow",
    "Job",
    "Penstock",
    "Queue",
    "Reservation",
    "Schedules",
    "Started",
    "Stream",
    "Task",
    "TaskCall",
    "Worker",
]
