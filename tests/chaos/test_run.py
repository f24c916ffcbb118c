"""Short chaos runs with real processes, servers and faults, whose histories have no violation."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from chaos.processes import ROOT

#: storage, seed, faults
RUNS = [("sqlite", 101, 24), ("redis", 102, 30)]


@pytest.mark.timeout(400)
@pytest.mark.parametrize(("storage", "seed", "faults"), RUNS)
def test_a_run_under_faults_violates_nothing(storage: str, seed: int, faults: int) -> None:
    """A run with jobs of every kind, killed and stopped processes and faults of the storage has no violation."""
    command = [
        sys.executable, "-m", "chaos", "--storage", storage, "--seed", str(seed), "--jobs", "600", "--faults",
        str(faults), "--minutes", "0.3", "--workers", "2",
    ]  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=380)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "violations" in done.stdout
