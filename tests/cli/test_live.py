"""What is told while it happens: events, one job, the screen of `penstock top`."""

from __future__ import annotations

import asyncio
import json
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest

from penstock import Job, Penstock, PermanentError, Worker
from tests.cli.conftest import Cli, on_redis, on_sqlite, workers_there
from tests.cli.terminal import Terminal
from tests.servers import Server, redis_program

ALTERNATE, BACK, CURSOR = "\x1b[?1049h", "\x1b[?1049l", "\x1b[?25h"


def test_events_are_told_as_they_happen(cli: Cli) -> None:
    """Each event is a line; with --limit it ends by itself, and with names only those are told."""
    cli.do(Penstock.queues)
    with ThreadPoolExecutor() as pool:
        told = pool.submit(cli.run, "events", "enqueued", "--queue", "mail", "--limit", "2", "--json")
        number = 0
        while not told.done():  # it cannot be seen from outside when it begins to listen
            cli.do(lambda app: app.queue("other").enqueue(1))
            cli.do(lambda app, id=f"a{number}": app.queue("mail").enqueue(1, id=id))
            number += 1
    result = told.result()
    assert result.exit_code == 0
    first, second = map(json.loads, result.stdout.splitlines())
    assert (first["name"], first["queue"], second["queue"]) == ("enqueued", "mail", "mail")
    assert int(second["id"][1:]) == int(first["id"][1:]) + 1


@on_sqlite
def test_an_unknown_event_is_refused(cli: Cli) -> None:
    """The names of events are known."""
    assert "'exploded'" in cli.fails("events", "exploded", code=2)


@pytest.mark.parametrize(("payload", "code", "words"), [("good", 0, 'result: "sent"'), ("bad", 1, "no such address")])
def test_one_job_is_followed_to_its_end(cli: Cli, payload: str, code: int, words: str) -> None:
    """It tells how the job stands, its progress and its end, and the exit code says how that was."""

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
            with Terminal("job", "logs", "mail", "a", environment=cli.environment, cwd=cli.directory) as terminal:
                await asyncio.to_thread(terminal.until, "it is running now, 1 run so far", "40% half of it")
                go_on.set()
                assert await asyncio.to_thread(terminal.ended) == code
            assert words in terminal.text
        again = await asyncio.to_thread(cli.run, "job", "logs", "mail", "a", "--json")
        assert (again.exit_code, json.loads(again.stdout)["name"]) == (code, "status")

    cli.do(work)


def test_top_looks_once_when_piped(cli: Cli) -> None:
    """Without a terminal it is one look, with rates; programs get it as JSON."""

    async def work(app: Penstock) -> None:
        @app.handler("mail")
        async def mail(payload: int) -> None:
            if payload == 13:
                raise PermanentError("unlucky")

        await app.queue("other").enqueue_many(range(5))
        async with Worker(app, id="w1"):
            await workers_there(app)
            looking = asyncio.create_task(asyncio.to_thread(cli.json, "top", "--interval", "1"))
            while not looking.done():
                await app.queue("mail").enqueue_many([1, 13])
                await asyncio.sleep(0.05)
            seen = await looking
        queues = {queue["name"]: queue for queue in seen["queues"]}
        assert queues["mail"]["ending"] > 0
        assert queues["mail"]["arriving"] > 0
        assert (queues["other"]["ending"], queues["other"]["counts"]["queued"]) == (0, 5)
        assert seen["workers"][0]["id"] == "w1"
        assert (seen["failures"][0]["queue"], seen["failures"][0]["message"]) == ("mail", "unlucky")

    cli.do(work)
    text = cli.ok("top", "--interval", "0.1")
    assert "queue  " in text
    assert "PermanentError: unlucky" in text
    assert "\x1b" not in text


def test_top_draws_and_leaves_the_terminal_clean(cli: Cli) -> None:
    """The screen shows queues and failures as they change; Ctrl-C gives the terminal back as it was, exit code 0."""
    cli.do(lambda app: app.queue("mail").enqueue(1))
    with Terminal("top", "--interval", "0.2", environment=cli.environment, cwd=cli.directory) as terminal:
        terminal.until("penstock top", "mail", "no workers are there", "nothing has failed")
        cli.do(lambda app: app.queue("another").enqueue(1))
        terminal.until("another")
        terminal.type("\x03")
        assert terminal.ended() == 0
        assert terminal.raw.count(ALTERNATE) == terminal.raw.count(BACK) == 1
        end = terminal.raw[terminal.raw.rindex(BACK) :]
        assert CURSOR in terminal.raw[terminal.raw.index(ALTERNATE) :]
        assert "Traceback" not in end
        assert "Aborted" not in end


@on_sqlite
def test_top_ends_cleanly_when_it_is_told_to(cli: Cli) -> None:
    """SIGTERM leaves the terminal as clean as Ctrl-C."""
    cli.do(lambda app: app.queue("mail").enqueue(1))
    with Terminal("top", environment=cli.environment, cwd=cli.directory) as terminal:
        terminal.until("mail")
        terminal.signal(signal.SIGTERM)
        assert terminal.ended() == 0
        assert terminal.raw.count(BACK) == 1


@on_redis
def test_top_outlives_its_server(cli: Cli) -> None:
    """While the server is away the screen says so, and when it is back it goes on."""
    server = Server(redis_program()).start()
    cli.url = f"redis://{server.address}/0"
    try:
        cli.do(lambda app: app.queue("mail").enqueue(1))
        with Terminal("top", "--interval", "0.2", environment=cli.environment, cwd=cli.directory) as terminal:
            terminal.until("1 open job")
            server.kill()
            terminal.until("trying again")
            server.restart()
            terminal.until("0 open jobs")
            terminal.type("\x03")
            assert terminal.ended() == 0
    finally:
        server.remove()
        cli.url = "sqlite:gone.db"


@on_sqlite
def test_lists_are_drawn_at_a_terminal(cli: Cli) -> None:
    """At a terminal a list has colours and a rule, JSON is indented, and NO_COLOR takes the colours away."""
    cli.do(lambda app: app.queue("mail").enqueue(1))
    for arguments, environment, coloured in (
        (["queue", "ls"], {}, True),
        (["queue", "ls"], {"NO_COLOR": "1"}, False),
        (["queue", "ls", "--json"], {}, False),
    ):
        given = {**cli.environment, **environment}
        with Terminal(*arguments, environment=given, cwd=cli.directory) as terminal:
            assert terminal.ended() == 0
        assert "mail" in terminal.text
        assert ("\x1b[36m" in terminal.raw) == coloured
        if "--json" in arguments:
            assert '\n    "name": "mail"' in terminal.text.replace("\r", "")
        else:
            assert "───" in terminal.text


@on_sqlite
def test_deleting_asks_at_a_terminal(cli: Cli) -> None:
    """The question is asked, and everything but yes leaves the queue alone."""
    cli.do(lambda app: app.queue("mail").enqueue(1))
    for answer, code, left in (("n\r", 1, ["mail"]), ("y\r", 0, [])):
        with Terminal("queue", "delete", "mail", environment=cli.environment, cwd=cli.directory) as terminal:
            terminal.until("Delete mail with 1 job?")
            terminal.type(answer)
            assert terminal.ended() == code
        assert cli.do(Penstock.queues) == left
