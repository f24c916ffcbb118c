"""Hostile lines of an import: each is refused with its number, or stored and run without harm to other jobs."""

from __future__ import annotations

import asyncio
import io
import json
import tracemalloc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fuzz.imports import EDGES, import_and_drain, job_of
from penstock.ops.export import read_lines
from tests.support import share_of


@settings(max_examples=share_of(60))
@given(st.lists(st.binary(min_size=2, max_size=12), min_size=1, max_size=3))
def test_any_line_of_an_import_is_refused_by_its_number_or_harms_no_other_job(fields: list[bytes]) -> None:
    """Integers at every size, names and times of any kind: a `ValueError` with the line, or a job like another."""
    lines = [b'{"penstock_export": 1}\n', *(json.dumps(job_of(data)).encode() + b"\n" for data in fields)]
    asyncio.run(import_and_drain(lines))


@pytest.mark.parametrize("field", ["attempts", "retries", "stalls", "timeouts", "priority"])
def test_an_integer_of_every_size_is_imported_or_refused(field: str) -> None:
    """Counts and priorities around 2^15 to 2^64, one job each."""
    for number in EDGES:
        line = json.dumps(job_of(b"") | {field: number}).encode()
        asyncio.run(import_and_drain([b'{"penstock_export": 1}\n', line]))


def test_a_line_without_an_end_is_refused_before_it_is_read_whole() -> None:
    """Of an endless line, only as much is read as a job can have."""

    class Endless(io.RawIOBase):
        def readable(self) -> bool:
            return True

        def readinto(self, buffer: Any) -> int:
            buffer[:] = b"x" * len(buffer)
            return len(buffer)

    tracemalloc.start()
    with pytest.raises(ValueError, match=r"line 1: it is longer than"):
        next(read_lines(io.BufferedReader(Endless()), 100_000))
    assert tracemalloc.get_traced_memory()[1] < 20_000_000
    tracemalloc.stop()


def test_a_deeply_nested_line_is_refused() -> None:
    """A line of nested arrays is no job, and no other error."""
    line = b'{"queue": ' + b"[" * 100_000 + b"]" * 100_000 + b"}\n"
    asyncio.run(import_and_drain([b'{"penstock_export": 1}\n', line]))
