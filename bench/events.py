"""Workload `events`: a drain with a listener to events in another process, and without.

`events/none` has no listener. `events/listened` has one that reads all events of the drained queue, `events/other` one
to another queue, and `events/left` one to the drained queue that has left just before.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Generator

from bench import drain
from bench.cases import Case, Sample
from bench.harness import Harness, SystemFailed
from bench.process import Process, die_with_parent
from bench.systems import penstock_system

#: The queue of the listener by the name of the case, and whether it leaves before the drain.
LISTENERS: dict[str, tuple[str, bool] | None] = {
    "none": None,
    "listened": ("work", False),
    "other": ("other", False),
    "left": ("work", True),
}


@contextlib.contextmanager
def listener(url: str, queue: str) -> Generator[subprocess.Popen[bytes]]:
    """Start a listener that is subscribed when the block begins."""
    command = [sys.executable, "-m", "bench.event_listener", url, queue]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, preexec_fn=die_with_parent)
    try:
        assert child.stdout
        if child.stdout.readline() != b"listening\n":
            raise SystemFailed("the listener did not begin")
        yield child
    finally:
        Process(child).stop()


def leave(child: subprocess.Popen[bytes]) -> int:
    """Have a listener leave, and return the number of events that it got."""
    found, _ = child.communicate(timeout=60)
    return int(found)


def once(harness: Harness, name: str, jobs: int) -> list[Sample]:
    """Measure a drain beside the listener of this case; one to the drained queue must get all its events."""
    wanted = LISTENERS[name]
    if wanted is None:
        return drain.once(harness, f"events/{name}", jobs)
    queue, leaves = wanted
    with listener(harness.storage.url, queue) as child:
        if leaves:
            leave(child)
        samples = drain.once(harness, f"events/{name}", jobs)
        if not leaves and queue == "work":
            busy = Process(child).cpu()
            count = leave(child)
            if count < 3 * jobs:  # a busy worker is also idle now and then
                raise SystemFailed(f"the listener got {count} events of {jobs} jobs")
            samples[0].notes["listener_us"] = round(busy / jobs * 1e6, 1)
    return samples


def cases(full: bool) -> list[Case]:
    """Return a drain for each kind of listener."""
    jobs, system = 200_000 if full else 50_000, penstock_system(concurrency=100)

    def case(name: str) -> Case:
        return Case(f"events/{name}", system, lambda harness: once(harness, name, jobs))

    return [case(name) for name in LISTENERS]
