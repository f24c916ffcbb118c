"""Import of hostile lines, with a worker afterwards: a good job beside them must complete."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from penstock import Penstock
from penstock.ops.export import import_jobs
from penstock.storage.base import Complete, Request, Settlement
from penstock.testing import Clock

__all__ = ["EDGES", "import_and_drain", "imports", "job_of"]

#: Integers around every size of a field.
EDGES = sorted(
    {sign * (1 << bits) + more for bits in (0, 15, 16, 31, 32, 53, 63, 64) for sign in (1, -1) for more in (-1, 0, 1)}
)

STATES = ("queued", "scheduled", "retrying", "completed", "failed", "cancelled", "running", "blocked", "x")
TIMES = (
    "2026-01-01T00:00:00Z",
    "1970-01-01T00:00:00Z",
    "9999-12-31T23:59:59Z",
    "0001-01-01T00:00:00Z",
    "2026-01-01",
    "",
)
TEXTS = ("a", "", "g", "x" * 600, "\x00", "\ud800", "\u00e9", "v" * 40_000)
INTEGER_FIELDS = ("priority", "attempts", "retries", "stalls", "timeouts")
TIME_FIELDS = ("created_at", "run_at", "finished_at", "expires_at", "start_by")
TEXT_FIELDS = ("id", "payload", "group", "worker", "result")


async def import_and_drain(lines: list[bytes]) -> None:
    """Import lines next to a good job, let every lease expire once, and drain; raises unless the good job completes."""
    clock = Clock()
    async with Penstock("memory:", clock=clock) as app:
        storage, queue = await app.opened(), app.queue("q")
        await queue.enqueue(0, id="good")
        try:
            async for _ in import_jobs(app, lines):
                pass
        except ValueError as error:
            if not str(error).startswith("line "):
                raise
        await storage.claim([Request("q", 100)], "lost", 1000, "lost")
        clock.advance(3600)
        await storage.reap(["q"])
        for number in range(5):
            claims = (await storage.claim([Request("q", 100)], "w", 1000, f"t{number}")).claims
            await storage.settle([Settlement("q", c.id, c.token, Complete(b"null", None)) for c in claims])
        status = await queue.status("good")
        assert status is not None
        assert status.state == "completed", status
        await queue.find()
        await storage.purge(["q"])


def job_of(data: bytes) -> dict[str, Any]:
    """Return the fields of an exported job, each chosen by two bytes: which field, and which value."""
    job: dict[str, Any] = {"queue": "q", "id": "a", "state": "queued", "created_at": TIMES[0], "run_at": TIMES[0]}
    for which, value in zip(data[::2], data[1::2], strict=False):
        fields = (*INTEGER_FIELDS, *TIME_FIELDS, *TEXT_FIELDS, "state", "headers", "bounds", "error")
        field = fields[which % len(fields)]
        if field in INTEGER_FIELDS:
            job[field] = EDGES[value % len(EDGES)]
        elif field in TIME_FIELDS:
            job[field] = TIMES[value % len(TIMES)]
        elif field in TEXT_FIELDS:
            job[field] = TEXTS[value % len(TEXTS)]
        elif field == "state":
            job[field] = STATES[value % len(STATES)]
        elif field == "headers":
            job[field] = {TEXTS[value % len(TEXTS)]: TEXTS[value % 5]}
        elif field == "bounds":
            job[field] = {("max_retries", "timeout", "max_stalls")[value % 3]: EDGES[value % len(EDGES)]}
        else:
            job[field] = {"type": TEXTS[value % 5], "message": TEXTS[value % len(TEXTS)]}
    return job


def imports(data: bytes) -> None:
    """Import a job whose fields the bytes choose, and a line of the bytes themselves."""
    lines = [b'{"penstock_export": 1}', json.dumps(job_of(data)).encode()]
    asyncio.run(import_and_drain(lines))
    asyncio.run(import_and_drain([lines[0], data.replace(b"\n", b" ")]))
