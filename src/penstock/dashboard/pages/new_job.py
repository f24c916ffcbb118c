"""The page New job: a form for the payload and options of a job, with the schema of its handler."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import msgspec

from penstock.client.answers import status_of
from penstock.dashboard.context import NotThere, PageContext
from penstock.dashboard.values import show

__all__ = ["NewJobPage", "schema_of", "view"]


class NewJobPage(msgspec.Struct, frozen=True, kw_only=True):
    """View model of the form. `copy_of` is the job whose payload it begins with; `edit` changes that job in place."""

    at: datetime
    queue: str
    queues: list[str]
    handler: str
    schema: str
    payload: str
    group: str
    priority: int
    run_at: str
    copy_of: str
    edit: bool
    note: str
    problem: str = ""


async def view(context: PageContext) -> NewJobPage:
    """Return the view model; with `id` the form begins with the payload of that job, without its secrets."""
    queue, id = context.param("queue"), context.param("id")
    reading = await context.reading()
    handler = context.app.handlers.get(queue)
    page = NewJobPage(
        at=reading.overview.at,
        queue=queue,
        queues=sorted({*(each.name for each in reading.overview.queues), *context.app.handlers}),
        handler="" if handler is None else handler.name,
        schema=schema_of(context.app.payload_type(queue)) if handler is not None else "",
        payload="{}",
        group="",
        priority=0,
        run_at="",
        copy_of=id,
        edit=bool(id) and context.param("edit") == "1",
        note="",
    )
    return await copied(context, page) if id else page


async def copied(context: PageContext, page: NewJobPage) -> NewJobPage:
    """Return the form with the payload of a job; a hidden value that is left as it is stays the same."""
    queue, id = context.needed("queue"), context.needed("id")
    [snapshot] = await (await context.storage()).get(queue, [id])
    if snapshot is None:
        raise NotThere(f"There is no job {id!r} in queue {queue!r}.")
    codec = context.app.codec(queue)
    status = status_of(snapshot, codec)
    shown = show(status.payload, codec.payload_for(id), context.redactor, admin=context.admin)
    note = shown.note
    if "•••" in shown.text:
        note = "Hidden values (•••) that you leave as they are stay the same."
    return msgspec.structs.replace(
        page, payload="" if shown.cut else shown.text, group=status.group or "", priority=status.priority, note=note
    )


def schema_of(annotation: Any) -> str:
    """Return the JSON schema of a handler's payload; empty if there is none."""
    if annotation is Any:
        return ""
    try:
        pydantic_schema = getattr(annotation, "model_json_schema", None)
        schema = pydantic_schema() if pydantic_schema is not None else msgspec.json.schema(annotation)
    except Exception:  # an annotation of the user for which there is no schema
        return ""
    return json.dumps(schema, indent=2, ensure_ascii=False)
