"""The commands: `python -m sim` runs seeds, `python -m sim SEED` shows one, `--shrink` makes a failing one small."""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import sys
import time
from collections.abc import Generator, Iterator, Sequence
from typing import Any

from penstock.testing.simulation.plan import Plan
from sim.parallel import run_seeds
from sim.run import Report, run_seed
from sim.shrink import Shrinker
from sim.timeline import timeline


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser("python -m sim", description="Simulate the whole queue under seeded faults.")
    parser.add_argument("seed", type=int, nargs="?", help="run this seed and show its timeline")
    parser.add_argument("--seeds", default="", help="a number of seeds, or first:last; without it, run by the clock")
    parser.add_argument("--seconds", type=float, default=60.0, help="stop after this time (60)")
    parser.add_argument(
        "--processes", type=int, default=os.cpu_count() or 1, help="how many seeds run at once (one for each core)"
    )
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
def storage_urls(name: str, count: int) -> Generator[list[str]]:
    """Yield the URL of a storage for each process; Redis servers are started for the block."""
    if name != "redis":
        yield ["memory:"] * count if name == "memory" else [name]
        return
    from tests.servers import Servers

    with contextlib.ExitStack() as stack:
        urls: list[str] = []
        for _ in range(count):
            servers = Servers()
            stack.callback(servers.remove)
            server: Any = servers.get("redis")
            urls.append(f"redis://{server.address}/0")
        yield urls


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


def run_all(options: argparse.Namespace, urls: list[str]) -> int:
    """Run seeds until one breaks a promise, or all are done."""
    began, count, calls, faults, runs = time.monotonic(), 0, 0, 0, 0
    seeds = seeds_of(options.seeds)
    if not options.seeds:
        seeds = itertools.takewhile(lambda _: time.monotonic() < began + options.seconds, seeds)
    for result in run_seeds(seeds, urls, model=not options.no_model):
        count, calls, faults, runs = count + 1, calls + result.calls, faults + result.faults, runs + result.runs
        if options.digests:
            print(result.seed, result.digest, flush=True)
        if result.broken:
            print(f"seed {result.seed} breaks a promise; run: make sim SEED={result.seed} STORAGE={options.storage}")
            show(run_seed(Plan.of_seed(result.seed), urls[0], model=not options.no_model), urls[0], options)
            return 1
    took = time.monotonic() - began
    print(f"{count} seeds on {options.storage}: {calls} calls, {faults} faults, {runs} runs; {took:.0f} s")
    print("no promise is broken")
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    options = parse(arguments)
    with storage_urls(options.storage, 1 if options.seed is not None else options.processes) as urls:
        if options.seed is None:
            return run_all(options, urls)
        report = run_seed(Plan.of_seed(options.seed), urls[0], model=not options.no_model)
        show(report, urls[0], options)
        return 1 if report.violations else 0


if __name__ == "__main__":
    sys.exit(main())
