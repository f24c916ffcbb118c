"""The Lua files as objects: their text, their digest, and the keys they touch."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from penstock.storage.redis.encoding import FORMAT
from penstock.storage.redis.keys import QUEUE_KEYS

__all__ = ["Script", "script"]

_FORMAT = "local FORMAT = {}\n"
_INCLUDE = re.compile(r"^-- include: (.*)$", re.MULTILINE)
_HEADER = re.compile(r"^-- (keys|args|gives):(.*)$", re.MULTILINE)


@dataclass(frozen=True)
class Script:
    """One transition: `keys` are those of its queue, declared to the server on a Cluster."""

    name: str
    text: str
    sha: str
    keys: tuple[str, ...]


def _source(name: str) -> str:
    return (files("penstock.storage.redis") / "lua" / f"{name}.lua").read_text("utf-8")


def _with_includes(body: str, here: set[str]) -> str:
    """The text with what it includes in its place; what is there already is not said again."""

    def pieces(line: re.Match[str]) -> str:
        wanted = [part for part in line[1].split() if part not in here]
        here.update(wanted)
        return "\n".join(_with_includes(_source(f"_{part}"), here) for part in wanted)

    return _INCLUDE.sub(pieces, body)


@cache
def script(name: str, format: int = FORMAT) -> Script:
    """Read a script once: `_base.lua` in front, what it includes in its place, `_queue.lua` first if it does not say.

    `format` is the newest record format that it reads, and the one it writes.
    """
    body = _source(name)
    header = {key: value.split() for key, value in _HEADER.findall(body)}
    missing = {"keys", "args", "gives"} - header.keys()
    if missing or not body.startswith(f"-- {name}: "):
        raise ValueError(f"{name}.lua must start with '-- {name}: ' and have a header of keys, args, gives")
    if not any("queue" in line.split() for line in _INCLUDE.findall(body)):
        body = f"-- include: queue\n{body}"
    text = f"{_source('_base')}\n{_with_includes(body, set())}".replace(_FORMAT.format(FORMAT), _FORMAT.format(format))
    keys = tuple(key for key in header["keys"] if key in QUEUE_KEYS)
    return Script(name, text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest(), keys)
