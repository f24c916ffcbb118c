"""Durable puts: acknowledged when replicas or the disk have them, by WAIT and WAITAOF.

Both commands confirm what their own connection has written. So the script is sent on the same connection: on another
one they might ask a new primary about a job that was lost with the old one. A key is always written after the script,
because a put of an id that is taken writes nothing, and newer servers would then confirm at once.
"""

from __future__ import annotations

import time
from typing import Any

from redis.exceptions import AskError, MovedError, NoScriptError, TryAgainError

from penstock.errors import StorageError
from penstock.model.durability import Durability, DurabilityReport
from penstock.storage.redis.connection import Connection
from penstock.storage.redis.scripts import Script
from penstock.storage.redis.server_url import READ_TIMEOUT

__all__ = ["Confirmer"]

#: The time to live (ms) of the key that is written after a put.
MARK_MS = 1000
#: How often a Cluster may redirect a call to another node.
MAX_REDIRECTS = 5


class Confirmer:
    """Runs scripts and has the server confirm their writes."""

    def __init__(self, connection: Connection, asked: Durability) -> None:
        self._connection = connection
        self._asked = asked
        ms = max(1, round(asked.timeout * 1000))
        fsync = asked.level == "fsync"
        # Longer than the timeout of any WAIT. A put with a bound may take that and the time of its confirmation.
        bound = connection.timeout
        longest = max(READ_TIMEOUT, connection.read_timeout)
        self._seconds = longest if bound is None else min(longest, bound + asked.timeout)
        self._confirm = ("WAITAOF", 1, asked.copies, ms) if fsync else ("WAIT", asked.copies, ms)

    async def check(self, key: str) -> None:
        """Raise `StorageError` if the server cannot confirm at the level that was asked for."""
        if self._asked.level != "fsync":
            return
        where = self._connection.where
        try:
            await self._connection.attempt(lambda: self._one(("WAITAOF", 0, 0, 1), key), repeat=True)
        except StorageError as error:
            if "unknown command" not in str(error).lower():
                raise
            raise StorageError(
                f'durability="fsync" needs WAITAOF, which Redis has from version 7.2 on and Valkey always; {where} '
                'has not. Upgrade it; or use durability="replicas", or `appendfsync always`, which needs no confirming'
            ) from None
        about = await self._connection.attempt(lambda: self._one(("INFO", "persistence"), key), repeat=True)
        if b"aof_enabled:0" in (about if isinstance(about, bytes) else str(about).encode()):
            raise StorageError(
                f'durability="fsync" needs an append-only file, and {where} keeps none: set `appendonly yes` there'
            )

    async def run(self, script: Script, keys: list[str], args: list[Any], mark: str, *, repeat: bool) -> Any:
        """Run a script; return its answer and a report of the durability reached.

        `mark` is the key that is written after it, in the same slot.
        """

        async def once() -> Any:
            answers = await self._all(("EVALSHA", script.sha, len(keys), *keys, *args), mark)
            if isinstance(answers[0], NoScriptError):
                answers = await self._all(("EVAL", script.text, len(keys), *keys, *args), mark)
            for answer in answers:
                if isinstance(answer, AskError):
                    raise TryAgainError("the slot of this queue is being moved")
                if isinstance(answer, BaseException):
                    raise answer
            return answers[0], self._report(answers[2])

        return await self._connection.attempt(once, repeat=repeat, deadline=self._deadline())

    def _deadline(self) -> float | None:
        return None if self._connection.timeout is None else time.monotonic() + self._seconds

    async def _all(self, call: tuple[Any, ...], mark: str) -> list[Any]:
        commands = [call, ("SET", mark, "", "PX", MARK_MS), self._confirm]
        for _ in range(MAX_REDIRECTS):
            answers = await self._connection.alone(commands, mark, self._seconds)
            if not isinstance(answers[0], MovedError):
                return answers
            await self._connection.command("EXISTS", mark)  # the client follows the redirect and updates its slots
        raise TryAgainError("no node serves the slot of this queue")

    async def _one(self, command: tuple[Any, ...], key: str) -> Any:
        (answer,) = await self._connection.alone([command], key, self._seconds)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def _report(self, answer: Any) -> DurabilityReport:
        if self._asked.level == "fsync":
            return DurabilityReport(asked=self._asked, replicas=int(answer[1]), fsynced=answer[0] >= 1)
        return DurabilityReport(asked=self._asked, replicas=int(answer))
