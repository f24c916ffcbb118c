"""A TCP proxy in front of a Redis or Valkey server that causes the faults of a network.

    with Proxy(server.port) as proxy:
        app = Penstock(f"redis://{proxy.address}/0")
        lost = proxy.lose_reply("EVALSHA")        # the server runs it, the client gets no answer
        ...
        assert lost.happened

It listens on a free loopback port and runs on an event loop in its own thread, so a test may block, and clients
may be in other processes. It understands just enough of the protocol to match replies with commands. Every
method may be called from any thread and has taken effect when it returns.

Faults of one command, the first, the nth, or the next few that contain a text:

- `lose_reply`: the server runs it, its reply is dropped;
- `lose_request`: the server never gets it.

After either the connection is `"cut"`, or stays half-open (`"silence"`): no bytes pass in either direction, and
neither side is notified. A reply can also arrive late: `hold_reply`, then `release`. TCP cannot drop a reply
and deliver the next one, so the replies behind a lost one are lost as well.

Faults of all connections: `delay`, `cut`, `silence` (half-open), `refuse` (no new connections), and `heal`, which
ends all of them and the faults that still wait for their command. Half-open connections stay so: their bytes
are lost. `close` ends everything.

Two limits. The kernel behind a half-open connection still acknowledges bytes and keep-alive probes, so only
timeouts and probes of the client itself notice it. And clients of a Cluster or Sentinel follow the addresses
that the servers announce: give each node a proxy with a chosen port (`Proxy(…, port=…)`) and start the node
with `cluster-announce-port` (or `replica-announce-port`) set to it.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Literal, TypeVar

__all__ = ["Fault", "Proxy"]

T = TypeVar("T")
After = Literal["cut", "silence"]

HOST = "127.0.0.1"
_CHUNK = 65_536
_SIZED, _LISTS, _MAPS, _PUSH = b"$=!", b"*~>", b"%", ord(">")
_SUBSCRIBES = (b"SUBSCRIBE", b"PSUBSCRIBE", b"SSUBSCRIBE")


class Fault:
    """A fault of the commands that contain a text, with the number of times it happened."""

    def __init__(self, kind: str, contains: str | bytes, nth: int, times: int, then: After) -> None:
        self.kind = kind
        self.contains = contains.encode() if isinstance(contains, str) else contains
        self.then: After = then
        self.count = 0
        self.commands: list[bytes] = []
        self._skip = nth - 1
        self._left = times
        self._begun = threading.Event()
        self._release: asyncio.Event | None = None

    def __repr__(self) -> str:
        return f"<Fault {self.kind} {self.contains[:40]!r} {self.count} times>"

    @property
    def happened(self) -> bool:
        """Whether it has happened: a reply was dropped or held, or a request was dropped."""
        return self.count > 0

    def wait(self, seconds: float = 30) -> None:
        """Block this thread until it has happened; async tests poll `happened` instead."""
        if not self._begun.wait(seconds):
            raise TimeoutError(f"no such command within {seconds} s: {self!r}")

    @property
    def spent(self) -> bool:
        """Whether no further command will meet it."""
        return not self._left

    def takes(self, command: bytes) -> bool:
        """Return whether this command meets the fault, and count it."""
        if not self._left or self.contains not in command:
            return False
        if self._skip:
            self._skip -= 1
            return False
        self._left -= 1
        self.commands.append(command)
        return True

    def record(self) -> None:
        self.count += 1
        self._begun.set()


class Proxy:
    """A proxy that passes all bytes to the server at `target_port` until a fault is set."""

    def __init__(self, target_port: int, *, port: int = 0, target_host: str = HOST) -> None:
        self.target = (target_host, target_port)
        self.port = port
        self.commands = 0  # that came in so far, on all connections
        self._faults: list[Fault] = []
        self._delay = 0.0
        self._silent = False
        self._over = False
        self._links: set[_Connection] = set()
        self._server: asyncio.Server | None = None
        #: Holds the port while no connection is accepted.
        self._reserved: socket.socket | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)

    def __enter__(self) -> Proxy:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def connections(self) -> int:
        """The number of connected clients, half-open ones included."""
        return len(self._links)

    def start(self) -> Proxy:
        self._thread.start()
        self._call(self._listen())
        return self

    def close(self) -> None:
        """Cut all connections and end the thread; a second call does nothing."""
        if self._loop.is_closed():
            return
        self._call(self._shut_down())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    # faults of one command -------------------------------------------------------------------------

    def lose_reply(self, contains: str | bytes = b"", *, nth: int = 1, times: int = 1, then: After = "cut") -> Fault:
        """Drop the reply to the next command with this text (the nth from now on, over all connections)."""
        return self._add(Fault("lose_reply", contains, nth, times, then))

    def lose_request(self, contains: str | bytes = b"", *, nth: int = 1, times: int = 1, then: After = "cut") -> Fault:
        """Drop the next command with this text before it reaches the server."""
        return self._add(Fault("lose_request", contains, nth, times, then))

    def hold_reply(self, contains: str | bytes = b"", *, nth: int = 1) -> Fault:
        """Hold the reply to the next command with this text, and those behind it, until `release`."""
        return self._add(Fault("hold_reply", contains, nth, 1, "cut"))

    def release(self, fault: Fault) -> None:
        """Deliver a held reply, now or when it comes."""
        self._now(lambda: _event_of(fault).set())

    def forget(self, fault: Fault) -> None:
        """Remove a fault that still waits for its command."""
        self._now(lambda: self._faults.remove(fault) if fault in self._faults else None)

    # faults of all connections ----------------------------------------------------------------------

    def delay(self, seconds: float) -> None:
        """Delay every reply (the bytes of one read) by this time, from now on."""
        self._now(lambda: setattr(self, "_delay", seconds))

    def cut(self, *, reset: bool = False) -> int:
        """End every connection, with FIN or with a reset, and return their number; new ones are accepted."""
        return self._now(lambda: self._cut(reset))

    def silence(self, *, new: bool = False) -> int:
        """Make all current connections half-open, and return their number.

        With `new`, connections made from now on are accepted and half-open as well, until `heal`.
        """
        return self._now(lambda: self._make_half_open(new))

    def refuse(self) -> None:
        """Accept no new connections until `heal`; current ones go on."""
        self._call(self._stop_listening())
        self._now(self._reserve_port)

    def heal(self) -> None:
        """End all faults: no delay, and new connections pass. Half-open ones stay so until `cut`."""
        self._call(self._heal())

    # on the proxy's own loop -----------------------------------------------------------------------

    def _call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(30)

    def _now(self, action: Callable[[], T]) -> T:
        async def act() -> T:
            return action()

        return self._call(act())

    def _add(self, fault: Fault) -> Fault:
        self._now(lambda: self._faults.append(fault))
        return fault

    async def _listen(self) -> None:
        if self._reserved is not None:
            self._reserved.close()
            self._reserved = None
        if self._server is None:
            self._server = await asyncio.start_server(self._serve, HOST, self.port, reuse_address=True)
            self.port = self._server.sockets[0].getsockname()[1]

    async def _stop_listening(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.close()

    def _reserve_port(self) -> None:
        """Keep the port without listening: the server of another test could take it and answer in its place."""
        if self._reserved is None:
            self._reserved = socket.socket()
            self._reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._reserved.bind((HOST, self.port))

    async def _heal(self) -> None:
        self._delay, self._silent = 0.0, False
        for fault in self._faults:
            _event_of(fault).set()
        self._faults.clear()
        await self._listen()

    async def _shut_down(self) -> None:
        self._over = True
        await self._stop_listening()
        if self._reserved is not None:
            self._reserved.close()
        self._cut(False)  # which ends every task by itself
        while True:
            await asyncio.sleep(0)  # an aborted transport closes its socket in the next turn
            if not (tasks := asyncio.all_tasks() - {asyncio.current_task()}):  # one may have been about to be served
                return
            await asyncio.gather(*tasks, return_exceptions=True)

    def _cut(self, reset: bool) -> int:
        links = list(self._links)
        for link in links:
            link.cut(reset)
        return len(links)

    def _make_half_open(self, new: bool) -> int:
        self._silent = new
        for link in self._links:
            link.silent = True
        return len(self._links)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._over:
            writer.transport.abort()
            return await _closed(writer)
        link = _Connection(self, reader, writer)
        link.silent = self._silent
        self._links.add(link)
        try:
            await link.run()
        finally:
            self._links.discard(link)

    def fault_of(self, command: bytes) -> Fault | None:
        """Return the fault that this command meets, or None; a spent one is removed."""
        self.commands += 1
        fault = next((fault for fault in self._faults if fault.takes(command)), None)
        if fault is not None and fault.spent and fault.kind != "hold_reply":  # a held one is there to be released
            self._faults.remove(fault)
        return fault

    async def lag(self) -> None:
        if self._delay:
            await asyncio.sleep(self._delay)


def _event_of(fault: Fault) -> asyncio.Event:
    if fault._release is None:
        fault._release = asyncio.Event()
    return fault._release


async def _closed(writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        await writer.wait_closed()


class _Connection:
    """One client's connection and the matching one to the server."""

    def __init__(self, proxy: Proxy, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.proxy = proxy
        self.silent = False
        self._client = (reader, writer)
        self._writers = [writer]
        self._sent = 0
        self._answered = 0
        self._subscribed = False
        self._over = asyncio.Event()
        #: The faults of commands that were sent and not yet answered, by the number of the command.
        self._waiting: deque[tuple[int, Fault]] = deque()

    async def run(self) -> None:
        pumps: list[asyncio.Task[None]] = []
        try:
            server = await asyncio.open_connection(*self.proxy.target)
            self._writers.append(server[1])
            pumps.append(asyncio.create_task(self._requests(self._client[0], server[1])))
            pumps.append(asyncio.create_task(self._replies(server[0], self._client[1])))
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        except OSError:
            pass  # the server is not reachable: the client notices that its connection ends
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            self.cut()
            for writer in self._writers:
                await _closed(writer)

    def cut(self, reset: bool = False) -> None:
        self._over.set()
        for writer in self._writers:
            if reset:
                with contextlib.suppress(OSError):
                    raw: socket.socket = writer.get_extra_info("socket")
                    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()

    async def _requests(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        frames = _Frames()
        while data := await reader.read(_CHUNK):
            for command in frames.feed(data):
                fault = None if self._subscribed else self.proxy.fault_of(command)
                self._subscribed = self._subscribed or _name(command) in _SUBSCRIBES
                self._sent += 1
                if fault is not None and fault.kind == "lose_request":
                    fault.record()
                    if not await self._lose(fault):
                        return
                elif fault is not None:
                    self._waiting.append((self._sent, fault))
                if not self.silent:
                    writer.write(command)
            await writer.drain()
        if self.silent:  # the server must not notice that the client is gone
            await self._over.wait()

    async def _replies(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        frames = _Frames()
        while data := await reader.read(_CHUNK):
            await self.proxy.lag()
            for reply in frames.feed(data):
                if reply[0] != _PUSH or _name(reply) in _SUBSCRIBES:  # other pushes answer no command
                    self._answered += 1
                if self._waiting and self._waiting[0][0] == self._answered and not self.silent:
                    _, fault = self._waiting.popleft()
                    fault.record()
                    if fault.kind == "hold_reply":
                        await writer.drain()
                        await _event_of(fault).wait()
                    elif not await self._lose(fault):
                        return
                if not self.silent:
                    writer.write(reply)
            await writer.drain()
        if self.silent:
            await self._over.wait()

    async def _lose(self, fault: Fault) -> bool:
        """Make the connection half-open; False if it is to be cut instead."""
        if fault.then == "cut":
            self._client[1].close()  # earlier replies are still sent
            with contextlib.suppress(OSError):
                await self._client[1].wait_closed()
            return False
        self.silent = True
        return True


class _Frames:
    """A splitter of a protocol stream into whole commands or whole replies."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        self._buffer += data
        at = 0
        while at < len(self._buffer) and (end := _end_of(self._buffer, at)) is not None:
            frame = bytes(self._buffer[at:end])
            at = end
            yield frame
        del self._buffer[:at]


def _end_of(buffer: bytearray, at: int) -> int | None:
    """Return the end of the value that begins at `at`, or None if it is incomplete."""
    line = buffer.find(b"\r\n", at)
    if line < 0:
        return None
    kind, after = buffer[at], line + 2
    if kind in _SIZED:
        size = int(buffer[at + 1 : line])
        after += size + 2 if size >= 0 else 0
        return after if after <= len(buffer) else None
    if kind in _LISTS or kind in _MAPS:
        count = int(buffer[at + 1 : line]) * (2 if kind in _MAPS else 1)
        for _ in range(count):
            end = _end_of(buffer, after)
            if end is None:
                return None
            after = end
    return after


def _name(command: bytes) -> bytes:
    parts = command.split(b"\r\n", 3)
    return (parts[2] if command[:1] in (b"*", b">") and len(parts) > 2 else parts[0]).upper()
