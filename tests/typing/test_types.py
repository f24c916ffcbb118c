"""The types of the public surface, as a type checker sees them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent
SOURCE = HERE.parent.parent / "src"
MARK = re.compile(r"\s*# pyright: ignore\[([\w, ]+)\]")


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[int, set[str]]]:
    """The rules that pyright reports in strict mode, by file and line, for the two files without their marks."""
    pytest.importorskip("pyright")
    place = tmp_path_factory.mktemp("types")
    for name in ("api.py", "wrong.py"):
        (place / name).write_text(MARK.sub("", (HERE / name).read_text("utf-8")), "utf-8")
    settings = {
        "include": ["."],
        "extraPaths": [str(SOURCE)],
        "pythonVersion": "3.11",
        "typeCheckingMode": "strict",
        "reportUnusedExpression": False,
    }
    (place / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, "-p", str(place)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)
    try:
        output: list[dict[str, Any]] = json.loads(done.stdout)["generalDiagnostics"]
    except ValueError:
        pytest.fail(f"pyright gave no report: {done.stdout[-500:]} {done.stderr[-500:]}")
    lines: dict[str, dict[int, set[str]]] = {"api.py": {}, "wrong.py": {}}
    for each in output:
        line = each["range"]["start"]["line"] + 1
        lines[Path(each["file"]).name].setdefault(line, set()).add(each.get("rule", each["message"]))
    return lines


@pytest.mark.timeout(120)
def test_the_surface_has_the_types_it_promises(found: dict[str, dict[int, set[str]]]) -> None:
    """Arguments, results and answers are known to a type checker in strict mode."""
    assert found["api.py"] == {}


@pytest.mark.timeout(120)
def test_wrong_uses_are_refused_and_nothing_else(found: dict[str, dict[int, set[str]]]) -> None:
    """A type checker refuses exactly the marked lines, each for the reason that is marked."""
    lines = (HERE / "wrong.py").read_text("utf-8").splitlines()
    marked = {number: set(mark[1].split(", ")) for number, line in enumerate(lines, 1) if (mark := MARK.search(line))}
    assert len(marked) > 20
    assert found["wrong.py"] == marked
