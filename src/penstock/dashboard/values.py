"""Payloads and results as the dashboard shows them: decoded, redacted, and cut."""

from __future__ import annotations

import json
from typing import Any, cast

import msgspec

from penstock.dashboard.redact import Redactor
from penstock.model.encryption import Encrypted
from penstock.model.formats import RawSerde
from penstock.model.serde import Serde, Wrapper, innermost

__all__ = ["MAX_SHOWN", "Shown", "is_encrypted", "preview", "show"]

#: The most characters of a value that a page shows.
MAX_SHOWN = 65_536

#: The most characters of a preview in a table.
MAX_PREVIEW = 160


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """A value as text. `note` is why there is none, or that it is cut; `size` is its bytes as text, if known."""

    text: str = ""
    note: str = ""
    cut: bool = False


def is_encrypted(serde: Serde) -> bool:
    """Return whether a serde, or one inside it, encrypts."""
    while isinstance(serde, Wrapper):
        if isinstance(serde, Encrypted):
            return True
        serde = serde.inner
    return False


def show(value: Any, serde: Serde, redactor: Redactor, *, admin: bool) -> Shown:
    """Return a decoded payload or result for a page.

    Bytes that could not be decoded, and encrypted values for viewers who are no admins, are shown as their size.
    """
    if is_encrypted(serde) and not admin:
        return Shown(note="encrypted; an admin may see it")
    if isinstance(value, bytes) and not isinstance(innermost(serde), RawSerde):
        return Shown(note=f"{len(value):,} bytes that cannot be decoded here")
    if isinstance(value, bytes):
        return _show_bytes(value, redactor)
    text = _dump(redactor.value(_plain(value)), 2)
    if len(text) > MAX_SHOWN:
        return Shown(text=text[:MAX_SHOWN], note=f"the first {MAX_SHOWN:,} of {len(text):,} characters", cut=True)
    return Shown(text=text)


def preview(value: Any, serde: Serde, redactor: Redactor, *, admin: bool) -> str:
    """Return a value in one short line for a table."""
    if is_encrypted(serde) and not admin:
        return "encrypted"
    if isinstance(value, bytes):
        return f"{len(value):,} bytes"
    text = _dump(_short(redactor.value(_plain(value))), None)
    return text if len(text) <= MAX_PREVIEW else f"{text[: MAX_PREVIEW - 1]}…"


def _show_bytes(value: bytes, redactor: Redactor) -> Shown:
    try:
        text = redactor.text(value[:MAX_SHOWN].decode())
    except UnicodeDecodeError:
        return Shown(note=f"{len(value):,} bytes that are no text")
    return Shown(text=text, cut=len(value) > MAX_SHOWN, note=f"{len(value):,} bytes" if len(value) > MAX_SHOWN else "")


def _plain(value: Any) -> Any:
    """Return a value of plain types; objects of unknown classes become the name of their class."""
    try:
        return msgspec.to_builtins(value, enc_hook=lambda item: f"<{type(item).__name__}>", str_keys=True)
    except (TypeError, ValueError, RecursionError):
        return f"<{type(value).__name__}>"


def _short(value: Any, depth: int = 0) -> Any:
    """Return the beginning of a large value, so that a preview does not cost what its payload weighs."""
    if isinstance(value, str):
        return value if len(value) <= MAX_PREVIEW else f"{value[:MAX_PREVIEW]}…"
    if depth >= 3:
        return "…" if isinstance(value, dict | list) else value
    if isinstance(value, dict):
        items = list(cast("dict[Any, Any]", value).items())[:12]
        return {str(key)[:80]: _short(item, depth + 1) for key, item in items}
    if isinstance(value, list):
        return [_short(item, depth + 1) for item in cast("list[Any]", value)[:12]]
    return value


def _dump(value: Any, indent: int | None) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, indent=indent, default=str)
    except (TypeError, ValueError, RecursionError):
        return f"<{type(value).__name__}>"
