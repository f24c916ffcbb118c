"""Limits and pauses on Redis: the rules of families, queues and groups, and the state of their gates."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from penstock.model.ids import FAIL_SUFFIX, family_of
from penstock.model.limit import Rule
from penstock.model.pause import Pause
from penstock.model.why import MAX_AHEAD
from penstock.storage.limiting import LimitPage, LimitRecord, Scope, ScopeKind
from penstock.storage.redis.cluster_families import ClusterFamilies
from penstock.storage.redis.connection import Connection
from penstock.storage.redis.encoding import text
from penstock.storage.redis.keys import Keys
from penstock.storage.redis.schema import Schema
from penstock.storage.redis.script_calls import ScriptCalls

__all__ = ["Limiter", "read_pause"]

#: The end of a pause without an end, as scripts write it.
_FOREVER = 2**48 - 1
_VERSION_SIZE = 6
#: The scopes whose settings are in the fields '' and g.
_OWN_KINDS: tuple[ScopeKind, ...] = ("queue", "groups")


class Limiter:
    """Sets and reads limits and pauses; see `penstock.storage.limiting.Limiting`."""

    def __init__(
        self, connection: Connection, keys: Keys, calls: ScriptCalls, families: ClusterFamilies, schema: Schema
    ) -> None:
        self._connection = connection
        self._keys = keys
        self._calls = calls
        self._families = families
        self._schema = schema

    # pauses ----------------------------------------------------------------------------------------

    async def set_pause(self, queue: str, paused: bool, until: int | None, by: str, group: str | None) -> bool:
        """Pause or resume a queue or one group of it; return whether that changed anything."""
        if paused:
            await self._prepare(queue)
        args = int(paused), -1 if until is None else until, by, group or ""
        return await self._change("set_pause", queue, *args) == 1

    async def paused(self, queue: str, group: str | None) -> Pause | None:
        """Return the pause of a queue or a group."""
        return read_pause(await self._calls.run("paused", queue, group or ""))

    async def _prepare(self, queue: str) -> None:
        """Make what the first write of a queue needs."""
        await self._schema.write(self._connection)
        await self._families.add(queue, created=True)

    async def _change(self, name: str, queue: str, *args: Any) -> Any:
        """Run a script until it has an answer: it may have to look at more gates than one call does."""
        while (answer := await self._calls.run_once(name, queue, *args)) is None:
            pass
        await self._families.add(queue, created=True)  # it may have been dropped from the list meanwhile
        return answer

    # limits ----------------------------------------------------------------------------------------

    async def set_limit(self, scope: Scope, rule: Rule | None, settings: bytes, version: int) -> int | None:
        """Set a limit if its version is this one."""
        if rule is not None or settings:
            await self._prepare(scope.name)
        fixed = scope.group or "", b"" if rule is None else rule.pack(), settings, version
        if scope.kind != "family":
            answer = await self._change("set_limit", scope.name, scope.kind, *fixed)
            return None if answer < 0 else int(answer)
        names = await self._queues_of(scope.name)
        answer = await self._change("set_limit", scope.name, "family", *fixed, *self._flat(names))
        # A queue that is put into from now on notes that its family has a limit; those made meanwhile are marked here.
        if rule is not None and (late := await self._queues_of(scope.name) - names):
            await self._change("set_limit", scope.name, "mark", "", b"", b"", 0, *self._flat(late))
        return None if answer < 0 else int(answer)

    async def _queues_of(self, family: str) -> set[str]:
        """Return the queues that the limit of a family is for: fail queues are not."""
        found = await self._connection.command("SMEMBERS", self._keys.names(family))
        names = {text(name) for name in found}
        return {name for name in names if family_of(name) == family and not name.endswith(FAIL_SUFFIX)}

    def _flat(self, names: Iterable[str]) -> list[str]:
        return [part for name in sorted(names) for part in (self._keys.prefix(name), name)]

    async def get_limit(self, scope: Scope) -> LimitRecord:
        """Return a limit and the state of its gate."""
        own = await self._read(scope)
        if scope.kind != "family":
            return own
        queues = [await self._read(Scope("queue", name)) for name in sorted(await self._queues_of(scope.name))]
        running, waiting = sum(each.running for each in queues), sum(each.waiting for each in queues)
        full = own.rule is not None and 0 < own.rule.concurrency <= running
        return LimitRecord(
            scope=scope, rule=own.rule, settings=own.settings, version=own.version, running=running, waiting=waiting,
            opens=None if full else own.opens,
        )  # fmt: skip

    async def _read(self, scope: Scope) -> LimitRecord:
        args = scope.kind, scope.group or "", MAX_AHEAD
        while (answer := await self._calls.run("get_limit", scope.name, *args))[0]:
            pass  # more jobs have fallen due than one call promotes
        _, rule, settings, running, waiting, opens, pause, closed = answer
        return LimitRecord(
            scope=scope,
            rule=None if rule is None else Rule.unpack(rule),
            settings=b"" if settings is None else settings[_VERSION_SIZE:],
            version=0 if settings is None else int.from_bytes(settings[:_VERSION_SIZE], "big"),
            running=running,
            waiting=waiting,
            opens=int(opens) or None,
            pause=read_pause(pause),
            closed=closed,
        )

    async def _outer_scopes(self, queue: str) -> list[Scope]:
        """Return the scopes of a queue that have a limit, those of single groups left out; most queues have none."""
        settings = f"{self._keys.prefix(queue)}settings"
        known = await self._connection.command("HMGET", settings, "", "g")
        scopes = [Scope(kind, queue) for kind, found in zip(_OWN_KINDS, known, strict=True) if found is not None]
        if not queue.endswith(FAIL_SUFFIX):
            family = family_of(queue)
            if await self._connection.command("HEXISTS", self._keys.family_limit(family), "settings"):
                scopes.insert(0, Scope("family", family))
        return scopes

    async def limits(self, queue: str, after: str | None, limit: int) -> LimitPage:
        """Return a page of the limits that hold for a queue.

        A cursor is the number of records before it if those of the family, the queue and every group have not all
        been given, else `g` and the last group, or `g` alone.
        """
        if after is not None and not (after.startswith("g") or _is_number(after)):
            raise ValueError(f"after must be a cursor that limits gave, not {after!r}")
        found: list[LimitRecord] = []
        if after is None or not after.startswith("g"):
            outer = [await self.get_limit(scope) for scope in await self._outer_scopes(queue)]
            start = int(after or 0)
            found = [record for record in outer if record.version][start:]
            if len(found) > limit:
                return LimitPage(found[:limit], str(start + limit))
            after = None
        key, last = f"{self._keys.prefix(queue)}ruled", (after or "g")[1:].encode()
        while len(found) <= limit:
            start = b"(" + last if last else b"-"
            names = await self._connection.command("ZRANGEBYLEX", key, start, "+", "LIMIT", 0, limit)
            if not names:
                return LimitPage(found)
            last = names[-1]
            sound = [name for name in names if text(name).encode() == name]  # Penstock writes no others
            groups = [await self._read(Scope("group", queue, text(name))) for name in sound]
            found += [record for record in groups if record.version or record.pause]
        page = found[:limit]
        return LimitPage(page, f"g{page[-1].scope.group or ''}" if page else after)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 10


def read_pause(answer: Any) -> Pause | None:
    """Read a pause from the answer of a script."""
    if not answer:
        return None
    since, ends, by = answer
    return Pause(int(since), None if int(ends) >= _FOREVER else int(ends), text(by))
