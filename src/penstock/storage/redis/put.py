"""Jobs to the server: the calls of `put.lua`. What several callers put at once is gathered before, in `puts.py`."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

from msgspec.structs import replace

from penstock.model.clock import Clock
from penstock.model.durability import DurabilityReport
from penstock.model.ids import new_token
from penstock.model.job import NewJob, State
from penstock.storage.base import Put, PutStatus
from penstock.storage.redis.cluster_families import Families
from penstock.storage.redis.confirm import Confirming
from penstock.storage.redis.connection import Connection
from penstock.storage.redis.encoding import spell_jobs
from penstock.storage.redis.keys import Keys
from penstock.storage.redis.pipeline import pack_command

__all__ = ["Numbers", "Putting"]

_QUEUED = Put(PutStatus.QUEUED, State.QUEUED)
#: The usual answer: the queue is not new, and all jobs are queued.
_USUAL = [0, 1]
#: So many callers, and beginnings of calls, are kept in mind.
_KNOWN = 1000


class Numbers:
    """Numbers the calls with made-up ids, so that the server makes each once, however often it arrives."""

    def __init__(self) -> None:
        self._name = new_token()
        self._callers: dict[tuple[int, int], str] = {}
        self._numbers = itertools.count(1)

    def next(self) -> tuple[str, int]:
        """Who calls, and the number of the call: a caller's calls to a queue come one after the other."""
        where = os.getpid(), threading.get_ident()
        caller = self._callers.get(where)
        if caller is None:
            if len(self._callers) >= _KNOWN:  # threads come and go
                self._callers.clear()
            caller = self._callers[where] = f"{self._name}{where[0]:x}-{where[1]:x}"
        return caller, next(self._numbers)


class Putting:
    """The part of the Redis storage that makes the calls of a put."""

    format: int
    _clock: Clock | None
    _connection: Connection
    _keys: Keys
    _families: Families
    _confirming: Confirming | None

    def __init__(self) -> None:
        self._numbers = Numbers(), Numbers()  # one for each way of `Puts`
        self._heads: dict[tuple[str, str, int], tuple[bytes, bytes]] = {}

    def _call(self, name: str, queue: str, args: Iterable[Any]) -> tuple[Any, list[str], Any]:
        raise NotImplementedError

    async def _put_now(self, queue: str, jobs: Sequence[NewJob], *, fresh: bool, way: int = 0) -> list[Put]:
        """Store the jobs of one queue; a call with made-up ids is numbered, so that it can be sent again."""
        if not fresh:
            return await self._put_long(queue, jobs, ("", 0, 0, *spell_jobs(jobs, fresh=False)), repeat=False)
        caller, number = self._numbers[way].next()
        spelled = spell_jobs(jobs, fresh=True)
        if len(jobs) == 1 and spelled[0] == "fresh" and self._short:
            answer = await self._connection.quick(self._spell_plain(queue, caller, number, *spelled[1:]))
            if answer == _USUAL:
                return [_QUEUED]
            if answer is not None:
                return _read_puts(answer[1], 1, _QUEUED)
        return await self._put_long(queue, jobs, (caller, number, self._connection.memory, *spelled), repeat=True)

    async def _put_long(self, queue: str, jobs: Sequence[NewJob], args: tuple[Any, ...], *, repeat: bool) -> list[Put]:
        call, queued = self._call("put", queue, args), _QUEUED
        if self._keys.cluster:
            call[1].append(self._keys.puts(queue, args[0]))
            await self._families.add(queue)
        if self._confirming is None:
            created, answers = await self._connection.run(*call, repeat=repeat)
        else:
            mark = self._keys.confirmed(queue)
            (created, answers), reached = await self._confirming.run(*call, mark, repeat=repeat)
            queued = replace(_QUEUED, durability=reached)
        if created:
            await self._families.add(queue, created=True)
        return _read_puts(answers, len(jobs), queued)

    @cached_property
    def _short(self) -> bool:
        """Whether the call of a plain job is nothing but a script call on the usual connection."""
        return self._confirming is None and self._clock is None and not self._keys.cluster

    def _spell_plain(self, queue: str, caller: str, number: int, waiter: str, id: str, payload: bytes) -> bytes:
        """The call of a plain job as the server reads it: what is the same in the next one was spelled before."""
        before, between = self._heads.get((queue, caller, self.format)) or self._spell_head(queue, caller)
        digits, channel, id_ = b"%d" % number, waiter.encode(), id.encode()
        return b"%b$%d\r\n%b\r\n%b$%d\r\n%b\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n" % (
            before, len(digits), digits, between, len(channel), channel, len(id_), id_, len(payload), payload,
        )  # fmt: skip

    def _spell_head(self, queue: str, caller: str) -> tuple[bytes, bytes]:
        """What stands before the number of the call, and between it and the waiter."""
        script, keys, args = self._call("put", queue, (caller,))
        first = ("EVALSHA", script.sha, len(keys), *keys, *args)
        then = (self._connection.memory, "fresh")
        count = len(first) + 1 + len(then) + 3
        head = b"*%d\r\n%b" % (count, _parts(first)), _parts(then)
        if len(self._heads) >= _KNOWN:
            self._heads.clear()
        self._heads[queue, caller, self.format] = head
        return head


def _parts(args: Sequence[Any]) -> bytes:
    """Arguments as they stand in a command, without the line that says how many there are."""
    return pack_command(*args).partition(b"\r\n")[2]


def _read_puts(answers: Any, count: int, queued: Put) -> list[Put]:
    """The answers for so many jobs; `queued` is that for one that is queued."""
    if answers == 1:
        return [queued] * count
    return [queued if answer == 1 else _read_put(answer, queued.durability) for answer in answers]


def _read_put(answer: Any, reached: DurabilityReport | None) -> Put:
    status, state = PutStatus(answer[0].decode()), State(answer[1].decode())
    return Put(status, state, answer[2] if len(answer) > 2 else None, reached)
