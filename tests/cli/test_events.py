"""`penstock events`: the event feed, printed live."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

from penstock import Penstock
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
def test_an_unknown_event_is_refused(cli: Cli) -> None:
    """An unknown name of an event is a usage error."""
    assert "'exploded'" in cli.fails("events", "exploded", code=2)
