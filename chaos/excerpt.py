"""Excerpts of a history: the records of the jobs of a violation, and how they are printed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from chaos.limit_checks import KILLS
from chaos.log import Record
from chaos.queues import CAPACITY
from chaos.violation import KINDS, Violation

__all__ = ["format_violation", "records_of_violation", "runs_over_capacity"]

Keys = set[tuple[str, str]]
#: Kinds of violations that are about a schedule.
OF_TICKS = ("duplicated_tick", "uncounted_tick", "wrong_tick")
_encode = msgspec.json.Encoder().encode


def records_of_violation(records: Sequence[Record], violation: Violation) -> list[Record]:
    """Return the records of a violation's jobs, reduced to the parts about these jobs."""
    selection = _Selection(set(violation.keys), violation)
    selection.prepare(records)
    kept = [selection.reduce(record) for record in records]
    return [record for record in kept if record is not None]


def runs_over_capacity(records: Sequence[Record], pid: int) -> list[Record]:
    """Return the starts of the runs that were under way in a process when they exceeded its capacity."""
    live: dict[int, Record] = {}
    for record in records:
        if record["pid"] == pid and record["k"] == "run_start":
            live[record["r"]] = record
            if sum(each["u"] for each in live.values()) > CAPACITY:
                break
        elif record["pid"] == pid and record["k"] == "run_end":
            live.pop(record["r"], None)
    return list(live.values())


class _Selection:
    """Reduction of records to some jobs; an answer is reduced to the same positions as its request."""

    def __init__(self, keys: Keys, violation: Violation) -> None:
        self.keys = keys
        self.violation = violation
        self.numbers: set[int | None] = set()
        self._positions: dict[tuple[Any, ...], list[int]] = {}
        self._answered: dict[tuple[str, int], list[str | None]] = {}

    def prepare(self, records: Sequence[Record]) -> None:
        """Collect the numbers of the jobs, which identify a put without an answer, and the ids of answered puts."""
        for record in records:
            if record["k"] == "claim":
                self.numbers.update(each[-1] for each in record["claims"] if (each[0], each[1]) in self.keys)
            elif record["k"] == "final" and (record["q"], record["id"]) in self.keys:
                self.numbers.add(record["n"])
            elif record["k"] == "put_answer" and "put" in record:
                self._answered[record["role"], record["s"]] = [id for id, _ in record["put"]]

    def reduce(self, record: Record) -> Record | None:
        """Return the part of a record about the jobs, or None."""
        method: Callable[[Record], Record | None] | None = getattr(self, f"_{record['k']}", None)
        return None if method is None else method(record)

    def _put(self, record: Record) -> Record | None:
        """Find the jobs by their ids; an id made by the storage is in the answer, and without one the number counts."""
        unknown: list[str | None] = [job[0] for job in record["jobs"]]
        ids = self._answered.get((record["role"], record["s"]), unknown)
        positions = [
            i
            for i, (id, job) in enumerate(zip(ids, record["jobs"], strict=True))
            if (record["q"], id) in self.keys or (id is None and job[1] in self.numbers)
        ]
        self._positions["put", record["role"], record["s"]] = positions
        return {**record, "jobs": [record["jobs"][i] for i in positions]} if positions else None

    def _put_answer(self, record: Record) -> Record | None:
        positions = self._positions.get(("put", record["role"], record["s"]))
        if not positions or "put" not in record:
            return record if positions else None
        return {**record, "put": [record["put"][i] for i in positions]}

    def _call_answer(self, record: Record) -> Record | None:
        return record if self._positions.get(("put", record["role"], record["s"])) else None

    def _claim(self, record: Record) -> Record | None:
        claims = [claim for claim in record["claims"] if (claim[0], claim[1]) in self.keys]
        return {**record, "claims": claims} if claims else None

    def _settle(self, record: Record) -> Record | None:
        positions = [i for i, end in enumerate(record["settlements"]) if (end[0], end[1]) in self.keys]
        if not positions:
            return None
        self._positions["settle", record["pid"], record["s"]] = positions
        return {**record, "settlements": [record["settlements"][i] for i in positions]}

    def _settle_answer(self, record: Record) -> Record | None:
        positions = self._positions.get(("settle", record["pid"], record["s"]))
        if positions is None or "states" not in record:
            return None if positions is None else record
        return {**record, "states": [record["states"][i] for i in positions]}

    def _renew(self, record: Record) -> Record | None:
        kept = [each for each in record["kept"] if (each[0], each[1]) in self.keys]
        lost = [each for each in record["lost"] if (each[0], each[1]) in self.keys]
        return {**record, "kept": kept, "lost": lost} if kept or lost else None

    def _reap(self, record: Record) -> Record | None:
        jobs = [each for each in record["jobs"] if (each[0], each[1]) in self.keys]
        return {**record, "jobs": jobs} if jobs else None

    def _run_start(self, record: Record) -> Record | None:
        if not any((record["q"], job[0]) in self.keys for job in record["jobs"]):
            return None
        self._positions["run", record["pid"], record["r"]] = []
        return {**record, "jobs": [job for job in record["jobs"] if (record["q"], job[0]) in self.keys]}

    def _run_end(self, record: Record) -> Record | None:
        return record if ("run", record["pid"], record["r"]) in self._positions else None

    def _named(self, record: Record) -> Record | None:
        return record if (record["q"], record["id"]) in self.keys else None

    _cancel = _event = _final = _named

    def _set_pause(self, record: Record) -> Record | None:
        if self.violation.kind != "ran_while_paused" or record["q"] != self.violation.subject[0]:
            return None
        self._positions["set_pause", record["role"], record["s"]] = []
        return record

    def _set_pause_answer(self, record: Record) -> Record | None:
        return record if ("set_pause", record["role"], record["s"]) in self._positions else None

    def _leftovers(self, record: Record) -> Record | None:
        mine = [each for each in record["what"] if each.startswith(self.violation.subject[0])]
        return {**record, "what": mine if self.violation.kind == "leaked" else []}

    def _exits(self, record: Record) -> Record | None:
        return record if self.violation.kind == "wrong_exit" else None

    def _full(self, record: Record) -> Record | None:
        return record if self.violation.kind == "wrong_refusal" else None

    # limits and schedules -------------------------------------------------------------------------

    def _set_limit(self, record: Record) -> Record | None:
        kind, name, group = record["scope"]
        scope = tuple(each for each in (kind, name, group) if each is not None)
        subject = self.violation.subject
        of_every_group = scope == ("groups", *subject[1:2]) and subject[0] == "group"
        if self.violation.kind not in ("over_limit", "over_rate") or not (scope == subject or of_every_group):
            return None
        return self._keep("set_limit", record)

    def _set_schedule(self, record: Record) -> Record | None:
        mine = (record["q"], record["name"]) == self.violation.subject and self.violation.kind in OF_TICKS
        return self._keep("set_schedule", record) if mine else None

    def _drop_schedule(self, record: Record) -> Record | None:
        mine = (record["q"], record["name"]) == self.violation.subject and self.violation.kind in OF_TICKS
        return self._keep("drop_schedule", record) if mine else None

    def _keep(self, verb: str, record: Record) -> Record:
        self._positions[verb, record["pid"], record["s"]] = []
        return record

    def _answer(self, record: Record) -> Record | None:
        verb = record["k"].removesuffix("_answer")
        return record if (verb, record["pid"], record["s"]) in self._positions else None

    _set_limit_answer = _set_schedule_answer = _drop_schedule_answer = _answer

    def _fire(self, record: Record) -> Record | None:
        positions = [
            i
            for i, firing in enumerate(record["firings"])
            if ((firing["q"], firing["name"]) == self.violation.subject and self.violation.kind in OF_TICKS)
            or any((firing["q"], tick[1]) in self.keys for tick in firing["ticks"])
        ]
        self._positions["fire", record["pid"], record["s"]] = positions
        return {**record, "firings": [record["firings"][i] for i in positions]} if positions else None

    def _fire_answer(self, record: Record) -> Record | None:
        positions = self._positions.get(("fire", record["pid"], record["s"]))
        if not positions or "fired" not in record:
            return record if positions else None
        return {**record, "fired": [record["fired"][i] for i in positions]}

    def _final_schedule(self, record: Record) -> Record | None:
        return record if (record["q"], record["name"]) == self.violation.subject else None

    def _fault(self, record: Record) -> Record | None:
        return record if self.violation.kind == "slot_not_freed" and record["name"] in KILLS else None

    _fault_over = _fault

    def _file(self, record: Record) -> Record | None:
        return record if self.violation.kind == "wrong_tick" and record["role"] == "runner" else None

    def _clock(self, record: Record) -> Record | None:
        return record

    def _loss_window(self, record: Record) -> Record | None:
        return record if self.keys else None

    _settings = _loss_window


def format_violation(violation: Violation, small: Sequence[Record], records: Sequence[Record]) -> str:
    """Format a violation for reading: each record with the seconds since the first one and its process."""
    first = min((record["t"] for record in small), default=0)
    last = max((record["t"] for record in small if record["k"] not in ("final", "leftovers")), default=0)
    lines = [str(violation), f"  the promise: {KINDS[violation.kind]}"]
    for record in small:
        about = {key: value for key, value in record.items() if key not in ("k", "t", "pid", "role", "a")}
        since = f"{(record['t'] - first) / 1e6:9.4f}"
        asked = f" (asked {(record['a'] - first) / 1e6:.4f})" if "a" in record else ""
        lines.append(f"  {since} {record['role']}/{record['pid']} {record['k']}{asked} {_encode(about).decode()[:400]}")
    faults = [record for record in records if record["k"] == "fault" and first - 3_000_000 <= record["t"] <= last]
    if faults:
        listed = ", ".join(f"{record['name']} {(record['t'] - first) / 1e6:+.2f}" for record in faults[:20])
        lines.append(f"  faults at that time: {listed}")
    return "\n".join(lines)
