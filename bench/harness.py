"""The harness of one system on one storage: its producer process, its worker process and their counters."""

from __future__ import annotations

import contextlib
import json
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

from bench.process import Process, die_with_parent
from bench.run_counter import FOLDER, RunCounter
from bench.storages import BenchStorage
from bench.systems import CURRENT, Environment, System

POLL = 0.005  # seconds between two reads of the counters
WORKER_SECONDS = 60.0  # within which a worker must run its first job
ANSWER_SECONDS = 300.0


class SystemFailed(Exception):
    """A system did not do as requested; the message has the last output of its processes."""


class Harness:
    """Producer and worker of a system on a storage, which is emptied first."""

    def __init__(self, system: System, storage: BenchStorage, environment: Environment = CURRENT) -> None:
        storage.clear()
        self.system = system
        self.storage = storage
        self.folder = Path(tempfile.mkdtemp(prefix="penstock-bench-run-"))
        (self.folder / "counters").mkdir()
        self.counter = RunCounter(self.folder / "counters")
        self._environment = environment
        self._variables = {
            **environment.variables(),
            **system.environment,
            "BENCH_URL": storage.url,
            FOLDER: str(self.counter.folder),
        }
        self._producer = self._start(system.producer, "producer", subprocess.PIPE)
        self.worker: Process | None = None
        self.about: dict[str, Any] = {}

    def request(self, do: str, **arguments: Any) -> dict[str, Any]:
        """Send a request to the producer and return its answer."""
        self._closed = do == "close"
        child = self._producer.child
        assert child.stdin
        assert child.stdout
        with contextlib.suppress(BrokenPipeError):
            child.stdin.write(json.dumps({"do": do, **arguments}).encode() + b"\n")
            child.stdin.flush()
        if not select.select([child.stdout], [], [], ANSWER_SECONDS)[0]:
            raise self._failure(f"did not answer {do} within {ANSWER_SECONDS:.0f} s")
        line = child.stdout.readline()
        if not line:
            raise self._failure(f"exited at {do}")
        return json.loads(line)

    def start_worker(self, **variables: str) -> Process:
        self.worker = self._start(self.system.worker, "worker", None, **variables)
        return self.worker

    def wait_for_runs(self, count: int, within: float) -> float:
        """Wait until `count` handlers have run; return the moment."""
        assert self.worker
        until = time.monotonic() + within
        while (runs := self.counter.runs()) < count:
            if time.monotonic() > until:
                raise self._failure(f"ran {runs} of {count} jobs within {within:.0f} s")
            if self.worker.exit_code() is not None:
                raise self._failure(f"its worker exited with {self.worker.exit_code()} after {runs} of {count} jobs")
            time.sleep(POLL)
        return time.perf_counter()

    def warm_up(self) -> None:
        """Have the worker run a few jobs, so that it is connected and idle."""
        before = self.counter.runs()
        self.request("stamp", count=1, pause=0.0, budget=60.0)
        self.wait_for_runs(before + 1, WORKER_SECONDS)
        self.request("stamp", count=20, pause=0.005, budget=2.0)
        self.wait_until_settled()
        time.sleep(0.3)

    def wait_until_settled(self, within: float = 30.0) -> None:
        """Wait until the system itself reports that no job is left."""
        until = time.monotonic() + within
        while left := self.request("left")["left"]:
            if time.monotonic() > until:
                raise self._failure(f"reports that {left} jobs are left")
            time.sleep(0.02)

    def close(self) -> None:
        if self.worker is not None:
            self.worker.stop()
        if self._producer.exit_code() is None and not self._closed:
            with contextlib.suppress(SystemFailed):
                self.request("close")
        child = self._producer.child
        assert child.stdin
        assert child.stdout
        with contextlib.suppress(BrokenPipeError):
            child.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(5)
        self._producer.stop()
        child.stdout.close()
        self.counter.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def error_lines(self) -> list[str]:
        """Return the lines of the worker's log that look like an error."""
        log = (self.folder / "worker.log").read_text(errors="replace") if self.worker else ""
        return [line for line in log.splitlines() if line.startswith("Traceback") or "ERROR" in line]

    def _start(self, line: str, name: str, pipe: int | None, **variables: str) -> Process:
        with (self.folder / f"{name}.log").open("ab") as log:
            child = subprocess.Popen(
                self._environment.command(line, self.storage.url), env={**self._variables, **variables},
                cwd=self.folder, stdin=pipe or subprocess.DEVNULL, stdout=pipe or log, stderr=log,
                start_new_session=True, preexec_fn=die_with_parent,
            )  # fmt: skip
        return Process(child, session=True)

    def _failure(self, reason: str) -> SystemFailed:
        outputs: list[str] = []
        for name in ("producer", "worker"):
            path = self.folder / f"{name}.log"
            if path.exists() and (text := path.read_text(errors="replace").strip()):
                outputs.append(f"--- {name}:\n{text[-1500:]}")
        return SystemFailed("\n".join([f"{self.system.name} {reason}", *outputs]))


@contextlib.contextmanager
def open_harness(system: System, storage: BenchStorage, environment: Environment = CURRENT) -> Generator[Harness]:
    """Yield a harness and close it afterwards; raise `SystemFailed` if its worker logged an error."""
    harness = Harness(system, storage, environment)
    try:
        harness.about = harness.request("open")
        yield harness
        if harness.error_lines():
            raise SystemFailed(f"{system.name}'s worker logged: {harness.error_lines()[:5]}")
    finally:
        harness.close()
