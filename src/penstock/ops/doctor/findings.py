"""Findings of the doctor: a level, a subject, a message and a remedy."""

from __future__ import annotations

from enum import StrEnum

import msgspec

__all__ = ["GIGABYTE", "MEGABYTE", "Finding", "Level", "fine", "format_jobs", "note", "warning"]

MEGABYTE, GIGABYTE = 1_000_000, 1_000_000_000


class Level(StrEnum):
    """Weight of a finding: nothing to do, good to know, or something to change."""

    FINE = "fine"
    NOTE = "note"
    WARNING = "warning"


class Finding(msgspec.Struct, frozen=True):
    """One checked thing: what it is about, the message, and what to change."""

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
    """Return a number of jobs as text: "1 failed job", "1,204 jobs"."""
    return f"{number:,} {what + ' ' if what else ''}job{'' if number == 1 else 's'}"
