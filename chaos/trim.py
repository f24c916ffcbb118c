"""The records of a few jobs, cut out of those of a whole run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from chaos.log import Record
from chaos.queues import CAPACITY
from chaos.violation import KINDS, Violation

__all__ = ["crowd", "shown", "trimmed"]

Keys = set[tuple[str, str]]
_encode = msgspec.json.Encoder().encode


def trimmed(records: Sequence[Record], violation: Violation) -> list[Record]:
    """The records of a violation's jobs, with nothing else in them."""
    cut = _Cut(set(violation.keys), violation)
    cut.learn(records)
    kept = [cut.of(record) for record in records]
    return [record for record in kept if record is not None]


def crowd(records: Sequence[Record], pid: int) -> list[Record]:
    """The runs that were under way in a process when it had too many."""
    live: dict[int, Record] = {}
    for record in records:
        if record["pid"] == pid and record["k"] == "start":
            live[record["r"]] = record
            if sum(each["u"] for each in live.values()) > CAPACITY:
                break
        elif record["pid"] == pid and record["k"] == "end":
            live.pop(record["r"], None)
    return list(live.values())


class _Cut:
    """Decides record by record; answers are cut as their questions were."""

    def __init__(self, keys: Keys, violation: Violation) -> None:
        self.keys = keys
        self.violation = violation
        self.numbers: set[int | None] = set()
        self._places: dict[tuple[Any, ...], list[int]] = {}
        self._answered: dict[tuple[str, int], list[str | None]] = {}

    def learn(self, records: Sequence[Record]) -> None:
        """The numbers of the jobs, by which a put that was never answered is known; and which puts were answered."""
        for record in records:
            if record["k"] == "claim":
                self.numbers.update(each[-1] for each in record["claims"] if (each[0], each[1]) in self.keys)
            elif record["k"] == "final" and (record["q"], record["id"]) in self.keys:
                self.numbers.add(record["n"])
            elif record["k"] == "answer" and "put" in record:
                self._answered[record["role"], record["s"]] = [id for id, _ in record["put"]]

    def of(self, record: Record) -> Record | None:
        cut: Callable[[Record], Record | None] | None = getattr(self, f"_{record['k']}", None)
        return None if cut is None else cut(record)

    def _put(self, record: Record) -> Record | None:
        """Ids that the storage makes up are in the answer; without one only the number tells."""
        unknown: list[str | None] = [job[0] for job in record["jobs"]]
        ids = self._answered.get((record["role"], record["s"]), unknown)
        places = [
            i
            for i, (id, job) in enumerate(zip(ids, record["jobs"], strict=True))
            if (record["q"], id) in self.keys or (id is None and job[1] in self.numbers)
        ]
        self._places["put", record["role"], record["s"]] = places
        return {**record, "jobs": [record["jobs"][i] for i in places]} if places else None

    def _answer(self, record: Record) -> Record | None:
        places = self._places.get(("put", record["role"], record["s"]))
        if not places or "put" not in record:
            return record if places else None
        return {**record, "put": [record["put"][i] for i in places]}

    def _called(self, record: Record) -> Record | None:
        return record if self._places.get(("put", record["role"], record["s"])) else None

    def _claim(self, record: Record) -> Record | None:
        claims = [claim for claim in record["claims"] if (claim[0], claim[1]) in self.keys]
        return {**record, "claims": claims} if claims else None

    def _settle(self, record: Record) -> Record | None:
        places = [i for i, end in enumerate(record["ends"]) if (end[0], end[1]) in self.keys]
        if not places:
            return None
        self._places["settle", record["pid"], record["s"]] = places
        return {**record, "ends": [record["ends"][i] for i in places]}

    def _settled(self, record: Record) -> Record | None:
        places = self._places.get(("settle", record["pid"], record["s"]))
        if places is None or "states" not in record:
            return None if places is None else record
        return {**record, "states": [record["states"][i] for i in places]}

    def _renew(self, record: Record) -> Record | None:
        kept = [each for each in record["kept"] if (each[0], each[1]) in self.keys]
        lost = [each for each in record["lost"] if (each[0], each[1]) in self.keys]
        return {**record, "kept": kept, "lost": lost} if kept or lost else None

    def _reap(self, record: Record) -> Record | None:
        jobs = [each for each in record["jobs"] if (each[0], each[1]) in self.keys]
        return {**record, "jobs": jobs} if jobs else None

    def _start(self, record: Record) -> Record | None:
        if not any((record["q"], job[0]) in self.keys for job in record["jobs"]):
            return None
        self._places["run", record["pid"], record["r"]] = []
        return {**record, "jobs": [job for job in record["jobs"] if (record["q"], job[0]) in self.keys]}

    def _end(self, record: Record) -> Record | None:
        return record if ("run", record["pid"], record["r"]) in self._places else None

    def _named(self, record: Record) -> Record | None:
        return record if (record["q"], record["id"]) in self.keys else None

    _cancel = _event = _final = _named

    def _switch(self, record: Record) -> Record | None:
        if self.violation.kind != "paused" or record["q"] != self.violation.subject[0]:
            return None
        self._places["switch", record["role"], record["s"]] = []
        return record

    def _switched(self, record: Record) -> Record | None:
        return record if ("switch", record["role"], record["s"]) in self._places else None

    def _left(self, record: Record) -> Record | None:
        mine = [each for each in record["what"] if each.startswith(self.violation.subject[0])]
        return {**record, "what": mine if self.violation.kind == "leaked" else []}

    def _exits(self, record: Record) -> Record | None:
        return record if self.violation.kind == "exit" else None

    def _shaky(self, record: Record) -> Record | None:
        return record if self.keys else None

    _run = _shaky


def shown(violation: Violation, small: Sequence[Record], records: Sequence[Record]) -> str:
    """A violation for the eye: seconds since its first record, the process, and the record itself."""
    first = min((record["t"] for record in small), default=0)
    last = max((record["t"] for record in small if record["k"] not in ("final", "left")), default=0)
    lines = [str(violation), f"  the promise: {KINDS[violation.kind]}"]
    for record in small:
        about = {key: value for key, value in record.items() if key not in ("k", "t", "pid", "role", "a")}
        since = f"{(record['t'] - first) / 1e6:9.4f}"
        asked = f" (asked {(record['a'] - first) / 1e6:.4f})" if "a" in record else ""
        lines.append(f"  {since} {record['role']}/{record['pid']} {record['k']}{asked} {_encode(about).decode()[:400]}")
    faults = [record for record in records if record["k"] == "fault" and first - 3_000_000 <= record["t"] <= last]
    if faults:
        told = ", ".join(f"{record['name']} {(record['t'] - first) / 1e6:+.2f}" for record in faults[:20])
        lines.append(f"  faults at that time: {told}")
    return "\n".join(lines)
