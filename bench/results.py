"""Results: one JSON line per measurement, and a table of them."""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

REPETITIONS = 3


@dataclass
class Measurement:
    """Figure of one system: a value per repetition, and the CPU microseconds per job."""

    workload: str
    storage: str
    system: str
    unit: str
    version: str = ""
    guarantee: str = ""
    language: str = "Python"
    settings: str = ""
    jobs: int = 0
    values: list[float] = field(default_factory=list[float])
    cpu_us_client: list[float] = field(default_factory=list[float])
    cpu_us_server: list[float] = field(default_factory=list[float])
    notes: dict[str, Any] = field(default_factory=dict[str, Any])

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    def line(self) -> dict[str, Any]:
        """Return the JSON line, with the medians of the values and of the costs."""
        given = asdict(self)
        for name in ("cpu_us_client", "cpu_us_server"):
            given[name] = _round(statistics.median(given[name])) if given[name] else None
        notes = given.pop("notes")
        values = [_round(value) for value in self.values]
        return {**given, "values": values, "median": _round(self.median), "spread": [min(values), max(values)], **notes}


def _round(value: float) -> float:
    return round(value) if abs(value) >= 1000 else round(value, 3)


class Measurements:
    """Measurements of one run, each with the values of all its repetitions."""

    def __init__(self) -> None:
        self._measurements: dict[tuple[str, str, str], Measurement] = {}

    def add(
        self,
        measurement: Measurement,
        value: float,
        client: float | None = None,
        server: float | None = None,
        **notes: Any,
    ) -> None:
        """Add the value of one repetition; its notes replace those of the previous one."""
        key = (measurement.workload, measurement.storage, measurement.system)
        kept = self._measurements.setdefault(key, measurement)
        kept.values.append(value)
        kept.notes.update(notes)
        if client is not None:
            kept.cpu_us_client.append(client)
        if server is not None:
            kept.cpu_us_server.append(server)

    def get(self, workload: str, storage: str, system: str) -> Measurement | None:
        return self._measurements.get((workload, storage, system))

    def lines(self) -> list[dict[str, Any]]:
        return [measurement.line() for measurement in self._measurements.values()]


def write(machine: dict[str, Any], lines: Iterable[dict[str, Any]], path: Path | None) -> None:
    """Write JSON lines to a file, or to standard output; the first one describes the machine."""
    text = "".join(json.dumps(line) + "\n" for line in [{"machine": machine}, *lines])
    if path is None:
        sys.stdout.write(text)
    else:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def read(path: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Read a file of `write`; return the machine and the lines."""
    first, *lines = [json.loads(line) for line in path.read_text().splitlines() if line]
    return first["machine"], lines


def figure(value: float | None) -> str:
    """Format a number: integers from 100 on, otherwise three significant digits."""
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


COLUMNS: Sequence[tuple[str, Callable[[dict[str, Any]], str]]] = (
    ("workload", lambda line: line["workload"]),
    ("storage", lambda line: line["storage"]),
    ("system", lambda line: f"{line['system']} {line['version']}".strip()),
    ("median", lambda line: figure(line["median"])),
    ("spread", lambda line: " - ".join(figure(value) for value in line["spread"])),
    ("unit", lambda line: line["unit"]),
    ("CPU µs here", lambda line: figure(line["cpu_us_client"])),
    ("server", lambda line: figure(line["cpu_us_server"])),
)


def table(lines: Sequence[dict[str, Any]]) -> str:
    """Format the lines as a table of text."""
    return columns([name for name, _ in COLUMNS], [[show(line) for _, show in COLUMNS] for line in lines])


def columns(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[i]) for row in [heads, *rows]) for i in range(len(heads))]
    numbers = [bool(rows) and all(row[i][:1].isdigit() or not row[i] for row in rows) for i in range(len(heads))]
    text: list[str] = []
    for row in [heads, ["-" * width for width in widths], *rows]:
        cells = [c.rjust(w) if n else c.ljust(w) for c, w, n in zip(row, widths, numbers, strict=True)]
        text.append("  ".join(cells).rstrip())
    return "\n".join(text)
