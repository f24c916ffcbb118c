"""Tasks of a module, run by `penstock worker` in processes of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import penstock

MODULE = """
from dataclasses import dataclass
from penstock import Job, Penstock

app = Penstock("sqlite:jobs.db")

@dataclass
class Total:
    value: int
    attempt: int

@app.task
async def add(a: int, b: int = 1, job: Job | None = None) -> Total:
    return Total(a + b, job.attempt)

@app.task(queue="products")
def multiply(a: int, /, *more: int) -> int:
    for each in more:
        a *= each
    return a
"""

ENQUEUE = """
import asyncio
from shop import add, app, multiply

async def main():
    async with app:
        await add.options(id="a").enqueue(1, b=2)
        await multiply.options(id="m").enqueue(2, 3, 4)

asyncio.run(main())
"""

SHOW = """
import asyncio
from shop import add, app, multiply

async def main():
    async with app:
        print(await add.result("a"), await multiply.result("m"))

asyncio.run(main())
"""


def python(directory: Path, *arguments: str) -> str:
    source = str(Path(penstock.__file__).parent.parent)
    env = {**os.environ, "PYTHONPATH": source}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=directory, env=env, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_tasks_of_a_module_are_run_by_a_worker(tmp_path: Path) -> None:
    """One process enqueues, `penstock worker` runs, a third reads typed results."""
    (tmp_path / "shop.py").write_text(MODULE)
    python(tmp_path, "-c", ENQUEUE)
    python(tmp_path, "-m", "penstock", "worker", "shop:app", "--drain")
    python(tmp_path, "-m", "penstock", "worker", "shop:app", "--drain", "--processes", "1")
    assert python(tmp_path, "-c", SHOW) == "Total(value=3, attempt=1) 24\n"
