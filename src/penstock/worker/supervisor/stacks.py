"""Stacks of a child process: where its runs are that do not end, or where it crashed.

The child's fault handler writes them behind the claim table, from C and without the interpreter's lock.
So the supervisor gets them while a handler blocks the event loop, holds the lock, or has just crashed
the process. A coroutine that ignores its cancellation is on no thread's stack; the child adds it.
"""

from __future__ import annotations

import contextlib
import faulthandler
import linecache
import os
import re
import signal
import threading
from collections.abc import Iterable, Iterator, Sequence
from types import CodeType, FrameType
from typing import Any, NamedTuple

from penstock.model.printing import is_library, job_name

__all__ = ["STACK_SIGNAL", "Stack", "coroutine_stack", "describe", "parse", "request", "write_on_request"]

#: The signal at which a child writes its stacks, None where there is no spare one.
STACK_SIGNAL: int | None = signal.SIGRTMAX - 2 if hasattr(signal, "SIGRTMAX") else None

#: How many frames of a coroutine are written, and how many lines of stacks a log line or an error has.
MAX_FRAMES, MAX_LINES = 50, 60

_HEAD = re.compile(r"^(.*) \(most recent call first\):$")
_FRAME = re.compile(r'^  File "(.*)", line (\d+) in (.*)$')

#: Frames of these files called the handler: they are the same in every stack.
_CALLERS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


class Frame(NamedTuple):
    """One frame of a stack."""

    path: str
    line: int
    function: str


class Stack(NamedTuple):
    """The stack of a thread, or of the coroutine of a job, innermost frame first."""

    title: str
    frames: list[Frame]

    @property
    def is_coroutine(self) -> bool:
        """Whether it is the stack of a job's coroutine."""
        return self.title.startswith("Coroutine of ")

    @property
    def is_relevant(self) -> bool:
        """Whether it may show why a run does not end: it is a coroutine's, or has a frame of the project."""
        return self.is_coroutine or any(not is_library(frame.path) for frame in self.frames)


# in the child ------------------------------------------------------------------------------------


def write_on_request(fd: int) -> bool:
    """Write the stacks of all threads to this file at `STACK_SIGNAL` and after a crash; False if that cannot be.

    The signal is delivered to a thread of its own: in another thread it would end a system call early,
    and with it perhaps the run.
    """
    if not faulthandler.is_enabled():
        faulthandler.enable(fd)
    if STACK_SIGNAL is None:
        return False
    faulthandler.register(STACK_SIGNAL, fd)
    signal.pthread_sigmask(signal.SIG_BLOCK, [STACK_SIGNAL])  # threads inherit it
    threading.Thread(target=_receive, args=(STACK_SIGNAL,), name="penstock stacks", daemon=True).start()
    return True


def _receive(number: int) -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [number])
    threading.Event().wait()


def coroutine_stack(coroutine: Any, queue: str, id: str) -> str:
    """Return the stack of a suspended coroutine in the fault handler's format."""
    frames: list[FrameType] = []
    while coroutine is not None and len(frames) < MAX_FRAMES:
        frame, coroutine = suspended_at(coroutine)
        if frame is not None:
            frames.append(frame)
    lines = [f"Coroutine of {job_name(queue, id)} (most recent call first):"]
    for frame in reversed(frames):
        code: CodeType = frame.f_code
        lines.append(f'  File "{code.co_filename}", line {frame.f_lineno} in {code.co_name}')
    return "\n".join([*lines, "", ""])


def suspended_at(awaited: Any) -> tuple[FrameType | None, Any]:
    """Return the frame of a suspended coroutine or generator, and the object that it awaits, if any."""
    for frame, inner in (("cr_frame", "cr_await"), ("gi_frame", "gi_yieldfrom"), ("ag_frame", "ag_await")):
        if hasattr(awaited, frame):
            return getattr(awaited, frame), getattr(awaited, inner)
    return None, None


# in the supervisor -------------------------------------------------------------------------------


def request(pid: int) -> None:
    """Have a child write its stacks. It must have called `write_on_request`: else the signal ends it."""
    if STACK_SIGNAL is not None:
        with contextlib.suppress(OSError):
            os.kill(pid, STACK_SIGNAL)


def parse(text: str) -> list[Stack]:
    """Return the stacks in the output of the fault handler."""
    stacks: list[Stack] = []
    for line in text.splitlines():
        if head := _HEAD.match(line):
            stacks.append(Stack(head.group(1), []))
        elif stacks and (frame := _FRAME.match(line)):
            stacks[-1].frames.append(Frame(frame.group(1), int(frame.group(2)), frame.group(3)))
    return stacks


def describe(stacks: Iterable[Stack], job: tuple[str, str] | None = None, function: object = None) -> list[str]:
    """Return stacks as lines, outermost frame first; for one job, those that may be its own.

    The coroutine of a job is known. Of threads, those in the handler's function count; if there are none,
    all with a frame of the project do.
    """
    found = [stack for stack in stacks if stack.is_relevant]
    if job is not None:
        title = f"Coroutine of {job_name(*job)}"
        own = [stack for stack in found if stack.title == title]
        threads = [stack for stack in found if not stack.is_coroutine]
        found = own or [stack for stack in threads if calls(stack, function)] or threads
    return [line for stack in found for line in lines_of(stack)][:MAX_LINES]


def calls(stack: Stack, function: object) -> bool:
    """Return whether a function is on a stack."""
    code = getattr(function, "__code__", None)
    return isinstance(code, CodeType) and any(
        frame.path == code.co_filename and frame.function == code.co_name for frame in stack.frames
    )


def lines_of(stack: Stack) -> Iterator[str]:
    """Yield a stack as a traceback: from the handler to the innermost frame, with their source."""
    yield f"{stack.title.replace('Current thread', 'Thread')} (most recent call last):"
    for frame in reversed(inner_frames(stack.frames)):
        yield f'  File "{frame.path}", line {frame.line}, in {frame.function}'
        if source := linecache.getline(frame.path, frame.line).strip():
            yield f"    {source}"


def inner_frames(frames: Sequence[Frame]) -> Sequence[Frame]:
    """Return the frames that the handler called; all of them if it is on none."""
    for position, frame in enumerate(frames):
        if frame.path.startswith(_CALLERS) and position:
            return frames[:position]
    return frames
