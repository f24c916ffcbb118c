"""Penstock, a job queue: exact order, fenced runs, one set of rules on SQLite, Redis and Valkey."""

from penstock._version import __version__
from penstock.client.answers import Cancelled, Discarded, Enqueued, JobStatus, Page
from penstock.client.app import Penstock
from penstock.client.bulk import Bulk, BulkPreview
from penstock.client.entry import Entry
from penstock.client.flow import Flow
from penstock.client.flow_answers import Checkpoint, Child, ChildCounts, Signalled
from penstock.client.history import FailureGroup, HistoryPoint, Latency, QueueInfo
from penstock.client.limits import LimitInfo
from penstock.client.nodes import Node, Nodes
from penstock.client.queue import Queue
from penstock.client.reservation import Reservation
from penstock.client.schedule_info import ScheduleInfo
from penstock.client.schedules import Schedules
from penstock.client.sending import Sending
from penstock.client.started import Started
from penstock.client.streams import Stream
from penstock.client.tasks import Task
from penstock.errors import (
    AccessDenied,
    CallTimeout,
    DuplicateJob,
    ErrorKind,
    InvalidPayload,
    JobCancelled,
    JobError,
    JobFailed,
    JobNotFound,
    JournalFull,
    LeaseLost,
    NotDurable,
    NotFinished,
    NotSupported,
    PenstockError,
    PermanentError,
    QueueFull,
    Retry,
    RunTimeout,
    ScheduleNotFound,
    SignalTimeout,
    StallError,
    StorageError,
    StorageUnavailable,
    StorageUnusable,
    VersionMismatch,
)
from penstock.model.activity import Activity, BulkAction, Release
from penstock.model.bindings import Ended, Inputs
from penstock.model.context import Job, Progress, current_job
from penstock.model.cron import Cron
from penstock.model.durability import Durability, DurabilityReport
from penstock.model.durable import Cursor, Signal
from penstock.model.encryption import Encrypted, Signed
from penstock.model.events import Event
from penstock.model.every import Every
from penstock.model.failure import Failure
from penstock.model.history import Attempt, Line, Part
from penstock.model.hooks import Running
from penstock.model.job import State, Update
from penstock.model.limit import EVERY, Limit, Rate
from penstock.model.options import HandlerOptions
from penstock.model.outcome import Outcome
from penstock.model.schedule import Schedule
from penstock.model.serde import Serde
from penstock.model.stats import Totals
from penstock.model.tick import Tick
from penstock.model.why import Reason, Why
from penstock.model.worker_info import RunInfo, WorkerInfo
from penstock.worker import Worker

__all__ = [
    "EVERY",
    "AccessDenied",
    "Activity",
    "Attempt",
    "Bulk",
    "BulkAction",
    "BulkPreview",
    "CallTimeout",
    "Cancelled",
    "Checkpoint",
    "Child",
    "ChildCounts",
    "Cron",
    "Cursor",
    "Discarded",
    "DuplicateJob",
    "Durability",
    "DurabilityReport",
    "Encrypted",
    "Ended",
    "Enqueued",
    "Entry",
    "ErrorKind",
    "Event",
    "Every",
    "Failure",
    "FailureGroup",
    "Flow",
    "HandlerOptions",
    "HistoryPoint",
    "Inputs",
    "InvalidPayload",
    "Job",
    "JobCancelled",
    "JobError",
    "JobFailed",
    "JobNotFound",
    "JobStatus",
    "JournalFull",
    "Latency",
    "LeaseLost",
    "Limit",
    "LimitInfo",
    "Line",
    "Node",
    "Nodes",
    "NotDurable",
    "NotFinished",
    "NotSupported",
    "Outcome",
    "Page",
    "Part",
    "Penstock",
    "PenstockError",
    "PermanentError",
    "Progress",
    "Queue",
    "QueueFull",
    "QueueInfo",
    "Rate",
    "Reason",
    "Release",
    "Reservation",
    "Retry",
    "RunInfo",
    "RunTimeout",
    "Running",
    "Schedule",
    "ScheduleInfo",
    "ScheduleNotFound",
    "Schedules",
    "Sending",
    "Serde",
    "Signal",
    "SignalTimeout",
    "Signalled",
    "Signed",
    "StallError",
    "Started",
    "State",
    "StorageError",
    "StorageUnavailable",
    "StorageUnusable",
    "Stream",
    "Task",
    "Tick",
    "Totals",
    "Update",
    "VersionMismatch",
    "Why",
    "Worker",
    "WorkerInfo",
    "__version__",
    "current_job",
]
