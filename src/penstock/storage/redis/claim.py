"""Claims: made at once, or left open behind a wait for work, so that the jobs arrive with the hint."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from redis.exceptions import NoScriptError, RedisError, TimeoutError

from penstock.model.job import Claim
from penstock.storage.base import MAX_BATCH, Claimed, Fail, Request, Settlement
from penstock.storage.redis.connection import Connection, blpop
from penstock.storage.redis.encoding import CORRUPT, fence, read_claims, read_number, text
from penstock.storage.redis.keys import Keys
from penstock.storage.redis.pipeline import Pipeline, pack_command
from penstock.storage.redis.script_calls import ScriptCall, ScriptCalls

__all__ = ["Claimer"]

#: The resolution of a job whose record cannot be read.
_CORRUPT = Fail(CORRUPT.encode(), 7 * 24 * 3600 * 1000)
#: UNBLOCK is sent again after this pause (seconds, doubled each time) while the wait has not begun; and for how long.
_UNBLOCK_PAUSE, _UNBLOCK_TIMEOUT = 0.005, 1.0


class Claimer:
    """Sends the calls of `claim.lua` and reads their answers."""

    def __init__(
        self, connection: Connection, keys: Keys, calls: ScriptCalls,
        settle: Callable[[Sequence[Settlement]], Awaitable[object]], on_no_unblock: Callable[[], None],
    ) -> None:  # fmt: skip
        self._connection = connection
        self._keys = keys
        self._calls = calls
        #: Settles the jobs whose records cannot be read.
        self._settle = settle
        #: Called if the server does not let this client end its own waits (CLIENT UNBLOCK).
        self.on_no_unblock = on_no_unblock

    async def claim(self, requests: Sequence[Request], worker: str, lease: int, token: str) -> Claimed:
        """Claim the due jobs of these queues, at most as many as each request asks for."""
        return await self._finish(requests, worker, lease, token, {})

    def open_claim(
        self, queues: Sequence[str], requests: Sequence[Request], worker: str, lease: int, token: str, seconds: float
    ) -> _OpenClaim:
        """Prepare the same claim for when one of the queues may have work, or when the seconds have passed.

        Only the moment differs from `claim`, which is also what reads the rest if an answer is incomplete;
        tests/storage/test_fast_and_slow.py compares the two.
        """
        lists = [self._keys.prefix(queue) + "wake" for queue in queues]
        calls = [self._build(request, worker, lease, token) for request in requests]
        commands = [blpop(lists, seconds), *(("EVALSHA", s.sha, len(keys), *keys, *args) for s, keys, args in calls)]

        def read(answers: Sequence[Any]) -> Claimed | None:
            if any(isinstance(answer, Exception) or answer[0] == 1 for answer in answers):
                return None
            claimed, unreadable = self._read(requests, token, answers)
            return None if unreadable else claimed

        async def finish(answers: Sequence[Any]) -> Claimed:
            known = {i: a for i, a in enumerate(answers) if not isinstance(a, NoScriptError)}
            return await self._finish(requests, worker, lease, token, known)

        packed = [pack_command(*command) for command in commands]
        return _OpenClaim(self, self._connection, packed, seconds, read, finish)

    def _build(self, request: Request, worker: str, lease: int, token: str) -> ScriptCall:
        args = (fence(token), worker, lease, min(request.limit, MAX_BATCH), request.batch)
        return self._calls.build("claim", request.queue, args)

    async def _finish(
        self, requests: Sequence[Request], worker: str, lease: int, token: str, answers: dict[int, Any]
    ) -> Claimed:
        """Send the requests without an answer, and again those that must promote more due jobs; then read all."""
        while todo := [i for i in range(len(requests)) if i not in answers or answers[i][0] == 1]:
            calls = [self._build(requests[i], worker, lease, token) for i in todo]
            answers.update(zip(todo, await self._connection.run_many(calls, repeat=False), strict=True))
        claimed, unreadable = self._read(requests, token, [answers[i] for i in range(len(requests))])
        if unreadable:
            await self._settle(unreadable)
        return claimed

    def _read(
        self, requests: Sequence[Request], token: str, answers: Sequence[Any]
    ) -> tuple[Claimed, list[Settlement]]:
        """Read the answers; return also the settlements of jobs whose records cannot be read."""
        claims: list[Claim] = []
        corrupt: list[tuple[str, str]] = []
        skipped: list[tuple[str, str]] = []
        unreadable: list[Settlement] = []
        more: list[str] = []
        limited: list[str] = []
        look_at: int | None = None
        tick_at: int | None = None
        now: int | None = None
        for request, (bound, look, ids, records, numbers, bad, missing, is_limited, tick, time, *parts) in zip(
            requests, answers, strict=True
        ):
            if bound:
                more.append(request.queue)
            if is_limited:
                limited.append(request.queue)
            if look:
                look_at = int(look) if look_at is None else min(look_at, int(look))
            if tick is not None:
                tick_at = read_number(tick) if tick_at is None else min(tick_at, read_number(tick))
                now = int(time)
            corrupt += [(request.queue, text(id)) for id in bad]
            skipped += [(request.queue, text(id)) for id in missing]
            bad = read_claims(request.queue, token, ids, records, numbers, claims, parts[0] if parts else ())
            for id in bad:
                unreadable.append(Settlement(request.queue, id, token, _CORRUPT))
                corrupt.append((request.queue, id))
        return Claimed(claims, look_at, corrupt, skipped, more, limited, tick_at=tick_at, now=now), unreadable


class _OpenClaim:
    """A wait for work and the claims behind it in one write: the server answers all of them at once."""

    def __init__(
        self, claimer: Claimer, connection: Connection, commands: list[bytes], seconds: float,
        read: Callable[[Sequence[Any]], Claimed | None], finish: Callable[[Sequence[Any]], Awaitable[Claimed]],
    ) -> None:  # fmt: skip
        self._claimer = claimer
        self._connection = connection
        self._commands = commands
        self._seconds = seconds
        #: Reads complete answers; None if some are incomplete: then `finish` sends the rest.
        self._read = read
        self._finish = finish
        self._pipeline: Pipeline | None = None
        self._answered = self._hurried = False
        self._unblocking: asyncio.Task[None] | None = None

    async def answer(self, received: Callable[[bool, Claimed], object] = lambda hinted, claimed: None) -> None:
        """Wait for the answer; call `received` at once with whether there was a hint, and with the claims."""
        delivered = False

        def at_once(answers: list[Any]) -> None:
            nonlocal delivered
            hint, *rest = answers
            if not isinstance(hint, Exception) and (claimed := self._read(rest)) is not None:
                delivered = True
                received(hint is not None, claimed)

        try:
            hint, answers = await self._ask(at_once)
        except (RedisError, OSError) as error:
            raise self._connection.explain(error) from error
        finally:
            self._answered = True
            if self._unblocking is not None:
                self._unblocking.cancel()
        for answer in answers:
            if isinstance(answer, Exception) and not isinstance(answer, NoScriptError):
                raise self._connection.explain(answer) from answer
        if not delivered:
            received(hint is not None, await self._finish(answers))

    async def _ask(self, on_answers: Callable[[list[Any]], None]) -> tuple[Any, list[Any]]:
        pipeline, answered = await self._connection.take_pipeline(), False
        # A server that vanished does not even answer when the wait is over.
        guard = asyncio.get_running_loop().call_later(self._seconds + 1, pipeline.close, TimeoutError("no answer"))
        try:
            if pipeline.client_id is None:
                pipeline.client_id = await self._connection.client_id_of(pipeline)
                if pipeline.client_id is None:
                    self._claimer.on_no_unblock()
            if pipeline.client_id is None or self._hurried:
                hint, answers = None, await pipeline.answers_of(self._commands[1:])
            else:
                self._pipeline = pipeline
                hint, *answers = await pipeline.answers_of(self._commands, on_answers)
            answered = True
        finally:
            guard.cancel()
            self._connection.put_back(pipeline, answered=answered)
        if isinstance(hint, Exception):
            raise hint
        return hint, answers

    def hurry(self) -> None:
        """End the wait now. Idempotent."""
        if not self._hurried and not self._answered:
            self._hurried = True
            if self._pipeline is not None:
                self._unblocking = asyncio.create_task(self._unblock(self._pipeline), name="penstock-redis-unblock")

    async def _unblock(self, pipeline: Pipeline) -> None:
        """Send UNBLOCK until it ends the wait, which may not have begun yet; close the connection after a timeout."""
        try:
            async with asyncio.timeout(_UNBLOCK_TIMEOUT):
                pause = _UNBLOCK_PAUSE
                while not await self._connection.unblock(pipeline):
                    await asyncio.sleep(pause)
                    pause *= 2
        except (RedisError, OSError) as error:
            pipeline.close(error)
