"""The app as its parts see it: queues, tasks, streams, reservations and workers get one `AppHost`.

The parts are built on this protocol, and the app is built from the parts: without it, each part and
the app would import each other. Any object that has these members will do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, Unpack, cast

from penstock.errors import JobError
from penstock.model.events import Listeners
from penstock.model.handler import Handler
from penstock.model.hooks import Hooks
from penstock.model.job import NewJob
from penstock.model.limit import Limit
from penstock.model.options import HandlerArguments, HandlerOptions
from penstock.model.presets import Preset
from penstock.model.schedule_settings import DeclaredSchedule, GivenSchedules
from penstock.model.serde import Codec, Serde
from penstock.storage.base import BlockingStorage, Storage

__all__ = ["AppHost", "SyncApp", "async_app"]


class AppHost(Protocol):
    """The app (`Penstock`). Where a member is `Any`, its class is built on this protocol."""

    # settings -------------------------------------------------------------------------------------

    @property
    def namespace(self) -> str: ...

    @property
    def handlers(self) -> Mapping[str, Handler]: ...

    @property
    def declared_schedules(self) -> Mapping[tuple[str, str], DeclaredSchedule]:
        """The schedules that code declares, by queue and name."""
        ...

    @property
    def listeners(self) -> Listeners: ...

    @property
    def hooks(self) -> Hooks: ...

    @property
    def driven(self) -> bool: ...

    @property
    def lease(self) -> float: ...

    @property
    def max_payload(self) -> int: ...

    @property
    def max_result(self) -> int: ...

    @property
    def defaults(self) -> Preset: ...

    @property
    def max_queued(self) -> Mapping[str, int]:
        """The queues with a bound, and how many jobs may wait in each of them."""
        ...

    @property
    def family_limits(self) -> Mapping[str, Limit]:
        """The declared limits of families."""
        ...

    def codec(self, queue: str) -> Codec: ...

    def options(self, queue: str) -> HandlerOptions: ...

    def payload_type(self, queue: str) -> Any: ...

    # storage --------------------------------------------------------------------------------------

    @property
    def storage(self) -> Storage: ...

    @property
    def ready_storage(self) -> Storage | None:
        """The storage for producers if it is open in this event loop."""
        ...

    @property
    def is_open(self) -> bool: ...

    async def open(self) -> None: ...

    async def opened(self) -> Storage:
        """Return the storage for producers, opened."""
        ...

    async def close(self) -> None: ...

    def blocking_storage(self) -> BlockingStorage | None: ...

    # parts ----------------------------------------------------------------------------------------

    @property
    def results(self) -> Any:
        """The app's `ResultWaiter`."""
        ...

    @property
    def reservations(self) -> Any:
        """The app's `ReservationManager`."""
        ...

    def queue(self, name: str) -> Any:
        """Return the `Queue` of this name."""
        ...

    def listen(
        self,
        queue: str,
        handler: Callable[..., Any] | str,
        *,
        serde: str | Serde | None = None,
        result_serde: str | Serde | None = None,
        schedule: GivenSchedules | None = None,
        **options: Unpack[HandlerArguments],
    ) -> None: ...

    def new_job(self, queue: str, payload: Any, options: Mapping[str, Any]) -> NewJob: ...

    def emit(
        self,
        name: str,
        *,
        queue: str = "",
        id: str = "",
        attempt: int = 0,
        result: Any = None,
        error: JobError | None = None,
        worker: str | None = None,
    ) -> None: ...


class SyncApp(Protocol):
    """An app without `await`, built on an async app."""

    @property
    def async_app(self) -> AppHost: ...


def async_app(app: AppHost | SyncApp) -> AppHost:
    """Return the async app behind a sync app; an async app is returned as it is."""
    return cast("AppHost", getattr(app, "async_app", app))
