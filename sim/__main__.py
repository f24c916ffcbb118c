"""The commands: `python -m sim` runs seeds, `python -m sim SEED` shows one, `--shrink` makes a failing one small."""

from __future__ import annotations

import argparse
import contextlib
import gc
import logging
import sys
import time
from collections.abc import Generator, Iterator, Sequence
from typing import Any

from penstock.testing.simulation.plan import Plan
from sim.run import Report, run_seed
from sim.shrink import Shrinker
from sim.timeline import timeline


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser("python -m sim", description="Simulate the whole queue under seeded faults.")
    parser.add_argument("seed", type=int, nargs="?", help="run this seed and show its timeline")
    parser.add_argument("--seeds", default="", help="a number of seeds, or first:last; without it, run by the clock")
    parser.add_argument("--seconds", type=float, default=60.0, help="stop after this time (60)")
    parser.add_argument("--storage", default="memory", help="memory, redis (a server is started), or a URL")
    parser.add_argument("--shrink", action="store_true", help="make the first failing run small")
    parser.add_argument("--job", help="show the timeline of this job id")
    parser.add_argument("--digests", action="store_true", help="print the digest of each seed")
    parser.add_argument("--no-model", action="store_true", help="check without the model")
    return parser.parse_args(arguments)


def seeds_of(text: str, start: int = 1) -> Iterator[int]:
    """Yield the seeds of an argument: `60` is 1 to 60, `5:9` is 5 to 9, empty is endless."""
    if not text:
        while True:
            yield start
            start += 1
    first, colon, last = text.partition(":")
    yield from range(int(first), int(last) + 1) if colon else range(1, int(first) + 1)


@contextlib.contextmanager
def storage_url(name: str) -> Generator[str]:
    """Yield the URL of a storage; a Redis server is started for the block."""
    if name != "redis":
        yield "memory:" if name == "memory" else name
        return
    from tests.servers import Servers

    servers = Servers()
    try:
        server: Any = servers.get("redis")
        yield f"redis://{server.address}/0"
    finally:
        servers.remove()


def show(report: Report, url: str, options: argparse.Namespace) -> None:
    """Print the timeline of a run, made small first if that was asked for."""
    if options.shrink and report.violations:
        began = time.monotonic()
        shrinker = Shrinker(report, url, model=not options.no_model)
        small = shrinker.shrink()
        print(
            f"shrunk in {shrinker.runs} runs and {time.monotonic() - began:.0f} s: "
            f"from {len(report.faults)} faults to {len(small.faults)}"
        )
        report = small
    for line in timeline(report, options.job):
        print(line)


def run_all(options: argparse.Namespace, url: str) -> int:
    """Run seeds until one breaks a promise, or all are done."""
    began, count, calls, faults, runs = time.monotonic(), 0, 0, 0, 0
    limit = began + options.seconds if not options.seeds else float("inf")
    for seed in seeds_of(options.seeds):
        report = run_seed(Plan.of_seed(seed), url, model=not options.no_model)
        gc.collect()
        count, calls, faults, runs = count + 1, calls + report.calls, faults + len(report.faults), runs + report.runs
        if options.digests:
            print(seed, report.digest, flush=True)
        if report.violations:
            print(f"seed {seed} breaks a promise; run: make sim SEED={seed} STORAGE={options.storage}")
            show(report, url, options)
            return 1
        if time.monotonic() > limit:
            break
    took = time.monotonic() - began
    print(f"{count} seeds on {options.storage}: {calls} calls, {faults} faults, {runs} runs; {took:.0f} s")
    print("no promise is broken")
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    options = parse(arguments)
    logging.disable(logging.CRITICAL)  # the outages of a run are on purpose
    with storage_url(options.storage) as url:
        if options.seed is None:
            return run_all(options, url)
        report = run_seed(Plan.of_seed(options.seed), url, model=not options.no_model)
        show(report, url, options)
        return 1 if report.violations else 0


if __name__ == "__main__":
    sys.exit(main())
