"""`penstock activity`, `release`, `job attempts`, `job log`, `job run-now` and filters of `job ls`."""

from __future__ import annotations

import json

from penstock import Job, Penstock, State, Worker
from penstock.client.bulk import start_bulk
from penstock.model.activity import os_user
from tests.cli.conftest import Cli


async def work(app: Penstock) -> None:
    """Fail a job twice, with lines in its log, and leave others."""

    @app.handler("mail", max_retries=1, min_backoff=0)
    async def mail(payload: dict[str, str], job: Job) -> None:
        job.log(f"to {payload['to']}", "warning")
        raise ConnectionError("host not reachable")

    await app.queue("mail").enqueue({"to": "ann"}, id="bad", headers={"tenant": "x"})
    await Worker(app).drain(scheduled=True)
    await app.queue("mail").enqueue({"to": "bob"}, id="later", delay=3600)
    await app.queue("other").enqueue({"to": ["ann", "eve"]}, id="next", group="g")


def test_the_attempts_and_the_log_of_a_job_are_printed(cli: Cli) -> None:
    """`job attempts` has the error of each failed attempt, `job log` the lines of all runs; -f ends with the job."""
    cli.do(work)
    assert [(each["number"], each["outcome"]) for each in cli.json("job", "attempts", "mail", "bad")] == [
        (1, "retrying"), (2, "failed"),
    ]  # fmt: skip
    assert "ConnectionError: host not reachable" in cli.ok("job", "attempts", "mail", "bad")
    lines = cli.ok("job", "log", "mail", "bad", "-f").splitlines()
    assert [line.split("#")[1] for line in lines] == ["1 WARNING to ann", "2 WARNING to ann"]
    for command in ("attempts", "log"):
        assert "there is no job 'x'" in cli.fails("job", command, "mail", "x")


def test_changes_by_commands_are_in_the_activity(cli: Cli) -> None:
    """Each command that changes something adds an entry with user, target and outcome; reads and payloads do not."""
    cli.do(work)
    cli.ok("job", "ls", "mail")
    cli.ok("enqueue", "mail", '{"password": "hunter2"}', "--id", "new")
    cli.ok("job", "cancel", "mail", "new")
    cli.ok("job", "run-now", "mail", "later")
    cli.ok("queue", "pause", "mail")
    cli.fails("job", "retry", "mail", "later")
    entries = cli.json("activity")["entries"]
    assert [(entry["verb"], entry["queue"], entry["ids"]) for entry in reversed(entries)] == [
        ("enqueue", "mail", ["new"]),
        ("job cancel", "mail", ["new"]),
        ("job run-now", "mail", ["later"]),
        ("queue pause", None, []),
        ("job retry", "mail", ["later"]),
    ]
    assert {(entry["who"], entry["via"]) for entry in entries} == {(os_user(), "cli")}
    assert entries[1]["target"] == "mail"
    assert "not retried" in entries[0]["outcome"]
    assert entries[4]["outcome"] == "done"
    output = cli.ok("activity")
    assert "hunter2" not in output + str(entries)
    assert [entry["verb"] for entry in cli.json("activity", "--queue", "mail", "--id", "later")["entries"]] == [
        "job retry", "job run-now",
    ]  # fmt: skip
    assert "needs --queue" in cli.run("activity", "--id", "later").stderr


def test_a_job_runs_now(cli: Cli) -> None:
    """`job run-now` makes a scheduled job due, and refuses others."""
    cli.do(work)
    assert "1 job due now" in cli.ok("job", "run-now", "mail", "later")

    async def state(app: Penstock) -> State | None:
        status = await app.queue("mail").status("later")
        return status and status.state

    assert cli.do(state) is State.QUEUED
    assert cli.fails("job", "run-now", "mail", "later", "bad", "none") == (
        "Error: neither scheduled nor retrying: 'later' is queued, 'bad' is failed, 'none' does not exist"
    )
    result = cli.run("job", "run-now", "mail", "bad", "none", "--json")
    refused = [{"id": "bad", "state": "failed"}, {"id": "none", "state": None}]
    assert (result.exit_code, json.loads(result.stdout)) == (1, {"queue": "mail", "due": 0, "refused": refused})
    assert cli.json("job", "retry", "mail", "bad") == {"queue": "mail", "retried": 1, "refused": []}
    assert cli.json("job", "retry", "mail", "--all") == {"queue": "mail", "retried": 0, "refused": []}


def test_jobs_of_all_queues_are_listed_by_a_filter(cli: Cli) -> None:
    """`job ls` without a queue searches all; an unknown key is named with the known ones."""
    cli.do(work)

    def ids(*arguments: str) -> list[str]:
        return [job["id"] for job in cli.json("job", "ls", *arguments)["jobs"]]

    assert sorted(ids()) == ["bad", "later", "next"]
    assert ids("--filter", "payload.to:ann state:failed") == ["bad"]
    assert ids("mail", "--filter", "header.tenant:x") == ["bad"]
    assert ids("--filter", "id:next") == ["next"]
    assert "unknown key 'colour'; known keys: queue" in cli.fails("job", "ls", "--filter", "colour:red", code=2)
    assert "did you mean 'mail'?" in cli.run("job", "ls", "mial", "--filter", "state:failed").stderr


def test_a_bulk_action_asks_first_and_changes_all_that_fit(cli: Cli) -> None:
    """`job bulk` names the number of jobs; without an answer nothing changes, and its end is in the activity."""
    cli.do(work)
    assert "retry 1 job, such as bad?" in cli.fails("job", "bulk", "retry", "state:failed", code=2)
    ended = cli.json("job", "bulk", "retry", "state:failed", "--yes")
    assert (ended["state"], ended["done"]) == ("done", 1)
    assert cli.json("activity")["entries"][0]["verb"] == "bulk retry"
    assert "1 job changed" in cli.ok("job", "bulk", "run-now", "queue:mail state:scheduled", "--yes")
    assert "unknown key" in cli.fails("job", "bulk", "delete", "colour:red", code=2)


def test_a_bulk_action_is_tried_without_a_change(cli: Cli) -> None:
    """`--dry-run` prints the number of jobs and some of them, and changes and logs nothing."""
    cli.do(work)
    assert cli.ok("job", "bulk", "retry", "state:failed", "--dry-run") == (
        "would retry 1 job, such as bad; nothing was changed\n"
    )
    look = cli.json("job", "bulk", "delete", "queue:mail", "--dry-run", "--yes")
    assert (look["verb"], look["count"], look["exact"], len(look["samples"])) == ("delete", 2, True, 2)
    assert len(cli.json("job", "ls", "mail")["jobs"]) == 2
    assert cli.json("job", "bulk", "ls") == []
    assert cli.json("activity")["entries"] == []


def test_bulk_actions_are_listed_and_stopped(cli: Cli) -> None:
    """`job bulk ls` has those of all processes; `stop` undoes one that has not begun, and names the end of others."""

    async def start(app: Penstock) -> str:
        return (await start_bulk(app, "run_now", "queue:mail", who="ann", delay=60)).id

    cli.do(work)
    id = cli.do(start)
    listed = cli.ok("job", "bulk", "ls")
    assert id in listed
    assert "run-now  queue:mail  waiting" in listed
    assert cli.ok("job", "bulk", "stop", id) == "undone: 0 jobs changed so far\n"
    assert cli.fails("job", "bulk", "stop", id) == "Error: it has ended already: undone, 0 jobs changed"
    assert "there is no bulk action 'none'" in cli.fails("job", "bulk", "stop", "none")
    [action] = cli.json("job", "bulk", "ls")
    assert (action["state"], action["who"]) == ("undone", "ann")
    entry = cli.json("activity")["entries"][-1]
    assert (entry["verb"], entry["target"], entry["ids"], entry["outcome"]) == ("job bulk stop", id, [], "done")


def test_releases_are_noted_and_listed(cli: Cli) -> None:
    """`release NAME` notes a name once, `release` lists them."""
    assert cli.ok("release", "v1") == "v1: noted\n"
    assert cli.ok("release", "v1") == "v1: noted before\n"
    cli.ok("release", "v2")
    assert [each["name"] for each in cli.json("release")] == ["v2", "v1"]
