"""A run under fire, and the check of its history.

python -m chaos --storage redis|sqlite|valkey --seed N --jobs N --faults N
python -m chaos sentinel|cluster              servers that stand in for each other
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

from chaos.checker import explain, violations
from chaos.history import History
from chaos.log import read_all
from chaos.places import Place
from chaos.plan import KINDS
from chaos.report import summary, table
from chaos.run import Run
from chaos.scenarios import FAULTS, place_for
from chaos.stage import Settings

#: So many violations are explained; the rest is counted.
EXPLAINED = 10


#: Which servers of the run can confirm what: one without replicas cannot, and WAITAOF is newer than the Redis here.
CONFIRMING = (("sentinel", "replicas"), ("cluster", "replicas"), ("valkey", "fsync"), ("sqlite", "fsync"))


def main(arguments: list[str] | None = None) -> int:
    args = parse(arguments)
    logging.getLogger("asyncio").setLevel(logging.ERROR)  # the proxies cut connections in the middle of a word
    if args.check is not None:
        return judge(args.check, {"storage": "", "seed": "", "seconds": 0.0}, None)
    worst = 0
    for seed in range(args.seed, args.seed + args.rounds):
        worst = max(worst, one_round(args, seed))
    return worst


def parse(arguments: list[str] | None) -> argparse.Namespace:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="python -m chaos", description=__doc__, formatter_class=raw)
    parser.add_argument("scenario", nargs="?", choices=("sentinel", "cluster"), help="failover instead of --storage")
    parser.add_argument("--storage", choices=("redis", "valkey", "sqlite"), default="sqlite")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=1, help="runs with the following seeds, too")
    parser.add_argument("--jobs", type=int, default=2000)
    parser.add_argument("--faults", type=int, help="default: 50, or 10 for a failover scenario")
    parser.add_argument("--minutes", type=float, help="how long the faults take; by default 0.8 or 6 s each")
    parser.add_argument("--kinds", default=",".join(KINDS), help=f"kinds of jobs, of {','.join(KINDS)}")
    parser.add_argument("--fault-kinds", help=f"kinds of faults, of {','.join(FAULTS)}")
    parser.add_argument("--fsync", choices=("always", "everysec"), default="always", help="of the server")
    parser.add_argument("--durability", choices=("replicas", "fsync"), help="asked of the storage: nothing may be lost")
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--processes", type=int, default=2, help="child processes of each worker")
    parser.add_argument("--lease", type=float, default=2.0)
    parser.add_argument("--heavy", type=float, default=1.0, help="how many of the jobs that cost a process, 0 to 1")
    parser.add_argument("--patience", type=float, default=120.0, help="seconds without progress after the last fault")
    parser.add_argument("--out", type=Path, help="append one JSON line of figures to this file")
    parser.add_argument("--keep", type=Path, help="keep history and outputs here")
    parser.add_argument("--check", type=Path, metavar="FOLDER", help="only check a history that was kept")
    args = parser.parse_args(arguments)
    args.storage = args.scenario or args.storage
    if args.durability and (args.storage, args.durability) not in CONFIRMING:
        known = ", ".join(f"{storage} with {durability}" for storage, durability in CONFIRMING)
        parser.error(f"--durability: these confirm it: {known}")
    args.faults = args.faults if args.faults is not None else 10 if args.scenario else 50
    args.kinds = names(parser, "--kinds", args.kinds, KINDS)
    args.fault_kinds = None if args.fault_kinds is None else names(parser, "--fault-kinds", args.fault_kinds, FAULTS)
    return args


def names(parser: argparse.ArgumentParser, option: str, given: str, known: Any) -> list[str]:
    chosen = [name for name in given.split(",") if name]
    if unknown := [name for name in chosen if name not in known]:
        parser.error(f"{option}: unknown {', '.join(unknown)}")
    return chosen


def one_round(args: argparse.Namespace, seed: int) -> int:
    seconds = args.minutes * 60 if args.minutes else max(5.0, args.faults * (6.0 if args.scenario else 0.8))
    folder = Path(tempfile.mkdtemp(prefix="penstock-chaos-"))
    given = {**vars(args), "seed": seed, "seconds": seconds}
    settings = Settings(**given)
    place: Place | None = None
    began = time.monotonic()
    try:
        place = place_for(args.storage, folder, args.fsync)
        about: dict[str, Any] = {"storage": place.describe(), "seed": seed, "asked_jobs": args.jobs}
        about |= {"lease": args.lease, "durability": args.durability}
        asyncio.run(Run(settings, place, folder).go())
        about["seconds"] = round(time.monotonic() - began, 1)
        return judge(folder / "history", about, args.out)
    finally:
        if place is not None:
            place.remove()
        if args.keep is not None:
            shutil.copytree(folder, args.keep / f"{args.storage}-{seed}", dirs_exist_ok=True)
        shutil.rmtree(folder, ignore_errors=True)


def judge(folder: Path, about: dict[str, Any], out: Path | None) -> int:
    """Check a history, print what came of it; 1 when something was violated."""
    records = read_all(folder)
    history = History(records)
    found = violations(history)
    line = summary(history, records, found, about)
    print(table(line), flush=True)
    for violation in found[:EXPLAINED]:
        print(f"\n{explain(violation, records)}\n  repeat it: --seed {about['seed']}", flush=True)
    if len(found) > EXPLAINED:
        print(f"\n… and {len(found) - EXPLAINED} more")
    if out is not None:
        with out.open("a") as file:
            file.write(json.dumps(line) + "\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
