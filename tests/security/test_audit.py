"""scripts/audit.py: the check of the dependencies."""

from __future__ import annotations

import importlib.util
import json
import os
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


def test_requirements_without_hash_or_with_an_address_are_found(tmp_path: Path) -> None:
    """Every line of the files with hashes pins a version with a hash, and names no address."""
    good = "click==8.1 \\\n    --hash=sha256:" + "0" * 64
    (tmp_path / "core.txt").write_text(f"# a comment\n{good}\n")
    assert list(audit().badly_locked(tmp_path)) == []
    (tmp_path / "core.txt").write_text(f"{good}\nrich==14.0\nmsgspec>=0.19 --hash=sha256:{'0' * 64}\n--index-url x\n")
    faults = list(audit().badly_locked(tmp_path))
    assert [fault.split()[-1] for fault in faults[:1]] == ["rich==14.0"]
    assert len(faults) == 3


def test_requirements_that_no_locked_version_satisfies_are_found(tmp_path: Path) -> None:
    """A requirement of pyproject.toml without a version in dev.txt, or with an older one, is reported."""
    (tmp_path / "dev.txt").write_text("click==8.1 --hash=sha256:0\nattrs==1.0 --hash=sha256:0\n")
    names = ("", "redis", "crypto", "testing", "test", "uvloop", "dev")
    groups = {name: [Requirement("click>=9")] for name in names}
    faults = "\n".join(audit().not_as_locked(tmp_path, groups))
    assert "dev.txt has no version for click>=9" in faults
    assert "attrs" in faults


def look_up(tmp_path: Path, answer: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run scripts/vulnerabilities.py with a pip-audit that prints this answer for every file."""
    (tmp_path / "pip_audit.py").write_text(f"print({answer!r})")
    command = [sys.executable, ROOT / "scripts/vulnerabilities.py", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


def test_a_known_vulnerability_is_a_failure_that_names_package_and_fix(tmp_path: Path) -> None:
    """The lookup fails for a vulnerability, with the version that has the fix."""
    vulnerability = {"id": "CVE-1", "fix_versions": ["2"], "aliases": [], "description": ""}
    package = {"name": "click", "version": "1", "vulns": [vulnerability]}
    done = look_up(tmp_path, json.dumps({"dependencies": [package], "fixes": []}))
    assert done.returncode == 1
    assert "click 1: CVE-1, fixed in 2" in done.stdout


def test_packages_that_cannot_be_looked_up_are_counted(tmp_path: Path) -> None:
    """Without a database the lookup reports that it did not happen, and fails if it is asked to be strict."""
    answer = json.dumps({"dependencies": [{"name": "click", "skip_reason": "not found"}], "fixes": []})
    done = look_up(tmp_path, answer)
    assert done.returncode == 0
    assert "could not be looked up" in done.stdout
    assert look_up(tmp_path, answer, "--strict").returncode == 1
    unreachable = look_up(tmp_path, "")
    assert "core.txt: the database cannot be reached" in unreachable.stdout
