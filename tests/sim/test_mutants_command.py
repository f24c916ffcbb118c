"""`python -m sim.mutants`: faults in copies of the package, tried in rounds of seeds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sim.mutants import Results, Trial, catch, chosen, main, rounds
from sim.planted import PLANTED
from sim.reach import REASONS, reason_out_of_reach
from tests.mutants.test_mutants import MUTANTS, Mutant

RENEWAL = PLANTED[0]


def test_rounds_end_with_the_number_of_seeds() -> None:
    """Each fault gets few seeds first, and those that were not found get more."""
    assert list(rounds(200)) == [1, 3, 8, 20, 60, 200]
    assert list(rounds(8)) == [1, 3, 8]


def test_a_command_that_was_ended_goes_on_with_the_seeds_that_are_left(tmp_path: Path) -> None:
    """A fault that was found is not tried again, another one is tried from its next seed on."""
    path = tmp_path / "build" / "results.jsonl"
    results = Results(path)
    assert results.left(RENEWAL, 3) == range(1, 4)
    results.add(Trial(RENEWAL.name, 3, 0, ""))
    assert Results(path).left(RENEWAL, 8) == range(4, 9)
    results.add(Trial(RENEWAL.name, 5, 5, "broken"))
    assert list(Results(path).left(RENEWAL, 8)) == []


def test_the_command_finds_a_planted_fault_and_keeps_its_seed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first seed breaks a promise, and the exit code is 0 because none was missed."""
    path = tmp_path / "results.jsonl"
    assert main(["--match", RENEWAL.name, "--seeds", "1", "--results", str(path)]) == 0
    assert "1 of 1 found" in capsys.readouterr().out
    assert json.loads(path.read_text()) == [RENEWAL.name, 1, 1, "a lost claim was renewed"]


def test_a_fault_that_keeps_a_run_from_its_begin_is_an_error() -> None:
    """A package that cannot be imported, and a text that is not in its file, are mistakes of the fault."""
    old = "MAX_FAILURES = 2"
    broken = Mutant("broken", "worker/settler.py", old, f"{old}\nraise SystemError('here')", ())
    with pytest.raises(RuntimeError, match="no run has begun with 'broken'"):
        catch(broken, range(1, 2))
    with pytest.raises(ValueError, match="has the text of 'broken' 0 times"):
        catch(broken._replace(old="no such text"), range(1, 2))


def test_the_table_has_the_seed_of_a_found_fault_and_the_seeds_of_another(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Faults that were not tried are only counted."""
    path = tmp_path / "results.jsonl"
    results = Results(path)
    results.add(Trial(RENEWAL.name, 4, 4, "a lost claim was renewed: q/a"))
    results.add(Trial(PLANTED[1].name, 20, 0, ""))
    assert main(["--table", "--results", str(path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert f"| {RENEWAL.name} | 4 | a lost claim was renewed |" in lines
    assert f"| {PLANTED[1].name} | not within 20 | – |" in lines
    assert any("0 found of 0 tried" in line for line in lines)


def test_every_mutant_is_tried_or_has_a_reason() -> None:
    """Names of reasons are names of mutants, and both storages have mutants to be tried."""
    assert set(REASONS) <= {mutant.name for mutant in MUTANTS}
    for storage in ("memory", "redis"):
        names = {mutant.name for mutant in chosen("", storage)}
        assert names
        assert not names & {mutant.name for mutant in MUTANTS if reason_out_of_reach(mutant)}
