"""The sync surface is the async one: same names, same parameters."""

from __future__ import annotations

import inspect
import re
from typing import Any

import pytest

import penstock
from penstock import sync
from penstock.client import event_stream, reservation, tasks

#: What queues, workers and keepers need of the async object, and no user of the sync one.
INNER = {
    "Queue": {"check_end"},
    "Flow": {"check_open", "check_order", "foreign", "take_name"},
    "Started": {"value"},
    "Penstock": {
        "blocking_storage",
        "codec",
        "declared_schedules",
        "driven",
        "new_job",
        "opened",
        "options",
        "payload_type",
        "emit",
        "ready_storage",
        "using_storage",
    },
    "Reservation": {"busy", "claim", "mark_settled", "ref", "settlement"},
    "EventStream": {"aclose"},
    "Worker": {
        "log_format",
        "log_level",
        "log_tracebacks",
        "source",
        "status",
        "wait_stopped",
        "warns",
        "watched",
    },
}

PAIRS = [
    (penstock.Penstock, sync.Penstock),
    (penstock.Queue, sync.Queue),
    (penstock.Flow, sync.Flow),
    (penstock.Started, sync.Started),
    (penstock.Bulk, sync.Bulk),
    (penstock.Schedules, sync.Schedules),
    (reservation.Reservation, sync.Reservation),
    (tasks.TaskCall, sync.TaskCall),
    (tasks.Task, sync.Task),
    (event_stream.EventStream, sync.EventStream),
    (penstock.Worker, sync.Worker),
]


def members(cls: type) -> dict[str, Any]:
    return {name: value for name, value in inspect.getmembers(cls) if not name.startswith("_")}


@pytest.mark.parametrize(("other", "ours"), PAIRS, ids=lambda cls: cls.__name__)
def test_every_public_member_is_there(other: type, ours: type) -> None:
    """Every method and property of the async class is on the sync one, and is no coroutine there."""
    missing = set(members(other)) - set(members(ours)) - INNER.get(other.__name__, set())
    assert not missing
    assert not [name for name, value in members(ours).items() if inspect.iscoroutinefunction(value)]


@pytest.mark.parametrize(("other", "ours"), PAIRS, ids=lambda cls: cls.__name__)
def test_parameters_are_the_same(other: type, ours: type) -> None:
    """Every method takes the parameters of its async twin, with the same kinds, defaults and annotations."""
    names = sorted(set(members(other)) & set(members(ours)))
    for name in names:
        theirs, mine = members(other)[name], members(ours)[name]
        if not inspect.isfunction(theirs):
            continue
        expected, got = inspect.signature(theirs), inspect.signature(mine)
        assert _plain(got) == _plain(expected), name


@pytest.mark.parametrize(("other", "ours"), PAIRS, ids=lambda cls: cls.__name__)
def test_docstrings(other: type, ours: type) -> None:
    """Every public member of the sync classes has a docstring of its own, for help() and editors."""
    own = {name: value for name, value in vars(ours).items() if not name.startswith("_")}
    assert ours.__doc__
    assert not [name for name, value in own.items() if not (getattr(value, "__doc__", "") or "").strip()]


def test_the_app_takes_the_same_arguments() -> None:
    """A sync app is made with the arguments of an async one."""
    assert inspect.signature(sync.Penstock).parameters == inspect.signature(penstock.Penstock).parameters


def test_a_worker_takes_the_same_arguments() -> None:
    """A sync worker is made with the arguments of an async one."""
    assert inspect.signature(sync.Worker).parameters == inspect.signature(penstock.Worker).parameters


def _plain(signature: inspect.Signature) -> list[tuple[Any, ...]]:
    """Return the parameters to compare, without async iterables, which sync methods do not take."""
    return [(each.name, each.kind, *_docstring(each)) for each in signature.parameters.values()]


def _docstring(parameter: inspect.Parameter) -> tuple[Any, str]:
    return parameter.default, re.sub(r" \| AsyncIterable\[.*?\]+", "", str(parameter.annotation))
