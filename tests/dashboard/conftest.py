"""Fixtures of the dashboard tests: an app with jobs of every kind, its dashboard, and a client for each role."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from starlette.requests import Request

from penstock import Cron, Entry, Job, Limit, Penstock, PermanentError
from penstock.dashboard import Dashboard, Viewer
from penstock.dashboard.auth import Role
from penstock.dashboard.reader import Reading
from penstock.model.job import State
from penstock.worker import Worker
from tests.support import Backend, forget_all

SECRET = "hunter2"
HOSTILE_QUEUE = "<img src=x onerror=alert(1)>/a:b"
HOSTILE_ID = "x/../%2F\n\0é"
SAME_ORIGIN = {"sec-fetch-site": "same-origin"}


def who(request: Request) -> Viewer | None:
    """Return the viewer that a header names: the tests are the host."""
    role: Any = request.headers.get("x-role")
    return Viewer("ann", role) if role else None


class Site:
    """A dashboard with its app, and requests to it."""

    def __init__(self, app: Penstock, dashboard: Dashboard) -> None:
        self.app, self.dashboard = app, dashboard
        self.client = httpx.AsyncClient(
            transport=httpx.ASGITransport(app=dashboard), base_url="http://localhost", follow_redirects=False
        )

    async def get(self, path: str, role: Role | None = "admin", **headers: str) -> httpx.Response:
        """Return the answer to a GET."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return await self.client.get(path, headers={**({"x-role": role} if role else {}), **named})

    async def json(self, path: str, role: Role = "admin") -> Any:
        """Return the view model of a page."""
        answer = await self.get(path, role, accept="application/json")
        assert answer.status_code == 200, (path, answer.text)
        return answer.json()

    async def post(self, path: str, role: Role | None = "admin", data: Any = None, **headers: str) -> httpx.Response:
        """Return the answer to a POST from a page of the dashboard."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        given = {**SAME_ORIGIN, **({"x-role": role} if role else {}), **named}
        return await self.client.post(path, data=data, headers=given)

    async def act(self, path: str, data: Any = None) -> dict[str, Any]:
        """Return the message of an action of an admin, which must succeed."""
        answer = await self.post(f"/act?{path}", data=data, accept="application/json")
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def state(self, queue: str, id: str) -> State | None:
        """Return the state of a job."""
        status = await self.app.queue(queue).status(id)
        return None if status is None else status.state

    async def reading(self) -> Reading:
        """Return a fresh reading."""
        return await self.dashboard.reader.refresh()


def add_handlers(app: Penstock) -> None:
    """Register handlers that complete and fail."""

    @app.handler("mail", max_retries=0, result_ttl=3600)
    async def send(payload: dict[str, Any], job: Job) -> dict[str, Any]:
        if payload.get("bad"):
            raise PermanentError("no such host at https://bob:letmein@mail.example.org")
        return {"token": SECRET, "sent": True}

    del send


async def seed(app: Penstock) -> None:
    """Let jobs wait, run, fail and complete."""
    add_handlers(app)
    mail = app.queue("mail")
    await mail.enqueue_many([Entry({"to": "ann", "password": SECRET}, id="done"), Entry({"bad": True}, id="bad")])
    await mail.enqueue_many([Entry({"bad": True}, id=f"bad-{n}") for n in range(3)])
    await Worker(app).drain()
    await mail.enqueue({"to": "bob", "password": SECRET}, id="waits", headers={"authorization": SECRET, "tenant": "t1"})
    await mail.enqueue({"to": "eve"}, id="later", delay=3600)
    await mail.set_limit(Limit(concurrency=5, rate="100/s", burst=50))
    await mail.schedules.put("nightly", Cron("0 3 * * *"), payload={"to": "all"})
    await app.queue("orders").enqueue_many([Entry({"n": n}, id=f"o{n}", group=f"customer-{n % 2}") for n in range(4)])
    await app.queue(HOSTILE_QUEUE).enqueue({"a": "<script>alert(1)</script>"}, id=HOSTILE_ID, group="<b>g</b>")


@pytest.fixture
def site(backend: Backend, runner: asyncio.Runner) -> Iterator[Site]:
    """A dashboard on the storage under test; its records are gone after the test."""
    app = Penstock(storage=backend.build())

    async def begin() -> Site:
        await app.open()
        await seed(app)
        return Site(app, Dashboard(app, auth=who))

    async def end() -> None:
        await site.client.aclose()
        await site.dashboard.close()
        await forget_all(app.storage)
        await app.close()

    site = runner.run(begin())
    yield site
    runner.run(end())
