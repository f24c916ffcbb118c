"""`penstock job`: ls, show, why, cancel, retry."""

from __future__ import annotations

import json

from penstock import Job, Penstock, PermanentError, Worker
from tests.cli.conftest import Cli, on_sqlite


async def work(app: Penstock) -> None:
    """Put jobs into a few different states."""

    @app.handler("mail")
    async def mail(payload: dict[str, str], job: Job) -> str:
        if payload["to"] == "nobody":
            raise PermanentError("no such address")
        return f"sent to {payload['to']}"

    queue = app.queue("mail")
    await queue.enqueue({"to": "ann"}, id="done")
    await queue.enqueue({"to": "nobody"}, id="bad", headers={"trace": "x"})
    await Worker(app).drain()
    await queue.enqueue({"to": "bob"}, id="later", delay=3600)
    await queue.enqueue({"to": "eve"}, id="next", group="g")


def test_the_jobs_of_a_queue_are_listed(cli: Cli) -> None:
    """`job ls` lists jobs in queue order, with state and error."""
    cli.do(work)
    heading, *lines = cli.ok("job", "ls", "mail").splitlines()
    assert heading.split()[:2] == ["id", "state"]
    assert [line.split()[:2] for line in lines] == [
        ["next", "queued"], ["later", "scheduled"], ["done", "completed"], ["bad", "failed"],
    ]  # fmt: skip
    assert "PermanentError: no such address" in lines[-1]


def test_a_list_goes_on_after_its_cursor(cli: Cli) -> None:
    """A page that is not the last prints a cursor, and --after lists the next page."""
    cli.do(work)
    first = cli.json("job", "ls", "mail", "--limit", "3")
    second = cli.json("job", "ls", "mail", "--limit", "3", "--after", first["cursor"])
    assert [job["id"] for job in first["jobs"] + second["jobs"]] == ["next", "later", "done", "bad"]
    assert second["cursor"] is None
    assert "--after" in cli.run("job", "ls", "mail", "--limit", "3").stderr
    assert "after must be" in cli.fails("job", "ls", "mail", "--after", "nonsense", code=2)


def test_a_list_of_one_state(cli: Cli) -> None:
    """With --state only jobs in that state are listed; if there are none, a note is on stderr."""
    cli.do(work)
    assert [job["id"] for job in cli.json("job", "ls", "mail", "--state", "failed")["jobs"]] == ["bad"]
    result = cli.run("job", "ls", "mail", "--state", "running")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "no jobs in mail are running" in result.stderr


def test_a_list_of_an_unknown_queue(cli: Cli) -> None:
    """`job ls` of a queue that does not exist prints that on stderr, and exits with 0: a queue exists by its jobs."""
    cli.do(work)
    result = cli.run("job", "ls", "mial")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "there is no queue 'mial' at" in result.stderr
    assert "; did you mean 'mail'?" in result.stderr
    assert cli.json("job", "ls", "mial") == {"jobs": [], "cursor": None}
    cli.ok("queue", "pause", "empty")
    assert cli.run("job", "ls", "empty").stderr == "no jobs in empty\n"


@on_sqlite
def test_a_number_that_is_none_is_a_usage_error(cli: Cli) -> None:
    """A text in place of a number is named as such."""
    cli.do(work)
    assert "'x' is not a valid integer" in cli.fails("job", "ls", "mail", "--limit", "x", code=2)
    assert "range" not in cli.fails("worker", "jobs:app", "--processes", "x", code=2)
    assert "0 is not in the range x>=1" in cli.fails("events", "--limit", "0", code=2)


def test_one_job_is_shown_whole(cli: Cli) -> None:
    """`job show` has payload, headers, counts, and result or error."""
    cli.do(work)
    bad = cli.ok("job", "show", "mail", "bad")
    assert '{"to":"nobody"}' in bad
    assert "trace=x" in bad
    assert "1 run" in bad
    assert "PermanentError: no such address (permanent)" in bad
    assert '"sent to ann"' in cli.ok("job", "show", "mail", "done")
    shown = cli.json("job", "show", "mail", "done")
    assert (shown["state"], shown["payload"], shown["result"]) == ("completed", {"to": "ann"}, "sent to ann")
    assert shown["error"] is None


def test_an_error_in_json_has_names_for_its_fields(cli: Cli) -> None:
    """`job show --json` and `job ls --json` show an error as an object of type, message, kind and traceback."""
    cli.do(work)
    error = cli.json("job", "show", "mail", "bad")["error"]
    assert (error["type"], error["message"], error["kind"]) == ("PermanentError", "no such address", "permanent")
    assert "no such address" in error["traceback"]
    assert [job["error"] for job in cli.json("job", "ls", "mail", "--state", "failed")["jobs"]] == [error]


def test_a_job_that_is_not_there(cli: Cli) -> None:
    """An unknown job is an error of one line with exit code 1."""
    cli.do(work)
    assert "there is no job 'none' in queue 'mail'" in cli.fails("job", "show", "mail", "none")
    assert "--forever" in cli.fails("job", "watch", "mail", "none")


def test_cancel_exits_with_1_for_jobs_that_cannot_be_cancelled(cli: Cli) -> None:
    """`job cancel` cancels waiting jobs, and exits with 1 if one is finished or unknown."""
    cli.do(work)
    assert cli.ok("job", "cancel", "mail", "next") == "next: cancelled\n"
    assert cli.ok("job", "cancel", "mail", "next") == "next: already cancelled\n"
    result = cli.run("job", "cancel", "mail", "later", "done", "none")
    assert (result.exit_code, result.stdout) == (1, "later: cancelled\ndone: completed\nnone: not found\n")
    assert json.loads(cli.run("job", "cancel", "mail", "none", "--json").stdout)[0]["status"] == "not_found"


def test_cancel_with_kill_needs_yes(cli: Cli) -> None:
    """--running kill needs an answer or --yes."""
    cli.do(work)
    assert "--yes" in cli.fails("job", "cancel", "mail", "next", "--running", "kill", code=2)
    assert cli.ok("job", "cancel", "mail", "next", "--running", "kill", "--yes") == "next: cancelled\n"


def test_retry_by_id(cli: Cli) -> None:
    """`job retry` queues a failed job again; a completed one is an error."""
    cli.do(work)
    assert cli.ok("job", "retry", "mail", "bad") == "mail: 1 job queued again\n"
    assert cli.json("job", "show", "mail", "bad")["state"] == "queued"
    line = cli.fails("job", "retry", "mail", "done", "none", "next")
    assert line == "Error: not retried: 'done' is completed, 'none' does not exist, 'next' is queued"


def test_retry_of_a_completed_job(cli: Cli) -> None:
    """`job retry --completed` queues a completed job again; with --all it is refused."""
    cli.do(work)
    assert cli.ok("job", "retry", "mail", "done", "bad", "--completed") == "mail: 2 jobs queued again\n"
    assert cli.json("job", "show", "mail", "done")["state"] == "queued"
    assert "not retried: 'done' is queued" in cli.fails("job", "retry", "mail", "done", "--completed")
    assert "--completed goes with the ids" in cli.fails("job", "retry", "mail", "--all", "--completed", code=2)


def test_retry_all(cli: Cli) -> None:
    """`job retry --all` queues every failed job again after asking with their number."""
    cli.do(work)
    assert "1 failed job of mail" in cli.fails("job", "retry", "mail", "--all", code=2)
    assert cli.ok("job", "retry", "mail", "--all", "--yes") == "mail: 1 job queued again\n"
    assert cli.ok("job", "retry", "mail", "--all", "--yes") == "mail: 0 jobs queued again\n"
    assert "give the ids of jobs, or --all" in cli.fails("job", "retry", "mail", code=2)


@on_sqlite
def test_a_payload_that_is_no_json_is_shown_as_bytes(cli: Cli) -> None:
    """A payload that the serde cannot decode is shown as bytes; --serde decodes it."""

    async def put(app: Penstock) -> None:
        await app.queue("raw", serde="msgpack").enqueue({"a": 1}, id="a")

    cli.do(put)
    assert r"b'\x81\xa1a\x01'" in cli.ok("job", "show", "raw", "a")
    assert cli.json("job", "show", "raw", "a", "--serde", "msgpack", "--url", cli.url)["payload"] == {"a": 1}


def test_why_a_job_is_not_running(cli: Cli) -> None:
    """`job why` prints the reason as a sentence, and its name with --json."""
    cli.do(work)
    assert "It is scheduled: it may run from" in cli.ok("job", "why", "mail", "later")
    assert "none that is alive serves queue 'mail'" in cli.ok("job", "why", "mail", "next")
    assert cli.json("job", "why", "mail", "next")["reason"] == "no_worker"
    cli.ok("queue", "pause", "mail")
    assert "is paused since" in cli.ok("job", "why", "mail", "next")
    assert "there is no job 'none'" in cli.fails("job", "why", "mail", "none")
