"""The chaos run in short: real processes, servers and faults, and a history that violates nothing."""

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
def test_nothing_is_violated_under_fire(storage: str, seed: int, faults: int) -> None:
    """Jobs of every kind, with processes killed and frozen and the storage in trouble, keep every promise."""
    command = [
        sys.executable, "-m", "chaos", "--storage", storage, "--seed", str(seed), "--jobs", "600", "--faults",
        str(faults), "--minutes", "0.3", "--workers", "2",
    ]  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=380)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "violations" in done.stdout
