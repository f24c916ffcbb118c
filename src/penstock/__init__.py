"""Penstock, a job queue: exact order, fenced runs, one set of rules on SQLite, Redis and Valkey."""

from penstock._version import __version__
from penstock.app import Penstock
from penstock.calls import Task
from penstock.durability import Durability, Reached
from penstock.entry import Entry
from penstock.errors import (
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
    Retry,
    RunTimeout,
    StallError,
    StorageError,
    StorageUnavailable,
    VersionMismatch,
)
from penstock.events import Event
from penstock.job import State, Update
from penstock.outcome import Outcome
from penstock.policy import HandlerOptions
from penstock.presence import RunInfo, WorkerInfo
from penstock.queue import Queue
from penstock.reservation import Reservation
from penstock.run import Failure, Job, Progress
from penstock.sealed import Encrypted, Signed
from penstock.serde import Serde
from penstock.status import Cancelled, Enqueued, JobStatus, Page
from penstock.why import Reason, Why
from penstock.worker import Worker

__all__ = [
    "CallTimeout",
    "Cancelled",
    "DuplicateJob",
    "Durability",
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
    "Reached",
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
    "Task",
    "Update",
    "VersionMismatch",
    "Why",
    "Worker",
    "WorkerInfo",
    "__version__",
]
