"""Checks of arguments that users give; each raises an error that names the argument."""

from __future__ import annotations

from penstock.model.ids import MAX_NAME_BYTES, check_name
from penstock.model.job import MAX_PRIORITY

__all__ = [
    "LARGEST",
    "MAX_COST",
    "check_choice",
    "check_cost",
    "check_flag",
    "check_page",
    "check_priority",
    "check_text",
    "check_whole",
]

#: The largest number that a storage can hold.
LARGEST = 2**63 - 1
#: The largest cost of a job.
MAX_COST = 1_000_000_000


def check_whole(value: object, name: str, *, least: int, most: int = LARGEST, optional: bool = False) -> None:
    """Check that a value is an int from `least` to `most`, or None if that is allowed."""
    if value is None and optional:
        return
    if isinstance(value, bool) or not isinstance(value, int):
        wanted = "an int or None" if optional else "an int"
        raise TypeError(f"{name} must be {wanted}, not {type(value).__name__}")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, not {value}")
    if value > most:
        raise ValueError(f"{name} must be {'below 2**63' if most == LARGEST else f'at most {most}'}, not {value}")


def check_page(after: object, limit: object, *, most: int = LARGEST) -> None:
    """Check the arguments of a list that is read in pages: the cursor of the page before, or None, and the size."""
    if not (after is None or isinstance(after, str)):
        raise TypeError(f"after must be the cursor of a page or None, not {type(after).__name__}")
    check_whole(limit, "limit", least=1, most=most)


def check_text(value: object, name: str, most: int = MAX_NAME_BYTES) -> str:
    """Return a text of at most `most` bytes of UTF-8, which may be empty."""
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a str, not {type(value).__name__}")
    return check_name(value, name, most) if value else value


def check_choice(value: object, name: str, choices: tuple[str, ...]) -> None:
    """Check that a value is one of a few texts."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, not {value!r}")


def check_flag(value: object, name: str) -> None:
    """Check that a value is True or False."""
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True or False, not {type(value).__name__}")


def check_priority(priority: int) -> int:
    """Return the priority of a job."""
    if isinstance(priority, bool) or not isinstance(priority, int):
        raise TypeError(f"priority must be an int, not {type(priority).__name__}")
    if abs(priority) > MAX_PRIORITY:
        raise ValueError(f"priority must be between -{MAX_PRIORITY} and {MAX_PRIORITY}, not {priority}")
    return priority


def check_cost(cost: int) -> int:
    """Return the cost of a job: what a run takes from rates by cost."""
    check_whole(cost, "cost", least=1, most=MAX_COST)
    return cost
