"""The Makefile: the installations of its targets, as README.md promises them."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def test_the_demo_installs_penstock_and_its_dependencies_alone() -> None:
    """`make demo` installs no extra, and README.md names the dependencies that it brings."""
    printed = subprocess.check_output(["make", "-n", "-B", "demo"], cwd=ROOT, text=True, timeout=60)
    [install] = [line for line in printed.splitlines() if " -m pip install " in line]
    assert install.endswith(" -e .")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    *names, last = [re.split(r"\W", each)[0] for each in project["dependencies"]]
    sentence = f"installs Penstock with {', '.join(names)} and {last} into `build/demo-venv`"
    assert sentence in " ".join((ROOT / "README.md").read_text("utf-8").split())
