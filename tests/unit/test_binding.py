"""Serdes that are bound to a place: bytes are accepted where they were made for, and nowhere else."""

from __future__ import annotations

import pickle
import zlib
from typing import Any, Literal

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock import Encrypted, InvalidPayload, Penstock, Serde, Signed
from penstock.model.formats import JsonSerde, RawSerde
from penstock.model.serde import Codec, Place, bind_codec, bind_serde, innermost, is_bindable, with_innermost

KEY = Encrypted.new_key()
SERDES = [Signed("raw", KEY), Encrypted("raw", KEY)]
BY_JOB = [Signed("raw", KEY, bind="job"), Encrypted("raw", KEY, bind="job")]

#: Few letters, so that names often differ only in where one ends and the next begins.
NAMES = st.text("ab\x00/", min_size=1, max_size=3)
PLACES = st.builds(Place, NAMES, NAMES, st.sampled_from(["payload", "result"]), NAMES)
few = settings(max_examples=300)


class Compressed:
    """A wrapper of a user: it knows nothing about values, and nothing about places."""

    def __init__(self, inner: Serde) -> None:
        self.inner = inner

    def around(self, inner: Serde, /) -> Compressed:
        return Compressed(inner)

    def dumps(self, value: Any, /) -> bytes:
        return zlib.compress(self.inner.dumps(value))

    def loads(self, data: bytes, type: Any, /) -> Any:
        return self.inner.loads(zlib.decompress(data), type)


def opens(serde: Serde, data: bytes) -> bool:
    try:
        return serde.loads(data, bytes) == b"body"
    except InvalidPayload:
        return False


@few
@example(Place("a", "bc", "payload"), Place("ab", "c", "payload"), 0)
@example(Place("a", "bc", "payload"), Place("ab", "c", "payload"), 1)
@given(made=PLACES, read=PLACES, number=st.sampled_from([0, 1]))
def test_bytes_are_valid_in_their_queue_and_nowhere_else(made: Place, read: Place, number: int) -> None:
    """With `bind="queue"` bytes open where namespace, queue and kind are the same, whatever the id."""
    serde = SERDES[number]
    same = (made.namespace, made.queue, made.kind) == (read.namespace, read.queue, read.kind)
    assert opens(serde.bound(read), serde.bound(made).dumps(b"body")) == same


@few
@given(made=PLACES, read=PLACES, number=st.sampled_from([0, 1]))
def test_bytes_bound_to_a_job_are_valid_for_its_id_alone(made: Place, read: Place, number: int) -> None:
    """With `bind="job"` bytes open for the same place and id only."""
    serde = BY_JOB[number]
    assert opens(serde.bound(read), serde.bound(made).dumps(b"body")) == (made == read)


@few
@given(place=PLACES, rest=st.binary(max_size=4))
def test_the_begin_of_a_body_does_not_pass_for_a_part_of_the_place(place: Place, rest: bytes) -> None:
    """A body that begins like the id of a job, signed for the queue, is not the rest of it signed for that job."""
    id = (place.id or "").encode()
    for begin in (id, len(id).to_bytes(4, "big") + id):
        data = SERDES[0].bound(place).dumps(begin + rest)
        with pytest.raises(InvalidPayload):
            BY_JOB[0].bound(place).loads(data[: -len(begin + rest)] + rest, bytes)


@pytest.mark.parametrize("serde", SERDES + BY_JOB, ids=repr)
def test_bytes_of_a_serde_without_a_place_are_valid_in_no_queue(serde: Signed | Encrypted) -> None:
    """A serde that no app has bound opens its own bytes, and not those of a queue; a queue does not open its bytes."""
    place = Place("n", "q", "payload", "a")
    assert opens(serde, serde.dumps(b"body"))
    assert not opens(serde.bound(place), serde.dumps(b"body"))
    assert not opens(serde, serde.bound(place).dumps(b"body"))


@pytest.mark.parametrize(("by_queue", "by_job"), [*zip(SERDES, BY_JOB, strict=True)], ids=["Signed", "Encrypted"])
def test_bytes_of_the_other_bind_are_refused(by_queue: Signed | Encrypted, by_job: Signed | Encrypted) -> None:
    """Bytes bound to the queue do not pass for those of a job, nor those of a job for any of the queue."""
    place = Place("n", "q", "payload", "a")
    assert not opens(by_job.bound(place), by_queue.bound(place).dumps(b"body"))
    assert not opens(by_queue.bound(place), by_job.bound(place).dumps(b"body"))


@pytest.mark.parametrize("serde", SERDES + BY_JOB, ids=repr)
def test_keys_rotate_in_a_place(serde: Signed | Encrypted) -> None:
    """A new key in front opens bytes of the old one, in their place only."""
    place, elsewhere = Place("n", "q", "payload", "a"), Place("n", "other", "payload", "a")
    both = type(serde)("raw", [type(serde).new_key(), KEY], bind=serde.bind)
    assert opens(both.bound(place), serde.bound(place).dumps(b"body"))
    assert not opens(both.bound(elsewhere), serde.bound(place).dumps(b"body"))


@pytest.mark.parametrize("serde", SERDES + BY_JOB, ids=repr)
def test_a_bound_serde_can_be_sent_to_another_process(serde: Signed | Encrypted) -> None:
    """A copy made by pickle is bound as the original is."""
    place = Place("n", "q", "payload", "a")
    copied = pickle.loads(pickle.dumps(serde.bound(place)))
    assert copied == serde.bound(place)
    assert copied != serde
    assert hash(copied) == hash(serde.bound(place))
    assert opens(copied, serde.bound(place).dumps(b"body"))


@pytest.mark.parametrize(
    "build",
    [
        lambda bind: Compressed(Signed("raw", KEY, bind=bind)),
        lambda bind: Signed(Compressed(RawSerde()), KEY, bind=bind),
        lambda bind: Signed(Encrypted("raw", KEY, bind=bind), KEY),
        lambda bind: Compressed(Compressed(Encrypted(Compressed(RawSerde()), KEY, bind=bind))),
    ],
    ids=["outside", "inside", "both", "many"],
)
@pytest.mark.parametrize("bind", ["queue", "job"])
def test_a_serde_is_bound_through_the_wrappers_around_it(build: Any, bind: Literal["queue", "job"]) -> None:
    """A wrapper that knows no places is kept, and the serde inside it is bound."""
    codec = Codec(build(bind), build(bind))
    here, elsewhere = bind_codec(codec, "n", "q"), bind_codec(codec, "n", "other")
    data = here.payload_for("a").dumps(b"body")
    assert opens(here.payload_for("a"), data)
    assert opens(here.payload_for("b"), data) == (bind == "queue")
    assert not opens(elsewhere.payload_for("a"), data)
    assert not opens(here.result_for("a"), data)
    assert opens(here.result_for("a"), here.result_for("a").dumps(b"body"))
    assert (here.payload_of_job is None) == (bind == "queue")


def test_serdes_without_a_place_stay_as_they_are() -> None:
    """A codec of plain serdes, and of a user's wrapper around one, holds the same objects as before."""
    plain, wrapped = JsonSerde(), Compressed(JsonSerde())
    codec = bind_codec(Codec(plain, wrapped), "n", "q")
    assert codec.payload is plain
    assert codec.result is wrapped
    assert codec.payload_for("a") is plain
    assert codec.result_for("a") is wrapped
    assert not is_bindable(wrapped)
    assert bind_serde(wrapped, Place("n", "q", "payload")) is wrapped


def test_wrappers_are_kept_around_another_serde() -> None:
    """`with_innermost` replaces the serde that encodes values, and no wrapper."""
    serde = Compressed(Signed("json", KEY))
    raw = with_innermost(serde, RawSerde())
    assert raw.loads(serde.dumps([1]), bytes) == b"[1]"
    assert innermost(raw) == RawSerde()


def test_the_way_to_bind_is_checked_and_compared() -> None:
    """`bind` is "queue" or "job", is shown, and makes two serdes of one queue differ."""
    with pytest.raises(ValueError, match='bind must be "queue" or "job", not \'none\''):
        Signed("json", KEY, bind="none")  # type: ignore[arg-type]
    assert repr(Signed("json", KEY, bind="job")) == "Signed(JsonSerde(), <1 key>, bind='job')"
    app = Penstock("memory:")
    app.queue("q", serde=Signed("json", KEY))
    with pytest.raises(ValueError, match="has the serde"):
        app.queue("q", serde=Signed("json", KEY, bind="job"))
