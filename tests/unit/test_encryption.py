"""Signed and encrypted payloads."""

from __future__ import annotations

import pickle
import sys
from typing import Any

import pytest

from penstock import Encrypted, InvalidPayload, Penstock, Signed
from penstock.model.formats import JsonSerde, MsgpackSerde, RawSerde, check_type, codec_for
from penstock.model.serde import Serde

A, B = "a secret of sixteen", b"another secret, as bytes"
K, L = "ZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXp7fH1-f4CBgoM=", bytes(range(32))


def serde_of(kind: type[Any], *keys: int, serde: str | Serde = "json") -> Any:
    secrets = [A, B] if kind is Signed else [K, L]
    return kind(serde, [secrets[key] for key in keys])


@pytest.fixture(params=[Signed, Encrypted])
def kind(request: pytest.FixtureRequest) -> type[Any]:
    return request.param


def test_values_survive(kind: type[Any]) -> None:
    """A signed or encrypted value comes back, typed by the annotation, with any serde inside."""
    assert serde_of(kind, 0).loads(serde_of(kind, 0).dumps({"a": [1]}), dict[str, list[int]]) == {"a": [1]}
    raw = serde_of(kind, 0, serde="raw")
    assert raw.loads(raw.dumps(b"\xff"), bytes) == b"\xff"
    assert raw.loads(raw.dumps(b""), bytes) == b""


def test_one_key_or_several(kind: type[Any]) -> None:
    """A key alone is a list of one."""
    key = A if kind is Signed else K
    assert kind("json", key) == kind(JsonSerde(), (key,)) == serde_of(kind, 0)


def test_keys_rotate(kind: type[Any]) -> None:
    """The first key seals, every key opens, and a key that is gone opens nothing."""
    old, both, new = serde_of(kind, 0), serde_of(kind, 1, 0), serde_of(kind, 1)
    assert both.loads(old.dumps(1), Any) == 1
    assert new.loads(both.dumps(1), Any) == 1
    with pytest.raises(InvalidPayload):
        old.loads(both.dumps(1), Any)
    with pytest.raises(InvalidPayload):
        new.loads(old.dumps(1), Any)


def test_every_changed_byte_is_noticed(kind: type[Any]) -> None:
    """No bit of the bytes can be flipped, none left out and none added."""
    serde = serde_of(kind, 0, serde="raw")
    data = serde.dumps(b"payload")
    for at in range(len(data)):
        for bad in (data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :], data[:at], data[:at] + data[at + 1 :]):
            with pytest.raises(InvalidPayload):
                serde.loads(bad, Any)
    with pytest.raises(InvalidPayload):
        serde.loads(data + b"x", Any)


def test_other_bytes_are_refused(kind: type[Any]) -> None:
    """Plain payloads, the other kind of sealing and nothing at all are no sealed payload, and the other way round."""
    serde, other = serde_of(kind, 0), serde_of(Encrypted if kind is Signed else Signed, 0)
    for data in (b"", b"{}", JsonSerde().dumps({"a": 1}), MsgpackSerde().dumps([1]), other.dumps(1)):
        with pytest.raises(InvalidPayload):
            serde.loads(data, Any)
    for plain in (JsonSerde(), MsgpackSerde()):
        with pytest.raises(InvalidPayload):
            plain.loads(serde.dumps(1), Any)


def test_the_same_secret_serves_both_kinds_apart() -> None:
    """A key is never used as it is, so that no bytes of one kind mean anything to the other."""
    signed, encrypted = Signed("raw", L), Encrypted("raw", L)
    assert signed.dumps(b"x")[:4] != encrypted.dumps(b"x")[:4]
    with pytest.raises(InvalidPayload):
        signed.loads(encrypted.dumps(b"x"), Any)


def test_encryption_hides_and_never_repeats() -> None:
    """The payload cannot be seen, and the same one looks different each time."""
    serde = serde_of(Encrypted, 0, serde="raw")
    first, second = serde.dumps(b"a very secret text"), serde.dumps(b"a very secret text")
    assert b"secret" not in first
    assert first != second


def test_new_keys_are_fresh_and_good(kind: type[Any]) -> None:
    """`new_key` gives text that can be kept in a setting; for encryption with or without its padding."""
    key = kind.new_key()
    assert key != kind.new_key()
    assert kind("json", [kind.new_key(), key]).loads(kind("json", key).dumps(1), Any) == 1
    assert Encrypted("json", key) == Encrypted("json", key.rstrip("="))


def test_keys_are_never_shown(kind: type[Any]) -> None:
    """Neither the text of a serde nor its errors hold a key."""
    serde = serde_of(kind, 0, 1)
    assert repr(serde) == f"{kind.__name__}(JsonSerde(), <2 keys>)"
    assert repr(serde_of(kind, 0)) == f"{kind.__name__}(JsonSerde(), <1 key>)"
    app = Penstock("memory:")
    app.queue("q", serde=serde)
    with pytest.raises(ValueError, match="has the serde") as refused:
        app.queue("q", serde=serde_of(kind, 0))
    texts = [str(refused.value)]
    for bad in ("short secret", b"short secret", "not base64 at all! not base64 at all!!"):
        try:
            kind("json", bad)
        except ValueError as error:
            texts.append(repr(error))
    assert not any(secret in text for text in texts for secret in (A, K, "another", "short secret", "not base64"))


def test_equal_ones_are_one_serde(kind: type[Any]) -> None:
    """A queue may be given equal sealed serdes twice, and they compare by kind, serde and keys."""
    app = Penstock("memory:")
    assert app.queue("q", serde=serde_of(kind, 0, 1)) is app.queue("q", serde=serde_of(kind, 0, 1))
    assert hash(serde_of(kind, 0)) == hash(serde_of(kind, 0))
    assert serde_of(kind, 0, 1) != serde_of(kind, 1, 0)
    assert serde_of(kind, 0) != serde_of(kind, 0, serde="msgpack")
    assert serde_of(kind, 0) != JsonSerde()


def test_they_can_be_sent_to_another_process(kind: type[Any]) -> None:
    """A copy made by pickle opens what the original sealed."""
    serde = serde_of(kind, 0)
    assert pickle.loads(pickle.dumps(serde)).loads(serde.dumps([1]), Any) == [1]


@pytest.mark.parametrize("bad", [[], (), 5, None, [5], {"a": 1}])
def test_keys_that_are_none_are_refused(kind: type[Any], bad: Any) -> None:
    """The exception names the argument."""
    with pytest.raises((TypeError, ValueError), match="keys must"):
        kind("json", bad)


@pytest.mark.parametrize(
    ("kind", "key"),
    [
        (Signed, "fifteen letters"),
        (Signed, b""),
        (Signed, "k" * 16),
        (Signed, "abcd" * 8),
        (Encrypted, b"x" * 31),
        (Encrypted, "x" * 32),
        (Encrypted, "é" * 43),
        (Encrypted, bytes(32)),
        (Encrypted, b"1234" * 8),
        (Encrypted, "A" * 43),
    ],
)
def test_weak_keys_are_refused(kind: type[Any], key: Any) -> None:
    """Signing wants 16 bytes at least, encryption exactly 32, and neither a repetition of few bytes."""
    with pytest.raises(ValueError, match=rf"keys must .*{kind.__name__}\.new_key\(\)"):
        kind("json", [key])


def test_results_of_an_encrypted_raw_queue_are_encrypted_msgpack(kind: type[Any]) -> None:
    """Raw has no None, so the results are msgpack, under the same seal."""
    payload = serde_of(kind, 0, serde="raw")
    codec = codec_for(payload, None)
    assert codec.result == serde_of(kind, 0, serde="msgpack")
    assert codec.result.loads(codec.result.dumps(None), Any) is None
    assert codec_for(payload, RawSerde()).result == RawSerde()


def test_annotations_are_checked_through_the_seal(kind: type[Any]) -> None:
    """A type that the serde inside cannot decode is refused when the handler is declared."""
    with pytest.raises(TypeError, match="JSON"):
        check_type(serde_of(kind, 0), complex)


def test_the_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without cryptography the error names the package to install, and signing still works."""
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.ciphers.aead", None)
    with pytest.raises(ImportError, match=r'pip install "penstock\[crypto\]"'):
        Encrypted("json", K)
    assert Signed("json", A).dumps(1)
