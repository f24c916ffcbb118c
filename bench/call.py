"""How long does an answer take? One request after another through an idle worker in another process."""

from __future__ import annotations

import statistics

from bench.cases import Case, Reading
from bench.rig import Rig
from bench.systems import System, ours

PAUSE, BUDGET = 0.002, 8.0  # seconds between two requests, and for all of them


def percentiles(name: str, taken: list[int]) -> list[Reading]:
    """The median and the 99th of a hundred, in milliseconds."""
    milliseconds = [value / 1e6 for value in taken]
    cuts = statistics.quantiles(milliseconds, n=100, method="inclusive")
    return [
        Reading(f"{name}/p50", "ms", statistics.median(milliseconds), jobs=len(taken)),
        Reading(f"{name}/p99", "ms", cuts[98], jobs=len(taken)),
    ]


def once(rig: Rig, count: int) -> list[Reading]:
    rig.start_worker()
    rig.warm_up()
    rig.ask("call", count=20, pause=PAUSE, budget=4.0)
    return percentiles("call", rig.ask("call", count=count, pause=PAUSE, budget=BUDGET)["taken"])


def case(system: System, count: int) -> Case:
    return Case("call", system, lambda rig: once(rig, count))


def cases(full: bool) -> list[Case]:
    return [case(ours(), 1000 if full else 200)]
