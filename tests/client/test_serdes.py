"""Serdes from end to end: what is sent arrives, and what must not be believed is not run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pydantic
import pytest

from penstock import Encrypted, ErrorKind, Event, Failure, Job, Penstock, Serde, Signed, State, Worker
from penstock.model.serde import Place, bind_serde
from tests.support import new

SECRET, KEY = "a secret of sixteen bytes", Encrypted.new_key()
SIGNED, ENCRYPTED = Signed("json", SECRET), Encrypted("msgpack", KEY)
#: The places of payloads and results of the queue `q`, to which apps bind their serdes.
PAYLOAD, RESULT = Place("penstock", "q", "payload"), Place("penstock", "q", "result")


@dataclass
class Order:
    number: int


class Model(pydantic.BaseModel):
    number: int


@pytest.fixture
def received(app: Penstock) -> list[Event]:
    received: list[Event] = []
    app.on("*")(received.append)
    return received


def tampered(serde: Serde, value: Any) -> bytes:
    data = bytearray(bind_serde(serde, PAYLOAD).dumps(value))
    data[-1] ^= 1
    return bytes(data)


CHANGED = tampered(SIGNED, {"number": 1}), tampered(ENCRYPTED, {"number": 1})
FOREIGN = SIGNED.bound(PAYLOAD).dumps({"number": 1}), ENCRYPTED.bound(PAYLOAD).dumps({"number": 1})
ILL_TYPED = SIGNED.bound(PAYLOAD).dumps({"number": "one"})


@pytest.mark.parametrize(
    ("serde", "data", "shown"),
    [
        pytest.param("json", b'{"number": ', b'{"number": ', id="cut"),
        pytest.param("json", b'{"number": "one"}', {"number": "one"}, id="ill-typed"),
        pytest.param("msgpack", b"\xc1", b"\xc1", id="no msgpack"),
        pytest.param(SIGNED, CHANGED[0], CHANGED[0], id="signed and changed"),
        pytest.param(SIGNED, b'{"number":1}', b'{"number":1}', id="not signed"),
        pytest.param(Signed("json", SECRET[::-1]), FOREIGN[0], FOREIGN[0], id="signed by another"),
        pytest.param(SIGNED, ILL_TYPED, {"number": "one"}, id="signed and ill-typed"),
        pytest.param(ENCRYPTED, CHANGED[1], CHANGED[1], id="encrypted and changed"),
        pytest.param(Encrypted("msgpack", Encrypted.new_key()), FOREIGN[1], FOREIGN[1], id="encrypted by another"),
    ],
)
async def test_bytes_that_cannot_be_decoded_are_not_run(
    app: Penstock, received: list[Event], serde: str | Serde, data: bytes, shown: Any
) -> None:
    """The handler is not called, the job fails after one run as permanent, its bytes are kept, an event is emitted."""
    called: list[Order] = []

    @app.handler("q", serde=serde)
    def handle(payload: Order) -> None:
        called.append(payload)

    await app.storage.put([new("q", "a", data)])
    await Worker(app).drain()
    assert called == []
    status = await app.queue("q").status("a")
    assert status is not None
    assert (status.state, status.attempts) == (State.FAILED, 1)
    assert status.error is not None
    assert (status.error.kind, status.error.type) == (ErrorKind.PERMANENT, "InvalidPayload")
    emitted = [event for event in received if event.name in ("invalid_data", "failed", "retrying")]
    assert [(event.name, event.id) for event in emitted] == [("invalid_data", "a"), ("failed", "a")]
    assert SECRET not in status.error.traceback
    assert status.payload == shown


async def test_encrypted_payloads_and_results_arrive(app: Penstock) -> None:
    """Payload and result have serdes of their own, and the storage holds neither in the clear."""
    app.listen("q", lambda payload: payload[::-1], serde=ENCRYPTED, result_serde=SIGNED)
    queue = app.queue("q")
    await queue.enqueue("a secret text", id="a")
    [stored] = await app.storage.get("q", ["a"])
    assert stored is not None
    assert b"secret" not in stored.payload
    await Worker(app).drain()
    assert await queue.result("a") == "txet terces a"
    status = await queue.status("a")
    assert status is not None
    assert (status.payload, status.result) == ("a secret text", "txet terces a")
    [stored] = await app.storage.get("q", ["a"])
    assert stored is not None
    assert stored.result is not None
    assert SIGNED.bound(RESULT).loads(stored.result, str) == "txet terces a"


async def test_keys_rotate_while_jobs_wait(app: Penstock) -> None:
    """A job sealed with the old key runs when the new one stands before it."""
    old = Encrypted("json", KEY).bound(PAYLOAD)
    await app.storage.put([new("q", "a", old.dumps(1))])
    app.listen("q", lambda payload: payload + 1, serde=Encrypted("json", [Encrypted.new_key(), KEY]))
    await Worker(app).drain()
    assert await app.queue("q").result("a") == 2


async def test_raw_queues_carry_bytes_and_text_as_they_are(app: Penstock) -> None:
    """There is no envelope: what is stored is what was given."""
    texts: list[str] = []

    def handle(payload: str) -> None:
        texts.append(payload)

    app.listen("text", handle, serde="raw")
    app.listen("bytes", lambda payload: payload, serde="raw", result_serde="raw")
    await app.queue("text").enqueue("é", id="a")
    await app.queue("bytes").enqueue(b"\x00\xff", id="a")
    [stored] = await app.storage.get("bytes", ["a"])
    assert stored is not None
    assert stored.payload == b"\x00\xff"
    await Worker(app).drain()
    assert texts == ["é"]
    assert await app.queue("bytes").result("a") == b"\x00\xff"


async def test_models_travel(app: Penstock) -> None:
    """A Pydantic model is a payload and a result like any other value."""

    @app.handler("q")
    async def handle(payload: Model, job: Job) -> list[Model]:
        return [payload, Model(number=payload.number + 1)]

    await app.queue("q").enqueue(Model(number=1), id="a")
    await Worker(app).drain()
    assert await app.queue("q").result("a") == [{"number": 1}, {"number": 2}]


async def test_a_failure_of_an_encrypted_job_is_decrypted_with_the_keys_of_its_queue(app: Penstock) -> None:
    """The fail handler sees the payload, or the bytes if they cannot be opened."""
    payloads: list[Any] = []

    def on_failure(failure: Failure) -> None:
        payloads.append(failure.payload)

    @app.handler("q", serde=ENCRYPTED, on_failure=on_failure, max_retries=0)
    def handle(payload: str) -> None:
        raise ValueError("no")

    await app.queue("q").enqueue("text", id="a")
    await app.storage.put([new("q", "b", b"changed")])
    await Worker(app).drain()
    assert sorted(payloads, key=repr) == ["text", b"changed"]
