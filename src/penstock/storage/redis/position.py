"""Positions of jobs: why they are not running, read from the answers of `why.lua` and `holders.lua`."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from penstock.model.ids import FAIL_SUFFIX, family_of
from penstock.model.limit import Rule
from penstock.model.pause import Pause
from penstock.model.why import MAX_AHEAD, MAX_HOLDERS, GatePosition, Holder, JobPosition
from penstock.storage.redis.connection import Connection
from penstock.storage.redis.encoding import read_snapshot, text
from penstock.storage.redis.keys import Keys
from penstock.storage.redis.limits import read_pause
from penstock.storage.redis.script_calls import ScriptCalls

__all__ = ["Explainer"]


class Explainer:
    """Reads the positions of jobs, and the runs that hold a limit which one of them has reached."""

    def __init__(self, connection: Connection, keys: Keys, calls: ScriptCalls) -> None:
        self._connection = connection
        self._keys = keys
        self._calls = calls

    async def why(self, queue: str, id: str) -> JobPosition | None:
        """Return the position of a job."""
        after = b""
        while (answer := await self._calls.run("why", queue, id, MAX_AHEAD, after))[0]:
            after = answer[1]  # more jobs have fallen due than one call promotes, or there are more runs than it reads
        _, now, paused, job, first = answer
        pause, format = read_pause(paused), self._calls.format
        head = first and read_position(queue, int(now), pause, first, None, format)
        position = job and read_position(queue, int(now), pause, job, head or None, format)
        return await self._with_holders(queue, position) if position else None

    async def _with_holders(self, queue: str, position: JobPosition) -> JobPosition:
        if position.head is not None:
            position = replace(position, head=await self._with_holders(queue, position.head))
        gate = position.gate
        if gate is None or gate.reason != "limit":
            return position
        queues = await self._queues_of(gate.name) if gate.kind == "family" else [queue]
        held: list[Holder] = []
        for name in queues:
            rows = await self._calls.run("holders", name, gate.group or "", MAX_HOLDERS)
            held += [Holder(text(id), text(claim[6:]), int(since), name) for id, claim, since in rows]
        held.sort(key=lambda holder: (holder.since, holder.queue, holder.id))
        return replace(position, gate=replace(gate, holders=tuple(held[:MAX_HOLDERS])))

    async def _queues_of(self, family: str) -> list[str]:
        found = await self._connection.command("SMEMBERS", self._keys.names(family))
        names = sorted(text(name) for name in found)
        return [name for name in names if family_of(name) == family and not name.endswith(FAIL_SUFFIX)]


def read_position(
    queue: str, now: int, pause: Pause | None, job: Any, head: JobPosition | None, format: int
) -> JobPosition | None:
    """Read the position of a job from an answer of `why.lua`; None if the job's retention is over."""
    id, record, run, worker, end, state, lease, successor, ahead, group_pause, gate, *part = job
    found = read_snapshot(queue, text(id), now, record, run, worker, end, state, *part, format=format)
    if found is None:
        return None
    return JobPosition(
        id=found.id, state=found.state, at=now, run_at=found.run_at, worker=found.worker, group=found.group,
        lease=None if lease is None else int(float(lease)), finished=found.finished, successor=bool(successor),
        pause=pause, group_pause=read_pause(group_pause), gate=_read_gate(queue, found.group, gate) if gate else None,
        format=found.format, known=None if found.format is None else format,
        ahead=None if head else ahead, head=head, flow=found.flow,
    )  # fmt: skip


def _read_gate(queue: str, group: str | None, gate: Any) -> GatePosition:
    kind, rule, full, used, opens = gate
    scope: dict[str, Any] = {"kind": kind.decode(), "name": queue, "rule": Rule.unpack(rule)}
    if kind == b"family":
        scope["name"] = family_of(queue)
    elif kind == b"group":
        scope["group"] = group
    if full:
        return GatePosition(reason="limit", used=used, **scope)
    return GatePosition(reason="rate", until=int(opens), **scope)
