"""`python -m bench [cycle] [flat] [residue] [--engine sqlite|redis] [--full]`: JSON lines, then a table."""

from __future__ import annotations

import argparse
import asyncio
import fcntl
import tempfile
from pathlib import Path
from typing import Any

from bench import cycle, flat, residue
from bench.server import ENGINES

WORKLOADS = ("cycle", "flat", "residue")


def _table(lines: list[dict[str, Any]]) -> None:
    for line in lines:
        if line["workload"] == "cycle":
            print(
                f"{line['engine']:7} {line['kind']:11} put {line['put_per_s']:>8,}/s   work {line['work_per_s']:>8,}/s"
            )
        elif line["workload"] == "residue":
            print(f"{line['engine']:7} after {line['jobs']:,} jobs: {line['before']} before, {line['after']} after")
        else:
            print(
                f"{line['engine']:7} {line['kind']:11} {line['backlog']:>9,}  {line['us_per_job']:7.1f} us/job"
                f"   x{line['ratio']:.2f}   left behind {line['left_behind']}"
            )


async def _run(args: argparse.Namespace) -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = []
    for engine in args.engine or ENGINES:
        if "cycle" in args.workloads:
            lines += await cycle.run(engine, 50_000 if args.full else 10_000)
        if "flat" in args.workloads:
            lines += await flat.run(engine, *flat.sizes_for(args.full))
        if "residue" in args.workloads:
            lines += await residue.run(engine, 1_000_000 if args.full else 20_000)
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("workloads", nargs="*", metavar="workload", help="cycle, flat, residue (default: all)")
    parser.add_argument("--engine", action="append", choices=ENGINES, help="default: both")
    parser.add_argument("--full", action="store_true", help="up to a million jobs and 100 000 groups; takes minutes")
    args = parser.parse_args()
    args.workloads = args.workloads or list(WORKLOADS)
    if unknown := set(args.workloads) - set(WORKLOADS):
        parser.error(f"unknown workload {', '.join(sorted(unknown))}")
    with (Path(tempfile.gettempdir()) / "penstock-bench.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two benchmarks at once would measure each other
        lines = asyncio.run(_run(args))
    print()
    _table(lines)


if __name__ == "__main__":
    main()
