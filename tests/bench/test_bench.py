"""Tests of the benchmarks themselves: counters, result lines, targets and command lines."""

from __future__ import annotations

import os
import sys
import threading
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

from bench import results, run_counter, targets
from bench.peers.catalog import PEERS
from bench.process import Process
from bench.systems import CURRENT, penstock_system


def _count(times: int) -> None:
    for _ in range(times):
        run_counter.record_run({})


def test_a_run_counter_adds_up_threads_and_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every run is counted once, in whichever thread or process it was."""
    monkeypatch.setenv(run_counter.FOLDER, str(tmp_path))
    threads = [threading.Thread(target=_count, args=(100,)) for _ in range(3)]
    child = get_context("spawn").Process(target=_count, args=(50,))
    for worker in (*threads, child):
        worker.start()
    for worker in (*threads, child):
        worker.join()
    reader = run_counter.RunCounter(tmp_path)
    assert reader.runs() == 350
    reader.close()


def test_a_stamp_is_the_time_since_the_enqueue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run whose payload has the moment of its enqueue records the nanoseconds since then."""
    monkeypatch.setenv(run_counter.FOLDER, str(tmp_path))
    run_counter._reset()
    run_counter.record_run({"at": 0})
    reader = run_counter.RunCounter(tmp_path)
    assert [stamp > 0 for stamp in reader.stamps()] == [True]
    assert reader.runs() == 1
    reader.close()
    run_counter._reset()


def _line(workload: str, system: str, median: float, **more: Any) -> dict[str, Any]:
    measure = results.Measurement(workload, "redis", system, "jobs/s", guarantee="at least once", values=[median])
    return {**measure.line(), **more}


def test_values_of_three_rounds_become_one_line() -> None:
    """The line of a measurement has its values, their median and their spread."""
    measurements = results.Measurements()
    for value in (3.0, 1.0, 2.0):
        measurements.add(results.Measurement("drain", "redis", "penstock", "jobs/s"), value, client=value)
    (line,) = measurements.lines()
    assert (line["values"], line["median"], line["spread"], line["cpu_us_client"]) == ([3, 1, 2], 2, [1, 3], 2)


def test_a_target_is_compared_with_the_best_peer_it_admits() -> None:
    """The drain target is ten times the best at-least-once Python peer; at-most-once and Node peers do not count."""
    lines = [
        _line("drain", "penstock", 1000),
        _line("drain", "slow", 90),
        _line("drain", "best", 100),
        _line("drain", "careless", 500, guarantee="at most once"),
        _line("drain", "bullmq-node", 260, language="Node"),
    ]
    found = {result.work: result for result in targets.target_results(lines)}
    assert found["drain, concurrency=100"].met
    assert "(best)" in found["drain, concurrency=100"].against
    assert not found["drain, concurrency=100, against Node"].met


def test_commands_of_every_system_can_be_built() -> None:
    """All placeholders in the command lines of all systems are filled in."""
    for system in (penstock_system(), *PEERS.values()):
        for line in (system.worker, system.producer):
            assert all("{" not in part for part in CURRENT.command(line, "redis://127.0.0.1:1"))


def test_the_cpu_time_of_another_process_can_be_read() -> None:
    """The CPU time of a computing child grows, and the child's pids do not include this process."""
    import subprocess

    child = subprocess.Popen([sys.executable, "-c", "sum(range(3_000_000)); input()"], stdin=subprocess.PIPE)
    process = Process(child)
    while process.cpu() <= 0.01:
        assert child.poll() is None
    assert os.getpid() not in process.pids()
    child.communicate(b"\n")
