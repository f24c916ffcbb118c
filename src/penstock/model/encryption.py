"""Serdes for storages that are not trusted: `Signed` detects changes, `Encrypted` also hides the content.

Both protect the bytes of one payload or result against programs that can write to the storage, or read it.
A check value (a signature, or the tag of the cipher) covers the bytes and where they belong: the app's namespace,
the queue, and whether they are a payload or a result; with `bind="job"` the job's id too. Bytes that were moved
elsewhere are refused. They are not bound to a time: with the default, `bind="queue"`, an old payload can be repeated
in its queue under any id; with `bind="job"` under its own id alone. Ids, groups, headers, progress and the texts of
errors are not protected. An error of the serde inside is passed on without any part of the value.
"""

from __future__ import annotations

import binascii
import hashlib
import hmac
import importlib
import os
from base64 import urlsafe_b64encode
from collections.abc import Sequence
from typing import Any, Literal, Protocol, Self, cast

from msgspec.structs import replace

from penstock.errors import InvalidPayload
from penstock.model.formats import resolve_serde
from penstock.model.serde import Place, Serde, bind_serde, is_bindable, without_values

__all__ = ["Encrypted", "Signed", "is_protected"]

# The first byte occurs in no UTF-8 text, so in no JSON, and in no msgpack; the last byte is the version.
SIGNED = b"\xc1PS\x02"
ENCRYPTED = b"\xc1PE\x02"

MIN_SECRET = 16
#: A key with fewer different bytes is a placeholder, such as sixteen times "x". Random ones have more.
MIN_DIFFERENT = 5
KEY = 32
MAC = hashlib.sha256().digest_size
KEY_ID = 4
NONCE = 12
TAG = 16
URL_SAFE = bytes.maketrans(b"-_", b"+/")
#: Why bytes may be refused though they were not changed, in messages.
ELSEWHERE = "belong to another namespace, queue or job"


class _KeyedSerde:
    """A serde around another one, with keys: dumps uses the first key, loads tries all of them."""

    #: The first bytes of the format, which the check value covers.
    _mark: bytes

    def __init__(self, serde: str | Serde, keys: Sequence[bytes], bind: Literal["queue", "job"]) -> None:
        if bind not in ("queue", "job"):
            raise ValueError(f'bind must be "queue" or "job", not {bind!r}')
        self._set_inner(resolve_serde(serde))
        self._keys = tuple(keys)
        self._bind: Literal["queue", "job"] = bind
        self._set_place(None)

    def __repr__(self) -> str:
        count = len(self._keys)
        bind = "" if self._bind == "queue" else f", bind={self._bind!r}"
        return f"{type(self).__name__}({self._inner!r}, <{count} key{'s' if count > 1 else ''}>{bind})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _KeyedSerde) or type(self) is not type(other):
            return NotImplemented
        return (self._inner, self._keys, self._bind, self._place) == (
            other._inner,
            other._keys,
            other._bind,
            other._place,
        )

    def __hash__(self) -> int:
        return hash((type(self), self._keys, self._bind, self._place))

    @staticmethod
    def new_key() -> str:
        """Return a new random key, as text."""
        return urlsafe_b64encode(os.urandom(KEY)).decode()

    @property
    def inner(self) -> Serde:
        """The serde inside, which encodes the values."""
        return self._inner

    @property
    def bind(self) -> Literal["queue", "job"]:
        """Whether bytes are valid in the whole queue, or for the job alone that they were made for."""
        return self._bind

    def around(self, inner: Serde, /) -> Self:
        """Return a serde with the same keys around another one."""
        same = self._copy()
        same._set_inner(inner)
        return same

    def bound(self, place: Place, /) -> Self:
        """Return this serde for one place: it refuses the bytes of any other. Apps bind the serdes of their queues."""
        same = self._copy()
        if self._binds_inner:
            same._inner = bind_serde(self._inner, place)
        same._set_place(place if self._bind == "job" else replace(place, id=None))
        return same

    def _copy(self) -> Self:
        """Return a copy; `copy.copy` would derive the keys again."""
        same = object.__new__(type(self))
        vars(same).update(vars(self))
        return same

    def _set_inner(self, inner: Serde) -> None:
        self._inner = inner
        self._binds_inner = is_bindable(inner)

    def _set_place(self, place: Place | None) -> None:
        self._place = place
        self._context = _context(self._mark, place)

    def _decoded(self, body: bytes, type: Any) -> tuple[Any, str | None]:
        """Decode bytes that were opened; returns the value, or the reason why not, without any part of the value.

        It does not raise, so that no exception and no frame of its traceback holds the bytes in clear.
        """
        try:
            return self._inner.loads(body, type), None
        except Exception as error:
            return None, without_values(error, f"{len(body)} bytes cannot be decoded by {self._inner!r}")

    def _encoded(self, value: Any) -> tuple[bytes, str | None]:
        """Encode a value; returns its bytes, or the reason why not, without any part of the value."""
        try:
            data = self._inner.dumps(value)
        except Exception as error:
            return b"", without_values(error, f"cannot be encoded by {self._inner!r}")
        if not isinstance(data, bytes):
            return b"", f"{self._inner!r} must give bytes, not {type(data).__name__}"
        return data, None


class Signed(_KeyedSerde):
    """A serde whose bytes carry a signature (HMAC-SHA256), so that changed bytes are refused.

    `keys` is one key or a list of them, each the text that `Signed.new_key()` gives, or 16 random bytes at least
    (or as much text): the first one signs, all of them verify, so a new key is put in front and an old one removed
    when its messages are gone. The payload stays readable. It is valid in its namespace and queue only, and with
    `bind="job"` for its id only; a change of `bind` makes earlier messages invalid.
    """

    _mark = SIGNED

    def __init__(
        self,
        serde: str | Serde,
        keys: bytes | str | Sequence[bytes | str],
        *,
        bind: Literal["queue", "job"] = "queue",
    ) -> None:
        super().__init__(serde, [_secret(key) for key in _key_list(keys)], bind)
        self._secrets = [_derived(key, b"penstock signed 2") for key in self._keys]

    def dumps(self, value: Any, /) -> bytes:
        """Encode and sign."""
        body, refused = self._encoded(value)
        if refused is not None:
            raise _refusal(refused)
        return SIGNED + self._mac(self._secrets[0], body) + body

    def loads(self, data: bytes, type: Any, /) -> Any:
        """Verify and decode; bytes without a good signature are an `InvalidPayload`."""
        start = len(SIGNED) + MAC
        if not data.startswith(SIGNED) or len(data) < start:
            raise _refusal(f"{len(data)} bytes are not signed, or in another format")
        given, body = data[len(SIGNED) : start], data[start:]
        if not any(hmac.compare_digest(self._mac(secret, body), given) for secret in self._secrets):
            why = f"they were changed, they {ELSEWHERE}, or the key is unknown"
            raise _refusal(f"the signature of {len(data)} bytes is wrong: {why}")
        value, refused = self._decoded(body, type)
        if refused is not None:
            raise _refusal(refused)
        return value

    def _mac(self, secret: bytes, body: bytes) -> bytes:
        return hmac.digest(secret, self._context + body, "sha256")


class Encrypted(_KeyedSerde):
    """A serde whose bytes cannot be read or changed without the key (AES-256-GCM).

    `keys` is one key or a list of them, each 32 bytes or the text that `Encrypted.new_key()` gives: the
    first one encrypts, all of them decrypt, so a new key is put in front and an old one removed when its
    messages are gone. Take a new key before four billion messages. The length of a payload can be seen. It is
    valid in its namespace and queue only, and with `bind="job"` for its id only; a change of `bind` makes earlier
    messages invalid. Needs `pip install "penstock[crypto]"`.
    """

    _mark = ENCRYPTED

    def __init__(
        self,
        serde: str | Serde,
        keys: bytes | str | Sequence[bytes | str],
        *,
        bind: Literal["queue", "job"] = "queue",
    ) -> None:
        super().__init__(serde, [_key(key) for key in _key_list(keys)], bind)
        cipher = _aes_gcm()
        self._ciphers = [
            (_derived(key, b"penstock encrypted 2 id")[:KEY_ID], cipher(_derived(key, b"penstock encrypted 2")))
            for key in self._keys
        ]

    def __reduce__(self) -> tuple[Any, ...]:
        return _new_encrypted, (self._inner, self._keys, self._bind, self._place)

    def dumps(self, value: Any, /) -> bytes:
        """Encode and encrypt."""
        body, refused = self._encoded(value)
        if refused is not None:
            raise _refusal(refused)
        key_id, cipher = self._ciphers[0]
        nonce = os.urandom(NONCE)
        return ENCRYPTED + key_id + nonce + cipher.encrypt(nonce, body, self._context + key_id)

    def loads(self, data: bytes, type: Any, /) -> Any:
        """Decrypt and decode; bytes that no key decrypts are an `InvalidPayload`."""
        start = len(ENCRYPTED) + KEY_ID
        if not data.startswith(ENCRYPTED) or len(data) < start + NONCE + TAG:
            raise _refusal(f"{len(data)} bytes are not encrypted, or in another format")
        nonce, ciphertext = data[start : start + NONCE], data[start + NONCE :]
        value, refused = self._decoded(self._decrypt(data[len(ENCRYPTED) : start], nonce, ciphertext), type)
        if refused is not None:
            raise _refusal(refused)
        return value

    def _decrypt(self, wanted: bytes, nonce: bytes, ciphertext: bytes) -> bytes:
        ciphers = [cipher for key_id, cipher in self._ciphers if key_id == wanted]
        for cipher in ciphers:
            try:
                return cipher.decrypt(nonce, ciphertext, self._context + wanted)
            except Exception:  # the InvalidTag of the library, which has no details
                continue
        why = f"they were changed, or {ELSEWHERE}" if ciphers else "their key is not among those given"
        raise _refusal(f"{len(ciphertext)} bytes cannot be decrypted: {why}")


def _new_encrypted(inner: Serde, keys: tuple[bytes, ...], bind: Literal["queue", "job"], place: Place | None) -> Any:
    """Build the serde that `pickle` copies: ciphers cannot be copied themselves."""
    serde = Encrypted(inner, keys, bind=bind)
    return serde if place is None else serde.bound(place)


def is_protected(data: bytes) -> bool:
    """Return whether bytes are signed or encrypted, with nothing around them."""
    return data.startswith((SIGNED, ENCRYPTED))


class _Cipher(Protocol):
    def encrypt(self, nonce: bytes, data: bytes, associated_data: bytes, /) -> bytes: ...

    def decrypt(self, nonce: bytes, data: bytes, associated_data: bytes, /) -> bytes: ...


class _CipherFactory(Protocol):
    def __call__(self, key: bytes, /) -> _Cipher: ...


def _aes_gcm() -> _CipherFactory:
    try:
        module = importlib.import_module("cryptography.hazmat.primitives.ciphers.aead")
    except ImportError as error:
        raise ImportError('Encrypted needs cryptography: pip install "penstock[crypto]"') from error
    return cast("_CipherFactory", module.AESGCM)


def _key_list(keys: bytes | str | Sequence[bytes | str]) -> list[bytes | str]:
    if isinstance(keys, bytes | str):
        return [keys]
    if not isinstance(keys, list | tuple):
        raise TypeError(f"keys must be one key or a list of them, not {type(keys).__name__}")
    if not keys:
        raise ValueError("keys must not be empty: the first one is for writing, all of them are for reading")
    return list(cast("Sequence[bytes | str]", keys))


def _secret(key: bytes | str) -> bytes:
    data = _bytes(key)
    if len(data) < MIN_SECRET:
        raise ValueError(f"keys must have at least {MIN_SECRET} bytes, not {len(data)}: Signed.new_key() gives one")
    return _check_variety(data, "Signed")


def _key(key: bytes | str) -> bytes:
    data = _bytes(key)
    if isinstance(key, str):
        try:
            padded = data.translate(URL_SAFE) + b"=" * (-len(data) % 4)
            data = binascii.a2b_base64(padded, strict_mode=True)
        except binascii.Error:
            data = b""
    if len(data) != KEY:
        raise ValueError(f"keys must be {KEY} bytes, or their urlsafe base64 text as Encrypted.new_key() gives it")
    return _check_variety(data, "Encrypted")


def _check_variety(key: bytes, kind: str) -> bytes:
    """Return a key; raises `ValueError` for one that can be guessed, because it is a repetition of few bytes."""
    if len(set(key)) < MIN_DIFFERENT:
        raise ValueError(
            f"keys must be random: this one has fewer than {MIN_DIFFERENT} different bytes; {kind}.new_key() gives one"
        )
    return key


def _bytes(key: bytes | str) -> bytes:
    if isinstance(key, str):
        return key.encode()
    if not isinstance(key, bytes):
        raise TypeError(f"keys must be bytes or str, not {type(key).__name__}")
    return key


def _derived(key: bytes, purpose: bytes) -> bytes:
    """Derive a key for one purpose, so that signing and encrypting never share one."""
    return hmac.digest(key, purpose, "sha256")


def _context(mark: bytes, place: Place | None) -> bytes:
    """Return the bytes that a check value covers besides the body: the format with its version, and the place.

    The number of parts comes first and the length of each before it, so no two places have the same bytes, and
    none can be continued by a body. A serde that was never bound has no place, and its bytes are valid in none.
    """
    parts = [mark]
    if place is not None:
        names = [place.namespace, place.queue, place.kind] + ([] if place.id is None else [place.id])
        parts += [name.encode("utf-8", "surrogatepass") for name in names]
    return bytes([len(parts)]) + b"".join(len(part).to_bytes(4, "big") + part for part in parts)


def _refusal(text: str) -> InvalidPayload:
    """Return an error whose text has no part of a value."""
    return InvalidPayload(text, without_values=text)
