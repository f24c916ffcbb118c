"""Workload `idle`: the cost of a worker without jobs in commands to the server, CPU and memory.

Measured for `penstock worker --processes 0` (one process) and `--processes 1` (a supervisor and one child that runs
handlers). Python's fork server and its resource tracker are counted too, and shared pages are counted in each process.
"""

from __future__ import annotations

import time
from collections import Counter

from bench.cases import Case, Sample
from bench.harness import Harness
from bench.monitor import Monitor
from bench.systems import System, penstock_system

PAUSE = 1.0  # seconds before the measurement: right after its last job a worker is not idle


def once(harness: Harness, name: str, seconds: float) -> list[Sample]:
    worker = harness.start_worker()
    harness.warm_up()
    harness.request("close")  # the producer may have a subscription of its own
    time.sleep(PAUSE)
    monitor = Monitor(harness.storage.url) if harness.storage.process is not None else None
    here, start = worker.cpu(), time.perf_counter()
    time.sleep(seconds)
    took, here = time.perf_counter() - start, worker.cpu() - here
    each = worker.rss()
    found = [
        Sample(f"{name}/cpu", "% of a core", here / took * 100),
        Sample(f"{name}/rss", "MB, process that runs handlers", each[_handler_process(harness)]),
        Sample(f"{name}/rss-all", "MB, all processes", sum(each.values()), notes={"processes": len(each)}),
    ]
    if monitor is not None:
        seen = Counter(command.name for command in monitor.commands())
        notes = {"commands": dict(seen), "seconds": round(took, 1)}
        found.append(Sample(f"{name}/commands", "commands/s", seen.total() / took, notes=notes))
    return found


def _handler_process(harness: Harness) -> int:
    """Return the pid of the process that has run handlers, by its counter file."""
    names = [path.name for path in harness.counter.folder.glob("runs-*")]
    return int(names[0].split("-")[1])


def case(system: System, name: str, seconds: float) -> Case:
    return Case(name, system, lambda harness: once(harness, name, seconds))


def cases(full: bool) -> list[Case]:
    seconds = 10.0 if full else 4.0
    return [
        case(penstock_system(processes=0), "idle/one-process", seconds),
        case(penstock_system(processes=1), "idle/supervised", seconds),
    ]
