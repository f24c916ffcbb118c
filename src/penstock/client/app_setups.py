"""Functions that set up every app of this process: for integrations that are switched on once and get no app."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import WeakSet

__all__ = ["made", "set_up_every_app"]

_setups: list[Callable[[Any], None]] = []
_apps: WeakSet[Any] = WeakSet()


def set_up_every_app(setup: Callable[[Any], None]) -> Callable[[], None]:
    """Call a function with every app that exists, and with each that is made later until the returned one is called."""
    _setups.append(setup)
    done: set[int] = set()
    for app in list(_apps):
        if id(app.hooks) not in done:  # those behind a sync app share their hooks
            done.add(id(app.hooks))
            setup(app)

    def end() -> None:
        if setup in _setups:
            _setups.remove(setup)

    return end


def made(app: Any) -> None:
    """Set up a new app; those behind a sync app get the hooks of the first of them afterwards."""
    _apps.add(app)
    for setup in list(_setups):
        setup(app)
