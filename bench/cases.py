"""A case is one workload for one system; the same loop repeats the cases of ours and of the peers."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from bench.lines import REPETITIONS, Book, Measure
from bench.rig import Failed, Rig, rig_of
from bench.server import Storage
from bench.systems import HERE, Home, System


@dataclass(frozen=True)
class Reading:
    """One value of one repetition."""

    workload: str
    unit: str
    value: float
    client: float | None = None
    server: float | None = None
    jobs: int = 0
    notes: dict[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True)
class Case:
    """What to do with a rig of this system, once."""

    workload: str
    system: System
    once: Callable[[Rig], list[Reading]]
    home: Home = HERE


def repeat(cases: Sequence[Case], storage: Storage, book: Book, repetitions: int = REPETITIONS) -> list[str]:
    """Every case so many times, one after another in each round, so that a slow minute hits them all.

    Gives what went wrong: a system that fails is left out from then on, and the others go on.
    """
    faults: list[str] = []
    out: set[tuple[str, str]] = set()
    for round_ in range(repetitions):
        for case in cases:
            key = (case.workload, case.system.name)
            if key in out:
                continue
            start = time.monotonic()
            try:
                with rig_of(case.system, storage, case.home) as rig:
                    about, readings = rig.about, case.once(rig)
            except Exception as fault:  # the others go on, and the end of the run tells
                out.add(key)
                told = fault if isinstance(fault, Failed) else f"{case.system.name} raised {fault!r}"
                faults.append(f"{case.workload} on {storage.kind}: {told}")
                print(faults[-1], file=sys.stderr, flush=True)
                continue
            for reading in readings:
                note(book, case.system, storage, about, reading)
            shown = ", ".join(f"{r.workload} {r.value:,.6g} {r.unit}" for r in readings)
            took = time.monotonic() - start
            print(f"{round_ + 1}/{repetitions} {case.system.name}: {shown} ({took:.1f} s)", file=sys.stderr, flush=True)
    return faults


def note(book: Book, system: System, storage: Storage, about: dict[str, Any], reading: Reading) -> None:
    measure = Measure(
        workload=reading.workload, storage=storage.kind, system=system.name, unit=reading.unit,
        version=about["version"], guarantee=system.guarantee, language=system.language, settings=system.settings,
        jobs=reading.jobs,
    )  # fmt: skip
    notes = {"storage_version": storage.version, "producer_loop": about["loop"], **reading.notes}
    book.add(measure, reading.value, reading.client, reading.server, **notes)
