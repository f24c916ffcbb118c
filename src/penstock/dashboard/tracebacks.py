"""Stored tracebacks as frames: those of the user's code are shown, runs of library frames are folded."""

from __future__ import annotations

import re
from itertools import groupby

import msgspec

from penstock.model.printing import is_library

__all__ = ["Frame", "Piece", "pieces_of"]

FRAME = re.compile(r'  File "(?P<path>[^"\n]*)", line (?P<line>\d+), in (?P<name>.*)')


class Frame(msgspec.Struct, frozen=True):
    """A frame: the end of its path, its line, its function and its source."""

    path: str
    line: int
    name: str
    source: str
    library: bool


class Piece(msgspec.Struct, frozen=True):
    """A part of a traceback: a text between frames, or frames, folded if they are of libraries."""

    text: str = ""
    frames: list[Frame] = []
    folded: bool = False


def pieces_of(traceback: str) -> list[Piece]:
    """Return the parts of a traceback in their order; one that has no frames is one text."""
    found: list[Frame | str] = []
    lines = traceback.splitlines()
    at = 0
    while at < len(lines):
        match = FRAME.fullmatch(lines[at])
        if match is None:
            found.append(lines[at])
            at += 1
            continue
        source: list[str] = []
        at += 1
        while at < len(lines) and lines[at].startswith("    "):
            if not set(lines[at].strip()) <= set("^~"):
                source.append(lines[at].strip())
            at += 1
        library = is_library(match["path"])
        found.append(Frame(_tail(match["path"]), int(match["line"][:9]), match["name"], " ".join(source), library))
    return [_piece(list(group), kind) for kind, group in groupby(found, _kind)]


def _kind(item: Frame | str) -> str:
    return "text" if isinstance(item, str) else "library" if item.library else "own"


def _piece(items: list[Frame | str], kind: str) -> Piece:
    if kind == "text":
        return Piece(text="\n".join(item for item in items if isinstance(item, str)))
    return Piece(frames=[item for item in items if isinstance(item, Frame)], folded=kind == "library")


def _tail(path: str) -> str:
    """Return the last three parts of a path."""
    parts = path.split("/")
    return path if len(parts) <= 3 else "/".join(parts[-3:])
