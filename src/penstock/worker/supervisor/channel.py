"""Messages between a supervisor and a child: lines of text over a socket pair.

A child and its supervisor share two things. The claim table (`claim_table`) holds what must be read
while the other process is busy or dead: claims, deadlines, confirmations and commands. This channel
carries what needs a reaction:

    supervisor → child      the child …
      stop                    claims no more, answers `stopping`, and ends when its runs have ended
      release and stop        does the same, but releases the runs that are left
      release                 releases all runs and goes on
      read commands           reads the commands of the claim table (`ParentCommand`)
      claim again             looks for work: jobs were given back while it had nothing to drain
      take over               serves queues with `concurrency=n`: the child that it replaces has left them
      quiet                   claims no more; its runs go on, and so does it
      rota TURNS              waits for work in turn with the others: its position among them, and their number
      rota over               waits for work at all times

    child → supervisor      the supervisor …
      ready                   counts the child as working
      failed REASON           logs why the child cannot start
      unusable REASON         ends the worker: the storage cannot be used any more
      parent missing          sends a heartbeat: the child has not found its supervisor in the storage
      stopping                knows that the child's event loop is alive
      full                    replaces the child: it has run `max_jobs` jobs
      stuck                   reads the claim table: it has a run that does not end
      idle                    checks whether everything is drained: the child has set its idle flag
      left                    kills the child if it does not exit within seconds
      ticks REPORT            fires the ticks of schedules: JSON of the next tick, how far the storage's clock is ahead
                              (or null), and the queues that the child has claimed from since its last report
      limited                 looks after the limits of the queues: one has them
      busy                    ends the rota: the child has, or has had, a job
      counts RUNS             adds the runs that have ended, JSON of queue, outcome and number

The end of the channel means that the other process is gone: a child without a supervisor exits.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable
from enum import StrEnum

__all__ = ["Channel", "FromChild", "ToChild"]


class ToChild(StrEnum):
    """Messages of a supervisor to a child, see the module's list. One is followed by data."""

    STOP = "stop"
    RELEASE_AND_STOP = "release and stop"
    RELEASE = "release"
    READ_COMMANDS = "read commands"
    CLAIM_AGAIN = "claim again"
    TAKE_OVER = "take over"
    QUIET = "quiet"
    ROTA = "rota "
    ROTA_OVER = "rota over"


class FromChild(StrEnum):
    """Messages of a child to its supervisor, see the module's list. Some are followed by the reason, or by data."""

    READY = "ready"
    FAILED = "failed "
    UNUSABLE = "unusable "
    PARENT_MISSING = "parent missing"
    STOPPING = "stopping"
    FULL = "full"
    STUCK = "stuck"
    IDLE = "idle"
    LEFT = "left"
    TICKS = "ticks "
    LIMITED = "limited"
    BUSY = "busy"
    COUNTS = "counts "


class Channel:
    """One end of a socket pair on the event loop.

    Messages are short, so that a process that does not read never blocks the other one.
    """

    def __init__(self, end: socket.socket, received: Callable[[str], None], gone: Callable[[], None]) -> None:
        self._end = end
        self._received = received
        self._gone = gone
        self._rest = b""
        self._loop = asyncio.get_running_loop()
        end.setblocking(False)
        self._loop.add_reader(end, self._read)

    def send(self, message: str) -> None:
        """Send a message; it is lost if the other process is gone or does not read."""
        with contextlib.suppress(OSError):
            self._end.send(message.encode() + b"\n")

    def read_rest(self) -> None:
        """Receive the messages that were sent before the other process ended."""
        while self._end.fileno() >= 0 and self._read():
            pass

    def close(self) -> None:
        """Close this end. Idempotent."""
        if self._end.fileno() >= 0:
            self._loop.remove_reader(self._end)
            self._end.close()

    def _read(self) -> bool:
        """Receive the messages that are here; False if there were none."""
        try:
            data = self._end.recv(65536)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            self._loop.remove_reader(self._end)
            self._gone()
            return False
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._received(line.decode())
        return True
