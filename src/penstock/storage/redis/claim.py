"""Claims: now, or left open behind a wait for work, so that the jobs come with the hint."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

from redis.exceptions import NoScriptError, RedisError, TimeoutError

from penstock.model.job import Claim
from penstock.storage.base import MAX_BATCH, Claimed, Fail, Request, Settlement
from penstock.storage.redis.connection import Connection, blpop
from penstock.storage.redis.encoding import CORRUPT, fence, read_claims, text
from penstock.storage.redis.keys import Keys
from penstock.storage.redis.pipeline import Wire, pack_command

__all__ = ["Claiming"]

#: How a job with a record that cannot be read is settled.
_CORRUPT = Fail(CORRUPT.encode(), 7 * 24 * 3600 * 1000)
#: The first rest (seconds) before a wait that has not begun yet is ended again, and for how long that is tried.
_AGAIN, _ENOUGH = 0.005, 1.0


class Claiming:
    """The claims of a storage; `call` spells a script call, `settle` records the ends of what cannot be read."""

    def __init__(
        self, connection: Connection, keys: Keys, call: Callable[[str, str, Iterable[Any]], Any],
        settle: Callable[[Sequence[Settlement]], Awaitable[object]], refused: Callable[[], None],
    ) -> None:  # fmt: skip
        self._connection = connection
        self._keys = keys
        self._call = call
        self._settle = settle
        #: Called when the server does not let us end a wait.
        self.refused = refused

    async def claim(self, requests: Sequence[Request], worker: str, lease: int, token: str) -> Claimed:
        """The jobs of these queues that are due, as many as are asked for."""
        return await self._finish(requests, worker, lease, token, {})

    def open_claim(
        self, queues: Sequence[str], requests: Sequence[Request], worker: str, lease: int, token: str, seconds: float
    ) -> _OpenClaim:
        """The same when one of the queues may have work, or when the seconds have passed."""
        lists = [self._keys.prefix(queue) + "wake" for queue in queues]
        calls = [self._spell(request, worker, lease, token) for request in requests]
        commands = [blpop(lists, seconds), *(("EVALSHA", s.sha, len(keys), *keys, *args) for s, keys, args in calls)]

        def read(answers: Sequence[Any]) -> Claimed | None:
            if any(isinstance(answer, Exception) or answer[0] == 1 for answer in answers):
                return None
            claimed, unread = self._read(requests, token, answers)
            return None if unread else claimed

        async def finish(answers: Sequence[Any]) -> Claimed:
            known = {i: a for i, a in enumerate(answers) if not isinstance(a, NoScriptError)}
            return await self._finish(requests, worker, lease, token, known)

        packed = [pack_command(*command) for command in commands]
        return _OpenClaim(self, self._connection, packed, seconds, read, finish)

    def _spell(self, request: Request, worker: str, lease: int, token: str) -> Any:
        args = (fence(token), worker, lease, min(request.limit, MAX_BATCH), request.batch)
        return self._call("claim", request.queue, args)

    async def _finish(
        self, requests: Sequence[Request], worker: str, lease: int, token: str, answers: dict[int, Any]
    ) -> Claimed:
        """Ask what is not answered yet, and again where more has to be made due first; then read it all."""
        while todo := [i for i in range(len(requests)) if i not in answers or answers[i][0] == 1]:
            calls = [self._spell(requests[i], worker, lease, token) for i in todo]
            answers.update(zip(todo, await self._connection.run_many(calls, repeat=False), strict=True))
        claimed, unread = self._read(requests, token, [answers[i] for i in range(len(requests))])
        if unread:
            await self._settle(unread)
        return claimed

    def _read(
        self, requests: Sequence[Request], token: str, answers: Sequence[Any]
    ) -> tuple[Claimed, list[Settlement]]:
        """What was claimed, and how to settle what cannot be read of it."""
        claims: list[Claim] = []
        corrupt: list[tuple[str, str]] = []
        skipped: list[tuple[str, str]] = []
        unread: list[Settlement] = []
        look_at: int | None = None
        for request, (_, look, ids, records, numbers, bad, missing) in zip(requests, answers, strict=True):
            if look:
                look_at = int(look) if look_at is None else min(look_at, int(look))
            corrupt += [(request.queue, text(id)) for id in bad]
            skipped += [(request.queue, text(id)) for id in missing]
            bad = read_claims(request.queue, token, ids, records, numbers, claims)
            for id in bad:
                unread.append(Settlement(request.queue, id, token, _CORRUPT))
                corrupt.append((request.queue, id))
        return Claimed(claims, look_at, corrupt, skipped), unread


class _OpenClaim:
    """A wait for work and the claims behind it, written together: the server answers all of them at once."""

    def __init__(
        self, claiming: Claiming, connection: Connection, commands: list[bytes], seconds: float,
        read: Callable[[Sequence[Any]], Claimed | None], finish: Callable[[Sequence[Any]], Awaitable[Claimed]],
    ) -> None:  # fmt: skip
        self._claiming = claiming
        self._connection = connection
        self._commands = commands
        self._seconds = seconds
        #: Reads answers that say it all, else gives None: then `finish` asks for the rest.
        self._read = read
        self._finish = finish
        self._wire: Wire | None = None
        self._answered = self._hurried = False
        self._hurrying: asyncio.Task[None] | None = None

    async def answer(self, hear: Callable[[bool, Claimed], object] = lambda hinted, claimed: None) -> None:
        """Wait for it. `hear` is told whether there was a hint, and what was claimed, as soon as that is here."""
        heard = False

        def at_once(answers: list[Any]) -> None:
            nonlocal heard
            hint, *rest = answers
            if not isinstance(hint, Exception) and (claimed := self._read(rest)) is not None:
                heard = True
                hear(hint is not None, claimed)

        try:
            hint, answers = await self._ask(at_once)
        except (RedisError, OSError) as error:
            raise self._connection.explain(error) from error
        finally:
            self._answered = True
            if self._hurrying is not None:
                self._hurrying.cancel()
        for answer in answers:
            if isinstance(answer, Exception) and not isinstance(answer, NoScriptError):
                raise self._connection.explain(answer) from answer
        if not heard:
            hear(hint is not None, await self._finish(answers))

    async def _ask(self, hear: Callable[[list[Any]], None]) -> tuple[Any, list[Any]]:
        wire, ended = await self._connection.take_wire(), False
        # A server that is gone without a word does not answer at all.
        guard = asyncio.get_running_loop().call_later(self._seconds + 1, wire.close, TimeoutError("no answer"))
        try:
            if wire.number is None:
                wire.number = await self._connection.number_of(wire)
                if wire.number is None:
                    self._claiming.refused()
            if wire.number is None or self._hurried:
                hint, answers = None, await wire.answers_of(self._commands[1:])
            else:
                self._wire = wire
                hint, *answers = await wire.answers_of(self._commands, hear)
            ended = True
        finally:
            guard.cancel()
            self._connection.put_back(wire, whole=ended)
        if isinstance(hint, Exception):
            raise hint
        return hint, answers

    def hurry(self) -> None:
        """Have it answered now. Idempotent."""
        if not self._hurried and not self._answered:
            self._hurried = True
            if self._wire is not None:
                self._hurrying = asyncio.create_task(self._end_wait(self._wire), name="penstock-redis-hurry")

    async def _end_wait(self, wire: Wire) -> None:
        """The wait may not have begun yet; a server that does not say that it has ended is hung up on."""
        try:
            async with asyncio.timeout(_ENOUGH):
                rest = _AGAIN
                while not await self._connection.unblock(wire):
                    await asyncio.sleep(rest)
                    rest *= 2
        except (RedisError, OSError) as error:
            wire.close(error)
