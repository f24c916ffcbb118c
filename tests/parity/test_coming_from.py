"""Every Python example of docs/coming-from and of the pages on asking and working runs as it stands."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "coming-from"
SYSTEMS = ("job-queue", "queasy", "queue-farm", "worqr")

BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def examples() -> Iterator[tuple[str, int, str]]:
    """The page, the line and the text of every Python block."""
    how_to = ROOT / "docs" / "how-to"
    for page in [*sorted(PAGES.glob("*.md")), how_to / "asking.md", how_to / "working.md"]:
        text = page.read_text()
        for found in BLOCK.finditer(text):
            yield page.stem, text.count("\n", 0, found.start()) + 2, found.group(1)


EXAMPLES = [pytest.param(source, line, page, id=f"{page}:{line}") for page, line, source in examples()]


@pytest.mark.parametrize(("source", "line", "page"), EXAMPLES)
def test_an_example_runs(source: str, line: int, page: str, tmp_path: Path) -> None:
    """An example is a whole program: saved as a file in an empty directory, it runs and ends well."""
    program = tmp_path / "example.py"
    program.write_text("\n" * (line - 1) + source)  # so that a traceback names the line of the page
    command = [sys.executable, "-W", "error", str(program)]
    environment = {**os.environ, "PYTHONPATH": str(Path(penstock.__file__).parents[1])}
    environment.pop("PENSTOCK_URL", None)
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, f"{page}.md: {done.stderr}"


@pytest.mark.parametrize("system", SYSTEMS)
def test_every_page_has_examples(system: str) -> None:
    """Each system's page has at least two examples."""
    mine = [source for page, _, source in examples() if page == system]
    assert len(mine) >= 2
