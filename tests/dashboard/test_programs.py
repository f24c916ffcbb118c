"""Paths for programs: metrics, the load of a queue, and probes, which need no token."""

from __future__ import annotations

import asyncio
import time
from collections import deque

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from penstock import Penstock
from penstock.dashboard import Dashboard, anyone, token
from penstock.dashboard import reader as reader_module
from penstock.errors import StorageUnavailable
from penstock.telemetry import endpoints
from tests.dashboard.conftest import HOSTILE_QUEUE, Site
from tests.dashboard.html_checks import faults_of

ADMIN, READER = "0123456789abcdef-admin", "0123456789abcdef-reader"


async def test_metrics_are_read_from_the_storage(site: Site) -> None:
    """A reader gets the counts of all queues as Prometheus parses them, whatever the names are."""
    answer = await site.get("/metrics", "reader")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain")
    found = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }
    assert found["penstock_jobs", "mail", "failed"] == 4
    assert found["penstock_jobs", "orders", "queued"] == 4
    assert found["penstock_jobs", HOSTILE_QUEUE, "queued"] == 1
    assert found["penstock_storage_up",] == 1
    assert (await site.get("/metrics", None)).status_code == 401
    openmetrics = await site.get("/metrics", "reader", accept="application/openmetrics-text; version=1.0.0")
    assert openmetrics.text.endswith("# EOF\n")


async def test_the_load_of_a_queue_is_read_for_autoscalers(site: Site) -> None:
    """A query that cannot be is a 400 that names it; a stranger gets a 401."""
    found = (await site.get("/scale?queue=orders&target=30", "reader")).json()
    assert (found["queued"], found["workers"], found["wanted_workers"]) == (4, 0, 1)
    for query, name in (("queue=mail&target=x", "target"), ("queue=mail&target=-1", "target"), ("", "queue")):
        answer = await site.get(f"/scale?{query}", "reader")
        assert (answer.status_code, name in answer.json()["error"]) == (400, True)
    assert (await site.get("/scale?queue=orders", None)).status_code == 401


@pytest.mark.only("memory")
async def test_probes_need_no_token_and_programs_a_bearer(site: Site) -> None:
    """A program without a token gets a challenge, not the form for browsers; probes are answered on any host."""
    dashboard = Dashboard(site.app, auth=token(ADMIN, reader=READER), allow_hosts=["jobs.example.org"])
    transport = httpx.ASGITransport(app=dashboard)
    async with httpx.AsyncClient(transport=transport, base_url="http://10.0.0.7") as probe:
        assert (await probe.get("/healthz")).text == "healthy\n"
        assert (await probe.get("/readyz")).text == "ready\n"
        assert (await probe.get("/metrics")).status_code == 400
    async with httpx.AsyncClient(transport=transport, base_url="http://jobs.example.org") as client:
        stranger = await client.get("/metrics", headers={"accept": "text/html"})
        assert (stranger.status_code, stranger.headers["www-authenticate"]) == (401, "Bearer")
        assert "<form" not in stranger.text
        for path in ("/metrics", "/scale?queue=mail"):
            assert (await client.get(path, headers={"authorization": f"Bearer {READER}"})).status_code == 200
    await dashboard.close()


async def test_a_storage_that_is_away_is_not_ready() -> None:
    """The probe of readiness and the load are a 503, the metrics have it as a value; the process is healthy."""
    app = Penstock("redis://127.0.0.1:1", timeout=0.2)
    dashboard = Dashboard(app, auth=anyone("reader"))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=dashboard), base_url="http://localhost") as client:
        assert (await client.get("/healthz")).status_code == 200
        assert (await client.get("/readyz")).status_code == 503
        assert (await client.get("/scale?queue=mail")).status_code == 503
        assert "penstock_storage_up 0.0" in (await client.get("/metrics")).text
    await dashboard.close()
    await app.close()


async def test_a_page_that_cannot_be_read_shows_the_reason_and_a_link_to_try_again() -> None:
    """Every page is a 503 with a sentence and links to itself and to the overview; an action has no such link."""
    app = Penstock("redis://127.0.0.1:1", timeout=0.2)
    dashboard = Dashboard(app, auth=anyone("admin"))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=dashboard), base_url="http://localhost") as client:
        for path in ("/", "/jobs?filter=state:failed", "/job?queue=mail&id=a", "//jobs", "/doctor"):
            answer = await client.get(f"http://localhost{path}")
            assert answer.status_code == 503, path
            assert faults_of(answer.text) == []
            assert "The storage does not answer" in answer.text
            assert "cannot reach redis://127.0.0.1:1" in answer.text
            again = path.replace("//", "/").replace("&", "&amp;")
            assert f'<a class="button" href="{again}">Try again</a>' in answer.text
        headers = {"sec-fetch-site": "same-origin"}
        refused = await client.post("/act", data={"verb": "pause", "queue": "mail"}, headers=headers)
        assert refused.status_code == 503
        assert "Try again" not in refused.text
    await dashboard.close()
    await app.close()


@pytest.mark.only("memory")
async def test_metrics_without_their_library_name_the_package(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer has the line that installs it."""
    monkeypatch.setattr(endpoints, "load_prometheus", lambda: None)
    answer = await site.get("/metrics", "reader")
    assert (answer.status_code, "penstock[metrics]" in answer.text) == (501, True)


@pytest.mark.only("memory")
async def test_a_request_after_a_while_without_any_reads_again(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """The task of the reader has ended: a page shows the queues of now, not of its last reading."""
    monkeypatch.setattr(reader_module, "INTERVAL", 3600.0)
    reader = site.dashboard.reader
    first = await reader.latest()
    await reader.close()
    await site.app.queue("late").enqueue(1)
    assert (await reader.latest()).version == first.version
    reader._read_at = time.monotonic() - reader.pause - reader_module.MAX_LATE - 1
    await asyncio.gather(*(reader.latest() for _ in range(3)))
    again = await reader.latest()
    assert (again.version, again.queue("late") is not None) == (first.version + 1, True)


async def test_a_storage_that_did_not_answer_is_asked_again_after_a_second(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reads that take long are rare while the storage answers; without an answer, the next one comes soon."""
    reader = site.dashboard.reader
    await site.reading()
    monkeypatch.setattr(reader, "_took", deque([0.2], maxlen=1))
    assert reader.pause == 20.0

    async def unavailable() -> list[str]:
        raise StorageUnavailable("away")

    with monkeypatch.context() as away:
        away.setattr(site.app, "workers", unavailable)
        assert (await site.reading()).error == "away"
        assert reader.pause == 1.0
    assert (await site.reading()).error == ""
    assert reader.pause >= 1.0
