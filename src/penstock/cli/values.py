"""Payloads and results on the command line: text in, values out, and back."""

from __future__ import annotations

from typing import Any

import msgspec

from penstock.cli.base import EXIT_USAGE, CommandError

__all__ = ["format_value", "parse_headers", "parse_value"]


def format_value(value: Any) -> str:
    """A payload or result as JSON; bytes that are no text are shown as Python spells them."""
    if isinstance(value, bytes):
        return repr(value)
    return msgspec.json.encode(value, enc_hook=repr).decode("utf-8", "replace")


def parse_value(text: str, *, as_text: bool = False, raw: bool = False) -> Any:
    """A payload as it was typed: JSON, or with `as_text` the text itself; raw queues take its bytes."""
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
            "or use --text for a plain text",
            EXIT_USAGE,
        ) from None


def parse_headers(given: tuple[str, ...]) -> dict[str, str] | None:
    """`name=value` pairs."""
    headers: dict[str, str] = {}
    for pair in given:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise CommandError(f"--header is NAME=VALUE, not {pair!r}", EXIT_USAGE)
        headers[name] = value
    return headers or None
