"""What a worker needs of the app that it works for; any object that has it will do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, cast

from penstock.errors import JobError
from penstock.model.events import Listeners
from penstock.model.handler import Handler
from penstock.model.job import NewJob
from penstock.model.serde import Codec
from penstock.storage.base import Storage

__all__ = ["AppHost", "SyncApp", "async_app"]


class AppHost(Protocol):
    """The app, as a worker sees it."""

    @property
    def storage(self) -> Storage: ...

    @property
    def handlers(self) -> Mapping[str, Handler]: ...

    @property
    def listeners(self) -> Listeners: ...

    @property
    def lease(self) -> float: ...

    @property
    def is_open(self) -> bool: ...

    def blocking_storage(self) -> Storage | None: ...

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    def codec(self, queue: str) -> Codec: ...

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
    """An app without `await`; what workers want is the async app behind it."""

    @property
    def async_app(self) -> AppHost: ...


def async_app(app: AppHost | SyncApp) -> AppHost:
    """The app as a worker sees it, whichever of its faces is given."""
    return cast("AppHost", getattr(app, "async_app", app))
