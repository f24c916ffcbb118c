"""What a doctor says: one finding each, with what to change."""

from __future__ import annotations

from enum import StrEnum

import msgspec

__all__ = ["MEGABYTE", "Finding", "Level", "fine", "jobs", "note", "warning"]

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
    says: str
    fix: str = ""


def fine(about: str, says: str) -> Finding:
    return Finding(Level.FINE, about, says)


def note(about: str, says: str, fix: str = "") -> Finding:
    return Finding(Level.NOTE, about, says, fix)


def warning(about: str, says: str, fix: str = "") -> Finding:
    return Finding(Level.WARNING, about, says, fix)


def jobs(number: int, what: str = "") -> str:
    """So many jobs: "1 failed job", "1,204 jobs"."""
    return f"{number:,} {what + ' ' if what else ''}job{'' if number == 1 else 's'}"
