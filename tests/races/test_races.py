"""Real processes on one storage: nothing is lost, nothing is recorded twice, every group is in order."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.model.job import State
from penstock.storage.base import Storage
from tests.support import Backend, RedisBackend, SqliteBackend, find_all, forget_all, new, tally

pytestmark = [
    pytest.mark.only("sqlite", "redis"),
    pytest.mark.beyond_model,
    pytest.mark.timeout(300),
]

PROCESSES = 4
JOBS = int(os.environ.get("PENSTOCK_RACE_JOBS", 20_000))
GROUPS = 100
ROOT = Path(__file__).parents[2]

Run = tuple[str, str | None, int, int]


def start(backend: Backend, name: str, **options: Any) -> subprocess.Popen[str]:
    assert isinstance(backend, SqliteBackend | RedisBackend)
    arguments = {
        "storage": "sqlite" if isinstance(backend, SqliteBackend) else "redis",
        "url": backend.path if isinstance(backend, SqliteBackend) else backend.url,
        "namespace": backend.namespace,
        "name": name,
        "queue": "q",
        "limit": 50,
        "lease": 60_000,
        "die_after": None,
        **options,
    }
    source = str(Path(penstock.__file__).parents[1])
    return subprocess.Popen(
        [sys.executable, "-m", "tests.races.run", json.dumps(arguments)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{source}{os.pathsep}{ROOT}"},
    )  # fmt: skip


@contextmanager
def racing(backend: Backend, total: int, lease: int = 60_000, dying: int | None = None) -> Generator[Any]:
    """Start worker processes that wait for the start signal; kill them in any case."""
    racers = [
        start(backend, f"w{n}", total=total, lease=lease, die_after=dying if n == 0 else None) for n in range(PROCESSES)
    ]
    try:
        for racer in racers:
            assert racer.stdout
            assert racer.stdout.readline() == "ready\n", f"a process did not start: {racer.wait()}"
        yield racers
    finally:
        for racer in racers:
            racer.kill()
            racer.wait()
            for pipe in (racer.stdin, racer.stdout):
                assert pipe
                pipe.close()


def go(racers: list[subprocess.Popen[str]]) -> None:
    for racer in racers:
        assert racer.stdin
        racer.stdin.write("go\n")
        racer.stdin.flush()


def output_of(racer: subprocess.Popen[str]) -> Any:
    """Return the record that a process prints at its end."""
    assert racer.stdout
    line = racer.stdout.readline()
    assert line, f"a process ended without a record: {racer.wait()}"
    return json.loads(line)


async def fill(storage: Storage, plain: int, grouped: int) -> list[str]:
    names = [f"p{n}" for n in range(plain)] + [f"g{n % GROUPS}-{n // GROUPS}" for n in range(grouped)]
    jobs = [new("q", name, group=name.partition("-")[0] if name[0] == "g" else None) for name in names]
    for at in range(0, len(jobs), 1000):
        await storage.put(jobs[at : at + 1000])
    return names


def check_once(runs: list[Run], names: list[str]) -> None:
    """Check that every job was recorded once, by one process."""
    counted = Counter(run[0] for run in runs)
    assert {name: count for name, count in counted.items() if count > 1} == {}, "recorded twice"
    assert set(names) - set(counted) == set(), "lost"
    assert len(counted) == len(names)


def check_order(runs: list[Run]) -> None:
    """Check that in every group, run k + 1 was claimed after run k had been sent to be settled."""
    lanes: dict[str, dict[int, tuple[int, int]]] = {}
    for id, group, claimed, settling in runs:
        if group is not None:
            lanes.setdefault(group, {})[int(id.partition("-")[2])] = (claimed, settling)
    for group, lane in lanes.items():
        numbers = sorted(lane)
        assert numbers == list(range(len(lane)))
        for number in numbers[1:]:
            assert lane[number - 1][1] < lane[number][0], f"{group}: run {number} began before {number - 1} ended"


@pytest.fixture
def real(backend: Backend, runner: asyncio.Runner) -> Iterator[Storage]:
    """An open storage on its own real clock."""
    storage = backend.build(None)
    runner.run(storage.open())
    yield storage
    runner.run(forget_all(storage))
    runner.run(storage.close())


def test_four_processes_run_every_job_once(backend: Backend, real: Storage, runner: asyncio.Runner) -> None:
    """Plain and grouped jobs through four processes: none lost, none twice, all groups in order (invariants 1 to 3)."""
    names = runner.run(fill(real, JOBS // 2, JOBS // 2))
    with racing(backend, len(names)) as racers:
        go(racers)
        results = [[tuple(run) for run in output_of(racer)] for racer in racers]
    runs = [run for result in results for run in result]
    check_once(runs, names)
    check_order(runs)
    assert runner.run(real.counts("q")) == tally(completed=len(names))


def test_a_killed_process_loses_nothing(backend: Backend, real: Storage, runner: asyncio.Runner) -> None:
    """The jobs of a process that is killed come back after their lease, and everything completes (PJ-D3, WQ-D2)."""
    total = JOBS // 10
    names = runner.run(fill(real, total // 2, total // 2))
    with racing(backend, len(names), lease=3000, dying=total // 20) as racers:
        go(racers[:1])  # alone at first: the others could leave it nothing
        record = output_of(racers[0])
        go(racers[1:])
        racers[0].send_signal(signal.SIGKILL)
        racers[0].wait()
        assert record["held"], "it was killed while it held jobs"
        runs = [tuple(run) for run in record["runs"]]
        for racer in racers[1:]:
            runs += [tuple(run) for run in output_of(racer)]
    check_once(runs, names)
    check_order(runs)
    assert runner.run(real.counts("q")) == tally(completed=len(names))
    stalled = {job.id for job in runner.run(find_all(real, "q", State.COMPLETED, 500)) if job.stalls}
    assert set(record["held"]) <= stalled


def test_a_group_never_runs_twice_at_once(backend: Backend, real: Storage, runner: asyncio.Runner) -> None:
    """Few groups and many idle processes: never two runs of a group at once (QF-D2)."""
    total = JOBS // 20
    names = [f"g{n % 3}-{n // 3}" for n in range(total)]

    async def put() -> None:
        for at in range(0, total, 1000):
            await real.put([new("q", name, group=name.partition("-")[0]) for name in names[at : at + 1000]])

    runner.run(put())
    with racing(backend, total) as racers:
        go(racers)
        runs = [tuple(run) for racer in racers for run in output_of(racer)]
    check_once(runs, names)
    check_order(runs)
