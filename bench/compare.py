"""`python -m bench peers`: ours and the peers in one run, one after another in each round, on the same server."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from bench import bars, call, drain, enqueue, flat, herd, idle, memory, pickup
from bench.cases import Case, repeat
from bench.lines import Book, table, write
from bench.machine import alone, machine
from bench.peers.catalog import ON_SQLITE, PEERS
from bench.peers.install import NotInstalled, home_of
from bench.server import storage_of
from bench.systems import Home, System, ours

OUT = Path("build/bench/peers.jsonl")
PARTS = ("drain", "enqueue", "call", "pickup", "ours", "sqlite", "flat")
#: Ours are much faster; a drain should last about as long as those of the others.
OURS_DRAIN, OURS_MANY = 100_000, 100_000
PEERS_MANY, ONE, CALLS, PICKUPS = 20_000, 5_000, 600, 400
WITH_RESULTS = {"BENCH_RESULTS": "1"}


class Run:
    """What to compare, with whom, and how large."""

    def __init__(self, peers: Sequence[System], quick: bool) -> None:
        self._homes: dict[str, Home] = {}
        self.faults: list[str] = []
        for peer in peers:
            try:
                self._homes[peer.name] = home_of(peer)
            except NotInstalled as error:
                self.faults.append(f"{peer.name} is left out: {error}")
        self.peers = [peer for peer in peers if peer.name in self._homes]
        self.quick = quick

    def size(self, jobs: int) -> int:
        return max(50, jobs // 10) if self.quick else jobs

    def theirs(self, cases: Sequence[Case]) -> list[Case]:
        """Cases of peers, in their environments."""
        return [replace(case, home=self._homes[case.system.name]) for case in cases]

    def drains(self) -> list[Case]:
        jobs = self.size(OURS_DRAIN)
        many = ours(concurrency=100)
        found = [drain.case(many, "drain", jobs)]
        found += self.theirs([drain.case(peer, "drain", self.size(peer.jobs)) for peer in self.peers])
        found += [drain.case(ours(), "drain/default", jobs)]
        found += [drain.case(many, f"drain/{kind}", jobs, kind) for kind in drain.KINDS]
        found += [drain.case(ours(processes=2, concurrency=100), "drain/processes-2", jobs)]
        return found + drain.computing(jobs // 5)

    def ones(self) -> list[Case]:
        jobs = self.size(ONE)
        names = {"async": "enqueue/one", "sync": "sync-enqueue"}
        found = [enqueue.case(ours(), "enqueue/one", jobs), enqueue.case(ours(sync=True), "sync-enqueue", jobs)]
        return found + self.theirs([enqueue.case(peer, names[peer.style], jobs) for peer in self.peers])

    def many(self) -> list[Case]:
        found = [enqueue.case(ours(), f"enqueue/{way}", self.size(OURS_MANY)) for way in ("callers", "many")]
        offering = [peer for peer in self.peers if "many" in peer.offers]
        return found + self.theirs([enqueue.case(peer, "enqueue/many", self.size(PEERS_MANY)) for peer in offering])

    def calls(self) -> list[Case]:
        count = self.size(CALLS)
        asked = [
            replace(peer, environment={**peer.environment, **WITH_RESULTS})
            for peer in self.peers
            if "call" in peer.offers
        ]
        return [call.case(ours(), count), *self.theirs([call.case(peer, count) for peer in asked])]

    def pickups(self) -> list[Case]:
        count = self.size(PICKUPS)
        return [pickup.case(ours(), count), *self.theirs([pickup.case(peer, count) for peer in self.peers])]

    def alone(self) -> list[Case]:
        full = not self.quick
        return [*idle.cases(full), *memory.cases(full), *herd.cases(full)]

    def sqlite(self) -> list[Case]:
        jobs = self.size(OURS_DRAIN) // 2
        huey = [ON_SQLITE[peer.name] for peer in self.peers if peer.name in ON_SQLITE]
        two = ours(processes=2, concurrency=100)
        found = [drain.case(ours(concurrency=100), "drain", jobs), drain.case(two, "drain/processes-2", jobs)]
        found += self.theirs([drain.case(peer, "drain", self.size(peer.jobs)) for peer in huey])
        found += [enqueue.case(ours(), "enqueue/many", self.size(OURS_MANY))]
        found += [enqueue.case(ours(sync=True), "sync-enqueue", self.size(ONE * 2))]
        return found + self.theirs([enqueue.case(peer, "sync-enqueue", self.size(ONE * 2)) for peer in huey])


def _arguments(given: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench peers", description=__doc__)
    parser.add_argument("--only", help=f"peers, separated by commas: {', '.join(PEERS)}")
    parser.add_argument("--parts", help=f"parts of the run, separated by commas: {', '.join(PARTS)}")
    parser.add_argument("--quick", action="store_true", help="a tenth of the jobs, to see that everything works")
    parser.add_argument("--out", type=Path, default=OUT, help=f"where the JSON lines go; default: {OUT}")
    args = parser.parse_args(given)
    args.only = args.only.split(",") if args.only else list(PEERS)
    args.parts = args.parts.split(",") if args.parts else list(PARTS)
    for asked, known in ((args.only, PEERS), (args.parts, PARTS)):
        if unknown := set(asked) - set(known):
            parser.error(f"unknown: {', '.join(sorted(unknown))}")
    return args


def _measure(run: Run, parts: Sequence[str], book: Book, save: Callable[[], None]) -> list[str]:
    """The groups of cases whose figures are compared, each group in rounds of its own; saved after each."""
    faults = list(run.faults)
    groups = {"drain": [run.drains], "enqueue": [run.ones, run.many], "call": [run.calls], "pickup": [run.pickups]}
    groups["ours"] = [run.alone]
    with storage_of("redis") as storage:
        for part, makers in groups.items():
            for maker in makers if part in parts else []:
                faults += repeat(maker(), storage, book)
                save()
    if "sqlite" in parts:
        with storage_of("sqlite") as storage:
            faults += repeat(run.sqlite(), storage, book)
            save()
    for kind in ("redis", "sqlite") if "flat" in parts else ():
        with storage_of(kind) as storage:
            faults += flat.run(storage, book, not run.quick)
            save()
    return faults


def main(given: list[str]) -> int:
    args = _arguments(given)
    run = Run([PEERS[name] for name in args.only], args.quick)
    book = Book()
    with alone():
        about = machine()
        faults = _measure(run, args.parts, book, lambda: write(about, book.lines(), args.out))
    lines = book.lines()
    print(f"\n{table(lines)}\n\n{bars.table(bars.verdicts(lines))}\n\nJSON lines: {args.out}")
    for fault in faults:
        print(f"FAILED: {fault.splitlines()[0]}", file=sys.stderr)
    return 1 if faults else 0
