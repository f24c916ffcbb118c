"""`penstock failures` and `penstock history`: jobs that failed alike, their retry, and what queues did."""

from __future__ import annotations

import json

from penstock import Penstock
from penstock.storage.observing import need_observing
from tests.cli.conftest import Cli


async def fail_some(app: Penstock) -> None:
    """Have three jobs of `mail` fail with one error, and one of `orders` with another."""
    for name, count, error in (("mail", 3, ConnectionError("host 1 not reachable")), ("orders", 1, ValueError("bad"))):
        await app.queue(name).enqueue_many(range(count))
        for job in await app.queue(name).reserve(limit=count):
            await job.fail(_permanent(error))


def _permanent(error: Exception) -> Exception:
    setattr(error, "kind", "permanent")  # noqa: B010 - as a handler's own exception class may have it
    return error


async def look(app: Penstock) -> None:
    await need_observing(app.storage).record_stats("", [])


async def clear(app: Penstock) -> None:
    for name in ("mail", "orders"):
        await app.queue(name).delete()


def test_a_key_that_several_error_groups_begin_with_is_refused(cli: Cli) -> None:
    """`failures show` and `retry` name the keys, and retry nothing."""

    async def fail_otherwise(app: Penstock) -> None:
        await app.queue("mail").enqueue(1)
        for job in await app.queue("mail").reserve(limit=5):
            await job.fail(_permanent(ValueError("bad address")))

    cli.do(fail_some)
    cli.do(fail_otherwise)
    keys = [group["key"] for group in cli.json("failures", "ls", "mail")]
    for verb in ("show", "retry"):
        error = cli.fails("failures", verb, "mail", "")
        assert "2 error groups of 'mail' have keys that begin with ''" in error
        assert all(key in error for key in keys)
    assert [group["open"] for group in cli.json("failures", "ls", "mail")] == [3, 1]


def test_failures_are_listed_shown_and_retried(cli: Cli) -> None:
    """`failures ls` has a line per error, `show` its traceback and jobs, and `retry` enqueues these again."""
    cli.do(fail_some)
    lines = cli.ok("failures", "ls").splitlines()
    assert [line.split()[0] for line in lines] == ["queue", "mail", "orders"]
    assert "ConnectionError: host 1 not reachable" in lines[1]
    groups = json.loads(cli.ok("failures", "ls", "--json"))
    assert [(group["queue"], group["type"], group["open"], group["count"]) for group in groups] == [
        ("mail", "ConnectionError", 3, 3),
        ("orders", "ValueError", 1, 1),
    ]
    key = groups[0]["key"]
    shown = cli.ok("failures", "show", "mail", key[:8])
    assert "3 failed now of 3 in mail" in shown
    assert "ConnectionError: host 1 not reachable" in shown
    jobs = json.loads(cli.ok("failures", "show", "mail", key, "--json"))["jobs"]
    assert [job["error"]["key"] for job in jobs] == [key] * 3
    shown = cli.ok("job", "show", "mail", jobs[0]["id"])
    assert "started" in shown
    assert ", took " in shown
    assert cli.ok("failures", "retry", "mail", key) == "mail: 3 jobs with ConnectionError queued again\n"
    assert json.loads(cli.ok("failures", "retry", "mail", key, "--json"))["retried"] == 0
    assert [line.split()[0] for line in cli.ok("failures", "ls", "--open").splitlines()] == ["queue", "orders"]
    entry = cli.json("activity")["entries"][-1]
    assert (entry["verb"], entry["queue"], entry["target"]) == ("failures retry", "mail", key)
    assert cli.fails("failures", "show", "mail", "ffff") == (
        "Error: no error group of 'mail' has a key that begins with 'ffff'; `penstock failures ls mail` lists them"
    )
    assert "did you mean 'mail'?" in cli.fails("failures", "show", "mial", "ffff")
    result = cli.run("failures", "ls", "mial")
    assert (result.exit_code, result.stdout) == (0, "")
    assert len(result.stderr.splitlines()) == 1  # the hint alone
    assert len(cli.run("history", "mial").stderr.splitlines()) == 1
    assert "no job of mail is failed now" in cli.run("failures", "ls", "mail", "--open").stderr
    cli.do(clear)
    assert "no job has failed" in cli.run("failures", "ls").stderr


def test_history_shows_what_a_queue_did(cli: Cli) -> None:
    """Without samples a hint names who takes them, and the totals are shown."""
    cli.do(fail_some)
    cli.do(look)
    assert "workers take one every minute" in cli.run("history", "mail").stderr
    assert "mail: 0 completed, 3 failed, 0 cancelled since it was created" in cli.ok("history", "mail")
    assert json.loads(cli.ok("history", "--json")) == []
    assert "there is no queue 'mial'" in cli.run("history", "mial").stderr
    assert "span" in cli.fails("history", "mail", "--span", "1h", code=2)
    cli.do(clear)
