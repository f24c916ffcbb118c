"""The HTTP routes of a worker and of the fleet: metrics, health, and the load of a queue for autoscalers."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from penstock.errors import NotSupported, PenstockError
from penstock.host import AppHost, SyncApp, async_app
from penstock.model.ids import check_name
from penstock.model.worker_status import WorkerStatus
from penstock.storage.base import Storage
from penstock.telemetry.fleet import Fleet, FleetReader
from penstock.telemetry.health import storage_answers, why_not_ready, why_unhealthy
from penstock.telemetry.http_server import Answer, Request, Route, json_answer, text_answer
from penstock.telemetry.on_demand import MISSING, load_prometheus
from penstock.telemetry.scaling import read_scale

__all__ = ["AWAY", "fleet_routes", "metrics_answer", "scale_answer", "worker_routes"]

#: The answer while the storage does not answer.
AWAY = "the storage cannot be reached"

#: The longest target (seconds) of `/scale`.
MAX_TARGET = 86_400


def worker_routes(app: AppHost | SyncApp, status: Callable[[], WorkerStatus]) -> dict[str, Route]:
    """Return the routes of one worker; `status` is called on the thread of a request."""
    host, writer = async_app(app), load_prometheus()

    def healthz(request: Request) -> Answer:
        why = why_unhealthy(status(), lambda: storage_answers(host))
        return text_answer("healthy" if why is None else why, 200 if why is None else 503)

    def readyz(request: Request) -> Answer:
        why = why_not_ready(status())
        return text_answer("ready" if why is None else why, 200 if why is None else 503)

    def metrics(request: Request) -> Answer:
        if writer is None:
            return text_answer(MISSING, 501)
        return Answer(200, *writer.exposition(writer.families_of_worker(status()), request.accept))

    return {"/metrics": metrics, "/healthz": healthz, "/readyz": readyz}


def fleet_routes(app: AppHost | SyncApp, reader: FleetReader) -> dict[str, Route]:
    """Return the routes of a fleet: `/metrics`, `/scale`, and the health of the program that serves them."""
    host = async_app(app)

    def metrics(request: Request) -> Answer:
        return metrics_answer(reader.read(), request.accept)

    def scale(request: Request) -> Answer:
        def units_of(queue: str) -> int:
            return host.options(queue).size

        try:
            return reader.use(lambda storage: scale_answer(storage, request.query, units_of))
        except NotSupported as error:
            return json_answer({"error": str(error)}, 501)
        except PenstockError:
            return json_answer({"error": AWAY}, 503)

    def healthz(request: Request) -> Answer:
        return text_answer("healthy")

    def readyz(request: Request) -> Answer:
        up = reader.read().up
        return text_answer("ready" if up else AWAY, 200 if up else 503)

    return {"/metrics": metrics, "/scale": scale, "/healthz": healthz, "/readyz": readyz}


def metrics_answer(fleet: Fleet, accept: str) -> Answer:
    """Return the metrics of a fleet, in the format that the client accepts; 501 without prometheus-client."""
    writer = load_prometheus()
    if writer is None:
        return text_answer(MISSING, 501)
    return Answer(200, *writer.exposition(writer.families_of_fleet(fleet), accept))


async def scale_answer(storage: Storage, query: Mapping[str, str], units_of: Callable[[str], int]) -> Answer:
    """Return the load of the queue that a query names; 400 for a query that cannot be.

    `units_of` returns the size of one run of a queue.
    """
    try:
        queue = check_name(query.get("queue", ""), "queue")
        target = seconds_of(query.get("target", "30"))
    except (TypeError, ValueError) as error:
        return json_answer({"error": str(error)}, 400)
    try:
        found = await read_scale(storage, queue, target, units_of(queue))
    except NotSupported as error:
        return json_answer({"error": str(error)}, 501)
    except PenstockError:
        return json_answer({"error": AWAY}, 503)
    return json_answer(msgspec.to_builtins(found))


def seconds_of(text: str) -> float:
    """Return the target of a request in seconds; raises `ValueError`, which names it."""
    try:
        found = float(text)
    except ValueError:
        raise ValueError("target must be a number of seconds") from None
    if not 0 < found <= MAX_TARGET:
        raise ValueError(f"target must be more than 0 and at most {MAX_TARGET} seconds")
    return found
