"""Settings of a dashboard: patterns of secrets in texts, links to traces, and the bound of streams."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from penstock import Job, PermanentError
from penstock.dashboard import Dashboard
from penstock.worker import Worker
from tests.dashboard.conftest import Site, who

KEY = "sk-live-4711"
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


@asynccontextmanager
async def site_with(site: Site, **settings: Any) -> AsyncGenerator[Site]:
    """Yield another dashboard on the same app."""
    other = Site(site.app, Dashboard(site.app, auth=who, **settings))
    yield other
    await other.client.aclose()
    await other.dashboard.close()


async def fail_with_secrets(site: Site) -> None:
    """Let a job fail whose message, log, payload and fail job have a secret."""

    async def on_failure(failure: Any, job: Job) -> None:
        del failure, job

    @site.app.handler("pay", max_retries=0, on_failure=on_failure)
    async def pay(payload: dict[str, Any], job: Job) -> None:
        job.log(f"uses {KEY}")
        raise PermanentError(f"{KEY} was refused")

    del pay
    await site.app.queue("pay").enqueue(
        {"note": f"key {KEY}"}, id="p1", headers={"traceparent": f"00-{TRACE}-00f067aa0ba902b7-01"}
    )
    await Worker(site.app).drain()


async def test_a_pattern_of_secrets_is_hidden_on_every_page(site: Site) -> None:
    """Messages, tracebacks, attempts, logs, payloads, fail jobs, previews and the activity have none, in both faces."""
    await fail_with_secrets(site)
    assert KEY in (await site.get("/job?queue=pay&id=p1")).text
    async with site_with(site, redact_text=[r"sk-live-\w+"]) as other:
        [key] = [group["key"] for group in (await other.json("/failures?queue=pay"))["groups"]]
        await other.post("/act?verb=edit&queue=pay&id=p1", data={"payload": f'{{"note": "{KEY}"}}'})
        paths = ["/", "/failures", "/activity", "/queue?name=pay", "/jobs?filter=queue:pay", "/job?queue=pay&id=p1"]
        paths += [f"/error-group?queue=pay&key={key}", "/queues", "/doctor", "/jobs?filter=queue:pay/failures"]
        for path in paths:
            for accept in ("application/json", "text/html"):
                assert KEY not in (await other.get(path, accept=accept)).text, path
        asked = await other.post(f"/preview?bulk=1&verb=retry&queue=pay&key={key}", accept="application/json")
        assert KEY not in asked.text
        assert "•••" in asked.text


async def test_a_job_links_to_its_trace(site: Site) -> None:
    """The address has the id of the trace that enqueued the job; one that is no web address is left out."""
    await fail_with_secrets(site)
    for given, link in {
        "https://t.example/{trace_id}": f"https://t.example/{TRACE}",
        "javascript:{trace_id}": "",
    }.items():
        async with site_with(site, trace_url=given) as other:
            assert (await other.json("/job?queue=pay&id=p1"))["trace"] == link


async def test_a_stream_beyond_the_bound_is_refused_so_that_the_page_polls(site: Site) -> None:
    """With no stream left the answer is 503, and the pages themselves are served."""
    async with site_with(site, max_streams=0) as other:
        assert (await other.get("/live")).status_code == 503
        assert (await other.get("/")).status_code == 200
