"""The tour is short, in order, and what docs/tour.md shows."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FILES = sorted((ROOT / "tests" / "tour").glob("test_*.py"))

#: A test of the tour is read at one glance.
MAX_LINES = 26


def test_the_page_is_up_to_date() -> None:
    """docs/tour.md is what scripts/tour.py makes of the tests."""
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "tour.py", "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_files_are_numbered() -> None:
    """The order of the files is the order of reading, without a gap."""
    assert [int(path.name.split("_")[1]) for path in FILES] == list(range(1, len(FILES) + 1))


def test_every_stop_is_short_and_explained() -> None:
    """Each test of the tour has a docstring of one line and fits on a screen."""
    found: list[str] = []
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                lines = (node.end_lineno or 0) - node.lineno + 1
                text = ast.get_docstring(node) or ""
                if lines > MAX_LINES or "\n" in text or not text.endswith("."):
                    found.append(f"{path.name}: {node.name}, {lines} lines: {text!r}")
    assert not found, "\n".join(found)
