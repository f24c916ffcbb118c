"""Tasks that carry out the bulk actions which this process started."""

from __future__ import annotations

import asyncio

from penstock.client.bulk import run_bulk
from penstock.dashboard.context import PageContext

__all__ = ["end_all", "start_task", "wait_all"]

#: The tasks of this process, so that they are not collected as garbage.
_running: set[asyncio.Task[None]] = set()


def start_task(context: PageContext, id: str) -> None:
    """Carry a stored action out in a task of this event loop."""
    task = asyncio.get_running_loop().create_task(run(context, id))
    _running.add(task)
    task.add_done_callback(_running.discard)


async def run(context: PageContext, id: str) -> None:
    """Carry a stored action out, and show its viewer the effect."""
    await run_bulk(context.app, id, context.redactor)
    await context.reader.refresh()


async def wait_all() -> None:
    """Wait for the end of the actions that this process carries out."""
    loop = asyncio.get_running_loop()
    await asyncio.gather(*[task for task in _running if task.get_loop() is loop])


async def end_all() -> None:
    """End the tasks of this process; the records of their actions stay, and read as stopped."""
    loop = asyncio.get_running_loop()
    tasks = [task for task in _running if task.get_loop() is loop]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
