"""Ledger of parity: every fact of the four systems has a test that shows it, or the reason for a difference.

Each system has a file `ledger/<system>.toml` with a table for each fact. In a table, `test` names one test
or a list of them ("tests/…/test_x.py::test_name"), `otherwise` is the reason for a difference,
and `pending` names a part that is not built yet. A fact may have both a test and a reason.
"""

from __future__ import annotations

import ast
import inspect
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from penstock import HandlerOptions, Penstock, Worker
from penstock.client.reservations import SLOW_POLL as RESERVE_POLL
from penstock.model.ids import fail_queue_of, new_id
from penstock.model.presets import NO_PRESET, PRESETS
from penstock.worker.claimer import SLOW_POLL
from penstock.worker.maintenance import REAP

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

#: Numbers and names that reasons quote, and the value in the code. A change of the code must change the reason.
QUOTED: list[tuple[str, str, object, object]] = [
    ("QR-S13", "The lease is 10 s", NO_PRESET.lease, 10),
    ("QR-S13", "ids have 20 characters", len(new_id()), 20),
    ("QR-S12", "<queue>/failures", fail_queue_of("q"), "q/failures"),
    ("QF-3", "called penstock", inspect.signature(Penstock).parameters["namespace"].default, "penstock"),
    ("QF-5", "for a week by default", PRESETS["queue_farm"].options.failed_ttl, 7 * 86_400),
    ("PJ-27", "looks every 5 s", SLOW_POLL, 5),
    ("PJ-29", "a lease of 30 s", PRESETS["job_queue"].lease, 30),
    ("PJ-29", "a timeout of 30 s", PRESETS["job_queue"].options.timeout, 30),
    ("PJ-31", "kept for an hour", PRESETS["job_queue"].options.result_ttl, 3600),
    ("PJ-31", "7 days", PRESETS["job_queue"].options.failed_ttl, 7 * 86_400),
    ("WQ-18", "the preset's is 3 s", PRESETS["worqr"].lease, 3),
    ("WQ-S7", "at least every 5 s", max(REAP[1], RESERVE_POLL), 5),
]

#: A reason that denies a feature; each is listed in `ABSENT`.
DENIAL = re.compile(r"\bnot (measured|built|implemented|supported)\b")
#: By fact: a part of the name that an option of the denied feature would have.
ABSENT = {"PJ-52": "rate"}


def facts_of(system: str) -> list[str]:
    """Return the ids of all facts of a system, in order."""
    return [f"{kind}{n}" for kind, count in FACTS[system].items() for n in range(1, count + 1)]


@cache
def entries(system: str) -> dict[str, dict[str, Any]]:
    """Return the ledger of a system, a table for each fact."""
    return tomllib.loads((LEDGER / f"{system}.toml").read_text())


def named_tests(entry: dict[str, Any]) -> list[str]:
    """Return the tests that an entry names."""
    named = entry.get("test", [])
    return [named] if isinstance(named, str) else named


@cache
def found_in(path: str) -> dict[str, str | None]:
    """Return the docstrings of a file's tests by name or Class::name; the file is read, not imported."""
    return dict(_tests(ast.parse((ROOT / path).read_text())))


def _tests(node: ast.Module | ast.ClassDef, prefix: str = "") -> Iterator[tuple[str, str | None]]:
    for each in node.body:
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) and each.name.startswith("test"):
            yield prefix + each.name, ast.get_docstring(each)
        elif isinstance(each, ast.ClassDef) and each.name.startswith("Test"):
            yield from _tests(each, f"{prefix}{each.name}::")


def complaint(test: str) -> str | None:
    """Return the fault of a test that the ledger names, or None."""
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
    """The ledger of a system holds all of its facts, each under its own id, and no other ids."""
    known, written = facts_of(system), entries(system)
    assert [fact for fact in known if fact not in written] == []
    assert [fact for fact in written if fact not in known] == []


@pytest.mark.parametrize("system", FACTS)
def test_every_fact_has_a_test_or_a_reason(system: str) -> None:
    """An entry names tests, the reason for a difference or a part not built yet, and has no other field."""
    bad: list[str] = []
    for fact, entry in entries(system).items():
        texts = [entry[field] for field in ("otherwise", "pending") if field in entry]
        named = named_tests(entry)
        if not entry or set(entry) - FIELDS:
            bad.append(f"{fact}: its fields are {sorted(entry)}, known are {sorted(FIELDS)}")
        elif not all(isinstance(text, str) and text.strip() for text in [*texts, *named]) or not [*texts, *named]:
            bad.append(f"{fact}: a test or a reason is empty")
    assert bad == []


@pytest.mark.parametrize("system", FACTS)
def test_every_test_of_the_ledger_exists(system: str) -> None:
    """Each test that the ledger names exists and has a docstring."""
    named = {test for entry in entries(system).values() for test in named_tests(entry)}
    assert sorted(filter(None, map(complaint, named))) == []


def test_a_reference_to_a_missing_test_is_noticed() -> None:
    """A missing file or test is refused; parametrised cases and tests in classes are found."""
    here = "tests/parity/test_ledger.py"
    assert complaint("tests/parity/test_nowhere.py::test_it") is not None
    assert complaint(f"{here}::test_nothing") is not None
    assert complaint(f"{here}::test_every_fact_is_in_the_ledger[queasy]") is None
    tree = ast.parse("class TestIt:\n    def test_a(self):\n        'It is a.'\n    def test_b(self): ...\n")
    assert dict(_tests(tree)) == {"TestIt::test_a": "It is a.", "TestIt::test_b": None}


def test_the_ledger_names_the_tests_of_adaptive_workers() -> None:
    """QE-10 (limits by CPU load) names the tests of `Worker(adaptive=True)` and mentions it in its reason."""
    assert "adaptive" in inspect.signature(Worker).parameters
    entry = entries("queasy")["QE-10"]
    assert {"tests/worker/test_throttle.py", "tests/e2e/test_adaptive.py"} <= {
        test.partition("::")[0] for test in named_tests(entry)
    }
    assert "adaptive=True" in entry["otherwise"]


@pytest.mark.parametrize(("fact", "text", "value", "quoted"), QUOTED, ids=[f"{q[0]} {q[1]}" for q in QUOTED])
def test_a_number_that_a_reason_quotes_is_that_of_the_code(fact: str, text: str, value: object, quoted: object) -> None:
    """A reason contains the quotation, and the code has the quoted value."""
    assert text in reasons()[fact]
    assert value == quoted


def test_a_feature_that_a_reason_denies_is_absent() -> None:
    """A reason that denies a feature is listed in `ABSENT`, and no option has the name of that feature."""
    assert {fact for fact, reason in reasons().items() if DENIAL.search(reason)} == set(ABSENT)
    options = {*HandlerOptions.__struct_fields__}
    for kind in (Penstock, Worker):
        options |= {*inspect.signature(kind).parameters}
    assert [(fact, name) for fact, part in ABSENT.items() for name in options if part in name.split("_")] == []


def reasons() -> dict[str, str]:
    """Return the reasons of all four systems by fact."""
    return {
        fact: entry["otherwise"] for system in FACTS for fact, entry in entries(system).items() if "otherwise" in entry
    }
