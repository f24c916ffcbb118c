"""`python -m bench peers`: Penstock and the peers in one run, one after another in each round, on the same server."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from bench import call, drain, enqueue, idle, memory, pickup, scaling, targets, wakeups
from bench.cases import Case, repeat
from bench.machine import describe_machine, exclusive
from bench.peers.catalog import ON_SQLITE, PEERS
from bench.peers.install import NotInstalled, environment_of
from bench.results import Measurements, table, write
from bench.storages import storage_of
from bench.systems import Environment, System, penstock_system

OUT = Path("build/bench/peers.jsonl")
PARTS = ("drain", "enqueue", "call", "pickup", "ours", "sqlite", "flat")
#: More jobs for Penstock, so that its drain lasts about as long as those of the slower peers.
OURS_DRAIN, OURS_MANY = 100_000, 100_000
PEERS_MANY, ONE, CALLS, PICKUPS = 20_000, 5_000, 600, 400
WITH_RESULTS = {"BENCH_RESULTS": "1"}


class Comparison:
    """Cases of Penstock and of the peers that could be installed."""

    def __init__(self, peers: Sequence[System], quick: bool) -> None:
        self._environments: dict[str, Environment] = {}
        self.failures: list[str] = []
        for peer in peers:
            try:
                self._environments[peer.name] = environment_of(peer)
            except NotInstalled as error:
                self.failures.append(f"{peer.name} is left out: {error}")
        self.peers = [peer for peer in peers if peer.name in self._environments]
        self.quick = quick

    def size(self, jobs: int) -> int:
        return max(50, jobs // 10) if self.quick else jobs

    def theirs(self, cases: Sequence[Case]) -> list[Case]:
        """Return cases of peers with their environments."""
        return [replace(case, environment=self._environments[case.system.name]) for case in cases]

    def drains(self) -> list[Case]:
        jobs = self.size(OURS_DRAIN)
        many = penstock_system(concurrency=100)
        found = [drain.case(many, "drain", jobs)]
        found += self.theirs([drain.case(peer, "drain", self.size(peer.jobs)) for peer in self.peers])
        found += [drain.case(penstock_system(), "drain/default", jobs)]
        found += [drain.case(many, f"drain/{kind}", jobs, kind) for kind in drain.KINDS]
        found += [drain.case(penstock_system(processes=2, concurrency=100), "drain/processes-2", jobs)]
        return found + drain.computing(jobs // 5)

    def ones(self) -> list[Case]:
        jobs = self.size(ONE)
        names = {"async": "enqueue/one", "sync": "sync-enqueue"}
        found = [
            enqueue.case(penstock_system(), "enqueue/one", jobs),
            enqueue.case(penstock_system(sync=True), "sync-enqueue", jobs),
        ]
        return found + self.theirs([enqueue.case(peer, names[peer.style], jobs) for peer in self.peers])

    def many(self) -> list[Case]:
        found = [
            enqueue.case(penstock_system(), f"enqueue/{kind}", self.size(OURS_MANY)) for kind in ("callers", "many")
        ]
        offering = [peer for peer in self.peers if "many" in peer.offers]
        return found + self.theirs([enqueue.case(peer, "enqueue/many", self.size(PEERS_MANY)) for peer in offering])

    def calls(self) -> list[Case]:
        count = self.size(CALLS)
        answering = [
            replace(peer, environment={**peer.environment, **WITH_RESULTS})
            for peer in self.peers
            if "call" in peer.offers
        ]
        return [call.case(penstock_system(), count), *self.theirs([call.case(peer, count) for peer in answering])]

    def pickups(self) -> list[Case]:
        count = self.size(PICKUPS)
        return [pickup.case(penstock_system(), count), *self.theirs([pickup.case(peer, count) for peer in self.peers])]

    def alone(self) -> list[Case]:
        full = not self.quick
        return [*idle.cases(full), *memory.cases(full), *wakeups.cases(full)]

    def sqlite(self) -> list[Case]:
        jobs = self.size(OURS_DRAIN) // 2
        huey = [ON_SQLITE[peer.name] for peer in self.peers if peer.name in ON_SQLITE]
        two = penstock_system(processes=2, concurrency=100)
        found = [
            drain.case(penstock_system(concurrency=100), "drain", jobs),
            drain.case(two, "drain/processes-2", jobs),
        ]
        found += self.theirs([drain.case(peer, "drain", self.size(peer.jobs)) for peer in huey])
        found += [enqueue.case(penstock_system(), "enqueue/many", self.size(OURS_MANY))]
        found += [enqueue.case(penstock_system(sync=True), "sync-enqueue", self.size(ONE * 2))]
        return found + self.theirs([enqueue.case(peer, "sync-enqueue", self.size(ONE * 2)) for peer in huey])


def _arguments(given: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench peers", description=__doc__)
    parser.add_argument("--only", help=f"peers, separated by commas: {', '.join(PEERS)}")
    parser.add_argument("--parts", help=f"parts of the run, separated by commas: {', '.join(PARTS)}")
    parser.add_argument("--quick", action="store_true", help="a tenth of the jobs, to check that all systems work")
    parser.add_argument("--out", type=Path, default=OUT, help=f"file for the JSON lines; default: {OUT}")
    args = parser.parse_args(given)
    args.only = args.only.split(",") if args.only else list(PEERS)
    args.parts = args.parts.split(",") if args.parts else list(PARTS)
    for given_names, known in ((args.only, PEERS), (args.parts, PARTS)):
        if unknown := set(given_names) - set(known):
            parser.error(f"unknown: {', '.join(sorted(unknown))}")
    return args


def _measure(run: Comparison, parts: Sequence[str], measurements: Measurements, save: Callable[[], None]) -> list[str]:
    """Run the parts, each group of comparable cases in rounds of its own; save the results after each group."""
    failures = list(run.failures)
    groups = {"drain": [run.drains], "enqueue": [run.ones, run.many], "call": [run.calls], "pickup": [run.pickups]}
    groups["ours"] = [run.alone]
    with storage_of("redis") as storage:
        for part, makers in groups.items():
            for maker in makers if part in parts else []:
                failures += repeat(maker(), storage, measurements)
                save()
    if "sqlite" in parts:
        with storage_of("sqlite") as storage:
            failures += repeat(run.sqlite(), storage, measurements)
            save()
    for kind in ("redis", "sqlite") if "flat" in parts else ():
        with storage_of(kind) as storage:
            failures += scaling.run(storage, measurements, not run.quick)
            save()
    return failures


def main(given: list[str]) -> int:
    args = _arguments(given)
    run = Comparison([PEERS[name] for name in args.only], args.quick)
    measurements = Measurements()
    with exclusive():
        about = describe_machine()
        failures = _measure(run, args.parts, measurements, lambda: write(about, measurements.lines(), args.out))
    lines = measurements.lines()
    print(f"\n{table(lines)}\n\n{targets.table(targets.target_results(lines))}\n\nJSON lines: {args.out}")
    for failure in failures:
        print(f"FAILED: {failure.splitlines()[0]}", file=sys.stderr)
    return 1 if failures else 0
