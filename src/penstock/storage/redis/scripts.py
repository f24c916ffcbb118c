"""Lua files as objects: text, digest, and the keys they touch."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from penstock.storage.base import EXPIRED, MAX_BATCH, MAX_BYTES
from penstock.storage.redis.encoding import FORMAT
from penstock.storage.redis.keys import QUEUE_KEYS
from penstock.storage.redis.lua_constants import inline_constants

__all__ = ["WRITE", "Script", "script", "short_script"]

_FORMAT = "local FORMAT = {}\n"
_FAST = "local FAST = {}\n"
_MAX_BATCH = "local MAX_BATCH = {} "
_MAX_BYTES = "local MAX_BYTES = {} "
_EXPIRED = "local EXPIRED = '{}'\n"
#: Around the helpers and the body of every script: its events are published after it has made its answer
#: (`_events.lua`). The body is a function, and the helpers outside of it are its upvalues: Lua passes an upvalue on
#: to a function within by a pointer, but searches a list for each variable of the body that such a function uses.
_FIRST = "local publish_events\n"
_BEFORE = "\nlocal function run()\n"
_AFTER = "\nend\nlocal answer = run()\nif publish_events then publish_events() end\nreturn answer\n"
_INCLUDE = re.compile(r"^-- include: (.*)$", re.MULTILINE)
_HEADER = re.compile(r"^-- (flags|keys|args|gives):(.*)$", re.MULTILINE)


@dataclass(frozen=True)
class Script:
    """One Lua script; `keys` are those of its queue, which a call on a Cluster declares."""

    name: str
    text: str
    sha: str
    keys: tuple[str, ...]


def _source(name: str) -> str:
    return (files("penstock.storage.redis") / "lua" / f"{name}.lua").read_text("utf-8")


def _with_includes(body: str, included: set[str]) -> str:
    """Return a text with its `include` lines replaced by the files they name, each file once."""

    def files_of(line: re.Match[str]) -> str:
        wanted = [name for name in line[1].split() if name not in included]
        included.update(wanted)
        return "\n".join(_with_includes(_source(f"_{name}"), included) for name in wanted)

    return _INCLUDE.sub(files_of, body)


@cache
def script(name: str, format: int = FORMAT, fast: bool = True) -> Script:
    """Read a script: `_base.lua` first, then the script with its includes, which begin with `_queue.lua` by default.

    `format` is the newest record format that it reads, and the one it writes. `fast` allows its fast path.
    """
    body = _source(name)
    header = {key: value.split() for key, value in _HEADER.findall(body)}
    missing = {"flags", "keys", "args", "gives"} - header.keys()
    if missing or not body.startswith(f"-- {name}: "):
        raise ValueError(f"{name}.lua must start with '-- {name}: ' and have a header of flags, keys, args, gives")
    helpers = _source("_base")
    if not any("queue" in line.split() for line in _INCLUDE.findall(body)):
        helpers += "-- include: queue\n"
    text = _with_includes(f"{_FIRST}{helpers}{_BEFORE}{body}{_AFTER}", set())
    text = f"{_first_line(header['flags'])}{text}"
    text = text.replace(_FORMAT.format(FORMAT), _FORMAT.format(format))
    text = text.replace(_FAST.format("true"), _FAST.format("true" if fast else "false"))
    text = text.replace(_EXPIRED.format(""), _EXPIRED.format("".join(f"\\{byte:03}" for byte in EXPIRED)))
    text = text.replace(_MAX_BATCH.format(1000), _MAX_BATCH.format(MAX_BATCH))
    text = text.replace(_MAX_BYTES.format(4000000), _MAX_BYTES.format(MAX_BYTES))
    text = inline_constants(text)
    keys = tuple(key for key in header["keys"] if key in QUEUE_KEYS)
    return Script(name, text, _sha(text), keys)


def _first_line(flags: Sequence[str]) -> str:
    """Return the line that gives the server the flags of a script. It must be the first.

    `no-writes` is for reads. `allow-oom` is for scripts that a server with a full memory must run too: the memory that
    they may add is bounded, and most of them free some. A script without a flag is refused then, before it begins.
    """
    return f"#!lua flags={','.join(flags)}\n" if flags else "#!lua\n"


def _sha(text: str) -> str:
    return hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


def short_script(name: str, body: str) -> Script:
    """Return a script of these lines alone, for writes of a few bytes that a full server must accept too."""
    text = f"{_first_line(['allow-oom'])}{body}"
    return Script(name, text, _sha(text), ())


#: Runs the command in its arguments.
WRITE = short_script("write", "return redis.call(unpack(ARGV))\n")
