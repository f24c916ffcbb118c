"""Calls of redis-py behind the pipeline: what they raise is what the storage can explain."""

from __future__ import annotations

import asyncio

import pytest
import uvloop
from redis.exceptions import ConnectionError

from penstock.storage.redis.pipeline import cancellable


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["plain", "uvloop"])
def test_a_write_to_a_connection_that_was_closed_never_raises_a_runtime_error(loop: object) -> None:
    """uvloop refuses it with a `RuntimeError`, which the worker would report as a fault of its own."""

    async def write_to_a_closed_connection() -> None:
        _, writer = await asyncio.open_connection(*address)
        writer.transport.abort()
        await asyncio.gather(writer.wait_closed(), return_exceptions=True)
        writer.writelines([b"PING\r\n"])
        raise ConnectionError("the plain loop ignores the write")

    async def main() -> None:
        nonlocal address
        async with await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0) as server:
            address = server.sockets[0].getsockname()
            with pytest.raises(ConnectionError):
                await cancellable(write_to_a_closed_connection())

    address: tuple[str, int] = ("", 0)
    with asyncio.Runner(loop_factory=loop) as runner:  # type: ignore[arg-type]
        runner.run(main())


async def test_another_runtime_error_of_a_call_is_passed_on() -> None:
    """Only the refusal of a closed connection is translated."""

    async def fail() -> None:
        raise RuntimeError("a fault")

    with pytest.raises(RuntimeError, match="a fault"):
        await cancellable(fail())
