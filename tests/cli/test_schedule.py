"""`penstock schedule`: list, show, next, add, edit, pause, resume, trigger, backfill, reset, rm."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from penstock import Cron, Every, Penstock, Worker
from tests.cli.conftest import Cli, on_sqlite


async def fill(app: Penstock) -> None:
    """Make two schedules in two queues."""
    await app.queue("reports").schedules.put(
        "nightly", Cron("30 2 * * *", tz="Europe/Paris"), payload={"full": True}, jitter=90
    )
    await app.queue("cleanup").schedules.put("hourly", Every(hours=1))


def test_schedules_are_listed(cli: Cli) -> None:
    """`schedule ls` has a heading and a line for each, of all queues or of one."""
    cli.do(fill)
    heading, first, second = cli.ok("schedule", "ls").splitlines()
    assert heading.split() == ["queue", "name", "when", "next", "last", "fired", "skipped", "missed"]
    assert first.split()[:4] == ["cleanup", "hourly", "every", "1h00m"]
    assert second.startswith("reports")
    assert "30 2 * * * (Europe/Paris)" in second
    assert [each["name"] for each in cli.json("schedule", "ls", "reports")] == ["nightly"]


def test_no_schedules(cli: Cli) -> None:
    """Without schedules `schedule ls` prints a note on stderr, and --json an empty list."""
    cli.do(Penstock.queues)
    result = cli.run("schedule", "ls")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "no schedules" in result.stderr
    assert cli.json("schedule", "ls") == []


def test_one_schedule_is_shown(cli: Cli) -> None:
    """`schedule show` has its times, payload and counts; --json has every field."""
    cli.do(fill)
    text = cli.ok("schedule", "show", "reports", "nightly")
    for part in ("30 2 * * * (Europe/Paris)", '{"full":true}', "1m30s", "0 fired, 0 skipped, 0 missed, 0 dropped"):
        assert part in text
    found = cli.json("schedule", "show", "reports", "nightly")
    assert found["when"] == {"cron": "30 2 * * *", "tz": "Europe/Paris"}
    assert (found["overlap"], found["source"], found["changed"]) == ("skip", "api", [])
    assert "no schedule 'x'" in cli.fails("schedule", "show", "reports", "x")


def test_the_next_ticks_are_printed(cli: Cli) -> None:
    """`schedule next` prints UTC and the time in the schedule's zone."""
    cli.do(fill)
    lines = cli.ok("schedule", "next", "reports", "nightly", "-n", "3").splitlines()
    assert len(lines) == 3
    assert all("02:30:00 CE" in line for line in lines)
    assert len(cli.json("schedule", "next", "cleanup", "hourly")) == 10
    assert "no schedule" in cli.fails("schedule", "next", "reports", "x")


def test_the_ticks_of_an_expression_need_no_storage(cli: Cli) -> None:
    """`schedule next --cron` works without a storage; a wrong expression or zone is an error that names it."""
    nowhere = {"PENSTOCK_URL": "sqlite:/nowhere/jobs.db"}
    noons = cli.json("schedule", "next", "--cron", "0 12 * * *", "-n", "2", **nowhere)
    times = [datetime.fromisoformat(each) for each in noons]
    assert [each.hour for each in times] == [12, 12]
    assert times[1] - times[0] == timedelta(days=1)
    assert times[0] > datetime.now(UTC)
    assert "JST" in cli.ok("schedule", "next", "--cron", "@daily", "--tz", "Asia/Tokyo", "-n", "1")
    assert "expression" in cli.fails("schedule", "next", "--cron", "60 * * * *", code=2)
    assert "tz" in cli.fails("schedule", "next", "--cron", "@daily", "--tz", "Mars/X", code=2)
    assert "not both" in cli.fails("schedule", "next", "q", "n", "--cron", "@daily", code=2)
    assert "--cron" in cli.fails("schedule", "next", "q", code=2)


def test_add_edit_and_remove(cli: Cli) -> None:
    """A schedule is made with its options, changed and removed."""
    added = cli.ok(
        "schedule", "add", "q", "n", "--cron", "0 9 * * 1-5", "--tz", "America/New_York", "--payload", '{"a": 1}',
        "--jitter", "5m", "--overlap", "queue", "--catch-up", "all", "--most", "7", "--grace", "1h", "--timeout", "2m",
        "--header", "k=v", "--end", "2090-01-01T00:00Z",
    )  # fmt: skip
    assert added.startswith("q/n: next at ")
    found = cli.json("schedule", "show", "q", "n")
    assert (found["jitter"], found["overlap"], found["most"], found["grace"]) == (300, "queue", 7, 3600)
    assert found["payload"] == {"a": 1}
    cli.ok("schedule", "edit", "q", "n", "--every", "90", "--payload", "text", "--text")
    found = cli.json("schedule", "show", "q", "n")
    assert (found["when"], found["payload"], found["most"]) == ({"every": 90, "phase": 0}, "text", 7)
    assert "--yes" in cli.fails("schedule", "rm", "q", "n", code=2)
    assert cli.ok("schedule", "rm", "q", "n", "--yes") == "q/n: removed\n"
    assert "no schedule" in cli.fails("schedule", "rm", "q", "n", "--yes")


def test_pause_resume_and_trigger(cli: Cli) -> None:
    """A paused schedule is marked; a trigger puts a job, and fails while that is unfinished."""
    cli.do(fill)
    assert cli.ok("schedule", "pause", "reports", "nightly", "--note", "moving") == "reports/nightly: paused\n"
    assert "already" in cli.ok("schedule", "pause", "reports", "nightly", "--note", "moving")
    assert "paused" in cli.ok("schedule", "ls", "reports")
    assert "moving" in cli.ok("schedule", "show", "reports", "nightly")
    first = cli.json("schedule", "trigger", "reports", "nightly", "--payload", "1")
    assert first["status"] == "queued"
    assert "of schedule nightly, by hand" in cli.ok("job", "show", "reports", first["id"])
    again = cli.run("schedule", "trigger", "reports", "nightly")
    assert again.exit_code == 1
    assert f"reports/{first['id']}: is unfinished (queued)" in again.stdout
    assert cli.json("schedule", "trigger", "reports", "nightly", "--overlap", "allow")["status"] == "queued"
    assert cli.ok("schedule", "resume", "reports", "nightly", "--catch-up") == "reports/nightly: resumed\n"
    assert "was not paused" in cli.ok("schedule", "resume", "reports", "nightly")


def test_backfill_and_reset(cli: Cli) -> None:
    """Past ticks are put once; a schedule made at run time has nothing to reset to."""
    cli.do(fill)
    arguments = (
        "schedule",
        "backfill",
        "cleanup",
        "hourly",
        "--from",
        "2020-01-01T00:00Z",
        "--to",
        "2020-01-01T05:30Z",
    )
    assert cli.ok(*arguments) == "cleanup/hourly: 5 jobs put\n"
    assert cli.ok(*arguments) == "cleanup/hourly: 0 jobs put\n"
    assert "--from" in cli.fails(*arguments[:5], "noon", *arguments[6:], code=2)
    assert "not declared in code" in cli.fails("schedule", "reset", "cleanup", "hourly", code=2)


@on_sqlite
@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ((), "--cron or --every"),
        (("--cron", "@daily", "--every", "5"), "not both"),
        (("--every", "5", "--tz", "UTC"), "--tz"),
        (("--every", "0.5"), "0.5"),
        (("--cron", "* * *"), "expression"),
        (("--every", "5", "--start", "never"), "--start"),
        (("--every", "5", "--most", "0"), "most"),
        (("--every", "5", "--payload", "{"), "payload"),
        (("--every", "5", "--header", "penstock.x=1"), "headers"),
    ],
)
def test_wrong_options_of_add(cli: Cli, arguments: tuple[str, ...], named: str) -> None:
    """A wrong option ends with exit code 2 and a line that names it; nothing is stored."""
    assert named in cli.fails("schedule", "add", "q", "n", *arguments, code=2)
    assert not cli.do(Penstock.schedules)


@on_sqlite
def test_a_declared_schedule_is_reset_and_not_removed(cli: Cli) -> None:
    """Of a schedule that code declares: edit, reset, and the refusal of rm."""

    async def declare(app: Penstock) -> None:
        @app.handler("q", schedule=Every(60))
        async def handler(payload: Any) -> None: ...

        await Worker(app).drain()

    cli.do(declare)
    cli.ok("schedule", "edit", "q", "q", "--every", "1h")
    assert cli.json("schedule", "show", "q", "q")["changed"] == ["when"]
    assert "changed at run time: when" in cli.ok("schedule", "show", "q", "q")
    cli.ok("schedule", "reset", "q", "q")
    assert cli.json("schedule", "show", "q", "q")["changed"] == []
    assert "pause it, or remove it from the code" in cli.fails("schedule", "rm", "q", "q", "--yes", code=2)
