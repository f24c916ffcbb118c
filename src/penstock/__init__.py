"""Penstock, a job queue: exact order, fenced runs, one set of rules on SQLite, Redis and Valkey."""

from penstock._version import __version__
from penstock.client.answers import Cancelled, Discarded, Enqueued, JobStatus, Page
from penstock.client.app import Penstock
from penstock.client.entry import Entry
from penstock.client.queue import Queue
from penstock.client.reservation import Reservation
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
    LeaseLost,
    NotDurable,
    NotFinished,
    PenstockError,
    PermanentError,
    QueueFull,
    Retry,
    RunTimeout,
    StallError,
    StorageError,
    StorageUnavailable,
    StorageUnusable,
    VersionMismatch,
)
from penstock.model.context import Job, Progress
from penstock.model.durability import Durability, DurabilityReport
from penstock.model.encryption import Encrypted, Signed
from penstock.model.events import Event
from penstock.model.failure import Failure
from penstock.model.job import State, Update
from penstock.model.options import HandlerOptions
from penstock.model.outcome import Outcome
from penstock.model.serde import Serde
from penstock.model.why import Reason, Why
from penstock.model.worker_info import RunInfo, WorkerInfo
from penstock.worker import Worker

__all__ = [
    "AccessDenied",
    "CallTimeout",
    "Cancelled",
    "Discarded",
    "DuplicateJob",
    "Durability",
    "DurabilityReport",
    "Encrypted",
    "Enqueued",
    "Entry",
    "ErrorKind",
    "Event",
    "Failure",
    "HandlerOptions",
    "InvalidPayload",
    "Job",
    "JobCancelled",
    "JobError",
    "JobFailed",
    "JobNotFound",
    "JobStatus",
    "LeaseLost",
    "NotDurable",
    "NotFinished",
    "Outcome",
    "Page",
    "Penstock",
    "PenstockError",
    "PermanentError",
    "Progress",
    "Queue",
    "QueueFull",
    "Reason",
    "Reservation",
    "Retry",
    "RunInfo",
    "RunTimeout",
    "Serde",
    "Signed",
    "StallError",
    "State",
    "StorageError",
    "StorageUnavailable",
    "StorageUnusable",
    "Task",
    "Update",
    "VersionMismatch",
    "Why",
    "Worker",
    "WorkerInfo",
    "__version__",
]
