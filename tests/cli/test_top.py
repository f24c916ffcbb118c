"""`penstock top`: on a terminal, piped, and as JSON."""

from __future__ import annotations

import asyncio
import signal

import pytest

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
        terminal.until("penstock top", "mail", "no workers", "nothing has failed")
        cli.do(lambda app: app.queue("another").enqueue(1))
        terminal.until("another")
        terminal.type("\x03")
        assert terminal.wait_for_exit() == 0
        assert terminal.raw.count(ALTERNATE) == terminal.raw.count(BACK) == 1
        end = terminal.raw[terminal.raw.rindex(BACK) :]
        assert CURSOR in terminal.raw[terminal.raw.index(ALTERNATE) :]
        assert "Traceback" not in end
        assert "Aborted" not in end


LONG_QUEUE = "customers/europe/germany/berlin/invoices-and-reminders-of-the-last-month"


async def fail_with_long_texts(app: Penstock) -> None:
    """Put a failed job with a long error into a queue with a long name, and a waiting job into another."""

    @app.handler(LONG_QUEUE)
    async def fail(payload: int) -> None:
        raise PermanentError("the address cannot be found " * 20)

    await app.queue(LONG_QUEUE).enqueue(1, id="invoice-2030-05-01-for-customer-4711")
    await app.queue("mail").enqueue(1)
    await Worker(app, queues=[LONG_QUEUE]).drain()


@pytest.mark.parametrize(("columns", "lines"), [(80, 24), (200, 50)])
@on_sqlite
def test_long_names_and_errors_are_cut_to_one_line(cli: Cli, columns: int, lines: int) -> None:
    """On a real terminal each queue and each failure is one line, names are cut in the middle, errors at the end."""
    cli.do(fail_with_long_texts)
    with Terminal(
        "top", "--interval", "0.2", environment=cli.environment, cwd=cli.directory, columns=columns, lines=lines
    ) as terminal:
        screen = terminal.until_screen(lambda screen: any("PermanentError" in line for line in screen))
    assert len(screen) <= lines
    assert max(map(len, screen)) <= columns
    [failure] = [line for line in screen if "PermanentError: the address" in line]
    assert failure.endswith("…")
    rows = [line for line in screen if line.startswith(LONG_QUEUE[:7])]
    assert len(rows) == 1
    assert LONG_QUEUE in rows[0] or rows[0].split()[0].endswith("h")
    [heading] = [line for line in screen if line.startswith("queue ")]
    assert heading.split()[-1] in ("workers", "recent")
    assert sum("…" in line for line in screen if line.startswith("mail")) == 0


@on_sqlite
def test_top_is_sorted_filtered_and_ended_by_keys(cli: Cli) -> None:
    """`s` changes the order, `/` filters by a part of the name, Esc removes the filter, and `q` ends with 0."""

    async def fill(app: Penstock) -> None:
        await app.queue("alpha").enqueue(1)
        await app.queue("beta").enqueue_many([1, 2, 3])

    def queues(screen: list[str]) -> list[str]:
        return [line.split()[0] for line in screen if line.startswith(("alpha", "beta"))]

    cli.do(fill)
    with Terminal("top", "--interval", "1h", environment=cli.environment, cwd=cli.directory) as terminal:
        terminal.until("q to quit")
        terminal.type("s")
        terminal.until("by name")
        terminal.type("/")
        terminal.until_screen(lambda screen: queues(screen) == ["alpha", "beta"])
        terminal.type("ETAx\x7f")
        terminal.until("filter: ETA▏")
        terminal.type("\r")
        terminal.until("filter: ETA, Esc to clear")
        terminal.type("\x1b")
        terminal.until_screen(lambda screen: queues(screen) == ["beta"])
        terminal.type("s")
        terminal.until("by failed")
        terminal.type("q")
        assert terminal.wait_for_exit() == 0
        assert terminal.raw.count(BACK) == 1
        assert "Traceback" not in terminal.text


def test_a_queue_is_chosen_by_keys_and_shown_alone(cli: Cli) -> None:
    """The arrows and Enter choose a queue, whose error group and failures are shown; Esc shows all queues again."""
    cli.do(fail_with_long_texts)
    with Terminal(
        "top", "--interval", "0.5", environment=cli.environment, cwd=cli.directory, columns=80, lines=30
    ) as terminal:
        terminal.until("↑↓ Enter to choose")
        terminal.type("/berlin\r")
        terminal.until("filter: berlin, Esc to clear")
        terminal.type("\x1b[B\r")
        screen = terminal.until_screen(lambda screen: any("failed alike" in line for line in screen))
        assert not any(line.startswith("mail ") for line in screen)
        assert "failed 1" in screen
        assert sum("PermanentError: the address" in line for line in screen) == 2  # the group, and its job
        assert max(map(len, screen)) <= 80
        terminal.type("\x1b")
        terminal.until("filter: berlin, Esc to clear")
        terminal.type("\x1b")
        terminal.until_screen(lambda screen: any(line.startswith("mail ") for line in screen))
        terminal.type("q")
        assert terminal.wait_for_exit() == 0


@on_sqlite
def test_top_shows_only_the_queues_that_are_named(cli: Cli) -> None:
    """With --queue only these queues, their workers and their failures are shown."""

    async def work(app: Penstock) -> None:
        await fail_with_long_texts(app)
        async with Worker(app, id="w1", queues=[LONG_QUEUE]):
            await wait_for_worker(app)
            seen = await asyncio.to_thread(cli.json, "top", "--interval", "0.1", "--queue", "mail")
            both = await asyncio.to_thread(
                cli.json, "top", "--interval", "100ms", "--queue", "mail", "--queue", LONG_QUEUE
            )
        assert ([queue["name"] for queue in seen["queues"]], seen["workers"], seen["failures"]) == (["mail"], [], [])
        assert len(both["queues"]) == 2
        assert [worker["id"] for worker in both["workers"]] == ["w1"]
        assert [failure["queue"] for failure in both["failures"]] == [LONG_QUEUE]

    cli.do(work)


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
