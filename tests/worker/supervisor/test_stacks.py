"""Stacks of child processes: parsed from the fault handler's text, and reduced to the part that a handler called."""

from __future__ import annotations

import asyncio
import faulthandler
import tempfile
import threading
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from penstock.worker.supervisor.claim_table import ClaimTable
from penstock.worker.supervisor.stacks import Stack, coroutine_stack, describe, parse

WORKER = str(Path(__file__).resolve().parents[3] / "src" / "penstock" / "worker" / "executor.py")


def dump() -> str:
    """Return the fault handler's text of all threads."""
    with tempfile.TemporaryFile("w+") as file:
        faulthandler.dump_traceback(file)
        file.seek(0)
        return file.read()


def test_the_text_of_the_fault_handler_is_read_as_stacks() -> None:
    """Each thread is a stack, innermost frame first; one that is in code of the project is relevant."""
    gate, begun = threading.Event(), threading.Event()

    def waits_here() -> None:
        begun.set()
        gate.wait()

    thread = threading.Thread(target=waits_here)
    thread.start()
    begun.wait()
    stacks = parse(dump())
    gate.set()
    thread.join()
    [own] = [stack for stack in stacks if any(frame.function == "waits_here" for frame in stack.frames)]
    assert own.is_relevant
    assert own.frames[0].function == "wait"
    lines = describe([own], ("q", "a"), waits_here)
    assert any(line.endswith(", in waits_here") for line in lines)
    assert "    gate.wait()" in lines


def test_frames_of_the_worker_are_left_out() -> None:
    """A stack begins at the handler, and a thread without code of the project is not shown."""
    text = (
        'Thread 0x01 (most recent call first):\n  File "/a/jobs.py", line 3 in inner\n'
        f'  File "/a/jobs.py", line 9 in handle\n  File "{WORKER}", line 1 in execute\n\n'
        f'Current thread 0x02 (most recent call first):\n  File "{threading.__file__}", line 1 in wait\n'
    )
    assert describe(parse(text)) == [
        "Thread 0x01 (most recent call last):",
        '  File "/a/jobs.py", line 9, in handle',
        '  File "/a/jobs.py", line 3, in inner',
    ]


def test_the_coroutine_of_a_job_is_its_own() -> None:
    """The error of a job has the stack of its coroutine, and those of other jobs are left out."""
    stacks = [Stack(f"Coroutine of q/{id}", []) for id in ("a", "B")] + [Stack("Thread 0x01", [])]
    assert describe(stacks, ("q", "B")) == ["Coroutine of q/B (most recent call last):"]


async def test_a_suspended_coroutine_is_followed_to_its_innermost_frame() -> None:
    """The frames of awaited coroutines are written, and read back from behind a claim table."""

    async def inner() -> None:
        await asyncio.Event().wait()

    async def outer() -> None:
        await inner()

    coroutine: Coroutine[Any, Any, None] = outer()
    task = asyncio.ensure_future(coroutine)
    await asyncio.sleep(0)
    table = ClaimTable(slots=4)
    table.write_stack(coroutine_stack(task.get_coro(), "q", "a"))
    [stack] = table.stacks()
    table.close()
    task.cancel()
    assert stack.title == "Coroutine of q/a"
    assert [frame.function for frame in stack.frames] == ["wait", "inner", "outer"]
    assert stack.frames[1].path == inner.__code__.co_filename
