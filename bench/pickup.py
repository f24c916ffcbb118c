"""How soon does an idle worker begin? From handing a job in to the first line of its handler, in another process."""

from __future__ import annotations

from bench.call import percentiles
from bench.cases import Case, Reading
from bench.rig import Failed, Rig
from bench.systems import System, ours

PAUSE, BUDGET = 0.01, 8.0


def once(rig: Rig, count: int) -> list[Reading]:
    rig.start_worker()
    rig.warm_up()
    before = rig.tally.runs()
    sent = rig.ask("stamp", count=count, pause=PAUSE, budget=BUDGET)["count"]
    rig.await_runs(before + sent, 30.0)
    stamps = rig.tally.stamps()
    if len(stamps) != before + sent:
        raise Failed(f"{rig.system.name} told {len(stamps)} moments of {before + sent}")
    return percentiles("pickup", stamps[before:])


def case(system: System, count: int) -> Case:
    return Case("pickup", system, lambda rig: once(rig, count))


def cases(full: bool) -> list[Case]:
    return [case(ours(), 600 if full else 150)]
