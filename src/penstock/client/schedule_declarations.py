"""The schedules that the code of an app declares, by decorators and by options of handlers and tasks."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from penstock.host import AppHost
from penstock.model.cron import Cron
from penstock.model.every import Every
from penstock.model.handler import Handler
from penstock.model.schedule import Schedule
from penstock.model.schedule_settings import DeclaredSchedule, GivenSchedules
from penstock.model.tick import Tick, check_schedule_name
from penstock.ticking import encode_template

__all__ = ["ScheduleDeclarations", "schedules_from"]

#: Returns the payload of a task's arguments; raises `TypeError`, which names a wrong one.
Bind = Callable[..., dict[str, Any]]


def schedules_from(given: GivenSchedules | None) -> list[Schedule]:
    """Return the schedules of an option; raises `TypeError`, which names it."""
    several = given if isinstance(given, Sequence) and not isinstance(given, str) else () if given is None else (given,)
    schedules: list[Schedule] = []
    for each in several:
        if not isinstance(each, Cron | Every | Schedule):
            raise TypeError(
                f"schedule must be a Cron, an Every, a Schedule or a list of them, not {type(each).__name__}"
            )
        schedules.append(each if isinstance(each, Schedule) else Schedule(each))
    return schedules


class ScheduleDeclarations:
    """The declared schedules of one app, by queue and name, and those whose function is not registered yet."""

    def __init__(self) -> None:
        self._declared: dict[tuple[str, str], DeclaredSchedule] = {}
        self._waiting: list[tuple[Callable[..., Any], Schedule]] = []

    def copy(self) -> ScheduleDeclarations:
        """Return declarations that can grow by themselves."""
        other = ScheduleDeclarations()
        other._declared, other._waiting = dict(self._declared), list(self._waiting)
        return other

    @property
    def all(self) -> Mapping[tuple[str, str], DeclaredSchedule]:
        """The declared schedules; raises `ValueError` if a decorated function was never registered."""
        for function, _ in self._waiting:
            name = getattr(function, "__qualname__", repr(function))
            raise ValueError(f"schedule of {name}: it has no handler; decorate it with app.task or app.handler, too")
        return self._declared

    def decorate(self, host: AppHost, target: Any, queue: str | None, schedule: Schedule) -> None:
        """Declare a schedule of a decorated function: a task, a handler, or a function that will be one."""
        bind: Bind | None = target.payload if hasattr(target, "__handler__") else None
        function = getattr(target, "__handler__", target)
        if not callable(function):
            raise TypeError(f"app.schedule() decorates a function or a task, not {type(target).__name__}")
        if queue is None:
            queues = [handler.queue for handler in host.handlers.values() if _runs(handler, function)]
            if len(queues) > 1:
                raise ValueError(f"queue must be given: the function is the handler of {', '.join(map(repr, queues))}")
            if not queues:
                self._waiting.append((function, schedule))
                return
            [queue] = queues
        self.add(host, queue, [schedule], bind)

    def registered(self, host: AppHost, queue: str, function: object, bind: Bind | None = None) -> None:
        """Declare the schedules that waited for this function to be registered."""
        mine = [schedule for waiting, schedule in self._waiting if waiting is function]
        self._waiting = [each for each in self._waiting if each[0] is not function]
        self.add(host, queue, mine, bind)

    def add(self, host: AppHost, queue: str, schedules: Sequence[Schedule], bind: Bind | None = None) -> None:
        """Declare schedules of a queue; `bind` checks the arguments of a task."""
        for schedule in schedules:
            name = check_schedule_name(queue if schedule.name is None else schedule.name)
            if (queue, name) in self._declared:
                raise ValueError(f"name: queue {queue!r} has a schedule {name!r} already; give each a name of its own")
            try:
                payload = _payload(schedule, bind)
                if schedule.payload_function() is None:
                    encode_template(host, queue, name, payload)
            except TypeError as error:
                raise TypeError(f"schedule {name!r}: {error}") from None
            self._declared[queue, name] = DeclaredSchedule(queue, name, schedule, payload)


def _runs(handler: Handler, function: object) -> bool:
    return handler.loaded and handler.function is function


def _payload(schedule: Schedule, bind: Bind | None) -> Any:
    """Return the payload of a declared schedule, or the function that computes it."""
    if (function := schedule.payload_function()) is not None:
        if inspect.iscoroutinefunction(function):
            raise TypeError("payload must be a value or a plain function of the tick, not an async one")
        return function if bind is None else _bound(function, bind)
    if bind is None:
        if schedule.kwargs is not None:
            raise TypeError("kwargs are the arguments of a task; a handler gets the payload")
        return schedule.payload
    if schedule.kwargs is None and schedule.payload is None:
        return bind()
    return _arguments(schedule.payload if schedule.kwargs is None else schedule.kwargs, bind)


def _bound(function: Callable[..., Any], bind: Bind) -> Callable[[Tick], Any]:
    return lambda tick: _arguments(function(tick), bind)


def _arguments(value: object, bind: Bind) -> dict[str, Any]:
    """Return the payload of a task from a mapping of its arguments."""
    if not isinstance(value, Mapping):
        raise TypeError(f"payload of a task must be a mapping of its arguments by name, not {type(value).__name__}")
    return bind(**cast("Mapping[str, Any]", value))
