"""The settings behind a limit: declared in code, and changed at run time; the change wins until it is reset."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from penstock.errors import UNREADABLE
from penstock.model.limit import Limit
from penstock.model.settings import Declarer

__all__ = ["LimitSettings"]


class LimitSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The two parts of a limit, and the worker whose declaration holds; None where there is none."""

    declared: Limit | None = None
    declarer: Declarer | None = None
    changed: Limit | None = None

    @property
    def limit(self) -> Limit | None:
        """The limit in force: the change at run time, or else the declaration."""
        return self.declared if self.changed is None else self.changed

    def declare(self, limit: Limit | None, declarer: Declarer | None) -> LimitSettings:
        """Return the settings with this declaration; without a limit it has no declarer."""
        return replace(self, declared=limit, declarer=None if limit is None else declarer)

    def change(self, limit: Limit | None) -> LimitSettings:
        """Return the settings with this change at run time; None forgets it."""
        return replace(self, changed=limit)

    def encode(self) -> bytes:
        """Return its stored form, b"" if there is neither part."""
        if self.declared is None and self.changed is None:
            return b""
        declarer = self.declarer or NO_DECLARER
        return _encode(_Stored(_part(self.declared), declarer.worker, declarer.started, _part(self.changed)))

    @classmethod
    def decode(cls, data: bytes) -> LimitSettings:
        """Return stored settings; bytes that are none give no settings."""
        try:
            stored = _decode(data) if data else _Stored()
        except UNREADABLE:
            return cls()
        declared = Limit.decode(stored.declared)
        declarer = Declarer(stored.worker, stored.started) if declared is not None and stored.worker else None
        return cls(declared=declared, declarer=declarer, changed=Limit.decode(stored.changed))


class _Stored(msgspec.Struct, omit_defaults=True):
    """The stored form; a limit that is b"" is None."""

    declared: bytes = b""
    worker: str = ""
    started: int = 0
    changed: bytes = b""


def _part(limit: Limit | None) -> bytes:
    return b"" if limit is None else limit.encode()


NO_DECLARER = Declarer("", 0)

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Stored).decode
