"""What can be measured: Penstock, and the peers by the same words."""

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
    """One system under test, at settings that its documentation recommends for throughput."""

    name: str
    guarantee: str
    settings: str
    #: The command lines of the worker, as its documentation starts it, and of the process that hands jobs in;
    #: {python}, {bin}, {root} and {url} stand for the environment's interpreter, its programs, this repository
    #: and the storage.
    worker: str
    producer: str
    #: What to install, by name; nothing for Penstock itself.
    packages: tuple[str, ...] = ()
    language: str = "Python"
    #: How many jobs a drain has: enough for a second or more.
    jobs: int = 20_000
    #: How it is asked: "async" or "sync".
    style: str = "async"
    #: What it offers beside handing in one job: "many" and "call".
    offers: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    storages: tuple[str, ...] = ("redis",)

    @property
    def at_least_once(self) -> bool:
        return self.guarantee.startswith("at least once")


def producer_of(adapter: str) -> str:
    """The command line of the process that hands jobs in through this adapter."""
    return f"{{python}} -m bench.producer {adapter}"


#: Numbers that a handler which computes adds up: about a tenth of a millisecond.
COMPUTES = 5000


def ours(*, processes: int = 1, sync: bool = False, computes: bool = False, **options: object) -> System:
    """Penstock as its users run it: `penstock worker`, with default options unless others are given."""
    shown = ", ".join(f"{key}={value}" for key, value in options.items()) or "default options"
    shown += f", adds up {COMPUTES} numbers" if computes else ""
    return System(
        name="penstock",
        guarantee="at least once",
        settings=f"penstock worker --processes {processes}; handler: {shown}; results kept for an hour",
        worker=f"{{python}} -m penstock worker bench.ours:app --processes {processes} --grace 5",
        producer=producer_of(f"bench.ours:{'SyncProducer' if sync else 'Producer'}"),
        environment={"BENCH_OPTIONS": json.dumps(options), "BENCH_COMPUTES": str(COMPUTES if computes else 0)},
        storages=("redis", "sqlite", "valkey"),
        style="sync" if sync else "async",
        offers=("many", "call"),
    )


@dataclass(frozen=True)
class Home:
    """The environment of a system: where its interpreter and its programs are."""

    python: str
    bin: str

    def command(self, line: str, url: str) -> list[str]:
        return [part.format(python=self.python, bin=self.bin, root=ROOT, url=url) for part in line.split()]

    def variables(self) -> dict[str, str]:
        """The surroundings of every child: this repository can be imported, and nobody's settings leak in."""
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("PENSTOCK_", "BENCH_"))}
        if self.python != sys.executable:
            return {**kept, "PYTHONPATH": str(ROOT), "BENCH_HOME": str(Path(self.bin).parent)}
        ways = [str(ROOT), *map(os.path.abspath, filter(None, kept.get("PYTHONPATH", "").split(os.pathsep)))]
        return {**kept, "PYTHONPATH": os.pathsep.join(ways)}


HERE = Home(sys.executable, str(Path(sys.executable).parent))
