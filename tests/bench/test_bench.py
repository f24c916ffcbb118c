"""The benchmarks' own arithmetic: what is counted is counted, and a bar is met when it is."""

from __future__ import annotations

import os
import sys
import threading
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

from bench import bars, lines, tally
from bench.peers.catalog import PEERS
from bench.process import Process
from bench.systems import HERE, ours


def _count(times: int) -> None:
    for _ in range(times):
        tally.run({})


def test_a_tally_adds_up_threads_and_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every run is counted once, whichever thread or process it was in."""
    monkeypatch.setenv(tally.FOLDER, str(tmp_path))
    threads = [threading.Thread(target=_count, args=(100,)) for _ in range(3)]
    child = get_context("spawn").Process(target=_count, args=(50,))
    for worker in (*threads, child):
        worker.start()
    for worker in (*threads, child):
        worker.join()
    reader = tally.Tally(tmp_path)
    assert reader.runs() == 350
    reader.close()


def test_a_stamp_tells_how_long_ago_a_job_was_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The handler's side writes nanoseconds since the moment that the payload names."""
    monkeypatch.setenv(tally.FOLDER, str(tmp_path))
    tally._forget()
    tally.run({"at": 0})
    reader = tally.Tally(tmp_path)
    assert [stamp > 0 for stamp in reader.stamps()] == [True]
    assert reader.runs() == 1
    reader.close()
    tally._forget()


def _line(workload: str, system: str, median: float, **more: Any) -> dict[str, Any]:
    measure = lines.Measure(workload, "redis", system, "jobs/s", guarantee="at least once", values=[median])
    return {**measure.line(), **more}


def test_values_of_three_rounds_become_one_line() -> None:
    """A line has the values, their median and their spread."""
    book = lines.Book()
    for value in (3.0, 1.0, 2.0):
        book.add(lines.Measure("drain", "redis", "penstock", "jobs/s"), value, client=value)
    (line,) = book.lines()
    assert (line["values"], line["median"], line["spread"], line["cpu_us_client"]) == ([3, 1, 2], 2, [1, 3], 2)


def test_a_bar_is_met_against_the_best_peer_that_counts() -> None:
    """Ten times the best at-least-once Python peer: peers that promise less, or in Node, are not that one."""
    told = [
        _line("drain", "penstock", 1000),
        _line("drain", "slow", 90),
        _line("drain", "best", 100),
        _line("drain", "careless", 500, guarantee="at most once"),
        _line("drain", "bullmq-node", 260, language="Node"),
    ]
    found = {verdict.work: verdict for verdict in bars.verdicts(told)}
    assert found["drain, concurrency=100"].met
    assert "(best)" in found["drain, concurrency=100"].against
    assert not found["drain, concurrency=100, against Node"].met


def test_commands_of_every_system_can_be_built() -> None:
    """The placeholders of every command line are known."""
    for system in (ours(), *PEERS.values()):
        for line in (system.worker, system.producer):
            assert all("{" not in part for part in HERE.command(line, "redis://127.0.0.1:1"))


def test_the_cpu_time_of_another_process_can_be_read() -> None:
    """The clock of this process, read as if it were another's, goes on."""
    import subprocess

    child = subprocess.Popen([sys.executable, "-c", "sum(range(3_000_000)); input()"], stdin=subprocess.PIPE)
    process = Process(child)
    while process.cpu() <= 0.01:
        assert child.poll() is None
    assert os.getpid() not in process.pids()
    child.communicate(b"\n")
