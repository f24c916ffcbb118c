"""The public names: which there are, that they exist and are documented; a change here is a change for users."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re

import pytest

import penstock
from penstock import errors

MODULES = [name for _, name, _ in pkgutil.walk_packages(penstock.__path__, "penstock.") if "__main__" not in name]

EXPECTED = [
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


def test_the_public_names_are_these() -> None:
    """`penstock.__all__` is the sorted list of public names, constants first, and each of them exists."""
    assert penstock.__all__ == EXPECTED == sorted(EXPECTED, key=lambda name: (not name.isupper(), name))
    assert all(hasattr(penstock, name) for name in penstock.__all__)


def test_every_error_is_public() -> None:
    """Every exception that a user may have to catch can be imported from `penstock`."""
    assert set(errors.__all__) <= set(penstock.__all__)


def test_the_version_is_a_version() -> None:
    """`penstock.__version__` is three numbers, perhaps with a suffix."""
    assert re.fullmatch(r"\d+\.\d+\.\d+\S*", penstock.__version__)


@pytest.mark.parametrize("name", [name for name in EXPECTED if not name.startswith("__")])
def test_every_public_name_explains_itself(name: str) -> None:
    """Every public class and function, and the class of every public constant, has a docstring of its own."""
    thing = type(getattr(penstock, name)) if name.isupper() else getattr(penstock, name)
    assert inspect.isclass(thing) or inspect.isfunction(thing)
    assert thing.__doc__
    own = thing.__dict__ if inspect.isclass(thing) else {"__doc__": thing.__doc__}
    assert (own.get("__doc__") or "").strip(), f"penstock.{name} has no docstring"


@pytest.mark.parametrize("name", ["Penstock", "Queue", "Worker"])
def test_every_public_method_explains_itself(name: str) -> None:
    """Every public method of the three classes that users hold has a docstring."""
    members = vars(getattr(penstock, name)).items()
    bare = [
        member
        for member, value in members
        if not member.startswith("_")
        and (inspect.isfunction(value) or isinstance(value, property))
        and not (value.__doc__ or "").strip()
    ]
    assert not bare, f"penstock.{name} has methods without a docstring: {', '.join(bare)}"


@pytest.mark.parametrize("name", MODULES)
def test_module_exports_exist(name: str) -> None:
    """Every name in a module's `__all__` is defined in it."""
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("penstock"):
            raise
        pytest.skip(f"{error.name} is not installed")
    missing = [each for each in getattr(module, "__all__", ()) if not hasattr(module, each)]
    assert not missing
