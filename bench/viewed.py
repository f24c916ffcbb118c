"""Workload `viewed`: a drain with the overview of the dashboard open, and without.

`viewed/none` has no dashboard; `viewed/overview` has one with a viewer who holds its stream and fetches what changed,
and fails if a listener to events appears in the storage. The values are jobs per second of CPU time of worker and
server together: the dashboard and its viewer run on the same cores, which on a machine of two is most of what time
shows. The rate by the clock is in `rate`, the CPU time of the dashboard and its viewer per job in `viewer_us`.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
from collections.abc import Generator

from bench import drain
from bench.cases import Case, Sample
from bench.harness import Harness, SystemFailed
from bench.process import Process, die_with_parent
from bench.storages import BenchStorage
from bench.systems import penstock_system


@contextlib.contextmanager
def viewer(url: str) -> Generator[Process]:
    """Start a dashboard with a viewer, who looks when the block begins, and must have fetched parts at its end."""
    command = [sys.executable, "-m", "bench.dashboard_viewer", url]
    child = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True, preexec_fn=die_with_parent
    )
    try:
        assert child.stdout
        if child.stdout.readline() != b"looking\n":
            raise SystemFailed("the viewer did not begin")
        yield Process(child, session=True)
        fetched, _ = child.communicate(timeout=60)
        if int(fetched) < 2:
            raise SystemFailed(f"the viewer fetched the overview {int(fetched)} times")
    finally:
        Process(child, session=True).stop()


class ListenerWatch:
    """A thread that looks for listeners to events, ten times a second."""

    def __init__(self, storage: BenchStorage) -> None:
        self.found = 0
        self._storage, self._ended = storage, threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> ListenerWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(0.1):
            self.found += self._storage.listeners()


def once(harness: Harness, name: str, jobs: int) -> list[Sample]:
    """Measure a drain, with a viewer or without."""
    if name == "none":
        return [by_cpu(drain.once(harness, f"viewed/{name}", jobs)[0])]
    with viewer(harness.storage.url) as process, ListenerWatch(harness.storage) as watch:
        before = process.cpu()
        sample = by_cpu(drain.once(harness, f"viewed/{name}", jobs)[0])
        sample.notes["viewer_us"] = round((process.cpu() - before) / jobs * 1e6, 2)
    if watch.found:
        raise SystemFailed(f"a listener to events was found {watch.found} times")
    return [sample]


def by_cpu(sample: Sample) -> Sample:
    """Return the sample of a drain in jobs per second of CPU time of worker and server."""
    spent = (sample.client or 0.0) + (sample.server or 0.0)
    notes = {**sample.notes, "rate": round(sample.value)}
    return Sample(sample.workload, "jobs/CPU s", 1e6 / spent, sample.client, sample.server, sample.jobs, notes)


def cases(full: bool) -> list[Case]:
    """Return a drain without a viewer and one with."""
    jobs, system = 200_000 if full else 50_000, penstock_system(concurrency=100)

    def case(name: str) -> Case:
        return Case(f"viewed/{name}", system, lambda harness: once(harness, name, jobs))

    return [case("none"), case("overview")]
