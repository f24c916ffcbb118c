"""Ids that are made up: distinct, plain to write, and in the order of their making."""

from __future__ import annotations

import os
import re

import pytest

from penstock.model.ids import new_id, new_ids
from penstock.model.source import source


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, to be moved by hand."""
    now = [1_800_000_000.0]
    monkeypatch.setattr(source, "wall", lambda: now[0])
    return now


def test_fresh_ids_are_distinct_words_of_twenty_letters() -> None:
    """No two ids are the same, and none needs quoting in a URL, a shell or a command line."""
    ids = [*new_ids(5_000), *(new_id() for _ in range(100))]
    assert len(set(ids)) == len(ids)
    assert all(re.fullmatch(r"[0-9A-Za-z_][0-9A-Za-z_-]{19}", id) for id in ids)


def test_ids_made_later_come_later(clock: list[float]) -> None:
    """Ids made some milliseconds apart, one by one or many at once, are in the order of their making."""
    ids: list[str] = []
    for _ in range(200):
        ids += new_ids(3)
        clock[0] += 0.002
        ids.append(new_id())
        clock[0] += 0.002
    assert ids == sorted(ids)


@pytest.mark.parametrize("now", [0.0, 4_102_444_800.0, 100_000_000_000.0])
def test_any_clock_gives_ids(clock: list[float], now: float) -> None:
    """A clock that stands at 1970 or in a far century gives ids like any other."""
    clock[0] = now
    assert all(len(id) == 20 and id[0] != "-" for id in [new_id(), *new_ids(2)])


def test_a_forked_process_makes_its_own_ids() -> None:
    """Parent and child never make the same id, whatever was prepared before the fork."""
    new_id()
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write, "".join(new_id() for _ in range(100)).encode())
        os._exit(0)
    ends = {new_id()[8:] for _ in range(100)}
    os.waitpid(child, 0)
    os.close(write)
    with open(read, encoding="ascii") as file:
        text = file.read()
    assert len(text) == 2000
    assert not ends & {text[at + 8 : at + 20] for at in range(0, 2000, 20)}
