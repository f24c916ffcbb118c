"""Changes of one waiting job in place: another payload, another time."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any, cast

from penstock.client.answers import status_of
from penstock.dashboard.context import BadRequest, NotThere, PageContext
from penstock.dashboard.redact import HIDDEN
from penstock.errors import InvalidPayload
from penstock.model.job import WAITING, NewJob, Snapshot, State, Update
from penstock.model.serde import decode, encode
from penstock.storage.base import PutStatus

__all__ = ["change_job", "checked_payload", "parse_moment", "parse_payload", "with_hidden"]

#: An update of payload and time, and one of the payload alone.
REPLACE = Update(payload=True, run_at=True, reset_counts=False, priority=False, group=False)
REPLACE_PAYLOAD = Update(payload=True, run_at=False, reset_counts=False, priority=False, group=False)


async def waiting_job(context: PageContext, queue: str, id: str) -> Snapshot:
    """Return a job that waits; raises `NotThere` or `BadRequest` for any other."""
    [snapshot] = await (await context.storage()).get(queue, [id])
    if snapshot is None:
        raise NotThere(f"There is no job {id!r} in queue {queue!r}.")
    if snapshot.state not in WAITING or snapshot.format is not None:
        raise BadRequest(f"The job is {snapshot.state}: only a job that waits can be changed.")
    return snapshot


async def change_job(context: PageContext, queue: str, id: str, payload: bytes, run_at: int | None = None) -> None:
    """Give a waiting job another payload, and another due time (ms) if there is one.

    A job that begins between the read and the change would get a successor, and one that has ended would be put anew:
    both are taken back.
    """
    snapshot, storage = await waiting_job(context, queue, id), await context.storage()
    update = REPLACE_PAYLOAD if run_at is None else REPLACE
    job = NewJob(
        queue=queue, id=id, payload=payload, update=update, run_at=run_at, headers=snapshot.headers, cost=snapshot.cost,
    )  # fmt: skip
    [put] = await storage.put([job])
    if put.status is PutStatus.UPDATED:
        return
    if put.status in (PutStatus.BLOCKED, PutStatus.QUEUED, PutStatus.SCHEDULED):
        await storage.discard(queue, [id], State(put.status.value))
    what = "runs" if put.status is PutStatus.BLOCKED else "has ended"
    raise BadRequest(f"The job {what} by now, so it was not changed.")


def parse_payload(text: str) -> Any:
    """Return the value of a payload that is written as JSON; raises `BadRequest` with the place of a mistake."""
    try:
        return json.loads(text)
    except ValueError as error:
        raise BadRequest(f"The payload is no JSON: {error}") from None
    except RecursionError:
        raise BadRequest("The payload is nested too deeply.") from None


def checked_payload(context: PageContext, queue: str, id: str, value: Any) -> bytes:
    """Return the bytes of a payload that the handler's annotation accepts; raises `BadRequest` for any other."""
    codec = context.app.codec(queue)
    serde = codec.payload_for(id)
    try:
        data = encode(serde, value, "payload")
        decode(serde, data, context.app.payload_type(queue))
    except InvalidPayload as error:
        raise BadRequest(context.text(f"The handler would not accept this: {error}")) from None
    return data


async def with_hidden(context: PageContext, queue: str, id: str, value: Any) -> Any:
    """Return a value in which hidden values that were left as they are have those of the job again."""
    if not id:
        return value
    [snapshot] = await (await context.storage()).get(queue, [id])
    if snapshot is None:
        raise NotThere(f"There is no job {id!r} in queue {queue!r}.")
    return restored(value, status_of(snapshot, context.app.codec(queue)).payload)


def restored(value: Any, old: Any) -> Any:
    """Return a value with the old ones in place of hidden ones, found by their keys and indexes."""
    if isinstance(value, str):
        return old if value == HIDDEN else value
    if isinstance(value, dict) and isinstance(old, dict):
        new, before = cast("dict[str, Any]", value), cast("dict[str, Any]", old)
        return {key: restored(item, before[key]) if key in before else item for key, item in new.items()}
    if isinstance(value, list) and isinstance(old, list):
        items, known = cast("list[Any]", value), cast("list[Any]", old)
        padded = [*known, *[None] * max(0, len(items) - len(known))]
        return [restored(item, each) for item, each in zip(items, padded, strict=False)]
    return cast("Any", value)


def parse_moment(text: str) -> int | None:
    """Return a time (ms) that a form gives in UTC, None for an empty one; raises `BadRequest` for any other text."""
    if not text.strip():
        return None
    try:
        moment = datetime.fromisoformat(text.strip().replace("Z", "+00:00"))
    except ValueError:
        raise BadRequest(f"{text!r} is no time; write it like 2026-11-17T12:00 (UTC).") from None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    try:
        return int(moment.timestamp() * 1000)
    except (OverflowError, ValueError):
        raise BadRequest(f"{text!r} is too far away.") from None
