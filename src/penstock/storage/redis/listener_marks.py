"""Marks of event listeners: entries in the hash `listeners`, without which the scripts publish no events."""

from __future__ import annotations

import secrets
from collections.abc import Collection
from struct import pack

from penstock.model.ids import family_of
from penstock.storage.redis.connection import Connection
from penstock.storage.redis.encoding import text
from penstock.storage.redis.keys import Keys
from penstock.storage.redis.scripts import short_script

__all__ = ["LISTENER_MS", "ListenerMarks", "encode_filter"]

#: The time to live (ms) of a listener's entry, which the listener renews.
LISTENER_MS = 15_000

#: Removes the entries of an owner, and those that have expired, then adds the given ones. Returns the secret, which all
#: listeners share: each keeps the one that it finds. `_events.lua` describes an entry.
MARK_LISTENER = short_script(
    "mark_listener",
    """
-- args: owner, time to live in ms, secret, then field and entry without owner and time, ...
local key, owner, ms, secret = KEYS[1], ARGV[1], tonumber(ARGV[2]), ARGV[3]
local time = redis.call('TIME')
local now, fields, left = time[1] * 1000 + math.floor(time[2] / 1000), {}, false
local found = redis.pcall('HGETALL', key)
if found.err then
  redis.call('DEL', key)
  found = {}
end
for i = 1, #found, 2 do
  local value, at, entries = found[i + 1], 1, {}
  if found[i] == '' then
    if #value >= 32 then secret = string.sub(value, 1, 32) end
    at = 33
  end
  while at + 25 <= #value do
    local ends, names, channel = struct.unpack('>I6HH', value, at + 16)
    local last = at + 25 + names + channel
    local live = ends > now and ends < now + 4 * ms -- later ones are of a clock that was set back
    if live and string.sub(value, at, at + 15) ~= owner then entries[#entries + 1] = string.sub(value, at, last) end
    at = last + 1
  end
  fields[found[i]] = table.concat(entries)
end
for i = 4, #ARGV, 2 do
  fields[ARGV[i]] = (fields[ARGV[i]] or '') .. owner .. struct.pack('>I6', now + ms) .. ARGV[i + 1]
end
for _, entries in pairs(fields) do left = left or entries ~= '' end
if not left then
  redis.call('DEL', key)
  return secret
end
for field, entries in pairs(fields) do
  if field ~= '' and entries == '' then redis.call('HDEL', key, field) end
  if field ~= '' and entries ~= '' then redis.call('HSET', key, field, entries) end
end
redis.call('HSET', key, '', secret .. (fields[''] or ''))
redis.call('PEXPIRE', key, ms)
return secret
""",
)


def encode_filter(names: Collection[str] | None, channel: str) -> bytes:
    """Encode the names of events (None: all) and the channel of a listener, as the end of its entry."""
    wanted = f",{','.join(sorted(names))},".encode() if names is not None else b""
    return pack(">HH", len(wanted), len(channel.encode())) + wanted + channel.encode()


class ListenerMarks:
    """The entries of one listener: one, or on a Cluster one for each family it listens to and one for the workers."""

    def __init__(self, connection: Connection, keys: Keys, queue: str | None, names: Collection[str] | None) -> None:
        self._connection = connection
        self._keys = keys
        self._queue = queue
        self.channel = keys.events_of(queue, names)
        self._owner = secrets.token_hex(8)
        self._entry = encode_filter(names, self.channel)
        #: The secrets of the seals: more than one only if two listeners marked the families of a Cluster at once.
        self.secrets: set[str] = set()

    async def set(self) -> None:
        """Add or renew the entries, so that the scripts publish events, and remember the secrets."""
        found: set[str] = set()
        secret = secrets.token_hex(16)
        for key in await self._names():
            secret = await self._mark(key, secret, self._queue or "", self._entry)
            found.add(secret)
        self.secrets = found

    async def remove(self) -> None:
        """Remove the entries; those of other listeners stay."""
        for key in await self._names():
            await self._mark(key, "")

    async def _mark(self, key: str, secret: str, *entry: str | bytes) -> str:
        args = [self._owner, LISTENER_MS, secret, *entry]
        return text(await self._connection.run(MARK_LISTENER, [key], args, repeat=True))

    async def _names(self) -> list[str]:
        """Return the keys of the entries; that of the workers is the first, so that its secret is everywhere."""
        if not self._keys.cluster:
            return [self._keys.listeners("")]
        families = ["workers"]
        if self._queue is not None:
            families.append(family_of(self._queue))
        else:
            families += sorted(map(text, await self._connection.command("SMEMBERS", self._keys.families)))
        return [self._keys.listeners(family) for family in dict.fromkeys(families)]
