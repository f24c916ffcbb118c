"""Serdes for storages that are not trusted: `Signed` detects changes, `Encrypted` also hides the content.

Both protect the bytes of one payload or result against programs that can write to the storage, or read
it. They do not bind it to its queue, id or time: an old message can be put back, or into another queue
with the same keys, and a result can be passed off as a payload. Give queues that must not be mixed keys
of their own, and results other keys than payloads (`result_serde=`). Ids, groups, headers, progress and
the texts of errors are not protected.
"""

from __future__ import annotations

import binascii
import hashlib
import hmac
import importlib
import os
from base64 import urlsafe_b64encode
from collections.abc import Sequence
from typing import Any, Protocol, cast

from penstock.errors import InvalidPayload
from penstock.model.formats import resolve_serde
from penstock.model.serde import Serde

__all__ = ["Encrypted", "Signed"]

# The first byte occurs in no UTF-8 text, so in no JSON, and in no msgpack; the last byte is the version.
SIGNED = b"\xc1PS\x01"
ENCRYPTED = b"\xc1PE\x01"

MIN_SECRET = 16
KEY = 32
MAC = hashlib.sha256().digest_size
KEY_ID = 4
NONCE = 12
TAG = 16
URL_SAFE = bytes.maketrans(b"-_", b"+/")


class _KeyedSerde:
    """A serde around another one, with keys: dumps uses the first key, loads tries all of them."""

    def __init__(self, serde: str | Serde, keys: Sequence[bytes]) -> None:
        self._inner = resolve_serde(serde)
        self._keys = tuple(keys)

    def __repr__(self) -> str:
        count = len(self._keys)
        return f"{type(self).__name__}({self._inner!r}, <{count} key{'s' if count > 1 else ''}>)"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _KeyedSerde) or type(self) is not type(other):
            return NotImplemented
        return self._inner == other._inner and self._keys == other._keys

    def __hash__(self) -> int:
        return hash((type(self), self._keys))

    @property
    def inner(self) -> Serde:
        """The serde inside, which encodes the values."""
        return self._inner


class Signed(_KeyedSerde):
    """A serde whose bytes carry a signature (HMAC-SHA256), so that changed bytes are refused.

    `keys` is one key or a list of them, each at least 16 bytes (or as much text): the first one signs,
    all of them verify, so a new key is put in front and an old one removed when its messages are gone.
    The payload stays readable; it is not bound to its queue, id or time.
    """

    def __init__(self, serde: str | Serde, keys: bytes | str | Sequence[bytes | str]) -> None:
        super().__init__(serde, [_secret(key) for key in _key_list(keys)])
        self._secrets = [_derived(key, b"penstock signed 1") for key in self._keys]

    def around(self, inner: Serde, /) -> Signed:
        """Return a serde with the same keys around another one."""
        return Signed(inner, self._keys)

    def dumps(self, value: Any, /) -> bytes:
        """Encode and sign."""
        body = self._inner.dumps(value)
        return SIGNED + _mac(self._secrets[0], body) + body

    def loads(self, data: bytes, type: Any, /) -> Any:
        """Verify and decode; bytes without a good signature are an `InvalidPayload`."""
        start = len(SIGNED) + MAC
        if not data.startswith(SIGNED) or len(data) < start:
            raise InvalidPayload(f"{len(data)} bytes are not signed, or in another format")
        given, body = data[len(SIGNED) : start], data[start:]
        if not any(hmac.compare_digest(_mac(secret, body), given) for secret in self._secrets):
            raise InvalidPayload(
                f"the signature of {len(data)} bytes is wrong: they were changed, or the key is unknown"
            )
        return self._inner.loads(body, type)


class Encrypted(_KeyedSerde):
    """A serde whose bytes cannot be read or changed without the key (AES-256-GCM).

    `keys` is one key or a list of them, each 32 bytes or the text that `Encrypted.new_key()` gives: the
    first one encrypts, all of them decrypt, so a new key is put in front and an old one removed when its
    messages are gone. Take a new key before four billion messages. The length of a payload can be seen,
    and it is not bound to its queue, id or time. Needs `pip install "penstock[crypto]"`.
    """

    def __init__(self, serde: str | Serde, keys: bytes | str | Sequence[bytes | str]) -> None:
        super().__init__(serde, [_key(key) for key in _key_list(keys)])
        cipher = _aes_gcm()
        self._ciphers = [
            (_derived(key, b"penstock encrypted 1 id")[:KEY_ID], cipher(_derived(key, b"penstock encrypted 1")))
            for key in self._keys
        ]

    def __reduce__(self) -> tuple[Any, ...]:
        return Encrypted, (self._inner, self._keys)

    @staticmethod
    def new_key() -> str:
        """Return a new random key, as text."""
        return urlsafe_b64encode(os.urandom(KEY)).decode()

    def around(self, inner: Serde, /) -> Encrypted:
        """Return a serde with the same keys around another one."""
        return Encrypted(inner, self._keys)

    def dumps(self, value: Any, /) -> bytes:
        """Encode and encrypt."""
        key_id, cipher = self._ciphers[0]
        head, nonce = ENCRYPTED + key_id, os.urandom(NONCE)
        return head + nonce + cipher.encrypt(nonce, self._inner.dumps(value), head)

    def loads(self, data: bytes, type: Any, /) -> Any:
        """Decrypt and decode; bytes that no key decrypts are an `InvalidPayload`."""
        start = len(ENCRYPTED) + KEY_ID
        if not data.startswith(ENCRYPTED) or len(data) < start + NONCE + TAG:
            raise InvalidPayload(f"{len(data)} bytes are not encrypted, or in another format")
        head, nonce, ciphertext = data[:start], data[start : start + NONCE], data[start + NONCE :]
        return self._inner.loads(self._decrypt(head, nonce, ciphertext), type)

    def _decrypt(self, head: bytes, nonce: bytes, ciphertext: bytes) -> bytes:
        wanted = head[len(ENCRYPTED) :]
        ciphers = [cipher for key_id, cipher in self._ciphers if key_id == wanted]
        for cipher in ciphers:
            try:
                return cipher.decrypt(nonce, ciphertext, head)
            except Exception:  # the InvalidTag of the library, which has no details
                continue
        why = "they were changed" if ciphers else "their key is not among those given"
        raise InvalidPayload(f"{len(ciphertext)} bytes cannot be decrypted: {why}")


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
        raise ValueError(f"keys must have at least {MIN_SECRET} bytes, not {len(data)}")
    return data


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
    return data


def _bytes(key: bytes | str) -> bytes:
    if isinstance(key, str):
        return key.encode()
    if not isinstance(key, bytes):
        raise TypeError(f"keys must be bytes or str, not {type(key).__name__}")
    return key


def _derived(key: bytes, purpose: bytes) -> bytes:
    """Derive a key for one purpose, so that signing and encrypting never share one."""
    return hmac.digest(key, purpose, "sha256")


def _mac(secret: bytes, body: bytes) -> bytes:
    return hmac.digest(secret, body, "sha256")
