"""Cases, each one workload for one system, and the loop that repeats those of Penstock and of the peers."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from bench.harness import Harness, SystemFailed, open_harness
from bench.results import REPETITIONS, Measurement, Measurements
from bench.storages import BenchStorage
from bench.systems import CURRENT, Environment, System


@dataclass(frozen=True)
class Sample:
    """Value of one repetition, with its CPU costs in microseconds per job."""

    workload: str
    unit: str
    value: float
    client: float | None = None
    server: float | None = None
    jobs: int = 0
    notes: dict[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True)
class Case:
    """Workload for one system: `once` runs a single repetition."""

    workload: str
    system: System
    once: Callable[[Harness], list[Sample]]
    environment: Environment = CURRENT


def repeat(
    cases: Sequence[Case], storage: BenchStorage, measurements: Measurements, repetitions: int = REPETITIONS
) -> list[str]:
    """Run the cases in rounds, one after another in each round, so that a slow minute affects all of them.

    Returns the failures. A system that fails is left out of the following rounds; the other systems continue.
    """
    failures: list[str] = []
    excluded: set[tuple[str, str]] = set()
    for round_ in range(repetitions):
        for case in cases:
            key = (case.workload, case.system.name)
            if key in excluded:
                continue
            start = time.monotonic()
            try:
                with open_harness(case.system, storage, case.environment) as harness:
                    about, samples = harness.about, case.once(harness)
            except Exception as error:  # reported at the end of the run; the other systems continue
                excluded.add(key)
                text = error if isinstance(error, SystemFailed) else f"{case.system.name} raised {error!r}"
                failures.append(f"{case.workload} on {storage.kind}: {text}")
                print(failures[-1], file=sys.stderr, flush=True)
                continue
            for sample in samples:
                record(measurements, case.system, storage, about, sample)
            shown = ", ".join(f"{r.workload} {r.value:,.6g} {r.unit}" for r in samples)
            took = time.monotonic() - start
            print(f"{round_ + 1}/{repetitions} {case.system.name}: {shown} ({took:.1f} s)", file=sys.stderr, flush=True)
    return failures


def record(
    measurements: Measurements, system: System, storage: BenchStorage, about: dict[str, Any], sample: Sample
) -> None:
    measurement = Measurement(
        workload=sample.workload, storage=storage.kind, system=system.name, unit=sample.unit,
        version=about["version"], guarantee=system.guarantee, language=system.language, settings=system.settings,
        jobs=sample.jobs,
    )  # fmt: skip
    notes = {"storage_version": storage.version, "producer_loop": about["loop"], **sample.notes}
    measurements.add(measurement, sample.value, sample.client, sample.server, **notes)
