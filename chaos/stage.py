"""What a run consists of: a place, workers, producers, a witness; and what faults may do to them."""

from __future__ import annotations

import asyncio
import json
import random
import signal
import time
from pathlib import Path
from typing import Any

from chaos.log import Log, read_lines
from chaos.pace import Pace
from chaos.places import Place, ServerPlace
from chaos.processes import Process, WorkerProcess
from tests.proxy import Proxy

__all__ = ["Settings", "Stage"]

#: A producer's numbers begin at a multiple of this, so that no two producers share one.
NUMBERS = 10_000_000


class Settings:
    """What the command line says of a run."""

    def __init__(self, **given: Any) -> None:
        self.storage: str = given["storage"]
        self.seed: int = given["seed"]
        self.jobs: int = given["jobs"]
        self.faults: int = given["faults"]
        self.kinds: list[str] = given["kinds"]
        self.fault_kinds: list[str] | None = given.get("fault_kinds")
        self.fsync: str = given.get("fsync", "always")
        self.workers: int = given.get("workers", 3)
        self.processes: int = given.get("processes", 2)
        self.producers: int = given.get("producers", 2)
        self.lease: float = given.get("lease", 2.0)
        self.seconds: float = given.get("seconds", 60.0)
        self.patience: float = given.get("patience", 120.0)
        self.heavy: float = given.get("heavy", 1.0)
        #: What `Penstock(durability=…)` is told; None leaves it out.
        self.durability: str | None = given.get("durability")


class Stage:
    """The processes of one run. Faults choose among them with a draw of their own."""

    def __init__(self, settings: Settings, place: Place, folder: Path) -> None:
        self.settings = settings
        self.lease = settings.lease
        self.place = place
        self.folder = folder
        self.history = folder / "history"
        self.history.mkdir()
        self.log = Log(self.history, "runner")
        self.pace = Pace(folder / "pace")
        self.workers: list[WorkerProcess] = []
        self.retired: list[WorkerProcess] = []
        self.producers: list[Process] = []
        self.others: list[Process] = []
        #: One fault at a time may replace a worker, and one may do something to the server or the disk.
        self.replacing = asyncio.Lock()
        self.serving = asyncio.Lock()
        self._numbers: dict[str, int] = {}
        self._lives: dict[int, tuple[str, int, int]] = {}
        self.wrong_exits: list[str] = []

    def note(self, kind: str, /, **fields: Any) -> None:
        self.log.write(kind, **fields)

    def _output(self, name: str) -> Path:
        return self.folder / f"{name}.out"

    def _environment(self, role: str, clock: int = 0) -> dict[str, str]:
        return {
            "PENSTOCK_URL": self.place.url_for(role), "CHAOS_LOG": str(self.history), "CHAOS_ROLE": role,
            "CHAOS_CLOCK": str(clock or ""), "CHAOS_DURABILITY": self.settings.durability or "",
        }  # fmt: skip

    def _fresh(self, name: str) -> str:
        number = self._numbers[name] = self._numbers.get(name, -1) + 1
        return f"{name}.{number}"

    # workers --------------------------------------------------------------------------------------

    def start_worker(self, seat: str, clock: int = 0) -> WorkerProcess:
        """A worker; its ways to the storage are those of its seat."""
        name = self._fresh(seat)
        worker = WorkerProcess(
            name, self._environment(seat, clock), self._output(name), processes=self.settings.processes,
            lease=self.lease,
        )  # fmt: skip
        self.workers.append(worker)
        self.note("worker", name=name, pid_of=worker.pid, clock=clock)
        return worker

    def a_worker(self, draw: random.Random) -> WorkerProcess:
        return draw.choice(self.workers)

    def replace(self, worker: WorkerProcess) -> None:
        """Another worker in the seat of one that was killed."""
        self.workers.remove(worker)
        worker.remove()
        self.start_worker(worker.name.partition(".")[0])

    def retire(self, worker: WorkerProcess, clock: int = 0) -> None:
        """Another worker in the seat of one that is stopping by itself."""
        self.workers.remove(worker)
        self.retired.append(worker)
        self.start_worker(worker.name.partition(".")[0], clock)

    def bury(self) -> None:
        """Look after the workers that were told to stop; one that died by itself is replaced and told of."""
        for worker in list(self.retired):
            if worker.code is not None:
                self.retired.remove(worker)
                too_early = worker.code == -signal.SIGTERM and not self._began(worker)
                if worker.code != 0 and not too_early:
                    self.wrong_exits.append(f"{worker.name} ended with {worker.code} after SIGTERM")
        for worker in list(self.workers):
            if worker.code is not None and not self.replacing.locked():
                self.wrong_exits.append(f"{worker.name} ended by itself with {worker.code}")
                self.replace(worker)

    def _began(self, worker: WorkerProcess) -> bool:
        """Whether a worker had done anything yet; before that a signal just ends it."""
        return any(self.history.glob(f"{worker.name}-*.log"))

    # producers ------------------------------------------------------------------------------------

    def start_producer(self, seat: int, count: int) -> Process:
        name = self._fresh(f"p{seat}")
        life = self._numbers[f"p{seat}"]
        options = {
            "seed": f"{self.settings.seed}/{name}", "name": name, "count": count, "kinds": self.settings.kinds,
            "first": (seat * 1000 + life) * NUMBERS, "pace": str(self.folder / "pace"),
            "producers": self.settings.producers, "heavy": self.settings.heavy,
        }  # fmt: skip
        environment = self._environment(f"p{seat}") | {"CHAOS_ROLE": name}
        producer = Process(["-m", "chaos.producer", json.dumps(options)], environment, self._output(name))
        self.producers.append(producer)
        self._lives[producer.pid] = (name, seat, count)
        return producer

    def a_producer(self, draw: random.Random) -> Process | None:
        alive = [each for each in self.producers if each.code is None]
        return draw.choice(alive) if alive else None

    def tend_producers(self) -> bool:
        """Start those again that were killed, with what they had left to do; False when all are done."""
        for producer in list(self.producers):
            if producer.code is None:
                continue
            self.producers.remove(producer)
            name, seat, count = self._lives[producer.pid]
            if producer.code == 0:
                continue
            if producer.code > 0:
                raise RuntimeError(f"producer {name} failed:\n{producer.output.read_text()[-3000:]}")
            left = count - self._asked(name)
            if left > 0:
                self.start_producer(seat, left)
        return bool(self.producers)

    def _asked(self, name: str) -> int:
        """How many jobs a producer had asked for."""
        lines = [line for path in self.history.glob(f"{name}-*.log") for line in path.read_bytes().split(b"\n")]
        return sum(len(record["jobs"]) for record in read_lines(lines) if record["k"] == "put")

    # others ---------------------------------------------------------------------------------------

    def start_witness(self) -> Process:
        witness = Process(["-m", "chaos.witness"], self._environment("witness"), self._output("witness"))
        self.others.append(witness)
        return witness

    def start_writer(self, path: str, how: str) -> Process:
        return Process(["-m", "chaos.writer", path, how], {}, self._output(self._fresh("writer")))

    async def said(self, process: Process, word: str, seconds: float = 20.0) -> None:
        """Wait until a process has said a word, or has ended."""
        until = time.monotonic() + seconds
        while process.code is None and time.monotonic() < until:
            if word in process.output.read_text():
                return
            await asyncio.sleep(0.01)

    # servers --------------------------------------------------------------------------------------

    def a_proxy(self, draw: random.Random) -> Proxy:
        assert isinstance(self.place, ServerPlace)
        return self.place.proxies[draw.choice(sorted(self.place.proxies))]

    async def on_server(self, *command: str) -> Any:
        """A command on the straight way, when nobody does anything to the server."""
        place = self.place
        assert isinstance(place, ServerPlace)

        def ask() -> Any:
            client = place.client()
            try:
                return client.execute_command(*command)
            finally:
                client.close()

        return await asyncio.to_thread(ask)

    def end(self) -> None:
        """Nothing of it stays behind."""
        for process in (*self.workers, *self.retired, *self.producers, *self.others):
            process.remove()
        self.log.close()
        self.pace.close()
