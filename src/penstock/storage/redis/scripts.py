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

__all__ = ["DELETE_MARK", "SET_MARK", "WRITE", "Script", "script"]

_FORMAT = "local FORMAT = {}\n"
_FAST = "local FAST = {}\n"
_MAX_BATCH = "local MAX_BATCH = {} "
_MAX_BYTES = "local MAX_BYTES = {} "
_EXPIRED = "local EXPIRED = '{}'\n"
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
    if not any("queue" in line.split() for line in _INCLUDE.findall(body)):
        body = f"-- include: queue\n{body}"
    text = f"{_first_line(header['flags'])}{_source('_base')}\n{_with_includes(body, set())}"
    text = text.replace(_FORMAT.format(FORMAT), _FORMAT.format(format))
    text = text.replace(_FAST.format("true"), _FAST.format("true" if fast else "false"))
    text = text.replace(_EXPIRED.format(""), _EXPIRED.format("".join(f"\\{byte:03}" for byte in EXPIRED)))
    text = text.replace(_MAX_BATCH.format(1000), _MAX_BATCH.format(MAX_BATCH))
    text = text.replace(_MAX_BYTES.format(4000000), _MAX_BYTES.format(MAX_BYTES))
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


_WRITE = f"{_first_line(['allow-oom'])}return redis.call(unpack(ARGV))\n"
#: Runs the command in its arguments: a write of a few bytes that a full server must accept too.
WRITE = Script("write", _WRITE, _sha(_WRITE), ())

_SET_MARK = f"""{_first_line(["allow-oom"])}local old = redis.call('GET', KEYS[1]) or ''
local secret = #old > 48 and string.sub(old, 17, 48) or ARGV[2]
redis.call('SET', KEYS[1], ARGV[1] .. secret .. ARGV[3], 'PX', ARGV[4])
return secret
"""
#: Sets the mark of an event listener: its owner, the secret in the mark that there is or else in an argument, and the
#: channel. Returns the secret.
SET_MARK = Script("set_mark", _SET_MARK, _sha(_SET_MARK), ())

_DELETE_MARK = f"""{_first_line(["allow-oom"])}if string.sub(redis.call('GET', KEYS[1]) or '', 1, 16) == ARGV[1] then
  redis.call('DEL', KEYS[1])
end
"""
#: Deletes the mark of an event listener if the owner in its argument has set it.
DELETE_MARK = Script("delete_mark", _DELETE_MARK, _sha(_DELETE_MARK), ())
