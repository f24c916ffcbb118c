"""Faults by name, plans by seed, and the faults of processes and of the server."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.testing.simulation.faults import KINDS, SURROUNDINGS, Fault, Faults, draws
from penstock.testing.simulation.loop import Node
from penstock.testing.simulation.plan import Plan
from penstock.testing.simulation.simulation import Machine, Simulation

PLAN = Plan(0, frozenset(KINDS), 1.0, 1, 10.0, 60.0)


def hits(faults: Faults, calls: int = 3000) -> dict[str, str]:
    """Return the kinds of the faults that hit the calls of a node, by name."""
    for number in range(calls):
        name = f"w/settle/{number}"
        faults.of_call("w", "settle", name, draws(faults.seed, name))
    return {fault.name: fault.kind for fault in faults.happened}


def test_a_fault_stays_the_same_when_others_are_left_out() -> None:
    """With fewer kinds, or only some names, the faults that are left are the same as before."""
    every = hits(Faults(3, KINDS, 1.0, lambda: 0.0))
    fewer = hits(Faults(3, ["lost_reply", "late"], 1.0, lambda: 0.0))
    assert fewer == {name: kind for name, kind in every.items() if kind in ("lost_reply", "late")}
    only = frozenset(list(every)[::3])
    assert hits(Faults(3, KINDS, 1.0, lambda: 0.0, only)) == {name: every[name] for name in every if name in only}


def test_faults_of_surroundings_are_numbered_by_themselves() -> None:
    """Leaving one kind out changes neither the times nor the names of the others."""
    every = Faults(3, KINDS, 1.0, lambda: 0.0).of_surroundings(60)
    without = Faults(3, set(KINDS) - {"kill"}, 1.0, lambda: 0.0).of_surroundings(60)
    assert without == [fault for fault in every if fault.kind != "kill"]
    assert {fault.kind for fault in every} == set(SURROUNDINGS)


def test_an_unknown_kind_is_refused() -> None:
    """The error names the kind and those there are."""
    with pytest.raises(ValueError, match="'comet'; known: unavailable"):
        Faults(0, ["comet"], 1.0, lambda: 0.0)


def test_seeds_have_different_plans() -> None:
    """A seed always has the same plan; each turns on some of the kinds, and all of them occur."""
    plans = [Plan.of_seed(seed) for seed in range(50)]
    assert plans == [Plan.of_seed(seed) for seed in range(50)]
    assert {kind for plan in plans for kind in plan.kinds} == set(KINDS)
    assert all(3 < len(plan.kinds) < len(KINDS) for plan in plans)


async def idle(node: Node) -> None:
    return


def happen(simulation: Simulation, kind: str) -> None:
    simulation.begin(Fault(f"{kind}/1", kind, 0.0, 0.5, 0.0))


def test_faults_hit_processes_and_the_server() -> None:
    """Each kind has its effect on the process, the server's turn, or a clock."""
    with Simulation(PLAN) as simulation:
        machine = simulation.add(Machine("w", idle, idle))
        node, clock = machine.node, simulation.server.clock
        assert node is not None
        happen(simulation, "freeze")
        assert node.frozen == 1
        simulation.scheduler.run_for(13)
        assert node.frozen == 0
        happen(simulation, "server_stall")
        assert simulation.network.server.frozen == 1
        happen(simulation, "outage")
        happen(simulation, "full")
        assert (simulation.faults.outages, simulation.faults.full) == (1, 1)
        simulation.scheduler.run_for(10)
        assert (simulation.faults.outages, simulation.faults.full) == (0, 0)
        happen(simulation, "partition")
        assert node.slow_until < node.cut_until
        happen(simulation, "backlog")
        assert node.held_until == simulation.scheduler.now + 12.5
        happen(simulation, "clock_jump")
        for kind, seconds in (("jump_forward", 6), ("jump_back", -4), ("long_jump", 900)):
            before = clock.offset
            happen(simulation, kind)
            assert clock.offset - before == seconds


def test_a_process_that_is_cut_off_is_reached_again_after_healing() -> None:
    """Healing ends a partition: what happens afterwards is not its consequence."""
    with Simulation(PLAN) as simulation:
        node = simulation.add(Machine("w", idle, idle)).node
        assert node is not None
        happen(simulation, "partition")
        assert node.cut_until > 0
        simulation.heal()
        assert node.slow_until == node.cut_until == 0


def test_a_killed_process_is_started_again() -> None:
    """After a kill the process is dead, and another one starts within seconds under a new node."""
    with Simulation(PLAN) as simulation:
        machine = simulation.add(Machine("w", idle, idle))
        first = machine.node
        happen(simulation, "kill")
        assert first is not None
        assert first.dead
        simulation.scheduler.run_for(9)
        assert machine.node is not None
        assert (machine.node.name, machine.node.dead) == ("w.1", False)


def test_a_restarted_process_is_stopped_first() -> None:
    """A restart waits until the process has stopped, and then starts another one."""
    stopped: list[str] = []

    async def stop(node: Node) -> None:
        stopped.append(node.name)

    with Simulation(PLAN) as simulation:
        machine = simulation.add(Machine("w", idle, stop))
        happen(simulation, "restart")
        simulation.scheduler.run_for(1)
        assert stopped == ["w.0"]
        assert machine.node is not None
        assert machine.node.name == "w.1"


def test_clocks_are_wrong_only_if_the_plan_has_it() -> None:
    """With `drift` and `skew` the clocks of a node differ from virtual time, without them they do not."""
    with Simulation(PLAN) as simulation:
        wrong = simulation.node("a")
        assert wrong.rate != 1.0
        assert wrong.skew != 0.0
    with Simulation(replace(PLAN, kinds=frozenset())) as simulation:
        right = simulation.node("a")
        assert (right.rate, right.skew) == (1.0, 0.0)
