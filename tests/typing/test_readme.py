"""The programs of README.md under mypy and pyright, both strict."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.blocks import blocks

SOURCE = Path(__file__).resolve().parents[2] / "src"


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A directory with each Python block of the page as a file."""
    found = [block for block in blocks("python") if block.page == "README.md"]
    assert len(found) >= 3
    for number, block in enumerate(found):
        (tmp_path / (block.file or f"program_{number}.py")).write_text(block.text, "utf-8")
    return tmp_path


def check(command: list[str], directory: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", *command], cwd=directory, capture_output=True, text=True, timeout=110, check=False,
        env={**os.environ, "MYPYPATH": str(SOURCE)},
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout[-3000:]}{done.stderr[-1000:]}"


@pytest.mark.timeout(120)
def test_the_programs_of_the_readme_pass_mypy_strict(programs: Path) -> None:
    """Every program of the page passes `mypy --strict`."""
    pytest.importorskip("mypy")
    options = ["--strict", "--python-version", "3.11", "--cache-dir", str(programs / "cache")]
    check(["mypy", *options, "--follow-imports=silent", *sorted(path.name for path in programs.glob("*.py"))], programs)


@pytest.mark.timeout(120)
def test_the_programs_of_the_readme_pass_pyright_strict(programs: Path) -> None:
    """Every program of the page passes pyright in its strict mode."""
    pytest.importorskip("pyright")
    settings = {"include": ["."], "extraPaths": [str(SOURCE)], "pythonVersion": "3.11", "typeCheckingMode": "strict"}
    (programs / "pyrightconfig.json").write_text(json.dumps(settings))
    check(["pyright", "--warnings", "--pythonpath", sys.executable, "-p", str(programs)], programs)
