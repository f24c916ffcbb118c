"""`penstock events`: the event feed, printed live."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

from penstock import Penstock, Worker
from tests.cli.conftest import Cli, on_sqlite


def test_events_prints_chosen_events_until_the_limit(cli: Cli) -> None:
    """`events` prints the named events of one queue, and exits after --limit of them."""
    cli.do(Penstock.queues)
    with ThreadPoolExecutor() as pool:
        printed = pool.submit(cli.run, "events", "enqueued", "--queue", "mail", "--limit", "2", "--json")
        number = 0
        while not printed.done():  # there is no sign from outside that it is subscribed
            cli.do(lambda app: app.queue("other").enqueue(1))
            cli.do(lambda app, id=f"a{number}": app.queue("mail").enqueue(1, id=id))
            number += 1
    result = printed.result()
    assert result.exit_code == 0
    first, second = map(json.loads, result.stdout.splitlines())
    assert (first["name"], first["queue"], second["queue"]) == ("enqueued", "mail", "mail")
    assert int(second["id"][1:]) == int(first["id"][1:]) + 1


@on_sqlite
def test_an_error_in_an_event_has_names_for_its_fields(cli: Cli) -> None:
    """`events --json` shows an error as an object of type, message, kind and traceback."""

    async def fail_once(app: Penstock) -> None:
        @app.handler("bad", max_retries=0)
        def bad(payload: int) -> None:
            raise ValueError("no")

        await app.queue("bad").enqueue(1)
        await Worker(app).drain()

    cli.do(Penstock.queues)  # creates the file: the command refuses to
    with ThreadPoolExecutor() as pool:
        printed = pool.submit(cli.run, "events", "failed", "--limit", "1", "--json")
        while not printed.done():  # there is no sign from outside that it is subscribed
            cli.do(fail_once)
    error = json.loads(printed.result().stdout)["error"]
    assert (error["type"], error["message"], error["kind"]) == ("ValueError", "no", "retriable")
    assert "ValueError" in error["traceback"]


@on_sqlite
def test_an_unknown_event_is_refused(cli: Cli) -> None:
    """An unknown name of an event is a usage error."""
    assert "'exploded'" in cli.fails("events", "exploded", code=2)
