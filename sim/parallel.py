"""Seeds in several processes at once.

A run depends on its seed alone, so these processes return numbers only: to show a run, the caller repeats its seed.
"""

from __future__ import annotations

import ctypes
import gc
import multiprocessing
import signal
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing.queues import Queue
from typing import NamedTuple

from penstock.testing.simulation.plan import Plan
from sim.run import run_seed

__all__ = ["SeedResult", "run_seeds"]

_PR_SET_PDEATHSIG = 1

#: The storage of this process.
_url = "memory:"


class SeedResult(NamedTuple):
    """The numbers of one run: calls carried out, faults, runs of handlers, and whether it broke a promise."""

    seed: int
    digest: str
    calls: int
    faults: int
    runs: int
    broken: bool


def run_seeds(seeds: Iterator[int], urls: Sequence[str], *, model: bool = True) -> Iterator[SeedResult]:
    """Run seeds in one process for each URL, and yield their results in the order of the seeds."""
    if len(urls) == 1:
        _use(urls[0])
        yield from (_run(seed, model) for seed in seeds)
        return
    context = multiprocessing.get_context("spawn")
    waiting: Queue[str] = context.Queue()
    for url in urls:
        waiting.put(url)
    pool = ProcessPoolExecutor(len(urls), context, _start_child, (waiting,))
    try:
        under_way: deque[Future[SeedResult]] = deque()
        for seed in seeds:
            under_way.append(pool.submit(_run, seed, model))
            if len(under_way) >= 2 * len(urls):
                yield under_way.popleft().result()
        while under_way:
            yield under_way.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def _start_child(urls: Queue[str]) -> None:
    """Take a storage. This process ends with its parent, however that ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    _use(urls.get())


def _use(url: str) -> None:
    """Run seeds on this storage. What was imported so far is no garbage: collections between seeds need not look."""
    global _url
    _url = url
    gc.freeze()


def _run(seed: int, model: bool) -> SeedResult:
    report = run_seed(Plan.of_seed(seed), _url, model=model)
    gc.collect()
    return SeedResult(seed, report.digest, report.calls, len(report.faults), report.runs, bool(report.violations))
