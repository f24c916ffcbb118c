"""One system on one storage: the process that asks, the worker that works, and what they have done."""

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
from bench.server import Storage
from bench.systems import HERE, Home, System
from bench.tally import FOLDER, Tally

POLL = 0.005  # between two looks at the tally
WORKER_SECONDS = 60.0  # for a worker to begin
ANSWER_SECONDS = 300.0


class Failed(Exception):
    """A system did not do what it was asked to; says what its processes said."""


class Rig:
    """A system on a storage that is emptied first."""

    def __init__(self, system: System, storage: Storage, home: Home = HERE) -> None:
        storage.clear()
        self.system = system
        self.storage = storage
        self.folder = Path(tempfile.mkdtemp(prefix="penstock-bench-run-"))
        (self.folder / "tally").mkdir()
        self.tally = Tally(self.folder / "tally")
        self._home = home
        self._variables = {
            **home.variables(),
            **system.environment,
            "BENCH_URL": storage.url,
            FOLDER: str(self.tally.folder),
        }
        self._producer = self._start(system.producer, "producer", subprocess.PIPE)
        self.worker: Process | None = None
        self.about: dict[str, Any] = {}

    def ask(self, do: str, **what: Any) -> dict[str, Any]:
        """Have the producer do something, and wait for its answer."""
        self._closed = do == "close"
        child = self._producer.child
        assert child.stdin
        assert child.stdout
        with contextlib.suppress(BrokenPipeError):
            child.stdin.write(json.dumps({"do": do, **what}).encode() + b"\n")
            child.stdin.flush()
        if not select.select([child.stdout], [], [], ANSWER_SECONDS)[0]:
            raise self._failed(f"did not answer {do} within {ANSWER_SECONDS:.0f} s")
        line = child.stdout.readline()
        if not line:
            raise self._failed(f"gave up at {do}")
        return json.loads(line)

    def start_worker(self, **variables: str) -> Process:
        self.worker = self._start(self.system.worker, "worker", None, **variables)
        return self.worker

    def await_runs(self, count: int, within: float) -> float:
        """Wait until so many handlers have run; gives the moment."""
        assert self.worker
        until = time.monotonic() + within
        while (runs := self.tally.runs()) < count:
            if time.monotonic() > until:
                raise self._failed(f"ran {runs} of {count} jobs within {within:.0f} s")
            if self.worker.ended() is not None:
                raise self._failed(f"its worker ended with {self.worker.ended()} after {runs} of {count} jobs")
            time.sleep(POLL)
        return time.perf_counter()

    def warm_up(self) -> None:
        """Have the worker do a few jobs, so that it is there and idle."""
        before = self.tally.runs()
        self.ask("stamp", count=1, pause=0.0, budget=60.0)
        self.await_runs(before + 1, WORKER_SECONDS)
        self.ask("stamp", count=20, pause=0.005, budget=2.0)
        self.await_settled()
        time.sleep(0.3)

    def await_settled(self, within: float = 30.0) -> None:
        """Wait until the system itself says that nothing is left to do."""
        until = time.monotonic() + within
        while left := self.ask("left")["left"]:
            if time.monotonic() > until:
                raise self._failed(f"says that {left} jobs are left")
            time.sleep(0.02)

    def close(self) -> None:
        if self.worker is not None:
            self.worker.stop()
        if self._producer.ended() is None and not self._closed:
            with contextlib.suppress(Failed):
                self.ask("close")
        child = self._producer.child
        assert child.stdin
        assert child.stdout
        with contextlib.suppress(BrokenPipeError):
            child.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(5)
        self._producer.stop()
        child.stdout.close()
        self.tally.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def complaints(self) -> list[str]:
        """Lines of the worker that look like an error."""
        log = (self.folder / "worker.log").read_text(errors="replace") if self.worker else ""
        return [line for line in log.splitlines() if line.startswith("Traceback") or "ERROR" in line]

    def _start(self, line: str, name: str, pipe: int | None, **variables: str) -> Process:
        with (self.folder / f"{name}.log").open("ab") as log:
            child = subprocess.Popen(
                self._home.command(line, self.storage.url), env={**self._variables, **variables}, cwd=self.folder,
                stdin=pipe or subprocess.DEVNULL, stdout=pipe or log, stderr=log, start_new_session=True,
                preexec_fn=die_with_parent,
            )  # fmt: skip
        return Process(child, session=True)

    def _failed(self, what: str) -> Failed:
        said: list[str] = []
        for name in ("producer", "worker"):
            path = self.folder / f"{name}.log"
            if path.exists() and (text := path.read_text(errors="replace").strip()):
                said.append(f"--- {name}:\n{text[-1500:]}")
        return Failed("\n".join([f"{self.system.name} {what}", *said]))


@contextlib.contextmanager
def rig_of(system: System, storage: Storage, home: Home = HERE) -> Generator[Rig]:
    """A rig that is gone afterwards; a worker that logged an error has failed."""
    rig = Rig(system, storage, home)
    try:
        rig.about = rig.ask("open")
        yield rig
        if rig.complaints():
            raise Failed(f"{system.name}'s worker logged: {rig.complaints()[:5]}")
    finally:
        rig.close()
