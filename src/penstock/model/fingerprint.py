"""Fingerprints of errors: the key that groups failed jobs whose errors have one cause.

The key is a digest of the class and of the user's functions that the error passed, without line numbers, so that it
outlives most changes of the code. Without such functions the message counts, with everything replaced that varies.
"""

from __future__ import annotations

import os
import re
import sysconfig
from functools import lru_cache
from hashlib import blake2b
from types import TracebackType

from msgspec.structs import replace

from penstock.errors import PACKAGE, ErrorKind, JobError, attempted

__all__ = ["KEY_SIZE", "MAX_TEXT", "error_of", "is_key", "key_of", "normalize", "shorten", "with_key"]

#: The characters of a key: 8 bytes in hexadecimal.
KEY_SIZE = 16

#: The innermost functions that count.
MAX_FRAMES = 5

#: The bytes of type and message that a group keeps.
MAX_TEXT = 200

_KEY = re.compile(r"[0-9a-f]{16}\Z")
_STORED_KEY = re.compile(rb"\x96.*\xb0([0-9a-f]{16})\Z", re.DOTALL)
_CUT = re.compile(rb"[\xc0-\xff]?[\x80-\xbf]*\Z")

#: What varies in messages of one cause: quoted text, addresses and digests, numbers.
_VARIES = (
    (re.compile(r"'[^']*'|\"[^\"]*\"|`[^`]*`"), "…"),
    (re.compile(r"\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b"), "N"),
    (re.compile(r"\b(?:0x)?(?=[0-9a-fA-F]*\d)[0-9a-fA-F]{8,}\b"), "N"),
    (re.compile(r"\d+(?:[.,]\d+)*"), "N"),
)  # fmt: skip

_LIBRARIES = tuple(
    {os.path.join(path, "") for name in ("stdlib", "platstdlib") if (path := sysconfig.get_paths().get(name))}
)


def error_of(error: BaseException, kind: ErrorKind | None = None) -> JobError:
    """Return the record of an exception with its key, as `JobError.from_exception` does without."""
    record = JobError.from_exception(error, kind)
    places = attempted(lambda: _places(error.__traceback__), [])
    return replace(record, key=_digest(record.path, *places) if places else "")


def with_key(error: JobError, queue: str) -> JobError:
    """Return an error that failed a job of this queue with its key, if it has none yet.

    Timeouts and stalls of a queue have one key each, whatever code ran.
    """
    if error.key:
        return error
    if error.kind in (ErrorKind.TIMEOUT, ErrorKind.STALL):
        return replace(error, key=_digest(error.kind.value, queue))
    return replace(error, key=_digest(error.path or error.type, normalize(error.message)))


def normalize(message: str) -> str:
    """Return a message with quoted text, digests and numbers replaced, so that it is the same for one cause."""
    message = message[: 4 * MAX_TEXT]
    for pattern, text in _VARIES:
        message = pattern.sub(text, message)
    return message


def is_key(text: str) -> bool:
    """Return whether a text has the form of a key."""
    return _KEY.match(text) is not None


def key_of(error: bytes | None) -> str | None:
    """Return the key in the stored form of an error, None without one: its record ends with it.

    `_errors.lua` has the same.
    """
    found = _STORED_KEY.match(error) if isinstance(error, bytes) else None
    return None if found is None else found[1].decode()


def shorten(text: str) -> str:
    """Return a text for a group: at most `MAX_TEXT` bytes, cut before the character that does not fit."""
    data = text.encode()
    return text if len(data) <= MAX_TEXT else _CUT.sub(b"", data[:MAX_TEXT]).decode()


def _places(trace: TracebackType | None) -> list[str]:
    """Return file and name of the user's innermost functions in a traceback."""
    found: list[str] = []
    while trace is not None:
        code = trace.tb_frame.f_code
        if place := _place(code.co_filename, code.co_qualname):
            found.append(place)
        trace = trace.tb_next
    return found[-MAX_FRAMES:]


@lru_cache(maxsize=4096)
def _place(file: str, function: str) -> str:
    """Return the end of a path and the function; empty for one of a library, of Penstock or of no file."""
    path = os.path.abspath(file) if not file.startswith("<frozen ") else ""
    if not path or (path.startswith((PACKAGE, *_LIBRARIES)) and "-packages" not in path):
        return ""
    if f"{os.sep}site-packages{os.sep}" in path or f"{os.sep}dist-packages{os.sep}" in path:
        return ""
    return f"{'/'.join(path.split(os.sep)[-2:])}:{function}"


def _digest(*parts: str) -> str:
    text = "\0".join(parts).encode("utf-8", "backslashreplace")
    return blake2b(text, digest_size=KEY_SIZE // 2).hexdigest()
