"""The parts of a chaos run: a storage, workers, producers and an event watcher, with the operations that faults use."""

from __future__ import annotations

import asyncio
import json
import random
import signal
import time
from pathlib import Path
from typing import Any

from chaos.log import Log, now, read_lines
from chaos.processes import Process, WorkerProcess
from chaos.shared_number import EnqueueLimit, SharedNumber
from chaos.storages import SingleServer, StorageUnderTest
from tests.proxy import Proxy

__all__ = ["Settings", "Setup"]

#: The job numbers of a producer process begin at a multiple of this, so that no two processes share one.
NUMBERS_PER_PRODUCER = 10_000_000


class Settings:
    """Options of a run, as the command line gives them."""

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
        #: Seconds without progress after which unfinished jobs count as stuck.
        self.timeout: float = given.get("timeout", 120.0)
        self.heavy: float = given.get("heavy", 1.0)
        #: The value for `Penstock(durability=…)`; None leaves it out.
        self.durability: str | None = given.get("durability")
        #: The number of schedules that the code of a run of limits declares; 0 for any other run.
        self.schedules: int = given.get("schedules", 0)


class Setup:
    """Storage and processes of one run; each fault picks among them with its own random source."""

    def __init__(self, settings: Settings, storage: StorageUnderTest, folder: Path) -> None:
        self.settings = settings
        self.lease = settings.lease
        self.storage = storage
        self.folder = folder
        self.history = folder / "history"
        self.history.mkdir()
        self.log = Log(self.history, "runner")
        self.enqueue_limit = EnqueueLimit(folder / "enqueue_limit")
        #: By how many milliseconds the clock of the producers and workers is ahead, on a storage without its own clock.
        self.clock = SharedNumber(folder / "clock")
        self.workers: list[WorkerProcess] = []
        self.retired: list[WorkerProcess] = []
        self.producers: list[Process] = []
        self.others: list[Process] = []
        #: Held by a fault that replaces a worker.
        self.worker_lock = asyncio.Lock()
        #: Held by a fault that affects the whole server or the whole disk.
        self.storage_lock = asyncio.Lock()
        self._numbers: dict[str, int] = {}
        #: By the pid of a producer: its name, its slot and how many jobs it must enqueue.
        self._assignments: dict[int, tuple[str, int, int]] = {}
        self.wrong_exits: list[str] = []
        #: The version of the code that new workers run, in a run of limits.
        self.version = 0

    def record(self, kind: str, /, **fields: Any) -> None:
        self.log.write(kind, **fields)

    def set_clock(self, ahead: int) -> int:
        """Let the shared clock jump, so that it is ahead of the true one by these milliseconds; returns by how many."""
        asked, jump = now(), ahead - self.clock.value
        self.clock.value = ahead
        self.record("clock", a=asked, jump=jump, ahead=ahead)
        return jump

    def _output(self, name: str) -> Path:
        return self.folder / f"{name}.out"

    def _environment(self, role: str, clock: int = 0) -> dict[str, str]:
        schedules = self.settings.schedules
        return {
            "PENSTOCK_URL": self.storage.url_for(role), "CHAOS_LOG": str(self.history), "CHAOS_ROLE": role,
            "CHAOS_CLOCK": str(clock or ""), "CHAOS_DURABILITY": self.settings.durability or "",
            "CHAOS_VERSION": str(self.version) if schedules else "", "CHAOS_SCHEDULES": str(schedules),
            "CHAOS_CLOCK_FILE": str(self.folder / "clock") if schedules and not self.storage.own_clock else "",
        }  # fmt: skip

    def _new_name(self, name: str) -> str:
        number = self._numbers[name] = self._numbers.get(name, -1) + 1
        return f"{name}.{number}"

    # workers --------------------------------------------------------------------------------------

    def start_worker(self, slot: str, clock: int = 0) -> WorkerProcess:
        """Start a worker in a slot; all workers of one slot use the same URL, and so the same proxy."""
        name = self._new_name(slot)
        worker = WorkerProcess(
            name, self._environment(slot, clock), self._output(name), processes=self.settings.processes,
            lease=self.lease,
        )  # fmt: skip
        self.workers.append(worker)
        self.record("worker", name=name, pid_of=worker.pid, clock=clock, version=self.version)
        return worker

    def pick_worker(self, draw: random.Random) -> WorkerProcess:
        return draw.choice(self.workers)

    def replace(self, worker: WorkerProcess) -> None:
        """Start another worker in the slot of a killed one."""
        self.workers.remove(worker)
        worker.remove()
        self.start_worker(worker.name.partition(".")[0])

    def retire(self, worker: WorkerProcess, clock: int = 0) -> None:
        """Start another worker in the slot of one that is shutting down."""
        self.workers.remove(worker)
        self.retired.append(worker)
        self.start_worker(worker.name.partition(".")[0], clock)

    def collect_exited(self) -> None:
        """Check the exit codes of retired workers; replace and record a worker that exited without a signal."""
        for worker in list(self.retired):
            if worker.code is not None:
                self.retired.remove(worker)
                too_early = worker.code == -signal.SIGTERM and not self.has_records(worker)
                if worker.code != 0 and not too_early:
                    self.wrong_exits.append(f"{worker.name} exited with {worker.code} after SIGTERM")
        for worker in list(self.workers):
            if worker.code is not None and not self.worker_lock.locked():
                self.wrong_exits.append(f"{worker.name} exited by itself with {worker.code}")
                self.replace(worker)

    def has_records(self, worker: WorkerProcess) -> bool:
        """Return whether a worker has records yet; before that it has no signal handlers, so SIGTERM kills it."""
        return any(self.history.glob(f"{worker.name}-*.log"))

    # producers ------------------------------------------------------------------------------------

    def start_producer(self, slot: int, count: int) -> Process:
        name = self._new_name(f"p{slot}")
        restarts = self._numbers[f"p{slot}"]
        options = {
            "seed": f"{self.settings.seed}/{name}", "name": name, "count": count, "kinds": self.settings.kinds,
            "first": (slot * 1000 + restarts) * NUMBERS_PER_PRODUCER, "limit_file": str(self.folder / "enqueue_limit"),
            "producers": self.settings.producers, "heavy": self.settings.heavy,
            "schedules": self.settings.schedules,
        }  # fmt: skip
        environment = self._environment(f"p{slot}") | {"CHAOS_ROLE": name}
        producer = Process(["-m", "chaos.producer", json.dumps(options)], environment, self._output(name))
        self.producers.append(producer)
        self._assignments[producer.pid] = (name, slot, count)
        return producer

    def pick_producer(self, draw: random.Random) -> Process | None:
        alive = [each for each in self.producers if each.code is None]
        return draw.choice(alive) if alive else None

    def restart_producers(self) -> bool:
        """Start killed producers again with the rest of their jobs; return False when all are done."""
        for producer in list(self.producers):
            if producer.code is None:
                continue
            self.producers.remove(producer)
            name, slot, count = self._assignments[producer.pid]
            if producer.code == 0:
                continue
            if producer.code > 0:
                raise RuntimeError(f"producer {name} failed:\n{producer.output.read_text()[-3000:]}")
            left = count - self._count_asked(name)
            if left > 0:
                self.start_producer(slot, left)
        return bool(self.producers)

    def _count_asked(self, name: str) -> int:
        """Return how many jobs a producer has tried to enqueue."""
        lines = [line for path in self.history.glob(f"{name}-*.log") for line in path.read_bytes().split(b"\n")]
        return sum(len(record["jobs"]) for record in read_lines(lines) if record["k"] == "put")

    # other processes ------------------------------------------------------------------------------

    def start_event_watcher(self) -> Process:
        # Faults pick proxies from the sorted roles: this one must sort after the workers' for a seed to keep its plan.
        watcher = Process(["-m", "chaos.event_watcher"], self._environment("watcher"), self._output("watcher"))
        self.others.append(watcher)
        return watcher

    def start_writer(self, path: str, how: str) -> Process:
        return Process(["-m", "chaos.sqlite_writer", path, how], {}, self._output(self._new_name("writer")))

    async def wait_for_output(self, process: Process, text: str, seconds: float = 20.0) -> None:
        """Wait until a process has printed a text, or has exited."""
        until = time.monotonic() + seconds
        while process.code is None and time.monotonic() < until:
            if text in process.output.read_text():
                return
            await asyncio.sleep(0.01)

    # servers --------------------------------------------------------------------------------------

    def pick_proxy(self, draw: random.Random) -> Proxy:
        assert isinstance(self.storage, SingleServer)
        return self.storage.proxies[draw.choice(sorted(self.storage.proxies))]

    async def run_on_server(self, *command: str) -> Any:
        """Run a command on the server itself, past the proxies."""
        storage = self.storage
        assert isinstance(storage, SingleServer)

        def execute() -> Any:
            client = storage.client()
            try:
                return client.execute_command(*command)
            finally:
                client.close()

        return await asyncio.to_thread(execute)

    def close(self) -> None:
        """Kill all processes and close the files."""
        for process in (*self.workers, *self.retired, *self.producers, *self.others):
            process.remove()
        self.log.close()
        self.enqueue_limit.close()
        self.clock.close()
