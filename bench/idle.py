"""What does an idle worker cost? Commands to the server, CPU and memory, while nothing happens.

Measured for `penstock worker --processes 0` (one process) and `--processes 1` (a parent that supervises,
one child that runs handlers; Python's fork server and its tracker are counted too, and pages that they
share are counted in each).
"""

from __future__ import annotations

import time
from collections import Counter

from bench.cases import Case, Reading
from bench.monitor import Monitor
from bench.rig import Rig
from bench.systems import System, ours

REST = 1.0  # before the clock starts: what comes right after the last job is not idle


def once(rig: Rig, name: str, seconds: float) -> list[Reading]:
    worker = rig.start_worker()
    rig.warm_up()
    rig.ask("close")  # the asking side may have a listener of its own
    time.sleep(REST)
    monitor = Monitor(rig.storage.url) if rig.storage.process is not None else None
    here, start = worker.cpu(), time.perf_counter()
    time.sleep(seconds)
    took, here = time.perf_counter() - start, worker.cpu() - here
    each = worker.rss()
    found = [
        Reading(f"{name}/cpu", "% of a core", here / took * 100),
        Reading(f"{name}/rss", "MB, process that runs handlers", each[_busiest(rig)]),
        Reading(f"{name}/rss-all", "MB, all processes", sum(each.values()), notes={"processes": len(each)}),
    ]
    if monitor is not None:
        seen = Counter(command.name for command in monitor.commands())
        notes = {"commands": dict(seen), "seconds": round(took, 1)}
        found.append(Reading(f"{name}/commands", "commands/s", seen.total() / took, notes=notes))
    return found


def _busiest(rig: Rig) -> int:
    """The process that has run handlers: the one that counted."""
    names = [path.name for path in rig.tally.folder.glob("runs-*")]
    return int(names[0].split("-")[1])


def case(system: System, name: str, seconds: float) -> Case:
    return Case(name, system, lambda rig: once(rig, name, seconds))


def cases(full: bool) -> list[Case]:
    seconds = 10.0 if full else 4.0
    return [case(ours(processes=0), "idle/one-process", seconds), case(ours(processes=1), "idle/supervised", seconds)]
