"""The systems under test: how Penstock and the peers are described, installed and started."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class System:
    """System under test, at settings that its documentation recommends for throughput."""

    name: str
    guarantee: str
    settings: str
    #: The command lines of the worker, as its documentation starts it, and of the producer. {python}, {bin}, {root} and
    #: {url} stand for the environment's interpreter, its programs, this repository and the storage.
    worker: str
    producer: str
    #: The packages to install; none for Penstock itself.
    packages: tuple[str, ...] = ()
    language: str = "Python"
    #: The number of jobs of a drain: enough for a second or more.
    jobs: int = 20_000
    #: The kind of its producer: "async" or "sync".
    style: str = "async"
    #: Its operations besides enqueueing one job: "many" and "call".
    offers: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    storages: tuple[str, ...] = ("redis",)

    @property
    def at_least_once(self) -> bool:
        return self.guarantee.startswith("at least once")


def producer_command(adapter: str) -> str:
    """Return the command line of the producer with this adapter."""
    return f"{{python}} -m bench.producer {adapter}"


#: Numbers that a computing handler adds up, in about a tenth of a millisecond.
COMPUTES = 5000


def penstock_system(*, processes: int = 1, sync: bool = False, computes: bool = False, **options: object) -> System:
    """Return Penstock as its users run it: `penstock worker`, with default options unless others are given."""
    shown = ", ".join(f"{key}={value}" for key, value in options.items()) or "default options"
    shown += f", adds up {COMPUTES} numbers" if computes else ""
    return System(
        name="penstock",
        guarantee="at least once",
        settings=f"penstock worker --processes {processes}; handler: {shown}; results kept for an hour",
        worker=f"{{python}} -m penstock worker bench.penstock_adapter:app --processes {processes} --grace 5",
        producer=producer_command(f"bench.penstock_adapter:{'SyncProducer' if sync else 'Producer'}"),
        environment={"BENCH_OPTIONS": json.dumps(options), "BENCH_COMPUTES": str(COMPUTES if computes else 0)},
        storages=("redis", "sqlite", "valkey"),
        style="sync" if sync else "async",
        offers=("many", "call"),
    )


@dataclass(frozen=True)
class Environment:
    """Environment of a system, with the paths of its interpreter and its programs."""

    python: str
    bin: str

    def command(self, line: str, url: str) -> list[str]:
        return [part.format(python=self.python, bin=self.bin, root=ROOT, url=url) for part in line.split()]

    def variables(self) -> dict[str, str]:
        """Return the environment variables of a child: it can import this repository, and has no other settings."""
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("PENSTOCK_", "BENCH_"))}
        if self.python != sys.executable:
            return {**kept, "PYTHONPATH": str(ROOT), "BENCH_HOME": str(Path(self.bin).parent)}
        paths = [str(ROOT), *map(os.path.abspath, filter(None, kept.get("PYTHONPATH", "").split(os.pathsep)))]
        return {**kept, "PYTHONPATH": os.pathsep.join(paths)}


CURRENT = Environment(sys.executable, str(Path(sys.executable).parent))
