"""Checks before a worker starts processes: the app's name, the share of each process, the options."""

from __future__ import annotations

import sys
import types
from typing import Any

import pytest

from penstock import Penstock, Worker
from penstock.worker.handlers import share_of
from penstock.worker.supervisor import CannotImport, load, source_of


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    module = types.ModuleType("some_jobs")
    module.app = Penstock("memory:")  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "some_jobs", module)
    return module


def test_an_app_is_found_by_name_and_named_when_found(module: types.ModuleType) -> None:
    """The name under which children import the app leads back to it."""
    assert source_of(module.app) == "some_jobs:app"
    assert load("some_jobs:app") is module.app
    assert load("some_jobs") is module.app


def test_an_app_without_a_name_is_refused() -> None:
    """An app that is in no module cannot be imported by children; the error names the remedy."""
    with pytest.raises(CannotImport, match="penstock worker module:app"):
        source_of(Penstock("memory:"))


async def test_a_worker_whose_app_children_cannot_find_does_not_start() -> None:
    """Nothing is opened for an app that children could not find."""
    app = Penstock("memory:")
    app.listen("q", lambda payload: payload)
    with pytest.raises(CannotImport, match="was not found"):
        await Worker(app, processes=2).run()
    assert not app.is_open


@pytest.mark.parametrize(("n", "slots", "shares"), [(1, 2, [1, 0]), (5, 2, [3, 2]), (4, 4, [1, 1, 1, 1])])
def test_processes_share_the_concurrency_of_a_handler(n: int, slots: int, shares: list[int]) -> None:
    """`concurrency=n` means n at once in all processes together; sizes are per process."""
    app = Penstock("memory:")
    app.listen("few", lambda payload: payload, concurrency=n)
    app.listen("many", lambda payload: payload, size=7)
    found: list[int] = []
    for slot in range(slots):
        mine = share_of(app.handlers, slot, slots)
        assert mine["many"].options.size == 7
        found.append(mine["few"].options.concurrency or 0 if "few" in mine else 0)
    assert found == shares


def test_limits_of_processes_need_processes() -> None:
    """`max_jobs` and `max_rss` without `processes` raise ValueError: they limit children."""
    for name in ("max_jobs", "max_rss"):
        some: dict[str, Any] = {name: 1}
        none: dict[str, Any] = {name: 0}
        with pytest.raises(ValueError, match="processes"):
            Worker(Penstock("memory:"), **some)
        with pytest.raises(ValueError, match=name):
            Worker(Penstock("memory:"), processes=1, **none)
