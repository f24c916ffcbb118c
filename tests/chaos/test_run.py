"""Short chaos runs with real processes, servers and faults, whose histories have no violation."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from chaos.processes import ROOT

#: storage, seed, faults
RUNS = [("sqlite", 101, 24), ("redis", 102, 30)]
LIMITED_RUNS = [("sqlite", 103, 20), ("redis", 104, 20)]


@pytest.mark.timeout(400)
@pytest.mark.parametrize(("storage", "seed", "faults"), RUNS)
def test_a_run_under_faults_violates_nothing(storage: str, seed: int, faults: int) -> None:
    """A run with jobs of every kind, killed and stopped processes and faults of the storage has no violation."""
    assert "violations" in run_chaos("--storage", storage, "--seed", str(seed), "--faults", str(faults))


@pytest.mark.timeout(400)
@pytest.mark.parametrize(("storage", "seed", "faults"), LIMITED_RUNS)
def test_a_run_of_limits_under_faults_violates_nothing(storage: str, seed: int, faults: int) -> None:
    """A run with limits and schedules, of which the code has two versions, under the same faults has no violation."""
    assert "ticks" in run_chaos("limits", "--storage", storage, "--seed", str(seed), "--faults", str(faults))


def run_chaos(*arguments: str) -> str:
    """Run 600 jobs with two workers for about 20 seconds; return the report, which names no violation."""
    command = [sys.executable, "-m", "chaos", *arguments, "--jobs", "600", "--minutes", "0.3", "--workers", "2"]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=380)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
