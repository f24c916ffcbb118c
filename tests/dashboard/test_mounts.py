"""Mounts: the dashboard under a prefix of ASGI and WSGI applications, of an async and of a sync app."""

from __future__ import annotations

import asyncio
import re
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest
from flask import Flask
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.types import Receive, Scope, Send
from werkzeug.middleware.dispatcher import DispatcherMiddleware
from werkzeug.test import Client, create_environ

from penstock import Penstock
from penstock.dashboard import Dashboard, anyone, token
from penstock.sync import Penstock as SyncPenstock

LINKS = re.compile(r'(?:href|src|action)="([^"]+)"')


@pytest.mark.parametrize("prefix", ["/jobs", "/ops/queue"])
async def test_links_stay_below_the_mount_of_an_asgi_host(prefix: str) -> None:
    """Pages answer with and without a slash at the end, also one that is called like the prefix."""
    async with Penstock("memory:") as app:
        await app.queue("mail").enqueue({"a": 1}, id="x")
        dashboard = Dashboard(app, auth=anyone("admin"))
        web = Starlette(routes=[Mount(prefix, dashboard)])
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app=web), base_url="http://localhost") as client:
            for path in ("/", "/jobs", "/jobs/", "/queue?name=mail", "/job?queue=mail&id=x"):
                page = await client.get(prefix + path)
                assert page.status_code == 200, path
                links = [link for link in LINKS.findall(page.text) if not link.startswith("#")]
                assert [link for link in links if not link.startswith(f"{prefix}/")] == []
            assert "<h1>Jobs" in (await client.get(f"{prefix}/jobs")).text
            answer = await client.post(
                f"{prefix}/act?verb=pause&queue=mail&next={prefix}/queues", headers={"sec-fetch-site": "same-origin"}
            )
            assert answer.headers["location"] == f"{prefix}/queues"
            for outside in ("https://evil.example", "//evil.example", "/elsewhere", f"{prefix}//evil.example"):
                path = f"{prefix}/act?verb=resume&queue=mail&next={outside}"
                answer = await client.post(path, headers={"sec-fetch-site": "same-origin"})
                assert answer.headers["location"] == f"{prefix}/"
        await dashboard.close()


def cutting(dashboard: Dashboard, prefix: str, **extra: str) -> Any:
    """Return a host that cuts its prefix off the path, and leaves it in `raw_path`, as Litestar does."""

    async def host(scope: Scope, receive: Receive, send: Send) -> None:
        cut = scope["path"].removeprefix(prefix) or "/"
        await dashboard({**scope, "path": cut, **extra}, receive, send)

    return host


@pytest.mark.parametrize("extra", [{}, {"root_path": "/jobs"}])
async def test_links_stay_below_the_mount_of_a_host_that_cuts_its_prefix_off(extra: dict[str, str]) -> None:
    """Links, the page that is called like the prefix, redirects and the cookie are those of the mount."""
    async with Penstock("memory:") as app:
        await app.queue("mail").enqueue({"a": 1}, id="x")
        dashboard = Dashboard(app, auth=token("a-long-admin-token"))
        host = cutting(dashboard, "/jobs", **extra)
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app=host), base_url="http://localhost") as client:
            begun = await client.get("/jobs?token=a-long-admin-token")
            assert begun.headers["location"].rstrip("/") == "/jobs"
            assert "Path=/jobs;" in begun.headers["set-cookie"]
            for path, title in {
                "": "Needs attention",
                "/": "Needs attention",
                "/jobs": "<h1>Jobs",
                "/jobs/": "<h1>Jobs",
            }.items():
                page = await client.get(f"/jobs{path}")
                assert title in page.text, path
                links = [link for link in LINKS.findall(page.text) if not link.startswith("#")]
                assert [link for link in links if not link.startswith("/jobs/")] == []
        await dashboard.close()


def test_a_sync_app_is_served_by_a_wsgi_host(tmp_path: Path) -> None:
    """Flask serves the dashboard of a sync app; a stream is refused, so that its pages poll."""
    with SyncPenstock(f"sqlite:{tmp_path / 'penstock.db'}") as app:
        app.queue("mail").enqueue({"a": 1}, id="x")
        dashboard = Dashboard(app, auth=anyone("operator"))
        web = DispatcherMiddleware(Flask("web"), {"/jobs": dashboard.wsgi})
        client = Client(web)
        page = client.get("/jobs/jobs", base_url="http://localhost")
        assert page.status_code == 200
        assert ">x</a>" in page.text
        assert 'data-stream=""' in page.text
        assert client.get("/jobs/live", base_url="http://localhost").status_code == 503
        answer = client.post(
            "/jobs/act?verb=pause&queue=mail", base_url="http://localhost", headers={"Sec-Fetch-Site": "same-origin"}
        )
        assert answer.headers["location"] == "/jobs/"
        assert app.queue("mail").why("x").reason == "paused"  # type: ignore[union-attr]
        dashboard.close_wsgi()
    assert [thread.name for thread in threading.enumerate() if "penstock dashboard" in thread.name] == []


def test_an_answer_that_a_wsgi_host_abandons_leaves_no_task(tmp_path: Path) -> None:
    """A host that closes the body before its end, as after a disconnect, has got it whole: no request is pending."""
    with SyncPenstock(f"sqlite:{tmp_path / 'penstock.db'}") as app:
        dashboard = Dashboard(app, auth=anyone("reader"))
        environ = create_environ("/static/none", "http://localhost")
        body = iter(dashboard.wsgi(environ, lambda *_: None))
        next(body)
        getattr(body, "close", lambda: None)()

        async def pending() -> list[str]:
            mine = asyncio.current_task()
            return [repr(task) for task in asyncio.all_tasks() if task is not mine]

        loop = dashboard._thread[0]  # type: ignore[index]
        assert asyncio.run_coroutine_threadsafe(pending(), loop).result() == []
        dashboard.close_wsgi()
