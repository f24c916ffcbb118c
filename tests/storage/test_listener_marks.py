"""Marks of event listeners on Redis: who is registered, and for how long."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, cast

import pytest

from penstock.storage.redis.listener_marks import LISTENER_MS, ListenerMarks
from tests.support import RedisBackend

pytestmark = [pytest.mark.beyond_model, pytest.mark.only("redis", "valkey")]


def marks(storage: Any, queue: str | None = None, names: Collection[str] | None = None) -> ListenerMarks:
    return ListenerMarks(storage._connection, storage._keys, queue, names)


async def test_the_last_listener_that_leaves_leaves_no_key(backend: RedisBackend, storage: Any) -> None:
    """Of three listeners each removes its own entry; the key is gone with the last, and has a TTL before."""
    client, key = cast(Any, backend.client()), f"{backend.namespace}:listeners"
    listeners = [marks(storage), marks(storage, "q"), marks(storage, "q", ["failed"])]
    for each in listeners:
        await each.set()
        await each.set()
    assert {name: len(value) for name, value in client.hgetall(key).items()} == {
        b"": 32 + 26 + len(listeners[0].channel),
        b"q": 26 + len(listeners[1].channel) + 26 + len(",failed,") + len(listeners[2].channel),
    }
    assert listeners[0].secrets == listeners[1].secrets == listeners[2].secrets
    assert 0 < client.pttl(key) <= LISTENER_MS
    await listeners[1].remove()
    await listeners[0].remove()
    assert {name: len(value) for name, value in client.hgetall(key).items()} == {
        b"": 32,
        b"q": 26 + len(",failed,") + len(listeners[2].channel),
    }
    await listeners[2].remove()
    assert not client.exists(key)
    client.close()


async def test_the_entry_of_a_killed_listener_expires_while_another_lives(backend: RedisBackend, storage: Any) -> None:
    """A listener that renews its own entry removes those whose time has passed, also of a clock that was set back."""
    client, key = cast(Any, backend.client()), f"{backend.namespace}:listeners"
    killed, ahead, live = marks(storage, "q"), marks(storage, "q"), marks(storage)
    for each in (killed, ahead, live):
        await each.set()
    entries = client.hget(key, "q")
    first, second = entries[: len(entries) // 2], entries[len(entries) // 2 :]
    assert first[:16] != second[:16]
    client.hset(key, "q", first[:16] + b"\0" * 6 + first[22:] + second[:16] + b"\x7f" * 6 + second[22:])
    await live.set()
    assert list(client.hgetall(key)) == [b""]
    await live.remove()
    client.close()


async def test_a_key_of_another_type_is_replaced(backend: RedisBackend, storage: Any) -> None:
    """A listener that finds another type under its key replaces it."""
    client, key = cast(Any, backend.client()), f"{backend.namespace}:listeners"
    client.lpush(key, "another type")
    listener = marks(storage)
    await listener.set()
    assert client.hexists(key, "")
    await listener.remove()
    client.close()
