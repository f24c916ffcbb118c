"""Workload `pickup`: the time from the enqueue of a job to the first line of its handler, in an idle worker process."""

from __future__ import annotations

from bench.call import percentiles
from bench.cases import Case, Sample
from bench.harness import Harness, SystemFailed
from bench.systems import System, penstock_system

PAUSE, BUDGET = 0.01, 8.0


def once(harness: Harness, count: int) -> list[Sample]:
    harness.start_worker()
    harness.warm_up()
    before = harness.counter.runs()
    sent = harness.request("stamp", count=count, pause=PAUSE, budget=BUDGET)["count"]
    harness.wait_for_runs(before + sent, 30.0)
    stamps = harness.counter.stamps()
    if len(stamps) != before + sent:
        raise SystemFailed(f"{harness.system.name} recorded {len(stamps)} pickups of {before + sent}")
    return percentiles("pickup", stamps[before:])


def case(system: System, count: int) -> Case:
    return Case("pickup", system, lambda harness: once(harness, count))


def cases(full: bool) -> list[Case]:
    return [case(penstock_system(), 600 if full else 150)]
