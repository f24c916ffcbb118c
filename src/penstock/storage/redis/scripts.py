"""The Lua files as objects: their text, their digest, and the keys they touch."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from penstock.storage.redis.keys import QUEUE_KEYS
from penstock.storage.redis.records import FORMAT

__all__ = ["Script", "script"]

_FORMAT = "local FORMAT = {}\n"
_HEADER = re.compile(r"^-- (uses|keys|args|gives):(.*)$", re.MULTILINE)


@dataclass(frozen=True)
class Script:
    """One transition: `keys` are those of its queue, declared to the server on a Cluster."""

    name: str
    text: str
    sha: str
    keys: tuple[str, ...]


def _source(name: str) -> str:
    return (files("penstock.storage.redis") / "lua" / f"{name}.lua").read_text("utf-8")


@cache
def script(name: str, format: int = FORMAT) -> Script:
    """Read a script once: `_shared.lua` in front, `_moves.lua` too where its header says so.

    `format` is the newest record format that it reads, and the one it writes.
    """
    body = _source(name)
    header = {key: value.split() for key, value in _HEADER.findall(body)}
    missing = {"keys", "args", "gives"} - header.keys()
    if missing or not body.startswith(f"-- {name}: "):
        raise ValueError(f"{name}.lua must start with '-- {name}: ' and have a header of keys, args, gives")
    parts = [_source("_shared"), *(_source(f"_{used}") for used in header.get("uses", [])), body]
    text = "\n".join(parts).replace(_FORMAT.format(FORMAT), _FORMAT.format(format))
    keys = tuple(key for key in header["keys"] if key in QUEUE_KEYS)
    return Script(name, text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest(), keys)
