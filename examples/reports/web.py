"""The web app: takes orders for reports, and shows their progress."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated

from fastapi import FastAPI, Header, HTTPException, Response
from fastapi.responses import FileResponse, StreamingResponse
from pydantic import BaseModel

from jobs import Order, Report, app
from penstock import JobStatus, State

FINISHED = {State.COMPLETED, State.FAILED, State.CANCELLED}

reports = app.queue("reports")


@asynccontextmanager
async def lifespan(web: FastAPI) -> AsyncGenerator[None]:
    async with app:  # one connection for the life of the web app
        print(f"open http://127.0.0.1:{os.environ.get('PORT', '8000')}")
        yield


web = FastAPI(lifespan=lifespan)


class View(BaseModel):
    """The part of a job that clients see."""

    id: str
    state: State
    fraction: float = 0.0
    message: str = ""
    attempts: int = 0
    report: Report | None = None
    error: str | None = None


def view(job: JobStatus) -> View:
    shown = View(id=job.id, state=job.state, attempts=job.attempts)
    if job.progress is not None:
        shown.fraction, shown.message = job.progress.fraction, job.progress.message
    if job.state is State.COMPLETED:
        shown.fraction, shown.report = 1.0, Report.model_validate(job.result)
    if job.error is not None:
        shown.error = job.error.message
    return shown


async def find(id: str) -> JobStatus:
    job = await reports.status(id)
    if job is None:
        raise HTTPException(404, "there is no such report, or it is not kept any more")
    return job


@web.post("/reports", status_code=202)
async def order(order: Order, response: Response, idempotency_key: Annotated[str | None, Header()] = None) -> View:
    """Enqueue a report; the same `Idempotency-Key` again gives the same one."""
    enqueued = await reports.enqueue(order, id=idempotency_key)
    job = await find(enqueued.id)
    if job.payload != order.model_dump(mode="json"):
        raise HTTPException(409, "this Idempotency-Key was used for another order")
    response.headers["Location"] = f"/reports/{job.id}"
    return view(job)


@web.get("/reports/{id}")
async def look(id: str) -> View:
    return view(await find(id))


@web.get("/reports/{id}/events")
async def follow(id: str) -> StreamingResponse:
    """Send the view as server-sent events: one for each change, until the job has ended."""
    await find(id)

    async def changes() -> AsyncIterator[str]:
        last = None
        while last is None or last.state not in FINISHED:
            if (now := view(await find(id))) != last:
                yield f"data: {now.model_dump_json()}\n\n"
            last = now
            await asyncio.sleep(0.2)

    return StreamingResponse(changes(), media_type="text/event-stream", headers={"Cache-Control": "no-cache"})


@web.delete("/reports/{id}")
async def cancel(id: str) -> View:
    """Cancel a report, running or not."""
    await find(id)
    await reports.cancel(id, running="kill")
    return view(await find(id))


@web.get("/")
async def page() -> FileResponse:
    return FileResponse(Path(__file__).with_name("page.html"))
