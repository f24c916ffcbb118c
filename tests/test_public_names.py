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


def test_the_public_names_are_these() -> None:
    """`penstock.__all__` is the sorted list of public names, nothing else, and each of them exists."""
    assert penstock.__all__ == EXPECTED == sorted(EXPECTED)
    assert all(hasattr(penstock, name) for name in penstock.__all__)


def test_every_error_is_public() -> None:
    """Every exception that a user may have to catch can be imported from `penstock`."""
    assert set(errors.__all__) <= set(penstock.__all__)


def test_the_version_is_a_version() -> None:
    """`penstock.__version__` is three numbers, perhaps with a suffix."""
    assert re.fullmatch(r"\d+\.\d+\.\d+\S*", penstock.__version__)


@pytest.mark.parametrize("name", [name for name in EXPECTED if not name.startswith("__")])
def test_every_public_name_explains_itself(name: str) -> None:
    """Every public name can be imported and has a docstring of its own."""
    thing = getattr(penstock, name)
    assert inspect.isclass(thing)
    assert thing.__doc__
    assert (thing.__dict__.get("__doc__") or "").strip(), f"penstock.{name} has no docstring"


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
