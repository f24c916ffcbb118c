"""Times and durations that users give, as milliseconds. The lowest module: exceptions have such arguments too."""

from __future__ import annotations

from datetime import datetime, timedelta

__all__ = ["MAX_MS", "Moment", "Span", "milliseconds", "span_ms"]

Moment = datetime | float | int
Span = timedelta | float | int

#: The year 9999, in milliseconds: later times are mistakes (microseconds given for seconds).
MAX_MS = 253_402_300_799_000


def milliseconds(value: Moment, name: str) -> int:
    """Convert a time given by the user to milliseconds since 1970; errors name the argument `name`."""
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise ValueError(f"{name} must be an aware datetime (it has no tzinfo); use datetime.now(UTC)")
        value = value.timestamp()
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} must be an aware datetime or a Unix timestamp, not {type(value).__name__}")
    if not 0 <= value * 1000 <= MAX_MS:
        raise ValueError(f"{name} must be a Unix timestamp in seconds between 1970 and 9999, not {_shown(value)}")
    return round(value * 1000)


def span_ms(value: Span, name: str, *, zero: bool = True) -> int:
    """Convert a duration given by the user to milliseconds; errors name the argument `name`."""
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} must be seconds or a timedelta, not {type(value).__name__}")
    if not 0 <= value * 1000 <= MAX_MS:
        raise ValueError(f"{name} must not be negative, infinite or beyond the year 9999, not {_shown(value)}")
    ms = round(value * 1000)
    if ms == 0 and value > 0:
        ms = 1
    if ms == 0 and not zero:
        raise ValueError(f"{name} must be more than 0")
    return ms


def _shown(value: float) -> str:
    """Return a number as text; Python refuses to convert an int of thousands of digits."""
    return f"an int of {value.bit_length()} bits" if isinstance(value, int) and abs(value) > MAX_MS**2 else repr(value)
