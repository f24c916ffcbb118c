"""Any bytes in a storage are decoded to a value or to an error that names the damage; decoding never crashes."""

from __future__ import annotations

import datetime
import struct
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from penstock.client.answers import JobStatus, status_of
from penstock.errors import InvalidPayload, JobError
from penstock.model.clock import as_datetime
from penstock.model.context import Progress
from penstock.model.failure import FailureSerde, failure_payload
from penstock.model.formats import JsonSerde, MsgpackSerde, codec_for
from penstock.model.headers import decode_headers
from penstock.model.job import FINISHED, Claim, Snapshot, State
from penstock.model.options import JobBounds
from penstock.model.serde import Codec, decode
from penstock.model.worker_info import worker_info
from penstock.storage.base import EndNotice, EventRecord
from penstock.storage.redis.cursors import read_cursor
from penstock.storage.redis.encoding import read_claims, read_snapshot, read_worker
from penstock.storage.redis.event_codec import read_end_notice, read_events
from penstock.storage.redis.position import read_position

pytestmark = pytest.mark.filterwarnings("ignore::hypothesis.errors.NonInteractiveExampleWarning")

DEEP = 100_000
#: Nesting that no reader follows to its end, and text that is none.
NESTED = b"\x91" * DEEP
CASES = [
    b"",
    b"\x00",
    NESTED,
    b"\x95\xa1a\xa1b\xa5stall\xa0" + NESTED,
    b"\x92\xa1\xff\xa1b",
    b"[" * DEEP,
    b"\x81\xa1\xff\xa0",
]

#: Values as msgpack may hold them: far out numbers, wrong types, deep ones.
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=9)
    | st.binary(max_size=9),
    lambda inner: st.lists(inner, max_size=9) | st.dictionaries(st.text(max_size=9), inner, max_size=5),
    max_leaves=20,
)


def _packed(value: object) -> bytes:
    try:
        return msgspec.msgpack.encode(value)
    except UnicodeEncodeError:  # half a surrogate pair
        return b""


#: Any bytes; valid msgpack of any shape; and either with something changed.
BYTES = st.binary(max_size=200) | VALUES.map(_packed)


@st.composite
def damaged(draw: st.DrawFn, whole: st.SearchStrategy[bytes]) -> bytes:
    """Draw valid bytes and change, cut or add some of them."""
    data = bytearray(draw(whole))
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(data)))
        match draw(st.sampled_from(["flip", "cut", "add"])):
            case "flip" if at < len(data):
                data[at] ^= draw(st.integers(1, 255))
            case "cut":
                del data[at:]
            case _:
                data[at:at] = draw(st.binary(max_size=9))
    return bytes(data)


def examples_without_deadline(examples: int) -> settings:
    """Return settings with this number of examples and without time limits."""
    slow_checks = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]
    return settings(max_examples=examples, deadline=None, suppress_health_check=slow_checks)


def every_case(function: Any) -> Any:
    for case in CASES:
        function = example(data=case)(function)
    return examples_without_deadline(150)(given(data=BYTES)(function))


@every_case
def test_any_error(data: bytes) -> None:
    """Any bytes of an error record give a `JobError`; unreadable ones give one that names the damage."""
    assert isinstance(JobError.decode(data), JobError)


@every_case
def test_any_progress(data: bytes) -> None:
    """Progress is read, or is none."""
    found = Progress.decode(data)
    assert found is None or 0 <= found.fraction <= 1


@every_case
def test_any_headers(data: bytes) -> None:
    """Headers are text to text, or none."""
    assert all(isinstance(key, str) and isinstance(value, str) for key, value in decode_headers(data).items())


@every_case
def test_any_limits(data: bytes) -> None:
    """Bounds are such as could have been asked for, or none."""
    bounds = JobBounds.decode(data)
    for value, least in (
        (bounds.timeout, 1),
        (bounds.max_attempts, 1),
        (bounds.max_retries, 0),
        (bounds.result_ttl, 0),
    ):
        if isinstance(value, int):
            assert value >= least


@examples_without_deadline(100)
@given(
    st.fixed_dictionaries(
        {},
        optional={name: st.none() | st.integers() | st.booleans() for name in JobBounds.__struct_fields__},
    )
)
def test_limits_of_any_size(values: dict[str, Any]) -> None:
    """Stored bounds out of range are ignored."""
    bounds = JobBounds.decode(packed(values))
    for name, value in values.items():
        found = getattr(bounds, name)
        assert found is msgspec.UNSET or found == value
    for value, least in ((bounds.timeout, 1), (bounds.max_attempts, 1), (bounds.result_ttl, 0)):
        assert not isinstance(value, int) or value >= least


def packed(values: dict[str, Any]) -> bytes:
    """Encode values as msgpack, without numbers beyond 64 bits."""
    small = {name: value for name, value in values.items() if value is None or -(2**63) <= value < 2**64}
    return msgspec.msgpack.encode(small)


@every_case
def test_any_heartbeat_gives_worker_info(data: bytes) -> None:
    """Any bytes of a heartbeat give a `WorkerInfo` with the readable fields."""
    for seen, until in ((0, 0), (2**48 - 1, 2**48 - 1)):
        info = worker_info("w", seen, until, data)
        assert isinstance(info.seen_at, datetime.datetime)


@every_case
def test_any_payload(data: bytes) -> None:
    """Every serde decodes, or refuses with `InvalidPayload`."""
    for serde in (JsonSerde(), MsgpackSerde()):
        for type in (Any, int, dict[str, list[int]], Claim):
            try:
                decode(serde, data, type)
            except InvalidPayload as error:
                assert str(error)  # noqa: PT017 - either is right


CLAIM = Claim("q", "id", "token", b"{}", 0, "g", 1, b"", b"", 1, 2, 3, 4, 5, 6)
FAILURE = failure_payload(CLAIM, JobError("ValueError", "no", traceback="line"))


@every_case
def test_any_failure(data: bytes) -> None:
    """Bytes of a failure give a readable `Failure`; all others raise `InvalidPayload`."""
    _look_at_failure(data)


@examples_without_deadline(300)
@given(data=damaged(st.just(FAILURE)))
def test_a_damaged_failure(data: bytes) -> None:
    """A failure with changed bytes is refused, or can be looked at."""
    _look_at_failure(data)


def _look_at_failure(data: bytes) -> None:
    try:
        failure = decode(FailureSerde("q", Codec(JsonSerde(), JsonSerde())), data)
    except InvalidPayload:
        return
    job = failure.job
    assert repr(failure)
    assert repr((job.created_at, job.run_at, job.headers, job.id))


# records -----------------------------------------------------------------------------------------

HEADS = st.builds(
    lambda flags, group, bounds, headers, error, payload, numbers: (
        bytes([1, flags])
        + numbers
        + b"".join(len(part).to_bytes(2, "big") for part in (group, bounds, headers))
        + len(error).to_bytes(4, "big")
        + group
        + bounds
        + headers
        + error
        + payload
    ),
    st.sampled_from([0, 4, 8, 1, 2]),
    st.binary(max_size=5),
    st.binary(max_size=5),
    st.binary(max_size=5),
    st.binary(max_size=5),
    st.binary(max_size=5),
    st.binary(min_size=30, max_size=30),
)
RECORDS = damaged(HEADS) | st.binary(max_size=80)
RUNS = st.none() | st.binary(max_size=60)
ENDS = (
    st.none()
    | st.binary(max_size=60)
    | st.builds(lambda s, rest: bytes([s]) + rest, st.integers(0, 4), st.binary(min_size=25, max_size=60))
)
NAMES = st.none() | st.binary(max_size=9) | st.sampled_from([state.value.encode() for state in State])


#: The state of a waiting job as a script returns it.
STATES = st.sampled_from([None, b"scheduled", b"retrying"])


@examples_without_deadline(600)
@given(record=RECORDS, run=RUNS, worker=NAMES, end=ENDS, waiting=STATES)
def test_any_stored_job_is_shown(
    record: bytes, run: bytes | None, worker: bytes | None, end: bytes | None, waiting: bytes | None
) -> None:
    """Any stored job gives a status with its readable parts; the unreadable ones become errors."""
    snapshot = read_snapshot("q", "id", 0, record, run, worker, end, waiting)
    assert snapshot is None or isinstance(shown(snapshot), JobStatus)
    read_position("q", 0, None, (b"id", record, run, worker, end, waiting, None, 0, 0, None, None), None, 1)


def shown(snapshot: Snapshot) -> JobStatus:
    status = status_of(snapshot, codec_for(JsonSerde(), None))
    assert status.state not in FINISHED or repr(status)
    return status


@examples_without_deadline(300)
@given(records=st.lists(RECORDS, max_size=3), ids=st.lists(st.text(max_size=3), min_size=3, max_size=3))
def test_any_claimed_record(records: list[bytes], ids: list[str]) -> None:
    """Of the records of a claim each is a claim or a bad one, and neither stops the others."""
    named = [id.encode("utf-8", "replace") for id in ids[: len(records)]]
    claims: list[Claim] = []
    bad = read_claims("q", "t", named, records, None, claims)
    assert len(claims) + len(bad) == len(records)


EVENT_HEAD = msgspec.msgpack.encode(["failed", "q", 7, "w", [3, 4], ["id", "b"], [1, -1], [1, 0]])
EVENTS = struct.pack(">II", len(EVENT_HEAD), 2) + EVENT_HEAD + b"re"


def test_a_message_of_events_is_decoded() -> None:
    """A message has blocks of events; one that cannot be read is left out, and the next ones are read."""
    events = [
        EventRecord("failed", "q", "id", 7, 3, "w", b"r", b"e"),
        EventRecord("failed", "q", "b", 7, 4, "w", None, b""),
    ]
    assert read_events(EVENTS) == events
    damaged_head = struct.pack(">II", len(EVENT_HEAD), 0) + EVENT_HEAD.replace(b"id", b"\xff\xff")
    short_list = msgspec.msgpack.encode(["started", "q", 7, False, [1, 2], ["id"], False, False])
    other = struct.pack(">II", len(short_list), 0) + short_list
    assert read_events(damaged_head + other + EVENTS + EVENTS[:9]) == events


@examples_without_deadline(300)
@given(data=damaged(st.just(EVENTS)) | st.binary(max_size=60))
def test_any_message_of_events_is_decoded_or_left_out(data: bytes) -> None:
    """Any bytes of a message of events give the events that can be read."""
    assert all(isinstance(event, EventRecord) for event in read_events(data))


END_NOTICE = b"\0\x01\0\x02\x01" + b"q" + b"id" + b"result"


def test_an_end_notice_is_decoded() -> None:
    """An end notice has the queue and id, and the result or error if it has a state."""
    assert read_end_notice(END_NOTICE) == (("q", "id"), EndNotice("id", State.COMPLETED, b"result"))
    assert read_end_notice(END_NOTICE[:4] + b"\x02" + END_NOTICE[5:]) == (
        ("q", "id"),
        EndNotice("id", State.FAILED, None, b"result"),
    )
    assert read_end_notice(END_NOTICE[:4] + b"\x00" + END_NOTICE[5:]) == (("q", "id"), None)


@examples_without_deadline(300)
@given(data=damaged(st.just(END_NOTICE)) | st.binary(max_size=40))
def test_any_end_notice_is_decoded_or_refused(data: bytes) -> None:
    """Any bytes of an end notice are decoded or raise `ValueError`, which the notifier ignores."""
    try:
        _, notice = read_end_notice(data)
    except ValueError:
        return
    assert notice is None or notice.state in FINISHED


@examples_without_deadline(200)
@given(id=st.binary(max_size=9), record=st.binary(max_size=40))
def test_any_worker_is_listed(id: bytes, record: bytes) -> None:
    """A worker's presence is read, or is passed over."""
    found = read_worker(id, record)
    if found is not None:
        worker_info(found.id, found.seen, found.until, found.info)


@examples_without_deadline(200)
@given(after=st.text(max_size=40))
def test_any_cursor(after: str) -> None:
    """A cursor that is none is a `ValueError`."""
    try:
        read_cursor(after, (State.QUEUED, State.FAILED))
    except ValueError as error:
        assert "after" in str(error)  # noqa: PT017 - either is right


@examples_without_deadline(100)
@given(ms=st.integers(-(2**63), 2**64))
def test_any_time_can_be_shown(ms: int) -> None:
    """A time that no calendar has is shown as the first or the last that one has."""
    assert 1970 <= as_datetime(ms).year <= 9999
