"""Keys of `penstock top`: quit, the order of the queues, the filter, and the queue that is shown alone."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import sys
from collections.abc import Callable, Generator, Sequence

__all__ = ["SORTS", "Controls", "read_keys"]

#: The orders of the queues, in which the key `s` steps through them.
SORTS = ("open jobs", "name", "failed", "out/s", "waits")

ESCAPE, ENTER, BACKSPACE = "\x1b", "\r\n", "\x7f\x08"

#: A key: the characters that a terminal sends for one that is not a character, or a character.
KEY = re.compile(r"\x1b[\[O][0-9;]*[A-Za-z~]|.", re.DOTALL)

#: The keys that move the cursor, and by how many queues.
MOVES = {"\x1b[A": -1, "\x1bOA": -1, "k": -1, "\x1b[B": 1, "\x1bOB": 1, "j": 1}


class Controls:
    """The order and the filter of the screen, its cursor and the queue that it shows alone: what keys change."""

    def __init__(self) -> None:
        self.sort = SORTS[0]
        self.filter = ""
        #: Returns the queues of the screen from top to bottom, with the order and the filter of now.
        self.list_queues: Callable[[], Sequence[str]] = tuple
        #: The queue under the cursor, None before the first move.
        self.cursor: str | None = None
        #: The queue that is shown alone, with its states, failures and workers.
        self.chosen: str | None = None
        #: Whether keys are added to the filter.
        self.typing = False
        self.quit = False
        #: Whether the screen lists its keys: without a terminal to type at there are none.
        self.has_keys = False

    def press(self, keys: str) -> None:
        """Apply the keys of one read; a key without a meaning, such as F1, changes nothing."""
        for key in KEY.findall(keys):
            if self.typing:
                self._type(key)
            elif key in ("q", "Q"):
                self.quit = True
            elif key == ESCAPE:
                self._back()
            elif self.chosen is None:
                self._press_in_list(key)

    def _press_in_list(self, key: str) -> None:
        if key in ("s", "S"):
            self.sort = SORTS[(SORTS.index(self.sort) + 1) % len(SORTS)]
        elif key == "/":
            self.typing, self.filter = True, ""
        elif key in MOVES:
            self._move(MOVES[key])
        elif key in ENTER:
            self._move(0)
            self.chosen = self.cursor

    def _back(self) -> None:
        """Leave the chosen queue, or else remove the filter, or else the cursor."""
        if self.chosen is not None:
            self.chosen = None
        elif self.filter:
            self.filter = ""
        else:
            self.cursor = None

    def _move(self, by: int) -> None:
        """Move the cursor; it begins at the first queue, and stays at the first and the last."""
        queues = self.list_queues()
        if self.cursor in queues:
            place = queues.index(self.cursor) + by
            self.cursor = queues[min(max(place, 0), len(queues) - 1)]
        else:
            self.cursor = queues[0] if queues else None

    def _type(self, key: str) -> None:
        if key in ENTER:
            self.typing = False
        elif key == ESCAPE:
            self.typing, self.filter = False, ""
        elif key in BACKSPACE:
            self.filter = self.filter[:-1]
        elif key.isprintable():
            self.filter += key

    def matches(self, queue: str) -> bool:
        """Return whether the filter is part of a queue's name; upper and lower case are the same."""
        return self.filter.lower() in queue.lower()

    def help_line(self) -> str:
        """Return the last line of the screen."""
        if not self.has_keys:
            return "Ctrl-C to quit"
        if self.typing:
            return f"filter: {self.filter}▏  Enter to keep, Esc to clear"
        if self.chosen is not None:
            return "q to quit  Esc for all queues"
        moves = "Enter" if self.cursor in self.list_queues() else "↑↓ Enter"
        keys = f"s to sort (by {self.sort})  {moves} to choose"
        if self.filter:
            return f"q to quit  filter: {self.filter}, Esc to clear  {keys}"
        return f"q to quit  {keys}  / to filter"


@contextlib.contextmanager
def read_keys(press: Callable[[str], None]) -> Generator[bool, None, None]:
    """Call `press` with each key that is typed, without echo; yields False if there is no terminal to type at."""
    if not sys.stdin.isatty():
        yield False
        return
    import termios
    import tty

    fd = sys.stdin.fileno()
    loop = asyncio.get_running_loop()
    before = termios.tcgetattr(fd)
    tty.setcbreak(fd)  # Ctrl-C stays a signal

    def read() -> None:
        data = b""
        with contextlib.suppress(OSError):  # the terminal was closed
            data = os.read(fd, 1024)
        if data:
            press(data.decode("utf-8", "replace"))
        else:
            loop.remove_reader(fd)  # its end stays readable, and would be read without a pause

    loop.add_reader(fd, read)
    try:
        yield True
    finally:
        loop.remove_reader(fd)
        termios.tcsetattr(fd, termios.TCSADRAIN, before)
