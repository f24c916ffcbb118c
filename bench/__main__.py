"""Measure Penstock: `python -m bench [workload ...] [--storage redis|sqlite|valkey] [--full]`.

`python -m bench peers` compares with other queues, `python -m bench chart FILE` draws charts of its results.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bench import (
    call,
    dashboard,
    drain,
    enqueue,
    events,
    idle,
    leftovers,
    limits,
    memory,
    pickup,
    scaling,
    schedules,
    stats,
    storage_calls,
    viewed,
    wakeups,
)
from bench.cases import Case, repeat
from bench.machine import describe_machine, exclusive
from bench.results import Measurements, table, write
from bench.storages import STORAGES, BenchStorage, storage_of

CASES: dict[str, Callable[[bool], list[Case]]] = {
    "drain": drain.cases,
    "enqueue": enqueue.cases,
    "call": call.cases,
    "pickup": pickup.cases,
    "idle": idle.cases,
    "memory": memory.cases,
    "herd": wakeups.cases,
    "schedules": schedules.cases,
    "events": events.cases,
    "viewed": viewed.cases,
}
OTHERS: dict[str, Callable[[BenchStorage, Measurements, bool], list[str]]] = {
    "flat": scaling.run,
    "residue": leftovers.run,
    "cycle": storage_calls.run,
    "limits": limits.run,
    "stats": stats.run,
    "dashboard": dashboard.run,
}
WORKLOADS = (*CASES, *OTHERS)
SERVER_ONLY = ("memory", "herd")
#: The workloads without an argument, which take about a minute.
USUAL = ["drain", "enqueue", "call", "pickup", "memory"]
FULL_ONLY = {("sqlite", name) for name in ("call", "pickup", *(f"drain/{kind}" for kind in drain.KINDS))}


def measure(
    workloads: list[str], storages: list[str], full: bool, sizes: Mapping[str, Mapping[str, Any]]
) -> tuple[Measurements, list[str]]:
    """Run the workloads on each of the storages; return the measurements and the failures.

    `sizes` are those of the workloads that replace the usual ones.
    """
    measurements, failures = Measurements(), list[str]()
    for kind in storages:
        for name in workloads:
            if kind == "sqlite" and name in SERVER_ONLY:
                continue
            with storage_of(kind) as storage:
                if name == "limits":
                    failures += limits.run(storage, measurements, full, sizes[name])
                elif name in CASES:
                    made = schedules.cases(full, **sizes[name]) if name == "schedules" else CASES[name](full)
                    cases = [case for case in made if full or (kind, case.workload) not in FULL_ONLY]
                    failures += repeat(cases, storage, measurements)
                else:
                    failures += OTHERS[name](storage, measurements, full)
    return measurements, failures


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",") if number]


def _sizes(args: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """Return the sizes that were given, by workload."""
    names = {"limits": ("work", "keys", "crowd"), "schedules": ("schedules", "idle_schedules", "seconds")}
    return {
        workload: {name: getattr(args, name) for name in of if getattr(args, name) is not None}
        for workload, of in names.items()
    }


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("workloads", nargs="*", metavar="workload", help=f"{', '.join(WORKLOADS)}")
    parser.add_argument("--storage", action="append", choices=STORAGES, help="default: redis and sqlite")
    parser.add_argument("--full", action="store_true", help="larger sizes, and by default all workloads")
    parser.add_argument("--out", type=Path, help="file for the JSON lines; default: standard output")
    parser.add_argument("--keys", type=_numbers, metavar="N,N…", help="closed keys of limits/claim")
    parser.add_argument("--crowd", type=_numbers, metavar="N,N…", help="waiting jobs of limits/crowd")
    parser.add_argument("--work", type=int, metavar="N", help="jobs of limits/work; 0 leaves it out")
    parser.add_argument("--schedules", type=int, metavar="N", help="schedules of schedules/late")
    parser.add_argument("--idle-schedules", type=int, metavar="N", help="schedules of schedules/idle")
    parser.add_argument("--seconds", type=int, metavar="N", help="duration of schedules/late and schedules/idle")
    args = parser.parse_args()
    if unknown := set(args.workloads) - set(WORKLOADS):
        parser.error(f"unknown workload {', '.join(sorted(unknown))}")
    return args


def main() -> int:
    if sys.argv[1:2] == ["peers"]:
        from bench.compare import main as peers

        return peers(sys.argv[2:])
    if sys.argv[1:2] == ["chart"]:
        from bench.chart import main as chart

        return chart(sys.argv[2:])
    args = _arguments()
    with exclusive():
        about = describe_machine()
        measurements, failures = measure(
            args.workloads or list(WORKLOADS if args.full else USUAL),
            args.storage or ["redis", "sqlite"],
            args.full,
            _sizes(args),
        )
    lines = measurements.lines()
    write(about, lines, args.out)
    print(f"\n{table(lines)}\n")
    print(f"{about['cores']} cores, load {about['load_before']} before; servers without persistence, on loopback")
    for failure in failures:
        print(f"FAILED: {failure.splitlines()[0]}", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
