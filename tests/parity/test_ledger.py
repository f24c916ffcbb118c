"""The ledger: every fact of the four systems has a test that shows it, or a reason why it is otherwise here.

Each system has a file `ledger/<system>.toml` with a table for each fact. In a table, `test` names one test
or a list of them ("tests/…/test_x.py::test_name"), `otherwise` is the reason for doing something else,
and `pending` names what is not built yet. A fact may have both a test and a reason.
"""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
LEDGER = Path(__file__).parent / "ledger"

#: How many facts there are of each kind: documented, shown by the source (S), test scenarios (T), defects (D).
FACTS = {
    "queasy": {"QE-": 44, "QR-": 28, "QR-S": 18, "QZ-T": 26, "QZ-D": 21},
    "queue_farm": {"QF-": 46, "QF-S": 12, "QF-T": 20, "QF-D": 19},
    "job_queue": {"PJ-": 52, "PJ-S": 22, "PJ-T": 26, "PJ-D": 30},
    "worqr": {"WQ-": 20, "WQ-S": 9, "WQ-T": 12, "WQ-D": 18},
}

FIELDS = {"test", "otherwise", "pending"}


def facts_of(system: str) -> list[str]:
    """The ids of all facts of a system, in order."""
    return [f"{kind}{n}" for kind, count in FACTS[system].items() for n in range(1, count + 1)]


@cache
def entries(system: str) -> dict[str, dict[str, Any]]:
    """The ledger of a system."""
    return tomllib.loads((LEDGER / f"{system}.toml").read_text())


def named_by(entry: dict[str, Any]) -> list[str]:
    named = entry.get("test", [])
    return [named] if isinstance(named, str) else named


@cache
def found_in(path: str) -> dict[str, str | None]:
    """The tests of a file with their docstrings, by name or Class::name; the file is read, not imported."""
    return dict(_tests(ast.parse((ROOT / path).read_text())))


def _tests(node: ast.Module | ast.ClassDef, prefix: str = "") -> Iterator[tuple[str, str | None]]:
    for each in node.body:
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) and each.name.startswith("test"):
            yield prefix + each.name, ast.get_docstring(each)
        elif isinstance(each, ast.ClassDef) and each.name.startswith("Test"):
            yield from _tests(each, f"{prefix}{each.name}::")


def complaint(test: str) -> str | None:
    """What is wrong with a test that the ledger names, if anything."""
    path, _, name = test.partition("::")
    if not path.startswith("tests/") or not (ROOT / path).is_file():
        return f"{test}: there is no such file"
    found = found_in(path)
    name = name.partition("[")[0]  # one case of a parametrised test
    if name not in found:
        return f"{test}: there is no such test"
    return None if found[name] else f"{test}: it has no docstring"


@pytest.mark.parametrize("system", FACTS)
def test_every_fact_is_in_the_ledger(system: str) -> None:
    """The ledger of a system holds all of its facts, each under its own id, and no others."""
    known, written = facts_of(system), entries(system)
    assert [fact for fact in known if fact not in written] == []
    assert [fact for fact in written if fact not in known] == []


@pytest.mark.parametrize("system", FACTS)
def test_every_fact_has_a_test_or_a_reason(system: str) -> None:
    """An entry names tests, or says why it is otherwise here or what is still being built, and nothing else."""
    bad: list[str] = []
    for fact, entry in entries(system).items():
        texts = [entry[field] for field in ("otherwise", "pending") if field in entry]
        named = named_by(entry)
        if not entry or set(entry) - FIELDS:
            bad.append(f"{fact}: its fields are {sorted(entry)}, known are {sorted(FIELDS)}")
        elif not all(isinstance(text, str) and text.strip() for text in [*texts, *named]) or not [*texts, *named]:
            bad.append(f"{fact}: a test or a reason is empty")
    assert bad == []


@pytest.mark.parametrize("system", FACTS)
def test_every_test_of_the_ledger_exists(system: str) -> None:
    """Each test that the ledger names is there and has a docstring."""
    named = {test for entry in entries(system).values() for test in named_by(entry)}
    assert sorted(filter(None, map(complaint, named))) == []


def test_a_bad_reference_is_noticed() -> None:
    """A file or a test that is not there is refused; parametrised cases and tests in classes are found."""
    here = "tests/parity/test_ledger.py"
    assert complaint("tests/parity/test_nowhere.py::test_it") is not None
    assert complaint(f"{here}::test_nothing") is not None
    assert complaint(f"{here}::test_every_fact_is_in_the_ledger[queasy]") is None
    tree = ast.parse("class TestIt:\n    def test_a(self):\n        'It is a.'\n    def test_b(self): ...\n")
    assert dict(_tests(tree)) == {"TestIt::test_a": "It is a.", "TestIt::test_b": None}
