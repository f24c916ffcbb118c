"""Builder of the script calls of one storage: keys, clock, record format, and whether fast paths are on."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from penstock.model.clock import Clock
from penstock.model.ids import family_of, new_token
from penstock.storage.redis.connection import Connection
from penstock.storage.redis.keys import Keys
from penstock.storage.redis.schema import Schema
from penstock.storage.redis.scripts import Script, script

__all__ = ["ScriptCall", "ScriptCalls"]


#: A script, its keys and its arguments, as `Connection.run` takes them.
ScriptCall = tuple[Script, list[str], list[Any]]


class ScriptCalls:
    """Builds and runs the calls of the Lua scripts; each part of `RedisStorage` gets this one object."""

    def __init__(
        self, connection: Connection, keys: Keys, schema: Schema, clock: Clock | None, *, fast: bool
    ) -> None:  # fmt: skip
        self._connection = connection
        self._keys = keys
        self._schema = schema
        self._clock = clock
        #: Whether client and scripts may take their fast paths. False is for tests, which compare both.
        self.fast = fast
        #: Whether a script call on the pipeline has no argument that changes with time or topology.
        self.plain_server = fast and clock is None and not keys.cluster

    @property
    def format(self) -> int:
        """The newest record format that the scripts read, and the one they write."""
        return self._schema.format

    def now(self) -> str:
        """Return the time (ms) of the clock given for tests; empty for the server's own time."""
        return "" if self._clock is None else str(round(self._clock.time() * 1000))

    def build(self, name: str, queue: str, args: Iterable[Any], also: Iterable[str] = ()) -> ScriptCall:
        """Build a call for one queue; `also` names other queues that the script may touch."""
        called, prefix = script(name, self._schema.format, self.fast), self._keys.prefix(queue)
        if not self._keys.cluster:
            return called, self._keys.shared, [self.now(), prefix, queue, *args]
        family = family_of(queue)
        keys = [self._keys.listeners(family), self._keys.names(family)]
        for start in {prefix, *(self._keys.prefix(other) for other in also)}:
            keys += [start + key for key in called.keys]
        return called, keys, [self.now(), prefix, queue, *args]

    async def run(self, name: str, queue: str, *args: Any, repeat: bool = True) -> Any:
        """Run a script for one queue and return its answer; `repeat` as for `Connection.run`."""
        return await self._connection.run(*self.build(name, queue, args), repeat=repeat)

    async def run_once(self, name: str, queue: str, *args: Any, also: Iterable[str] = ()) -> Any:
        """Run a script that includes `_once.lua`, and return its answer.

        It is sent again until it is answered: it takes effect once, and the answer is that of the first time.
        """
        return await self._connection.run(*self.build_once(name, queue, *args, also=also), repeat=True)

    def build_once(self, name: str, queue: str, *args: Any, also: Iterable[str] = ()) -> ScriptCall:
        """Build the call of `run_once`."""
        request = new_token()
        call = self.build(name, queue, (request, self._connection.retry_window_ms, *args), also)
        if self._keys.cluster:
            call[1].append(self._keys.request(queue, request))
        return call

    async def run_for_all_queues(self, name: str, *args: Any) -> Any:
        """Run a script on the keys of all queues together, and return its answer."""
        keys = [self._keys.listeners("ops"), self._keys.names("ops"), self._keys.ops + "history"]
        keys.append(self._keys.ops + "minute")
        return await self._connection.run(script(name), keys, [self.now(), self._keys.ops, "", *args], repeat=True)

    async def run_once_for_all_queues(self, name: str, *args: Any) -> Any:
        """Run a script that includes `_once.lua` on the keys of all queues together, and return its answer."""
        request = new_token()
        keys = [self._keys.listeners("ops"), self._keys.names("ops"), self._keys.ops + "history"]
        keys.append(f"{self._keys.ops}requests:{request}")
        given = [self.now(), self._keys.ops, "", request, self._connection.retry_window_ms, *args]
        return await self._connection.run(script(name), keys, given, repeat=True)

    async def run_for_operators(self, name: str, key: str, *args: Any) -> Any:
        """Run a script on a key of records about operators, and return its answer."""
        keys = [self._keys.listeners("ops"), self._keys.names("ops"), key]
        return await self._connection.run(script(name), keys, [self.now(), key, "", *args], repeat=True)

    async def run_once_for_operators(self, name: str, key: str, *args: Any) -> Any:
        """Run a script that includes `_once.lua` on a key of records about operators, and return its answer."""
        request = new_token()
        keys = [self._keys.listeners("ops"), self._keys.names("ops"), key, f"{key}requests:{request}"]
        given = [self.now(), key, "", request, self._connection.retry_window_ms, *args]
        return await self._connection.run(script(name), keys, given, repeat=True)

    async def run_for_workers(self, name: str, *args: Any) -> Any:
        """Run a script on the table of workers, which belongs to no queue, and return its answer."""
        keys = [self._keys.listeners("workers"), self._keys.names("workers"), self._keys.workers]
        return await self._connection.run(script(name), keys, [self.now(), self._keys.workers, "", *args], repeat=True)
