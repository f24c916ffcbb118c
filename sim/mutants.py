"""Faults in copies of the package: a simulator that finds nothing must first find these.

`python -m sim.mutants` tries the planted faults and the mutants of the tests: it runs seeds against a copy of the
package with one text replaced, until a promise is broken. Every fault gets a few seeds first, then those that were
not found get more. Results are JSON lines in a file, so that a command that was ended can go on; `--table` prints
the tables of the documentation from them.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple

from sim.__main__ import storage_urls
from sim.planted import PLANTED
from sim.planted_limits import PLANTED_LIMITS
from sim.reach import reason_out_of_reach
from tests.mutants.test_mutants import MUTANTS, PACKAGE, ROOT, Mutant, make_overlay

__all__ = ["SEEDS", "Results", "Trial", "catch", "chosen", "rounds"]

#: The seeds within which a fault must be found, and the last seeds of the rounds before.
SEEDS, ROUNDS = 200, (1, 3, 8, 20, 60)

RESULTS = ROOT / "build" / "sim-mutants.jsonl"


class Trial(NamedTuple):
    """A fault that was tried: the last seed that was run, the seed that found it (0 if none did), and its text."""

    name: str
    tried: int
    seed: int
    text: str


def catch(mutant: Mutant, seeds: range, url: str = "memory:") -> Trial:
    """Run seeds against a copy of the package with a fault, until one breaks a promise."""
    text = PACKAGE.joinpath(*mutant.path).read_text()
    if text.count(mutant.old) != 1:
        raise ValueError(f"{mutant.file} has the text of {mutant.name!r} {text.count(mutant.old)} times")
    with tempfile.TemporaryDirectory() as directory:
        make_overlay(PACKAGE, Path(directory) / "penstock", mutant.path)
        Path(directory, "penstock", *mutant.path).write_text(text.replace(mutant.old, mutant.new))
        command = [sys.executable, "-m", "sim.trial", url, *map(str, seeds)]
        env = {**os.environ, "PYTHONPATH": f"{directory}{os.pathsep}{ROOT}", "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)
    return _trial(mutant.name, done)


def _trial(name: str, done: subprocess.CompletedProcess[str]) -> Trial:
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    last: int = lines[-1][0] if lines else 0
    if lines and len(lines[-1]) == 2:
        return Trial(name, last, last, lines[-1][1])
    if done.returncode == -signal.SIGPROF:
        return Trial(name, last, last, "the run does not end")
    if not last:
        raise RuntimeError(f"no run has begun with {name!r}: {done.stderr}")
    if done.returncode:  # an exception that reaches the simulator itself
        return Trial(name, last, last, f"the run ends with {(done.stderr.strip().splitlines() or ['nothing'])[-1]}")
    return Trial(name, last, 0, "")


class Results:
    """The last trial of each fault, also in a file of JSON lines."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.last: dict[str, Trial] = {}
        if path.exists():
            for line in path.read_text().splitlines():
                self._keep(Trial(*json.loads(line)))

    def _keep(self, trial: Trial) -> None:
        self.last[trial.name] = trial

    def add(self, trial: Trial) -> None:
        """Add a trial."""
        self._keep(trial)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a") as file:
            file.write(json.dumps(trial) + "\n")

    def left(self, mutant: Mutant, until: int) -> range:
        """Return the seeds that a fault has still to get up to a seed; none if it was found."""
        last = self.last.get(mutant.name)
        return range(1, until + 1) if last is None else range(0) if last.seed else range(last.tried + 1, until + 1)


def chosen(word: str, storage: str) -> list[Mutant]:
    """Return the faults of a storage (of both if it is empty) whose names have a word, if a run can meet them."""
    return [
        mutant
        for mutant in [*MUTANTS, *PLANTED, *PLANTED_LIMITS]
        if word in mutant.name and storage in ("", mutant.storage) and not reason_out_of_reach(mutant)
    ]


def rounds(seeds: int) -> Iterator[int]:
    """Yield the last seed of each round."""
    yield from (last for last in ROUNDS if last < seeds)
    yield seeds


def try_all(mutants: Sequence[Mutant], results: Results, seeds: int, urls: Sequence[str]) -> None:
    """Try faults, as many at once as there are storages, in rounds with more and more seeds."""
    free: SimpleQueue[str] = SimpleQueue()
    for url in urls:
        free.put(url)

    def attempt(mutant: Mutant, left: range) -> None:
        url = free.get()
        try:
            trial = catch(mutant, left, url)
        finally:
            free.put(url)
        results.add(trial)
        print(f"{trial.name}: {f'seed {trial.seed}, {trial.text[:100]}' if trial.seed else trial.tried}", flush=True)

    for last in rounds(seeds):
        with ThreadPoolExecutor(len(urls)) as pool:
            todo = [(mutant, left) for mutant in mutants if (left := results.left(mutant, last))]
            for _ in pool.map(attempt, *zip(*todo, strict=True)) if todo else ():
                pass


def table(results: Results) -> Iterator[str]:
    """Yield the tables of the documentation: planted faults, then mutants by storage, then those out of reach."""
    kinds = {
        "Planted faults": [*PLANTED, *PLANTED_LIMITS],
        "Mutants of SQLite, model, client and worker": [mutant for mutant in MUTANTS if mutant.storage == "memory"],
        "Mutants of Redis": [mutant for mutant in MUTANTS if mutant.storage == "redis"],
    }
    for kind, mutants in kinds.items():
        trials = [results.last.get(mutant.name) for mutant in mutants if not reason_out_of_reach(mutant)]
        tried = [trial for trial in trials if trial is not None]
        found = [trial for trial in tried if trial.seed]
        yield f"**{kind}**: {len(found)} found of {len(tried)} tried; {len(trials) - len(tried)} not tried."
        yield from ("", "| fault | seed | broken promise |", "|---|---|---|")
        for trial in tried:
            seed = trial.seed or f"not within {trial.tried}"
            yield f"| {trial.name} | {seed} | {_promise(trial.text)} |"
        yield ""
    reasons = Counter(reason for mutant in MUTANTS if (reason := reason_out_of_reach(mutant)))
    yield from ("| out of reach, because | mutants |", "|---|---|")
    yield from (f"| {reason} | {count} |" for reason, count in reasons.most_common())


def _promise(text: str) -> str:
    """Return the first words of a broken promise, without the values of this run."""
    return text.partition(": ")[0].replace("|", "/")[:100] or "–"


def main(arguments: Sequence[str] | None = None) -> int:
    """Try faults; returns the number that were not found."""
    parser = argparse.ArgumentParser("python -m sim.mutants", description="Plant faults and see which are found.")
    parser.add_argument("--match", default="", metavar="TEXT", help="only faults whose name has this text")
    parser.add_argument("--storage", default="memory", choices=["memory", "redis"], help="only faults of this storage")
    parser.add_argument("--seeds", type=int, default=SEEDS, help=f"the most seeds that a fault gets ({SEEDS})")
    parser.add_argument("--processes", type=int, default=2, help="how many faults are tried at once (2)")
    parser.add_argument(
        "--results", type=Path, default=RESULTS, help="the file of results; what it has is not tried again"
    )
    parser.add_argument("--table", action="store_true", help="print the tables of the results, and try nothing")
    options = parser.parse_args(arguments)
    if options.table:
        print("\n".join(table(Results(options.results))))
        return 0
    results, mutants = Results(options.results), chosen(options.match, options.storage)
    with storage_urls(options.storage, options.processes) as urls:
        try_all(mutants, results, options.seeds, urls)
    found = [mutant for mutant in mutants if results.last[mutant.name].seed]
    print(f"{len(found)} of {len(mutants)} found")
    return min(len(mutants) - len(found), 100)


if __name__ == "__main__":
    sys.exit(main())
