"""Answers for programs: metrics for Prometheus, the load of a queue for autoscalers, and probes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from starlette.responses import PlainTextResponse, Response

from penstock.client.app import Penstock
from penstock.dashboard.context import PageContext
from penstock.dashboard.reader import Reader
from penstock.errors import PenstockError, StorageError
from penstock.telemetry.endpoints import AWAY, metrics_answer, scale_answer
from penstock.telemetry.fleet import Fleet, kind_of, read_fleet, rest_after
from penstock.telemetry.http_server import Answer, json_answer

__all__ = ["OPEN_PROBES", "FleetMetrics", "ready_answer"]


class FleetMetrics:
    """The metrics of all queues and workers, read by the storage of the dashboard and kept for a while."""

    def __init__(self, app: Penstock) -> None:
        self._app = app
        self._last: Fleet | None = None
        self._next = 0.0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = asyncio.Lock()

    async def read(self) -> Fleet:
        """Return the state of the fleet, at most as old as a hundred times the duration of a read, or a minute."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:  # the host started a new event loop
            self._loop, self._lock = loop, asyncio.Lock()
        async with self._lock:
            if self._last is None or time.monotonic() >= self._next:
                began = time.monotonic()
                self._last = await self._read()
                self._next = time.monotonic() + rest_after(time.monotonic() - began)
            return self._last

    async def _read(self) -> Fleet:
        try:
            storage = await self._app.opened()
        except StorageError as error:
            kind = kind_of(self._app.storage)
            return Fleet(up=False, storage=kind, namespace=self._app.namespace, error=type(error).__name__)
        return await read_fleet(storage, self._app.namespace)

    async def metrics(self, context: PageContext) -> Response:
        """Answer Prometheus."""
        return _response(metrics_answer(await self.read(), context.request.headers.get("accept", "")))

    async def scale(self, context: PageContext) -> Response:
        """Answer an autoscaler."""
        try:
            storage = await self._app.opened()
        except PenstockError:
            return _response(json_answer({"error": AWAY}, 503))
        query = dict(context.request.query_params)
        return _response(await scale_answer(storage, query, lambda queue: self._app.options(queue).size))


async def health_answer(reader: Reader) -> Response:
    """Answer whether this process serves pages."""
    return PlainTextResponse("healthy\n")


async def ready_answer(reader: Reader) -> Response:
    """Answer whether the storage can be read."""
    try:
        up = not (await reader.latest()).error
    except PenstockError:
        up = False
    return PlainTextResponse("ready\n" if up else f"{AWAY}\n", 200 if up else 503)


#: The paths that need no viewer: probes have no token, and learn nothing else.
OPEN_PROBES: dict[str, Callable[[Reader], Awaitable[Response]]] = {
    "healthz": health_answer,
    "readyz": ready_answer,
}


def _response(answer: Answer) -> Response:
    return Response(answer.body, answer.status, headers={"Content-Type": answer.type})
