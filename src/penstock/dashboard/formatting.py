"""Numbers, times and durations as the pages show them."""

from __future__ import annotations

from datetime import UTC, datetime

__all__ = ["ago", "bytes_text", "duration", "exact_time", "number", "per_minute"]

#: A thin space between groups of digits, which a search by a plain number does not stumble over on copy.
GROUP = "\N{NARROW NO-BREAK SPACE}"

UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"))


def number(value: float | None) -> str:
    """Return a count with spaces between its groups of three digits; a dash for None."""
    if value is None:
        return "–"
    return (f"{value:,}" if isinstance(value, int) else f"{value:,.0f}").replace(",", GROUP)


def per_minute(value: float | None) -> str:
    """Return a rate per minute; below 10 with one decimal."""
    if value is None:
        return "–"
    return f"{value:.1f}" if 0 < value < 9.95 else number(value)


def duration(seconds: float | None) -> str:
    """Return a duration in its largest unit: "82 ms", "4.2 s", "12 min", "2 h 5 min", "3 d"."""
    if seconds is None:
        return "–"
    seconds = max(0.0, seconds)
    if seconds < 0.0995:
        digits = 2 if 0 < seconds < 0.000_095 else 1 if 0 < seconds < 0.009_95 else 0
        return f"{seconds * 1000:.{digits}f} ms"
    if seconds < 59.95:
        return f"{seconds:.2f} s" if seconds < 0.995 else f"{seconds:.1f} s" if seconds < 9.95 else f"{seconds:.0f} s"
    for unit, name in UNITS:
        if seconds >= unit - 0.05:
            whole, rest = divmod(round(seconds), unit)
            smaller = {86_400: (3_600, "h"), 3_600: (60, "min"), 60: (1, "s")}[unit]
            part = rest // smaller[0]
            return f"{whole} {name} {part} {smaller[1]}" if part and whole < 10 else f"{whole} {name}"
    return f"{seconds:.0f} s"


def ago(moment: datetime | None, now: datetime) -> str:
    """Return a time relative to now: "2 min ago", "in 5 s"; a dash for None."""
    if moment is None:
        return "–"
    seconds = (now - moment).total_seconds()
    if abs(seconds) < 1:
        return "now"
    text = duration(float(int(abs(seconds)))) if abs(seconds) < 60 else coarse(abs(seconds))
    return f"{text} ago" if seconds > 0 else f"in {text}"


def coarse(seconds: float) -> str:
    """Return a duration in one unit, rounded down."""
    for unit, name in UNITS:
        if seconds >= unit:
            return f"{int(seconds // unit)} {name}"
    return f"{int(seconds)} s"


def exact_time(moment: datetime) -> str:
    """Return a time as ISO 8601 in UTC, for `datetime` attributes and titles."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def bytes_text(size: float | None) -> str:
    """Return a size: "12 kB", "3.4 MB"; a dash for None or 0."""
    if not size:
        return "–"
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if size < 1000 or unit == "TB":
            return f"{size:.0f} {unit}" if size >= 10 or unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return ""
