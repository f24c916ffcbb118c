"""Health of workers: what the probes answer, and the state that they answer from."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Generator
from typing import Any

import pytest
from msgspec.structs import replace

from penstock import Penstock, PermanentError, State, Worker
from penstock.model.stats import Histogram, Sample
from penstock.model.worker_status import WorkerStatus
from penstock.telemetry.endpoints import fleet_routes, worker_routes
from penstock.telemetry.fleet import FleetReader
from penstock.telemetry.health import storage_answers, why_not_ready, why_unhealthy
from penstock.telemetry.http_server import HttpServer, parse_address
from penstock.telemetry.scaling import read_scale, wanted_workers
from penstock.testing import Clock
from penstock.worker.pulse import Pulse
from tests.support import eventually

FINE = WorkerStatus(id="w", stage="working", lease=30.0)


@contextlib.contextmanager
def serving(*arguments: Any, **options: Any) -> Generator[str]:
    server = HttpServer("127.0.0.1", 0, *arguments, **options)
    server.start()
    try:
        yield f"http://127.0.0.1:{server.port}"
    finally:
        server.close()


def get(url: str, **headers: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=20) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


@pytest.mark.parametrize(
    ("status", "answers", "why"),
    [
        ({}, True, None),
        ({"claim_age": 29.0}, True, None),
        ({"claim_age": 31.0}, True, "the claim loop has not turned for 31 s"),
        ({"answer_age": 61.0}, True, "no answer of the storage for 61 s, though it answers a new connection"),
        ({"answer_age": 3600.0}, False, None),
        ({"claim_age": 31.0, "stage": "stopping"}, True, None),
    ],
)
def test_a_worker_is_unhealthy_only_if_a_restart_would_help(
    status: dict[str, Any], answers: bool, why: str | None
) -> None:
    """A storage that is away is no reason; nor is a worker that is stopping."""
    assert why_unhealthy(replace(FINE, **status), lambda: answers) == why


@pytest.mark.parametrize(
    ("status", "why"),
    [
        ({}, None),
        ({"stage": "starting"}, "the worker is starting"),
        ({"stage": "stopping"}, "the worker is stopping"),
        ({"answer_age": 31.0}, "no answer of the storage for 31 s, which is longer than a lease"),
    ],
)
def test_a_worker_is_ready_while_it_works_and_the_storage_answers(status: dict[str, Any], why: str | None) -> None:
    """The reason is the body of the answer."""
    assert why_not_ready(replace(FINE, **status)) == why


async def test_the_state_of_a_watched_worker_has_its_counts_and_stages(app: Penstock) -> None:
    """It is there from the start to the end, for any thread."""
    gate, running = asyncio.Event(), asyncio.Event()

    @app.handler("q", max_retries=0)
    async def handle(payload: int) -> None:
        if payload == 1:
            raise PermanentError("no")
        if payload == 2:
            running.set()
            await gate.wait()

    worker = Worker(app, id="w1", capacity=40)
    worker.watched = True
    assert worker.status().stage == "starting"
    async with worker:
        await app.queue("q").enqueue_many([0, 1, 2])
        await running.wait()
        pulse = worker._pulse
        assert pulse is not None
        while (status := worker.status()).runs != {("q", "completed"): 1, ("q", "failed"): 1}:
            await asyncio.sleep(0.01)
            pulse.note()
        assert (status.stage, status.capacity, status.busy, status.running) == ("working", 40, 10, 1)
        assert status.memory > 0
        assert status.answer_age < 5
        stopping = asyncio.create_task(worker.stop())
        await asyncio.sleep(0)
        assert worker.status().stage == "stopping"
        gate.set()
        await stopping
    assert worker.status().stage == "stopped"


async def test_an_event_loop_that_hangs_is_seen_from_another_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """The age of the claim loop grows while nothing notes the state, and the lag with it."""
    now = [100.0]
    monkeypatch.setattr("penstock.worker.pulse.source.monotonic", lambda: now[0])
    pulse = Pulse(lambda: FINE)
    now[0] += 1.5
    assert (pulse.status().claim_age, pulse.status().loop_lag) == (0.0, 0.0)
    now[0] += 30
    found: list[WorkerStatus] = []
    thread = threading.Thread(target=lambda: found.append(pulse.status()))
    thread.start()
    thread.join()
    assert (found[0].claim_age, found[0].loop_lag, found[0].answer_age) == (31.5, 31.5, 31.5)
    assert why_unhealthy(found[0], lambda: False) is not None
    pulse.note()
    assert (pulse.status().claim_age, pulse.status().loop_lag) == (0.0, 30.5)


def test_the_routes_of_a_worker_answer_with_status_and_reason(app: Penstock) -> None:
    """Probes need no token; metrics do, if there is one."""
    state = [FINE]
    routes = worker_routes(app, lambda: state[0])
    with serving(routes, token="secret") as url:
        assert get(f"{url}/healthz") == (200, "healthy\n")
        assert get(f"{url}/readyz") == (200, "ready\n")
        assert get(f"{url}/metrics")[0] == 401
        assert get(f"{url}/metrics", Authorization="Bearer wrong")[0] == 401
        code, text = get(f"{url}/metrics", Authorization="Bearer secret")
        assert code == 200
        assert "penstock_worker_units" in text
        assert get(f"{url}/elsewhere") == (404, "not found; there are: /healthz /metrics /readyz\n")
        state[0] = WorkerStatus(id="w", stage="starting", claim_age=40.0)
        assert get(f"{url}/healthz") == (503, "the claim loop has not turned for 40 s\n")
        assert get(f"{url}/readyz") == (503, "the worker is starting\n")


def test_a_route_that_fails_is_an_internal_error_without_details(
    app: Penstock, caplog: pytest.LogCaptureFixture
) -> None:
    """The reason is in the log."""

    def broken() -> WorkerStatus:
        raise ValueError("detail")

    with serving(worker_routes(app, broken)) as url:
        assert get(f"{url}/healthz") == (500, "internal error\n")
    assert "detail" in caplog.text


def test_a_new_connection_shows_whether_the_storage_answers(tmp_path: Any) -> None:
    """A file that is shared with the worker proves nothing, and a server that is away does not answer."""
    assert not storage_answers(Penstock("redis://127.0.0.1:1"))
    assert not storage_answers(Penstock("memory:"))


@pytest.mark.parametrize("text", ["", "a", "host:", "host:x", "1.2.3.4:70000"])
def test_an_address_without_a_port_is_refused(text: str) -> None:
    """The error shows the text."""
    with pytest.raises(ValueError, match="must end with a port"):
        parse_address(text)


def test_an_address_has_a_host_or_is_loopback() -> None:
    """An address of IPv6 stands in brackets."""
    assert parse_address("0.0.0.0:9718") == ("0.0.0.0", 9718)
    assert parse_address(":9718") == parse_address("9718") == ("127.0.0.1", 9718)
    assert parse_address("[::1]:9718") == ("::1", 9718)


def sample(queued: int = 0, running: int = 0, scheduled: int = 0) -> Sample:
    counts = {State.QUEUED: queued, State.RUNNING: running, State.SCHEDULED: scheduled}
    return Sample(at=0, counts=counts, run=Histogram())


@pytest.mark.parametrize(
    ("found", "arrivals", "mean", "wanted"),
    [
        (sample(), 10.0, 1.0, 0),  # nothing is open
        (sample(scheduled=5), 0.0, 1.0, 0),  # nothing may start yet
        (sample(queued=1), 0.0, 0.0, 1),  # no run was measured
        (sample(queued=3000), 0.0, 1.0, 13),  # 3000 s of work in 30 s, on 8 of 10 units each
        (sample(queued=0, running=35), 0.0, 0.1, 4),  # never fewer than run
        (sample(queued=1), 20.0, 2.0, 6),  # what arrives: 40 units, and a little backlog
    ],
)
def test_the_wanted_workers_run_what_arrives_and_the_backlog_in_time(
    found: Sample, arrivals: float, mean: float, wanted: int
) -> None:
    """With 10 units a worker, of which 8 are planned, and a target of 30 seconds."""
    assert wanted_workers(found, arrivals, mean, 30.0, 1, 10.0) == wanted


async def test_the_load_of_a_queue_is_read_from_its_statistics(app: Penstock, clock: Clock) -> None:
    """A run of size 2 takes two units; workers that serve another queue do not count."""
    app.listen("mail", lambda payload: None, size=2)
    await app.queue("mail").enqueue_many(range(4))
    await Worker(app).drain()
    await app.queue("mail").pause()
    async with Worker(app, queues=["mail"], capacity=10):
        await app.queue("mail").enqueue_many(range(7))
        clock.advance(3)
        await eventually(app.workers)
        found = await read_scale(app.storage, "mail", 30.0, 2)
    assert (found.queued, found.oldest_seconds, found.workers, found.busy_ratio) == (7, 3.0, 1, 0.0)
    assert found.wanted_workers == 1
    assert (await read_scale(app.storage, "empty", 30.0)).wanted_workers == 0


def test_the_endpoint_of_the_fleet_answers_autoscalers(tmp_path: Any) -> None:
    """Wrong parameters are a 400 that names them; a server that is away a 503."""
    app = Penstock(f"sqlite:{tmp_path}/jobs.db")
    asyncio.run(app.queue("mail").enqueue(1))
    reader = FleetReader(app)
    with serving(fleet_routes(app, reader), token="t") as url:
        code, text = get(f"{url}/scale?queue=mail&target=30", Authorization="Bearer t")
        assert (code, json.loads(text)["queued"], json.loads(text)["wanted_workers"]) == (200, 1, 1)
        assert set(json.loads(text)) == {
            "queued", "oldest_seconds", "wait_p95_seconds", "busy_ratio", "workers", "wanted_workers",
        }  # fmt: skip
        for query, name in (("queue=mail&target=x", "target"), ("queue=mail&target=0", "target"), ("", "queue")):
            code, text = get(f"{url}/scale?{query}", Authorization="Bearer t")
            assert (code, name in json.loads(text)["error"]) == (400, True)
        assert get(f"{url}/scale?queue=mail")[0] == 401
        assert get(f"{url}/readyz") == (200, "ready\n")
        assert "penstock_jobs" in get(f"{url}/metrics", Authorization="Bearer t")[1]
    reader.close()
    asyncio.run(app.close())
    away = FleetReader(Penstock("redis://127.0.0.1:1", timeout=1))
    with serving(fleet_routes(app, away)) as url:
        assert get(f"{url}/scale?queue=mail")[0] == 503
        assert get(f"{url}/readyz")[0] == 503
        assert get(f"{url}/healthz")[0] == 200
