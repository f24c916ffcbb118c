"""How payloads travel

Inside everything is bytes. A serde makes bytes of your values and values of the bytes; it belongs to a queue.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from penstock import Encrypted, Penstock, Signed, Worker


async def test_bytes(app: Penstock) -> None:
    """JSON is the default; msgpack has bytes, and "raw" is bytes and nothing else."""
    app.listen("hashes", lambda payload: payload["data"][::-1], serde="msgpack")
    app.listen("frames", len, serde="raw", result_serde="json")
    await app.queue("hashes").enqueue({"data": b"\x00\x01"}, id="h")
    await app.queue("frames").enqueue(b"\xff" * 10, id="f")
    await Worker(app).drain()
    assert await app.queue("hashes").result("h") == b"\x01\x00"
    assert await app.queue("frames").result("f") == 10


async def test_only_friends_can_enqueue(app: Penstock) -> None:
    """A signed payload that was made without the key, or altered, fails its job without calling the handler."""
    done: list[str] = []
    app.listen("orders", done.append, serde=Signed("json", [Signed.new_key()]))
    stranger = Penstock(storage=app.storage, serde=Signed("json", [Signed.new_key()]))
    await stranger.queue("orders").enqueue("everything, for free", id="s")
    await app.queue("orders").enqueue("tea", id="t")
    await Worker(app).drain()
    assert done == ["tea"]
    assert [job.id for job in await app.queue("orders").find("failed")] == ["s"]


async def test_nobody_else_can_read(app: Penstock) -> None:
    """An encrypted payload is readable with the key alone; a new key in front takes over, the old one still opens."""
    old, new = Encrypted.new_key(), Encrypted.new_key()
    before = Penstock(storage=app.storage, serde=Encrypted("json", [old]))
    await before.queue("pins").enqueue({"pin": 1234}, id="a")
    after = Penstock(storage=app.storage, serde=Encrypted("json", [new, old]))
    status, seen_without = await after.queue("pins").status("a"), await app.queue("pins").status("a")
    assert status is not None
    assert seen_without is not None
    assert status.payload == {"pin": 1234}
    assert b"1234" not in seen_without.payload


class Prices:
    """A serde is any object with these two methods."""

    def dumps(self, value: Decimal, /) -> bytes:
        return str(value).encode()

    def loads(self, data: bytes, type: Any, /) -> Decimal:
        return Decimal(data.decode())


async def test_your_own(app: Penstock) -> None:
    """A serde of your own can encode types that no other knows."""
    app.listen("prices", lambda price: price * 2, serde=Prices())
    await app.queue("prices").enqueue(Decimal("9.95"), id="p")
    await Worker(app).drain()
    assert await app.queue("prices").result("p") == Decimal("19.90")
