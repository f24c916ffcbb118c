"""Events: their names, the listeners of an app, and the log of events."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import datetime
from types import TracebackType
from typing import Any, Literal, Self, TypeVar, get_args

import msgspec

from penstock.errors import JobError

__all__ = [
    "EVENTS",
    "LEVELS",
    "LOCAL_EVENTS",
    "Event",
    "EventLog",
    "EventName",
    "EventRecord",
    "Listener",
    "Listeners",
    "check_names",
]

log = logging.getLogger("penstock")

EventName = Literal[
    "enqueued", "updated", "started", "completed", "retrying", "failed", "stalled", "timed_out", "cancelled",
    "cancel_requested", "skipped", "invalid_data", "released", "lease_lost", "idle", "no_queues", "queue_deleted",
    "limit_changed", "disconnected", "error", "tick_skipped", "tick_missed", "tick_dropped", "schedule_changed",
    "suspended", "resumed", "signalled",
]  # fmt: skip
EVENTS: tuple[EventName, ...] = get_args(EventName)

#: Events that only a worker or a caller knows of; all others are transitions, recorded by the storage.
LOCAL_EVENTS = frozenset({
    "idle", "no_queues", "lease_lost", "disconnected", "error", "tick_skipped", "tick_missed", "tick_dropped",
    "schedule_changed",
})  # fmt: skip

#: The log levels of `log_events`.
LEVELS: dict[str, int] = {
    **dict.fromkeys(("enqueued", "updated", "started", "completed", "released", "queue_deleted"), logging.INFO),
    **dict.fromkeys(("tick_skipped", "schedule_changed", "limit_changed"), logging.INFO),
    **dict.fromkeys(("suspended", "resumed", "signalled"), logging.INFO),
    **dict.fromkeys(("cancelled", "cancel_requested", "skipped", "idle", "no_queues"), logging.DEBUG),
    **dict.fromkeys(
        ("retrying", "stalled", "timed_out", "invalid_data", "lease_lost", "disconnected"), logging.WARNING
    ),
    **dict.fromkeys(("tick_missed", "tick_dropped"), logging.WARNING),
    **dict.fromkeys(("failed", "error"), logging.ERROR),
}

#: How many characters of an error's message a log line shows.
MAX_MESSAGE = 200


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """One event. `id` is empty if it is about no single job, `queue` if it is about no queue.

    Of `tick_skipped`, `tick_missed` and `tick_dropped` the id is the one that the tick's job would have had; of
    `schedule_changed` it is the name of the schedule.
    """

    name: str
    at: datetime
    queue: str = ""
    id: str = ""
    attempt: int = 0
    result: Any = None
    error: JobError | None = None
    worker: str | None = None


class EventRecord(msgspec.Struct, frozen=True, array_like=True):
    """One event as the storage records it, with bytes where the user sees values.

    Names: enqueued updated started completed retrying failed stalled timed_out cancelled
    cancel_requested skipped invalid_data released suspended resumed signalled queue_deleted, and those of `announce`.
    """

    name: str
    queue: str
    id: str
    at: int
    attempt: int = 0
    worker: str | None = None
    result: bytes | None = None
    error: bytes | None = None


Listener = Callable[[Event], Awaitable[object] | object]
L = TypeVar("L", bound=Listener)


class Listeners:
    """The listeners of one app, by event name. An exception of a listener is logged and has no other effect."""

    def __init__(self) -> None:
        #: Empty when there are no listeners; hot paths test it instead of calling `wants`.
        self.by_name: dict[str, list[Listener]] = {}
        self._running: set[asyncio.Future[None]] = set()

    def __bool__(self) -> bool:
        return bool(self.by_name)

    def add(self, name: str, listener: Listener) -> None:
        """Call a listener for each event of this name; "*" is every event."""
        if name != "*":
            check_names(name, "name")
        if not callable(listener):
            raise TypeError(f"a listener must be callable, not {type(listener).__name__}")
        self.by_name.setdefault(name, []).append(listener)

    def remove(self, name: str, listener: Listener) -> None:
        """Stop calling a listener for this name. Idempotent."""
        left = [each for each in self.by_name.get(name, ()) if each != listener]
        if left:
            self.by_name[name] = left
        else:
            self.by_name.pop(name, None)

    def wants(self, name: str) -> bool:
        """Return whether an event of this name has a listener; otherwise it need not be built."""
        return bool(self.by_name) and (name in self.by_name or "*" in self.by_name)

    def emit(self, event: Event) -> None:
        """Call the listeners of an event; async ones run in the background."""
        for listener in (*self.by_name.get(event.name, ()), *self.by_name.get("*", ())):
            try:
                answer = listener(event)
                if inspect.isawaitable(answer):
                    task = asyncio.ensure_future(self._finish(event, answer))
                    self._running.add(task)
                    task.add_done_callback(self._running.discard)
            except BaseException as error:
                self.log_raised(event, error)

    async def wait_finished(self) -> None:
        """Wait until the running async listeners have finished."""
        while self._running:
            await asyncio.wait(self._running)

    async def _finish(self, event: Event, answer: Awaitable[object]) -> None:
        try:
            await answer
        except BaseException as error:
            task = asyncio.current_task()
            if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
                raise  # the task was cancelled from outside, as when the event loop is shut down
            log.exception("a listener for %r raised", event.name)

    def log_raised(self, event: Event, error: BaseException) -> None:
        """Log the exception of a listener. A thread without an event loop gets its Ctrl-C nonetheless."""
        log.error("a listener for %r raised", event.name, exc_info=error)
        if isinstance(error, KeyboardInterrupt) and not has_running_loop():
            raise error


def has_running_loop() -> bool:
    """Return whether an event loop runs in this thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def check_names(names: str | Iterable[str], argument: str) -> tuple[str, ...]:
    """Return the given event names as a tuple; raises `ValueError` for an unknown one."""
    given = (names,) if isinstance(names, str) else tuple(names)
    for name in given:
        if name not in EVENTS:
            raise ValueError(f"{argument}: unknown event {name!r}; known: {', '.join(EVENTS)}")
    return given


Level = int | str


class EventLog:
    """Log of events, a line each, without payloads, results and headers: `off` and `on` again, or a `with` block.

    A line starts with the event's name; queue, id, attempt, error and worker follow where there are any.
    The record has them too, as `event`, `queue`, `job_id`, `attempt`, `worker`, `error_type` and
    `error_message`.
    """

    def __init__(
        self,
        listeners: Listeners,
        logger: logging.Logger | str | None = None,
        level: Level | Mapping[str, Level] | None = None,
        exclude: str | Iterable[str] = ("idle", "no_queues"),
    ) -> None:
        self._listeners = listeners
        self._logger = logger if isinstance(logger, logging.Logger) else logging.getLogger(logger or "penstock.events")
        self._levels = _levels(level)
        excluded = check_names(exclude, "exclude")
        self._names = [name for name in EVENTS if name not in excluded]
        self._is_on = False
        self.on()

    def on(self) -> None:
        """Log from now on. Idempotent."""
        if not self._is_on:
            self._is_on = True
            for name in self._names:
                self._listeners.add(name, self._log)

    def off(self) -> None:
        """Stop logging. Idempotent."""
        self._is_on = False
        for name in self._names:
            self._listeners.remove(name, self._log)

    def __enter__(self) -> Self:
        self.on()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.off()

    def _log(self, event: Event) -> None:
        level = self._levels[event.name]
        if self._logger.isEnabledFor(level):
            error = event.error
            message = "" if error is None else _truncate(error.message)
            parts = {
                "queue": event.queue,
                "id": event.id,
                "attempt": event.attempt,
                "error": "" if error is None else f"{error.type}: {message}",
                "worker": event.worker,
            }
            extra = {
                "event": event.name,
                "queue": event.queue,
                "job_id": event.id,
                "attempt": event.attempt,
                "worker": event.worker,
                "error_type": None if error is None else error.type,
                "error_message": None if error is None else message,
            }
            line = " ".join([event.name, *(f"{key}={value!r}" for key, value in parts.items() if value)])
            self._logger.log(level, "%s", line, extra=extra)


def _levels(level: Level | Mapping[str, Level] | None) -> dict[str, int]:
    """Return the level of each event: the default ones, one for all, or a mapping of some."""
    if level is None:
        return LEVELS
    if isinstance(level, Mapping):
        return {**LEVELS, **{name: _level(level[name]) for name in check_names(level, "level")}}
    return dict.fromkeys(EVENTS, _level(level))


def _level(level: Level) -> int:
    known = logging.getLevelNamesMapping()
    if isinstance(level, str) and level.upper() in known:
        return known[level.upper()]
    if isinstance(level, bool) or not isinstance(level, int):
        raise ValueError(f"level must be a number or one of {', '.join(known)}, not {level!r}")
    return level


def _truncate(text: str) -> str:
    return text if len(text) <= MAX_MESSAGE else f"{text[: MAX_MESSAGE - 1]}…"
