"""The actions of a producer that are no enqueues: changes of limits and schedules, and reservations.

What they do is recorded where the storage is called. A change that fails is not repeated, but a pause is always
followed by a resume.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

from chaos.limited_queues import FAMILY
from chaos.plan import Action
from penstock import EVERY, Every, Limit, Penstock, PenstockError, Queue, StorageError

__all__ = ["change_limit", "change_schedule", "take_jobs"]

#: Seconds between two tries of a resume.
RETRY_DELAY = 0.2


async def change_limit(app: Penstock, action: Action) -> None:
    """Set or reset the limit of the family, of a queue, of every group or of one group."""
    of, given = action.change["of"], action.change.get("limit")
    try:
        if of == "family":
            await (app.reset_limit(FAMILY) if given is None else app.set_limit(FAMILY, Limit(**given)))
            return
        queue = app.queue(action.queue)
        group = None if of == "queue" else EVERY if of == "every" else of
        await (queue.reset_limit(group) if given is None else queue.set_limit(Limit(**given), group=group))
    except StorageError:
        return


async def change_schedule(queue: Queue, action: Action) -> None:
    """Carry out a change of a schedule; one that does not fit its state is refused, and nothing happens."""
    try:
        await _change_schedule(queue, action)
    except (PenstockError, ValueError):  # there is no such schedule, or it is declared in code, or it is not
        return


async def _change_schedule(queue: Queue, action: Action) -> None:
    change: dict[str, Any] = action.change
    schedules, name, options = queue.schedules, change["name"], change["options"]
    period = change.get("period")
    match change["do"]:
        case "put":
            await schedules.put(name, Every(period), **options)
        case "edit":
            await schedules.edit(name, **options, **({} if period is None else {"when": Every(period)}))
        case "pause":
            await schedules.pause(name, note="chaos")
            await asyncio.sleep(action.pause)
            await _resume(queue, name, change["catch_up"])
        case "trigger":
            await schedules.trigger(name)
        case "backfill":
            now = time.time()
            await schedules.backfill(name, now - 12, now - 2)
        case "reset":
            await schedules.reset(name)
        case _:
            await schedules.remove(name)


async def _resume(queue: Queue, name: str, catch_up: bool) -> None:
    while True:
        try:
            await queue.schedules.resume(name, catch_up=catch_up)
            return
        except StorageError:
            await asyncio.sleep(RETRY_DELAY)


async def take_jobs(queue: Queue, action: Action) -> None:
    """Reserve jobs, hold them for a while, and complete them."""
    try:
        taken = await queue.reserve(limit=action.change["most"], lease=2.0)
        await asyncio.sleep(action.pause)
        for job in taken:
            await job.complete({"n": job.payload["n"], "tok": job.fence})
    except PenstockError:  # the leases expire
        return
