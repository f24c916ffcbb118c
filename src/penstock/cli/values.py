"""Conversion of payloads, results, headers, times and spans between typed text and values."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click
import msgspec

from penstock.cli.base import EXIT_USAGE, CommandError

__all__ = [
    "IntegerType",
    "SpanType",
    "format_local_time",
    "format_value",
    "parse_headers",
    "parse_time",
    "parse_value",
]


def format_value(value: Any) -> str:
    """Return a payload or result as JSON; bytes as their Python literal."""
    if isinstance(value, bytes):
        return repr(value)
    return msgspec.json.encode(value, enc_hook=repr).decode("utf-8", "replace")


#: The advice for a payload on the command line that is not JSON.
QUOTING = """quote it for your shell, as in '{"name": "cat"}', or use --text for plain text"""


def parse_value(text: str, *, as_text: bool = False, raw: bool = False, advice: str = QUOTING) -> Any:
    """Return the payload that was typed: decoded JSON, with `as_text` the text, with `raw` its bytes."""
    if raw:
        return text.encode()
    if as_text:
        return text
    try:
        return msgspec.json.decode(text.encode())
    except msgspec.DecodeError as error:
        near = text if len(text) <= 40 else f"{text[:39]}…"
        raise CommandError(f"the payload {near!r} is not JSON ({error}); {advice}", EXIT_USAGE) from None


def parse_headers(given: tuple[str, ...]) -> dict[str, str] | None:
    """Return the headers from `name=value` pairs, None if there are none."""
    headers: dict[str, str] = {}
    for pair in given:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise CommandError(f"--header must be NAME=VALUE, not {pair!r}", EXIT_USAGE)
        headers[name] = value
    return headers or None


# times and spans ---------------------------------------------------------------------------------


def parse_time(text: str, option: str = "--at") -> datetime:
    """Return the time that was typed for an option, in its zone; without one it is local time, as in `at`.

    Of two local times with the same name, when clocks are set back, it is the first.
    """
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise CommandError(
            f"{option} must be a time such as 2030-01-31T09:00 or 2030-01-31T09:00+01:00, not {text!r}", EXIT_USAGE
        ) from None
    if found.tzinfo is not None:
        return found
    local = found.astimezone()
    if local.astimezone(UTC).astimezone().replace(tzinfo=None) != found:
        raise CommandError(
            f"{option}: there is no {text} in local time ({local:%Z}), because clocks are set forward then; "
            "give a time with its offset, such as 2030-01-31T09:00+01:00",
            EXIT_USAGE,
        )
    return local


def format_local_time(moment: datetime) -> str:
    """Return a time in local time and in UTC, as in `2030-01-01 09:00:00 CET (2030-01-01 08:00:00Z)`."""
    return f"{moment.astimezone():%Y-%m-%d %H:%M:%S %Z} ({moment.astimezone(UTC):%Y-%m-%d %H:%M:%S}Z)"


UNITS = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
PART = re.compile(r"(\d+(?:\.\d+)?)(ms|[dhms])")


if TYPE_CHECKING:
    FloatParam = click.ParamType[float]
else:
    FloatParam = click.ParamType  # generic from click 8.3 on


class SpanType(FloatParam):
    """A span of time: seconds, or numbers with the units d, h, m, s and ms, such as 1h30m."""

    name = "span"

    def __init__(self, least: float = 0.0) -> None:
        self.least = least

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the seconds; a text that is no span is a usage error."""
        text = str(value)
        if re.fullmatch(r"\d+(\.\d*)?|\.\d+", text):
            seconds = float(text)
        elif re.fullmatch(rf"({PART.pattern})+", text):
            seconds = sum(float(number) * UNITS[unit] for number, unit in PART.findall(text))
        else:
            self.fail(
                f"{text!r} is not a span of time; write seconds or units, such as 90, 5m, 1h30m or 2d", param, ctx
            )
        if seconds < self.least:
            self.fail(f"{text!r} is less than {self.least:g} seconds", param, ctx)
        return seconds


class IntegerType(click.IntRange):
    """A whole number in a range; the error for another text names no range."""

    name = "integer"
