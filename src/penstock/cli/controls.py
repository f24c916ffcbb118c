"""Keys of `penstock top`: quit, the order of the queues, and the filter."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import sys
from collections.abc import Callable, Generator

__all__ = ["SORTS", "Controls", "read_keys"]

#: The orders of the queues, in which the key `s` steps through them.
SORTS = ("open jobs", "name", "failed", "out/s", "waits")

ESCAPE, ENTER, BACKSPACE = "\x1b", "\r\n", "\x7f\x08"

#: The characters that a terminal sends for a key that is not a character.
SEQUENCE = re.compile(r"\x1b[\[O][0-9;]*[A-Za-z~]")


class Controls:
    """The order and the filter of the screen, which keys change."""

    def __init__(self) -> None:
        self.sort = SORTS[0]
        self.filter = ""
        #: Whether keys are added to the filter.
        self.typing = False
        self.quit = False
        #: Whether the screen lists its keys: without a terminal to type at there are none.
        self.has_keys = False

    def press(self, keys: str) -> None:
        """Apply the keys of one read; the sequence of another key, such as an arrow, changes nothing."""
        for key in SEQUENCE.sub("", keys):
            if self.typing:
                self._type(key)
            elif key in "qQ":
                self.quit = True
            elif key in "sS":
                self.sort = SORTS[(SORTS.index(self.sort) + 1) % len(SORTS)]
            elif key == "/":
                self.typing, self.filter = True, ""
            elif key == ESCAPE:
                self.filter = ""

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
        shown = f"filter: {self.filter}  / to change, Esc to clear" if self.filter else "/ to filter"
        return f"q to quit  s to sort (by {self.sort})  {shown}"


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
