"""SECURITY.md: every row of its tables names tests, and the tests are there."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

TESTS = Path(__file__).parents[1]
PAGE = (TESTS.parent / "SECURITY.md").read_text(encoding="utf-8")
#: `security/test_acl.py::test_name` or `security/test_acl.py`.
NAMED = re.compile(r"`([\w/]+\.py)(?:::(\w+))?`")


@cache
def functions(path: Path) -> frozenset[str]:
    """Return the names of the functions and methods of a file."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return frozenset(n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef))


def rows() -> list[str]:
    """Return the rows of the tables whose last column is called tests."""
    found: list[str] = []
    inside = False
    for line in PAGE.splitlines():
        if not line.startswith("|"):
            inside = False
        elif re.search(r"\| tests \|$", line):
            inside = True
        elif inside and not line.startswith("|---"):
            found.append(line)
    return found


def test_every_row_names_a_test() -> None:
    """A promise without a test is none."""
    assert len(rows()) > 10
    assert [row for row in rows() if not NAMED.search(row.rsplit("|", 2)[1])] == []


def test_the_named_tests_exist() -> None:
    """Each file and each function that the page names is there."""
    missing = []
    for file, name in NAMED.findall(PAGE):
        path = TESTS / file
        if not path.is_file() or (name and name not in functions(path)):
            missing.append(f"{file}::{name}")
    assert missing == []
