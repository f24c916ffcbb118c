"""What a doctor says: one finding each, with what to change."""

from __future__ import annotations

from enum import StrEnum

import msgspec

__all__ = ["MEGABYTE", "Finding", "Level", "fine", "format_jobs", "note", "warning"]

MEGABYTE = 1_000_000


class Level(StrEnum):
    """How much a finding matters: nothing to do, good to know, or something to change."""

    FINE = "fine"
    NOTE = "note"
    WARNING = "warning"


class Finding(msgspec.Struct, frozen=True):
    """One thing that was looked at: what it is, what was found, and what to change."""

    level: Level
    about: str
    message: str
    fix: str = ""


def fine(about: str, message: str) -> Finding:
    return Finding(Level.FINE, about, message)


def note(about: str, message: str, fix: str = "") -> Finding:
    return Finding(Level.NOTE, about, message, fix)


def warning(about: str, message: str, fix: str = "") -> Finding:
    return Finding(Level.WARNING, about, message, fix)


def format_jobs(number: int, what: str = "") -> str:
    """So many jobs: "1 failed job", "1,204 jobs"."""
    return f"{number:,} {what + ' ' if what else ''}job{'' if number == 1 else 's'}"
