"""Simulated runs: they are repeatable, keep all promises, and find planted faults."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.testing.simulation.faults import Fault
from penstock.testing.simulation.history import Line
from penstock.testing.simulation.plan import Plan
from penstock.testing.simulation.simulation import Simulation
from sim.mutants import catch
from sim.planted import PLANTED
from sim.planted_limits import PLANTED_LIMITS
from sim.run import Report, SimulatedRun, run_seed
from sim.shrink import Shrinker
from sim.timeline import timeline
from sim.violation import Violation
from tests.mutants.test_mutants import MUTANTS, PACKAGE
from tests.servers import Servers

ROOT = Path(__file__).parents[2]

#: Planted faults and the number of seeds within which each is found.
FOUND = {
    "a renewal extends lost claims": 1,
    "due jobs are not promoted": 1,
    "a stall goes to the end of its lane": 3,
    "sqlite: a reaped stall is not counted": 2,
    "sqlite: no token check when settling one by one": 4,
    "limits: a queue has room for one more": 1,
    "limits: a start is not charged": 1,
    "the lease of a renewal counts from its answer": 1,
    "a full worker does not fire": 1,
    "a change of the code forgets the ticks beyond one step": 1,
    "worker: a batch begins with a lost job": 1,
}


def start(seeds: str, storage: str, hash_seed: int) -> subprocess.Popen[str]:
    """Start a process with this hash seed that prints the digests of seeds."""
    command = [sys.executable, "-m", "sim", "--seeds", seeds, "--storage", storage, "--digests", "--processes", "1"]
    env = {**os.environ, "PYTHONHASHSEED": str(hash_seed)}
    return subprocess.Popen(command, cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True)


def digests(process: subprocess.Popen[str]) -> list[str]:
    """Wait for a process and return its digests."""
    output, _ = process.communicate(timeout=100)
    assert process.returncode == 0, output
    return [line for line in output.splitlines() if len(line.split()) == 2]


def test_two_processes_with_other_hash_seeds_have_equal_histories() -> None:
    """Every call, answer and time of a run depends on the seed alone: no set of objects, no real clock."""
    first, second = map(digests, [start("2:3", "memory", 1), start("2:3", "memory", 77)])
    assert len(first) == 2
    assert first == second


def test_two_processes_have_equal_histories_on_redis(servers: Servers) -> None:
    """The same holds with a real Redis server."""
    server: Any = servers.get("redis")
    url = f"redis://{server.address}"
    first, second = map(digests, [start("3:3", f"{url}/1", 1), start("3:3", f"{url}/2", 77)])
    assert len(first) == 1
    assert first == second


def test_a_run_keeps_all_promises_and_has_faults() -> None:
    """A seed breaks no promise although calls, processes and clocks fail."""
    report = run_seed(Plan.of_seed(2))
    assert report.violations == []
    assert len(report.faults) > 50
    assert report.runs > 20


def test_a_worker_that_is_restarted_while_the_storage_is_away_runs_on_its_new_node_alone() -> None:
    """The old process has not begun to work when it is stopped, and never does."""
    plan = replace(Plan.of_seed(2), kinds=frozenset({"restart"}), workers=1)
    with Simulation(plan) as simulation:
        run = SimulatedRun(simulation, 5, model=True, until=100.0)
        simulation.faults.outages = 1
        run.start()
        simulation.scheduler.run_for(3.0)
        machine = simulation.machines[0]
        old = machine.node
        simulation.begin(Fault("restart/1", "restart", 3.0, 0.5, 0.0))
        simulation.scheduler.run_for(3.0)
        simulation.faults.outages = 0
        simulation.scheduler.run_for(10.0)
        assert old is not None
        assert machine.node is not None
        assert (old.calls["claim"], run.ledger.violations) == (0, [])
        assert machine.node.calls["claim"] > 0


def test_a_run_is_given_up_at_its_bound() -> None:
    """Shrinking does not wait for the end of a run that keeps its promises."""
    report = run_seed(Plan.of_seed(2), until=5.0)
    assert report.violations == []
    assert 5.0 <= report.seconds < 8.0


def test_the_text_of_every_planted_fault_is_in_its_file_once() -> None:
    """A change of the package that moves the text of a planted fault is noticed at once."""
    texts = {
        each.name: PACKAGE.joinpath(*each.path).read_text().count(each.old) for each in [*PLANTED, *PLANTED_LIMITS]
    }
    assert {name: count for name, count in texts.items() if count != 1} == {}


@pytest.mark.parametrize("name", FOUND)
def test_a_planted_fault_is_found(name: str) -> None:
    """A package with this fault breaks a promise within few seeds."""
    [mutant] = [each for each in [*PLANTED, *PLANTED_LIMITS, *MUTANTS] if each.name == name]
    trial = catch(mutant, range(1, FOUND[name] + 1))
    assert trial.seed, trial


def broken_by(names: set[str]) -> Report:
    """Return a report of a run with 40 faults that is broken if all the named ones happen."""

    def run(plan: Plan, url: str, *, jobs: int, model: bool, until: float) -> Report:
        every = [Fault(f"w/settle/{number}", "late", 0.0, 0.0, 0.0) for number in range(40)]
        faults = [fault for fault in every if plan.only is None or fault.name in plan.only]
        found = {fault.name for fault in faults}
        violations = [Violation(1.0, f"broken {len(found)}", (("q", "a"),))] if names <= found else []
        return Report(plan, jobs, violations, "", [Line(0.5, "w", "put", "q/a → queued")], faults, 1.0, 1, 1)

    report = run(Plan.of_seed(1), "", jobs=30, model=True, until=100.0)
    small = Shrinker(report, "", run=run).shrink()
    assert small.jobs < report.jobs
    return small


def test_shrinking_leaves_the_faults_that_matter() -> None:
    """Of 40 faults the two that break the promise together are left."""
    assert {fault.name for fault in broken_by({"w/settle/7", "w/settle/31"}).faults} == {"w/settle/7", "w/settle/31"}


def test_a_violation_without_faults_shrinks_to_none() -> None:
    """A promise that is broken without any fault has an empty list in the end."""
    assert broken_by(set()).faults == []


def test_the_kind_of_a_violation_has_no_numbers_and_names() -> None:
    """Two runs break the same promise although times, ids and nodes differ."""
    first = Violation(1.0, "a run began 5.541 s after its claim had ended: mail/a", ())
    assert first.kind == replace(first, text="a run began 0.2 s after its claim had ended: x/y", at=7.0).kind


def test_a_timeline_shows_the_jobs_of_the_violation() -> None:
    """It has the plan, the lines about the job, the faults of processes, and the broken promise."""
    lines = [
        Line(0.1, "w0.0", "start", ""),
        Line(0.5, "p", "put", "q/one → queued  [p/put/1]"),
        Line(0.6, "p", "put", "q/two → queued  [p/put/2]"),
        Line(0.7, "p", "fault", "p/put/2 late"),
        Line(0.8, "env", "fault", "kill/1 w0.0"),
    ]
    report = Report(Plan.of_seed(1), 3, [Violation(1.0, "broken", (("q", "one"),))], "d", lines, [], 1.0, 1, 1)
    text = "\n".join(timeline(report))
    assert "q/one → queued" in text
    assert "kill/1" in text
    assert "q/two" not in text
    assert "put/2 late" not in text
    assert text.endswith("BROKEN at 1.000: broken")
