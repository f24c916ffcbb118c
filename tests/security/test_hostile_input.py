"""Hostile input: every public call refuses it with an exception that names the fault, and stores nothing."""

from __future__ import annotations

import datetime
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock import Encrypted, InvalidPayload, Penstock, Signed, Update, Worker
from penstock.model.ids import family_of
from penstock.storage import SERVERS, connect, redact

SLOW_CHECKS = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture]
any_input = settings(max_examples=200, deadline=None, suppress_health_check=SLOW_CHECKS)

#: Any text, half surrogate pairs and controls included.
TEXT = st.text(st.characters(codec=None), max_size=30)
#: Values that a careless or hostile caller may pass for any argument.
ANYTHING = st.one_of(
    TEXT, st.none(), st.booleans(), st.integers(), st.floats(), st.binary(max_size=9),
    st.lists(st.integers(), max_size=3), st.dictionaries(TEXT, TEXT, max_size=3), st.datetimes(), st.timedeltas(),
    st.just(object()),
    st.sampled_from([float("nan"), float("inf"), -0.0, 2**64, -(2**64), 10**400, datetime.datetime.max, "x" * 513]),
)  # fmt: skip
OPTIONS = [
    "id", "run_at", "delay", "priority", "group", "on_conflict", "timeout", "max_attempts", "max_retries", "result_ttl",
    "headers",
]  # fmt: skip


@any_input
@given(text=st.one_of(TEXT, st.builds("{}:{}".format, st.sampled_from([*SERVERS, "memory", "sqlite", "file"]), TEXT)))
def test_any_url_is_accepted_or_a_value_error(text: str) -> None:
    """`connect` takes any URL or raises a `ValueError`, and `redact` never fails."""
    redact(text)
    if text.startswith(("file:", "sqlite:")):
        return  # a path may be anything
    try:
        connect(text)
    except ValueError as error:
        assert str(error)  # noqa: PT017 - either is right


@any_input
@given(value=ANYTHING)
def test_any_argument_of_an_app_is_accepted_or_refused(value: Any) -> None:
    """Any value for an argument of app, handler or worker is taken, or a `ValueError` or `TypeError`."""
    for call in (
        lambda: Penstock("memory:", namespace=value),
        lambda: Penstock("memory:", max_payload=value),
        lambda: Penstock("memory:", timeout=value),
        lambda: Penstock("memory:", serde=value),
        lambda: Penstock("memory:", preset=value),
        lambda: Penstock("memory:", durability=value),
        lambda: Penstock("memory:").queue(value),
        lambda: Penstock("memory:").handler(value)(print),
        lambda: Penstock("memory:").listen("q", print, timeout=value),
        lambda: Penstock("memory:").listen("q", print, max_retries=value),
        lambda: Penstock("memory:").listen("q", print, size=value),
        lambda: Worker(Penstock("memory:"), queues=value),
        lambda: Worker(Penstock("memory:"), id=value),
        lambda: Worker(Penstock("memory:"), capacity=value),
        lambda: Worker(Penstock("memory:"), lease=value),
        lambda: Update(run_at=value),
        lambda: Signed("json", value),
        lambda: Encrypted("json", value),
    ):
        try:
            call()
        except (ValueError, TypeError) as error:
            assert str(error)  # noqa: PT017 - either is right


@pytest.fixture
def app() -> Penstock:
    return Penstock("memory:")


@any_input
@given(name=st.sampled_from(OPTIONS), value=ANYTHING, payload=ANYTHING)
def test_any_argument_of_an_enqueue_is_accepted_or_refused(app: Penstock, name: str, value: Any, payload: Any) -> None:
    """Any option of an enqueue makes a job, or raises a `ValueError` or `TypeError` with a reason."""
    try:
        job = app.queue("q").build_job(payload, **{name: value})
    except (ValueError, TypeError) as error:
        assert str(error)  # noqa: PT017 - either is right
    else:
        assert job.id.encode()
        assert isinstance(job.payload, bytes)


@any_input
@given(value=ANYTHING)
def test_any_argument_of_a_queue_is_accepted_or_refused(app: Penstock, value: Any) -> None:
    """The other methods of a queue refuse values in the same way, before they use the storage."""
    queue = app.queue("q")
    for call in (queue.status, queue.cancel, queue.wait, queue.result, queue.why):
        _step(call(value))
    _step(queue.find(state=value))
    _step(queue.find(limit=value))
    _step(queue.find(after=value))
    _step(queue.reserve(value))
    _step(queue.update_result_ttl("id", value))


def _step(coroutine: Any) -> None:
    """Run a coroutine to its first await, which may be opening the storage."""
    try:
        coroutine.send(None)
    except (ValueError, TypeError, StopIteration) as error:
        assert str(error) or isinstance(error, StopIteration)  # noqa: PT017 - either is right
    except RuntimeError as error:
        assert "no running event loop" in str(error)  # noqa: PT017 - it was about to wait
    finally:
        coroutine.close()


@any_input
@given(name=st.text(max_size=40))
def test_every_name_has_a_family(name: str) -> None:
    """The family of any name is a prefix of it."""
    assert name.startswith(family_of(name))


# signed and encrypted payloads ---------------------------------------------------------------------------------

KEYED_SERDES = [Signed("raw", "a secret of sixteen"), Encrypted("raw", bytes(range(32)))]


@pytest.mark.parametrize("serde", KEYED_SERDES, ids=["signed", "encrypted"])
@any_input
@given(payload=st.binary(max_size=300), data=st.data())
def test_a_changed_signed_or_encrypted_payload_is_refused(serde: Any, payload: bytes, data: st.DataObject) -> None:
    """A payload with a bit flipped, or bytes cut, added, moved or taken from another payload, is refused."""
    whole = serde.dumps(payload)
    assert serde.loads(whole, bytes) == payload
    bad = bytearray(whole)
    match data.draw(st.sampled_from(["flip", "cut", "add", "swap", "graft"])):
        case "flip":
            bit = data.draw(st.integers(0, len(bad) * 8 - 1))
            bad[bit // 8] ^= 1 << bit % 8
        case "cut":
            start = data.draw(st.integers(0, len(bad) - 1))
            del bad[start : data.draw(st.integers(start + 1, len(bad)))]
        case "add":
            at = data.draw(st.integers(0, len(bad)))
            bad[at:at] = data.draw(st.binary(min_size=1, max_size=9))
        case "swap":
            one, other = (data.draw(st.integers(0, len(bad) - 1)) for _ in range(2))
            bad[one], bad[other] = bad[other], bad[one]
        case _:
            other = serde.dumps(data.draw(st.binary(max_size=300)))
            at = data.draw(st.integers(0, min(len(bad), len(other))))
            bad[at:] = other[at:]
            if bytes(bad) == other:
                return
    if bytes(bad) != whole:
        with pytest.raises(InvalidPayload):
            serde.loads(bytes(bad), bytes)


@pytest.mark.parametrize("serde", KEYED_SERDES, ids=["signed", "encrypted"])
@any_input
@given(data=st.binary(max_size=300))
def test_random_bytes_are_no_signed_or_encrypted_payload(serde: Any, data: bytes) -> None:
    """Bytes that were not made with the key are refused."""
    with pytest.raises(InvalidPayload):
        serde.loads(data, bytes)
