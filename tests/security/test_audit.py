"""scripts/audit.py: the check of the dependencies."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]


def audit() -> Any:
    """Import scripts/audit.py as a module."""
    spec = importlib.util.spec_from_file_location("audit", ROOT / "scripts/audit.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_this_project_passes() -> None:
    """The audit of this project finds no fault, and prints that vulnerabilities were not looked up."""
    done = subprocess.run([sys.executable, ROOT / "scripts/audit.py"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "were not looked up" in done.stdout


def test_faults_are_found() -> None:
    """Missing lower bounds, pinned versions, URLs and unmet requirements are reported."""
    module = audit()
    groups = {
        "": [Requirement("msgspec"), Requirement("redis==8.0"), Requirement("click>=9999")],
        "test": [Requirement("pytest==8.3"), Requirement("x @ file:///x")],
    }
    faults = "\n".join([*module.without_bound(groups), *module.not_as_declared(groups)])
    for text in ("msgspec has no lower bound", "redis==8.0 keeps users", "x @ file:///x in [test] comes from a URL"):
        assert text in faults
    assert "click" in faults
    assert "pytest==8.3 in [test] keeps" not in faults
