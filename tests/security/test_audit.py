"""The check of the dependencies finds what it looks for."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]


def audit() -> Any:
    """scripts/audit.py as a module."""
    spec = importlib.util.spec_from_file_location("audit", ROOT / "scripts/audit.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_this_project_passes() -> None:
    """It says that it knows no vulnerabilities, and finds nothing else."""
    done = subprocess.run([sys.executable, ROOT / "scripts/audit.py"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "were not looked up" in done.stdout


def test_faults_are_found() -> None:
    """Missing bounds, pins for users, URLs and versions that do not fit are told."""
    module = audit()
    groups = {
        "": [Requirement("msgspec"), Requirement("redis==8.0"), Requirement("click>=9999")],
        "test": [Requirement("pytest==8.3"), Requirement("x @ file:///x")],
    }
    told = "\n".join([*module.without_bound(groups), *module.not_as_declared(groups)])
    for words in ("msgspec has no lower bound", "redis==8.0 keeps users", "x @ file:///x in [test] comes from a URL"):
        assert words in told
    assert "click" in told
    assert "pytest==8.3 in [test] keeps" not in told
