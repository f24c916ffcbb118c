"""Hooks of an app without `await`: on the calling thread, in its context, and around its runs."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from contextvars import ContextVar

from penstock import Running, Sending, current_job
from penstock.sync import Penstock
from tests.sync.conftest import working

tenant: ContextVar[str] = ContextVar("tenant", default="none")


def test_hooks_of_a_sync_app_see_the_context_of_the_caller(app: Penstock) -> None:
    """`enqueue`, `enqueue_many` and `call` pass the hooks; the run gets the headers."""
    runs: list[str] = []

    @app.around("enqueue")
    @contextlib.contextmanager
    def stamp(sending: Sending) -> Generator[None]:
        sending.headers["tenant"] = tenant.get()
        yield

    @app.around("run")
    @contextlib.contextmanager
    def use(running: Running) -> Generator[None]:
        runs.append(running.job.headers["tenant"])
        yield

    @app.task(queue="q")
    def whoami() -> str:
        job = current_job()
        return "" if job is None else job.headers["tenant"]

    tenant.set("blue")
    with app, working(app):
        assert whoami.call() == "blue"
        assert app.queue("q").enqueue({}, id="a")
        assert len(app.queue("q").enqueue_many([{}])) == 1
        assert app.queue("q").wait("a", timeout=30) == "blue"
    assert set(runs) == {"blue"}
