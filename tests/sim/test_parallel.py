"""Seeds in several processes: the same results as in this one, in the order of the seeds."""

from __future__ import annotations

import logging

from penstock.testing.simulation.plan import Plan
from sim.parallel import run_seeds
from sim.run import run_seed


def test_several_processes_give_the_results_of_one_in_the_order_of_the_seeds() -> None:
    """A run depends on its seed alone, wherever it runs; a slow seed does not lose its place."""
    seeds = [8, 12, 11]
    together = list(run_seeds(iter(seeds), ["memory:", "memory:"]))
    assert [result.seed for result in together] == seeds
    assert not any(result.broken for result in together)
    assert together == list(run_seeds(iter(seeds), ["memory:"]))


def test_the_history_has_the_warnings_of_a_run_although_the_program_logs_nothing() -> None:
    """A program that has turned its log off gets the same history as others, and its setting back."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        report = run_seed(Plan.of_seed(8))
        assert logging.root.manager.disable == logging.CRITICAL
    finally:
        logging.disable(before)
    assert any(line.kind == "log" for line in report.history)
    assert report.digest == run_seed(Plan.of_seed(8)).digest
