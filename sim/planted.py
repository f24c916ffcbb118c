"""Planted faults: a simulator that finds nothing must first find these.

Each is a copy of the package with one text replaced, like the mutants of the tests, which are tried too. The
command runs seeds against the copy until a promise is broken, and prints a row of the table in the documentation.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.mutants.test_mutants import MUTANTS, PACKAGE, ROOT, Mutant, make_overlay

__all__ = ["PLANTED", "SEEDS", "catch"]

#: The seeds within which a planted fault must be found.
SEEDS = 200


def planted(name: str, file: str, old: str, new: str) -> Mutant:
    return Mutant(name, file, old, new, ())


PLANTED = [
    planted(
        "a renewal extends lost claims", "sqlite/renew.py",
        "return [kept.get(claim, _LOST) for claim in held]", "return [kept.get(claim, _KEPT) for claim in held]",
    ),
    planted(
        "a repeated settlement counts again", "sqlite/settle.py",
        "        return Settled(state_of(job, tx.now))\n    return _LOST",
        "        job.retries += 1\n        tx.save(queue, job)\n"
        "        return Settled(state_of(job, tx.now))\n    return _LOST",
    ),
    planted(
        "due jobs are not promoted", "sqlite/ordering.py",
        "    if queue.promoted:\n        return False\n    if not queue", "    return False\n    if not queue",
    ),
    planted(
        "a stall goes to the end of its lane", "sqlite/reap.py",
        "            job.stalls += 1\n",
        "            job.stalls += 1\n            job.time, job.seq = tx.now, queue.next_seq()\n",
    ),
    planted(
        "the settler drops a batch after an error", "worker/settler.py",
        "                self._pending = batch + self._pending\n", "                pass\n",
    ),
    planted(
        "a worker does not fence itself", "worker/leases.py",
        "        self.give_up(self.expired(list(self._held), now))\n", "",
    ),
    planted("a waiting worker does not look by itself", "worker/claimer.py", "SLOW_POLL = 5.0", "SLOW_POLL = 1e6"),
    planted(
        "the lease of a claim counts from its answer", "worker/claimer.py",
        "            got += self._accept(requests, answer, asked)\n",
        "            got += self._accept(requests, answer, self._loop.time())\n",
    ),
    planted(
        "one run too many fits", "worker/pool.py",
        "return self.allowed - self.busy", "return self.allowed - self.busy + 10",
    ),
    planted(
        "the lease of a renewal counts from its answer", "claims.py",
        "        renewed(batch, await storage.renew(worker, [claim.ref for claim in batch], lease_ms), asked)\n",
        "        renewed(batch, await storage.renew(worker, [claim.ref for claim in batch], lease_ms), clock())\n",
    ),
    planted(
        "a lost reply of the settler gives the outcome up", "worker/settler.py",
        "            except BaseException:\n", "            except ConnectionError:\n",
    ),
    planted(
        "redis: due jobs are not promoted", "redis/lua/_shared.lua",
        "  if rawget(q, 'promoted') then return false end", "  if true then return false end",
    ),
    planted(
        "redis: a reaped stall is not counted", "redis/lua/reap.lua",
        "j.stalls, j.due = attempt, j.stalls + 1, now", "j.stalls, j.due = attempt, j.stalls, now",
    ),
    planted(
        "redis: a repeated settlement is not recognised", "redis/lua/settle.lua",
        "if j and j.settled == token .. kind then", "if false then",
    ),
]  # fmt: skip


def catch(mutant: Mutant, seeds: str, url: str = "", *, model: bool = True, seconds: float = 600.0) -> tuple[int, str]:
    """Run seeds against a copy with a fault; returns the seed that found it (0 if none did) and its text."""
    with tempfile.TemporaryDirectory() as directory:
        make_overlay(PACKAGE, Path(directory) / "penstock", mutant.path)
        text = PACKAGE.joinpath(*mutant.path).read_text()
        if text.count(mutant.old) != 1:
            return 0, f"{mutant.file} has the text {text.count(mutant.old)} times"
        Path(directory, "penstock", *mutant.path).write_text(text.replace(mutant.old, mutant.new))
        command = [sys.executable, "-m", "sim", "--seeds", seeds, "--storage", url or mutant.storage]
        env = {**os.environ, "PYTHONPATH": f"{directory}{os.pathsep}{ROOT}", "PYTHONDONTWRITEBYTECODE": "1"}
        command += [] if model else ["--no-model"]
        try:
            done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=seconds)
        except subprocess.TimeoutExpired:
            return 0, "no result in time"
    return _found(done.returncode, done.stdout, done.stderr)


def _found(code: int, output: str, errors: str) -> tuple[int, str]:
    if code == 0:
        return 0, "not found"
    broken = [line for line in output.splitlines() if line.startswith("BROKEN at ")]
    if not broken:
        return 0, f"the simulator failed: {errors.strip().splitlines()[-1:]}"
    seed = next(line for line in output.splitlines() if "breaks a promise" in line).split()[1]
    return int(seed), broken[0].partition(": ")[2]


def main(arguments: Sequence[str] | None = None) -> int:
    """Try the planted faults and mutants whose names contain a word; returns the number that were not found."""
    parser = argparse.ArgumentParser("python -m sim.planted", description="Plant faults and see which are found.")
    parser.add_argument("word", nargs="?", default="", help="only faults whose name has this")
    parser.add_argument("--seeds", default=str(SEEDS), help=f"how many seeds each gets ({SEEDS})")
    parser.add_argument("--mutants", action="store_true", help="the mutants of the tests too")
    parser.add_argument("--no-model", action="store_true", help="check without the model")
    parser.add_argument("--redis", default="", help="the URL of a Redis server that may be emptied")
    options = parser.parse_args(arguments)
    missed = 0
    for mutant in [*PLANTED, *(MUTANTS if options.mutants else [])]:
        if options.word in mutant.name:
            url = options.redis if mutant.storage == "redis" else ""
            seed, text = catch(mutant, options.seeds, url, model=not options.no_model)
            missed += seed == 0
            print(f"| {mutant.name} | {seed or 'not found'} | {text[:110]} |", flush=True)
    return missed


if __name__ == "__main__":
    sys.exit(main())
