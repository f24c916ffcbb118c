"""Workload `call`: the time from a request to its response, one after another through an idle worker process."""

from __future__ import annotations

import statistics

from bench.cases import Case, Sample
from bench.harness import Harness
from bench.systems import System, penstock_system

PAUSE, BUDGET = 0.002, 8.0  # seconds between two requests, and for all of them


def percentiles(name: str, taken: list[int]) -> list[Sample]:
    """Return the median and the 99th percentile in milliseconds."""
    milliseconds = [value / 1e6 for value in taken]
    cuts = statistics.quantiles(milliseconds, n=100, method="inclusive")
    return [
        Sample(f"{name}/p50", "ms", statistics.median(milliseconds), jobs=len(taken)),
        Sample(f"{name}/p99", "ms", cuts[98], jobs=len(taken)),
    ]


def once(harness: Harness, count: int) -> list[Sample]:
    harness.start_worker()
    harness.warm_up()
    harness.request("call", count=20, pause=PAUSE, budget=4.0)
    return percentiles("call", harness.request("call", count=count, pause=PAUSE, budget=BUDGET)["taken"])


def case(system: System, count: int) -> Case:
    return Case("call", system, lambda harness: once(harness, count))


def cases(full: bool) -> list[Case]:
    return [case(penstock_system(), 1000 if full else 200)]
