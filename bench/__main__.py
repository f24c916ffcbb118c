"""Measure Penstock: `python -m bench [workload ...] [--storage redis|sqlite|valkey] [--full]`.

`python -m bench peers` compares with others, `python -m bench chart FILE` draws what that wrote.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from bench import call, cycle, drain, enqueue, flat, herd, idle, memory, pickup, residue
from bench.cases import Case, repeat
from bench.lines import Book, table, write
from bench.machine import alone, machine
from bench.server import STORAGES, Storage, storage_of

CASES: dict[str, Callable[[bool], list[Case]]] = {
    "drain": drain.cases,
    "enqueue": enqueue.cases,
    "call": call.cases,
    "pickup": pickup.cases,
    "idle": idle.cases,
    "memory": memory.cases,
    "herd": herd.cases,
}
OTHERS: dict[str, Callable[[Storage, Book, bool], list[str]]] = {
    "flat": flat.run,
    "residue": residue.run,
    "cycle": cycle.run,
}
WORKLOADS = (*CASES, *OTHERS)
SERVER_ONLY = ("memory", "herd")
#: What is measured when nothing is asked for: about a minute.
USUAL = ["drain", "enqueue", "call", "pickup", "memory"]
FULL_ONLY = {("sqlite", name) for name in ("call", "pickup", *(f"drain/{kind}" for kind in drain.KINDS))}


def measure(workloads: list[str], storages: list[str], full: bool) -> tuple[Book, list[str]]:
    """All of these workloads on all of these storages."""
    book, faults = Book(), list[str]()
    for kind in storages:
        for name in workloads:
            if kind == "sqlite" and name in SERVER_ONLY:
                continue
            with storage_of(kind) as storage:
                if name in CASES:
                    cases = [case for case in CASES[name](full) if full or (kind, case.workload) not in FULL_ONLY]
                    faults += repeat(cases, storage, book)
                else:
                    faults += OTHERS[name](storage, book, full)
    return book, faults


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("workloads", nargs="*", metavar="workload", help=f"{', '.join(WORKLOADS)}")
    parser.add_argument("--storage", action="append", choices=STORAGES, help="default: redis and sqlite")
    parser.add_argument("--full", action="store_true", help="larger sizes, and by default all workloads")
    parser.add_argument("--out", type=Path, help="where the JSON lines go; default: standard output")
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
    with alone():
        about = machine()
        book, faults = measure(
            args.workloads or list(WORKLOADS if args.full else USUAL), args.storage or ["redis", "sqlite"], args.full
        )
    lines = book.lines()
    write(about, lines, args.out)
    print(f"\n{table(lines)}\n")
    print(f"{about['cores']} cores, load {about['load_before']} before; servers without persistence, on loopback")
    for fault in faults:
        print(f"FAILED: {fault.splitlines()[0]}", file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
