"""`penstock top`: on a terminal, piped, and as JSON."""

from __future__ import annotations

import asyncio
import signal

from penstock import Penstock, PermanentError, Worker
from tests.cli.conftest import Cli, on_redis, on_sqlite, wait_for_worker
from tests.cli.terminal import Terminal
from tests.servers import Server, redis_program

ALTERNATE, BACK, CURSOR = "\x1b[?1049h", "\x1b[?1049l", "\x1b[?25h"


def test_top_prints_one_measurement_when_piped(cli: Cli) -> None:
    """Piped, `top` prints queues, rates, workers and failures once, as text or JSON."""

    async def work(app: Penstock) -> None:
        @app.handler("mail")
        async def mail(payload: int) -> None:
            if payload == 13:
                raise PermanentError("unlucky")

        await app.queue("other").enqueue_many(range(5))
        async with Worker(app, id="w1"):
            await wait_for_worker(app)
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


def test_top_redraws_and_restores_the_terminal_on_ctrl_c(cli: Cli) -> None:
    """`top` shows queues as they change; Ctrl-C restores the terminal and exits with 0."""
    cli.do(lambda app: app.queue("mail").enqueue(1))
    with Terminal("top", "--interval", "0.2", environment=cli.environment, cwd=cli.directory) as terminal:
        terminal.until("penstock top", "mail", "no workers are there", "nothing has failed")
        cli.do(lambda app: app.queue("another").enqueue(1))
        terminal.until("another")
        terminal.type("\x03")
        assert terminal.wait_for_exit() == 0
        assert terminal.raw.count(ALTERNATE) == terminal.raw.count(BACK) == 1
        end = terminal.raw[terminal.raw.rindex(BACK) :]
        assert CURSOR in terminal.raw[terminal.raw.index(ALTERNATE) :]
        assert "Traceback" not in end
        assert "Aborted" not in end


@on_sqlite
def test_top_restores_the_terminal_on_sigterm(cli: Cli) -> None:
    """SIGTERM restores the terminal and exits with 0."""
    cli.do(lambda app: app.queue("mail").enqueue(1))
    with Terminal("top", environment=cli.environment, cwd=cli.directory) as terminal:
        terminal.until("mail")
        terminal.signal(signal.SIGTERM)
        assert terminal.wait_for_exit() == 0
        assert terminal.raw.count(BACK) == 1


@on_redis
def test_top_continues_after_an_outage_of_its_server(cli: Cli) -> None:
    """While the server is down the screen shows the error, and afterwards it is updated again."""
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
            assert terminal.wait_for_exit() == 0
    finally:
        server.remove()
        cli.url = "sqlite:gone.db"
