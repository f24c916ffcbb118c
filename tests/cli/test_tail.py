"""`penstock job watch`: the events and progress of one job, live."""

from __future__ import annotations

import asyncio
import json

import pytest

from penstock import Job, Penstock, PermanentError, Worker
from tests.cli.conftest import Cli
from tests.cli.terminal import Terminal


@pytest.mark.parametrize(
    ("payload", "code", "expected"), [("good", 0, 'result: "sent"'), ("bad", 1, "no such address")]
)
def test_job_logs_prints_state_progress_and_end(cli: Cli, payload: str, code: int, expected: str) -> None:
    """`job watch` prints state, progress and result or error; it exits with 1 if the job failed."""

    async def work(app: Penstock) -> None:
        begun, go_on = asyncio.Event(), asyncio.Event()

        @app.handler("mail")
        async def mail(payload: str, job: Job) -> str:
            await job.progress(0.4, "half of it")
            begun.set()
            await go_on.wait()
            if payload == "bad":
                raise PermanentError("no such address")
            return "sent"

        await app.queue("mail").enqueue(payload, id="a")
        async with Worker(app):
            await begun.wait()
            with Terminal("job", "watch", "mail", "a", environment=cli.environment, cwd=cli.directory) as terminal:
                await asyncio.to_thread(terminal.until, "it is running now, 1 run so far", "40% half of it")
                go_on.set()
                assert await asyncio.to_thread(terminal.wait_for_exit) == code
            assert expected in terminal.text
        again = await asyncio.to_thread(cli.run, "job", "watch", "mail", "a", "--json")
        assert (again.exit_code, json.loads(again.stdout)["name"]) == (code, "status")

    cli.do(work)
