"""Clocks, random numbers and names of this process, in one object that a simulation replaces.

Code that a simulated node runs takes them from `source` and not from `time`, `random`, `os` or `socket`, so
that a run depends on its seed alone.
"""

from __future__ import annotations

import contextlib
import os
import random
import socket
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, fields

__all__ = ["Source", "replaced_source", "source"]


@dataclass(slots=True)
class Source:
    """Functions that differ from run to run. By default they are those of the standard library, without a detour."""

    #: Seconds of a clock that is never set.
    monotonic: Callable[[], float] = time.monotonic
    #: Seconds since 1970.
    wall: Callable[[], float] = time.time
    #: A random number from 0 to 1.
    draw: Callable[[], float] = random.random
    #: A number of random bytes that cannot be guessed.
    bytes: Callable[[int], bytes] = os.urandom
    host: Callable[[], str] = socket.gethostname
    pid: Callable[[], int] = os.getpid


#: The one that this process uses. It is changed in place, so every module may import it by name.
source = Source()


@contextlib.contextmanager
def replaced_source(other: Source) -> Generator[None]:
    """Use the functions of another source inside a `with` block, in all threads of this process."""
    names = [field.name for field in fields(Source)]
    before = {name: getattr(source, name) for name in names}
    for name in names:
        setattr(source, name, getattr(other, name))
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(source, name, value)
