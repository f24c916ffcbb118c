"""Conversion of payloads, results and headers between typed text and values."""

from __future__ import annotations

from typing import Any

import msgspec

from penstock.cli.base import EXIT_USAGE, CommandError

__all__ = ["format_value", "parse_headers", "parse_value"]


def format_value(value: Any) -> str:
    """Return a payload or result as JSON; bytes as their Python literal."""
    if isinstance(value, bytes):
        return repr(value)
    return msgspec.json.encode(value, enc_hook=repr).decode("utf-8", "replace")


def parse_value(text: str, *, as_text: bool = False, raw: bool = False) -> Any:
    """Return the payload that was typed: decoded JSON, with `as_text` the text, with `raw` its bytes."""
    if raw:
        return text.encode()
    if as_text:
        return text
    try:
        return msgspec.json.decode(text.encode())
    except msgspec.DecodeError as error:
        near = text if len(text) <= 40 else f"{text[:39]}…"
        raise CommandError(
            f'the payload {near!r} is no JSON ({error}); quote it for your shell, as in \'{{"name": "cat"}}\', '
            "or use --text for plain text",
            EXIT_USAGE,
        ) from None


def parse_headers(given: tuple[str, ...]) -> dict[str, str] | None:
    """Return the headers from `name=value` pairs, None if there are none."""
    headers: dict[str, str] = {}
    for pair in given:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise CommandError(f"--header is NAME=VALUE, not {pair!r}", EXIT_USAGE)
        headers[name] = value
    return headers or None
