"""A run of workers and producers under faults, and the check of its history.

python -m chaos --storage redis|sqlite|valkey --seed N --jobs N --faults N
python -m chaos sentinel|cluster              servers with failover
python -m chaos limits --storage …            limits and schedules, of which the code has two versions
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from chaos.checker import check_history, explain
from chaos.failover_faults import FAULTS, storage_for
from chaos.history import History
from chaos.limited_plan import LIMITED_KINDS
from chaos.log import read_all
from chaos.plan import KINDS
from chaos.report import summary, table
from chaos.run import ChaosRun
from chaos.setup import Settings
from chaos.storages import StorageUnderTest

#: Violations that are explained; the rest is counted.
MAX_EXPLAINED = 10


#: Schedules in both versions for each tick in a second: a part of them is skipped, paused, or in one version alone.
MORE_SCHEDULES = 1.5

#: Storages that can confirm each durability: a single server has no replicas, and the Redis of the run has no WAITAOF.
CONFIRMABLE = (("sentinel", "replicas"), ("cluster", "replicas"), ("valkey", "fsync"), ("sqlite", "fsync"))


def main(arguments: list[str] | None = None) -> int:
    args = parse(arguments)
    logging.getLogger("asyncio").setLevel(logging.ERROR)  # it logs every connection that a proxy cuts
    if args.check is not None:
        return check_folder(args.check, {"storage": "", "seed": "", "seconds": 0.0}, None)
    worst = 0
    for seed in range(args.seed, args.seed + args.rounds):
        worst = max(worst, one_round(args, seed))
    return worst


def parse(arguments: list[str] | None) -> argparse.Namespace:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="python -m chaos", description=__doc__, formatter_class=raw)
    parser.add_argument(
        "scenario",
        nargs="?",
        choices=("sentinel", "cluster", "limits"),
        help="failover instead of --storage, or limits",
    )
    parser.add_argument("--storage", choices=("redis", "valkey", "sqlite", "sentinel", "cluster"), default="sqlite")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=1, help="number of runs, with consecutive seeds")
    parser.add_argument("--jobs", type=int, default=2000)
    parser.add_argument("--ticks", type=int, default=1000, help="of the schedules, in a run of limits; about")
    parser.add_argument("--faults", type=int, help="default: 50, or 10 for a failover scenario")
    parser.add_argument(
        "--minutes", type=float, help="duration of the faults; default: 0.8 s for each, or 6 s in a failover scenario"
    )
    parser.add_argument(
        "--kinds", help=f"kinds of jobs, of {','.join(KINDS)}; in a run of limits of {','.join(LIMITED_KINDS)}"
    )
    parser.add_argument("--fault-kinds", help=f"kinds of faults, of {','.join(FAULTS)}")
    parser.add_argument("--fsync", choices=("always", "everysec"), default="always", help="of the server")
    parser.add_argument(
        "--durability", choices=("replicas", "fsync"), help="`durability` of the apps: no accepted job may be lost"
    )
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--processes", type=int, default=2, help="child processes of each worker")
    parser.add_argument("--lease", type=float, default=2.0)
    parser.add_argument("--heavy", type=float, default=1.0, help="share of the jobs that cost a process, 0 to 1")
    parser.add_argument(
        "--timeout", type=float, default=120.0, help="seconds without progress after which jobs are stuck"
    )
    parser.add_argument("--out", type=Path, help="append one JSON line of figures to this file")
    parser.add_argument("--keep", type=Path, help="keep history and outputs here")
    parser.add_argument("--check", type=Path, metavar="FOLDER", help="only check a history that --keep has kept")
    args = parser.parse_args(arguments)
    args.limits = args.scenario == "limits"
    args.storage = args.storage if args.limits or args.scenario is None else args.scenario
    args.failover = args.storage in ("sentinel", "cluster")
    if args.durability and (args.storage, args.durability) not in CONFIRMABLE:
        known = ", ".join(f"{storage} with {durability}" for storage, durability in CONFIRMABLE)
        parser.error(f"--durability is confirmed only by {known}")
    args.faults = args.faults if args.faults is not None else 10 if args.failover else 50
    known_kinds = LIMITED_KINDS if args.limits else KINDS
    args.kinds = names(parser, "--kinds", args.kinds or ",".join(known_kinds), known_kinds)
    args.fault_kinds = None if args.fault_kinds is None else names(parser, "--fault-kinds", args.fault_kinds, FAULTS)
    return args


def names(parser: argparse.ArgumentParser, option: str, given: str, known: Any) -> list[str]:
    chosen = [name for name in given.split(",") if name]
    if unknown := [name for name in chosen if name not in known]:
        parser.error(f"{option}: unknown: {', '.join(unknown)}")
    return chosen


def one_round(args: argparse.Namespace, seed: int) -> int:
    seconds = args.minutes * 60 if args.minutes else max(5.0, args.faults * (6.0 if args.failover else 0.8))
    folder = Path(tempfile.mkdtemp(prefix="penstock-chaos-"))
    schedules = max(12, round(args.ticks * MORE_SCHEDULES / seconds)) if args.limits else 0
    given = {**vars(args), "seed": seed, "seconds": seconds, "schedules": schedules}
    settings = Settings(**given)
    storage: StorageUnderTest | None = None
    began = time.monotonic()
    try:
        storage = storage_for(args.storage, folder, args.fsync)
        about: dict[str, Any] = {"storage": storage.describe(), "seed": seed, "asked_jobs": args.jobs}
        about |= {"lease": args.lease, "durability": args.durability}
        asyncio.run(ChaosRun(settings, storage, folder).execute())
        about["seconds"] = round(time.monotonic() - began, 1)
        return check_folder(folder / "history", about, args.out)
    finally:
        if storage is not None:
            storage.remove()
        if args.keep is not None:
            shutil.copytree(folder, args.keep / f"{args.storage}-{seed}", dirs_exist_ok=True)
        shutil.rmtree(folder, ignore_errors=True)


def check_folder(folder: Path, about: dict[str, Any], out: Path | None) -> int:
    """Check a history and print the report; return 1 if a promise was broken."""
    records = read_all(folder)
    history = History(records)
    found = check_history(history)
    line = summary(history, records, found, about)
    print(table(line), flush=True)
    for violation in found[:MAX_EXPLAINED]:
        print(f"\n{explain(violation, records)}\n  repeat the run with --seed {about['seed']}", flush=True)
    if len(found) > MAX_EXPLAINED:
        print(f"\n… and {len(found) - MAX_EXPLAINED} more")
    if out is not None:
        with out.open("a") as file:
            file.write(json.dumps(line) + "\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
