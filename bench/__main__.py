"""Measure Penstock: `python -m bench [workload ...] [--storage redis|sqlite|valkey] [--full]`.

`python -m bench peers` compares with other queues, `python -m bench chart FILE` draws charts of its results.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from bench import call, drain, enqueue, idle, leftovers, memory, pickup, scaling, storage_calls, wakeups
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
}
OTHERS: dict[str, Callable[[BenchStorage, Measurements, bool], list[str]]] = {
    "flat": scaling.run,
    "residue": leftovers.run,
    "cycle": storage_calls.run,
}
WORKLOADS = (*CASES, *OTHERS)
SERVER_ONLY = ("memory", "herd")
#: The workloads without an argument, which take about a minute.
USUAL = ["drain", "enqueue", "call", "pickup", "memory"]
FULL_ONLY = {("sqlite", name) for name in ("call", "pickup", *(f"drain/{kind}" for kind in drain.KINDS))}


def measure(workloads: list[str], storages: list[str], full: bool) -> tuple[Measurements, list[str]]:
    """Run the workloads on each of the storages; return the measurements and the failures."""
    measurements, failures = Measurements(), list[str]()
    for kind in storages:
        for name in workloads:
            if kind == "sqlite" and name in SERVER_ONLY:
                continue
            with storage_of(kind) as storage:
                if name in CASES:
                    cases = [case for case in CASES[name](full) if full or (kind, case.workload) not in FULL_ONLY]
                    failures += repeat(cases, storage, measurements)
                else:
                    failures += OTHERS[name](storage, measurements, full)
    return measurements, failures


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("workloads", nargs="*", metavar="workload", help=f"{', '.join(WORKLOADS)}")
    parser.add_argument("--storage", action="append", choices=STORAGES, help="default: redis and sqlite")
    parser.add_argument("--full", action="store_true", help="larger sizes, and by default all workloads")
    parser.add_argument("--out", type=Path, help="file for the JSON lines; default: standard output")
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
            args.workloads or list(WORKLOADS if args.full else USUAL), args.storage or ["redis", "sqlite"], args.full
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
