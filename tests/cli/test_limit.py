"""`penstock limit`: list, set and reset; `queue pause` of a group and until a time; limits in `top` and `doctor`."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from penstock import EVERY, Limit, LimitInfo, Penstock, WorkerInfo
from penstock.cli.top_screen import Frame, plain_lines
from penstock.model.ids import new_token
from penstock.model.options import HandlerOptions
from penstock.ops.doctor import check_limits
from penstock.ops.overview import Overview, is_closed
from penstock.storage.base import Request
from tests.cli.conftest import Cli
from tests.cli.test_top_screen import drawn_frame, make_overview

NOW = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)


async def fill(app: Penstock) -> None:
    """Put jobs of two groups into a queue."""
    for group in ("acme", "bob"):
        for n in range(3):
            await app.queue("mail").enqueue(n, id=f"{group}{n}", group=group)


async def clear(app: Penstock) -> None:
    """Remove the queue and every limit."""
    await app.reset_limit("mail")
    await app.queue("mail").delete(settings=True)


def test_limits_are_set_listed_and_reset(cli: Cli) -> None:
    """`limit set` changes each scope, `limit ls` lists them, and `limit reset` forgets the change."""
    cli.do(fill)
    assert cli.ok("limit", "set", "mail", "--concurrency", "20") == "mail: limited: 20 at once\n"
    assert cli.ok("limit", "set", "mail", "--concurrency", "20") == "mail: had this limit already\n"
    line = cli.ok("limit", "set", "mail", "--every-group", "--rate", "10/s", "--burst", "5")
    assert line == "mail, every group: limited: 10/s, burst 5\n"
    line = cli.ok("limit", "set", "mail", "--group", "acme", "--concurrency", "5", "--weight", "3")
    assert line == "mail, group acme: limited: 5 at once, weight 3\n"
    line = cli.ok("limit", "set", "--family", "mail", "--rate", "500/min", "--by", "cost")
    assert line == "family mail: limited: 500/min by cost\n"
    heading, *lines = cli.ok("limit", "ls", "mail").splitlines()
    assert heading.split()[:3] == ["scope", "name", "limit"]
    assert [line.split()[:2] for line in lines] == [
        ["family", "mail"],
        ["queue", "mail"],
        ["groups", "mail"],
        ["group", "acme"],
    ]
    assert "5 at once, weight 3" in lines[3]
    family, queue, groups, acme = cli.json("limit", "ls", "mail")
    assert family["limit"] == {"concurrency": None, "rate": {"count": 500, "per": 60.0}, "burst": 1, "by": "cost",
                               "weight": 1, "ordered": None}  # fmt: skip
    assert (queue["changed"]["concurrency"], queue["declared"], queue["waiting"]) == (20, None, 6)
    assert (groups["scope"], acme["group"]) == ("groups", "acme")
    assert cli.ok("limit", "reset", "mail", "--group", "acme") == "mail, group acme: reset\n"
    assert cli.ok("limit", "reset", "mail", "--group", "acme") == "mail, group acme: had no limit that was set\n"
    assert cli.ok("limit", "reset", "mail", "--every-group") == "mail, every group: reset\n"
    assert cli.ok("limit", "reset", "--family", "mail") == "family mail: reset\n"
    assert len(cli.json("limit", "ls", "mail")) == 1
    cli.do(clear)


def test_a_queue_without_limits(cli: Cli) -> None:
    """`limit ls` prints a note on stderr if no limits hold, and --json an empty list."""
    cli.do(fill)
    result = cli.run("limit", "ls", "mail")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "no limits hold for mail" in result.stderr
    assert cli.json("limit", "ls", "mail") == []


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["set", "mail"], "give at least one of --concurrency"),
        (["set", "--concurrency", "1"], "give a QUEUE, or --family"),
        (["set", "mail", "--family", "mail", "--concurrency", "1"], "give a QUEUE, or --family"),
        (["set", "--family", "mail", "--group", "a", "--concurrency", "1"], "not for --family"),
        (["set", "mail", "--group", "a", "--every-group", "--concurrency", "1"], "not both"),
        (["set", "mail", "--rate", "0/s"], "count must be at least 1"),
        (["set", "mail", "--rate", "fast"], "rate must be like"),
        (["set", "mail", "--weight", "2"], "weight is for groups"),
        (["set", "mail", "--unordered"], "ordered is for groups"),
        (["set", "--family", "mail/x", "--concurrency", "1"], "family must be"),
        (["set", "mail", "--concurrency", "1", "--burst", "2"], "burst is of a rate"),
        (["reset"], "give a QUEUE, or --family"),
    ],
)
def test_mistakes_are_usage_errors(cli: Cli, arguments: list[str], expected: str) -> None:
    """A wrong option is one line with its name, exit code 2, and nothing is stored."""
    cli.do(Penstock.queues)
    assert expected in cli.fails("limit", *arguments, code=2)
    assert cli.json("limit", "ls", "mail") == []


def test_a_group_is_paused_until_a_time(cli: Cli) -> None:
    """`queue pause --group --for --by` pauses one group, which `job why` explains; `queue resume --group` ends it."""
    cli.do(fill)
    line = cli.ok("queue", "pause", "mail", "--group", "acme", "--for", "1h", "--by", "ops")
    assert line == "mail, group acme: paused\n"
    assert "Group 'acme' is paused by 'ops' until" in cli.ok("job", "why", "mail", "acme0")
    why = cli.json("job", "why", "mail", "acme0")
    assert (why["reason"], why["group"], why["by"]) == ("paused", "acme", "ops")
    assert [info["group"] for info in cli.json("limit", "ls", "mail")] == ["acme"]
    assert cli.ok("queue", "resume", "mail", "--group", "acme") == "mail, group acme: resumed\n"
    assert cli.ok("queue", "resume", "mail", "--group", "acme") == "mail, group acme: was not paused\n"


def test_a_queue_is_paused_until_a_time(cli: Cli) -> None:
    """`queue pause --until` is shown by `queue show`; a time that is over is refused, and so are --until with --for."""
    cli.do(fill)
    assert cli.ok("queue", "pause", "mail", "--until", "2100-01-31T09:00+00:00") == "mail: paused\n"
    assert cli.json("queue", "show", "mail")["paused_until"] == "2100-01-31T09:00:00Z"
    assert "until 2100-01-31" in cli.ok("queue", "show", "mail")
    assert cli.ok("queue", "resume", "mail") == "mail: resumed\n"
    both = ("queue", "pause", "mail", "--until", "2100-01-31T09:00", "--for", "1h")
    assert "give --until or --for, not both" in cli.fails(*both, code=2)
    assert "--until must be a time" in cli.fails("queue", "pause", "mail", "--until", "soon", code=2)
    over = cli.fails("queue", "pause", "mail", "--until", "2020-01-31T09:00", code=2)
    assert "--until must be in the future, not '2020-01-31T09:00'" in over


def test_job_why_names_the_limit(cli: Cli) -> None:
    """`job why --json` has the scope, the limit, the number of runs and their ids."""

    async def hold(app: Penstock) -> None:
        await fill(app)
        await app.queue("mail").set_limit(Limit(concurrency=1))
        await app.storage.claim([Request("mail", 5)], "w", 600_000, new_token())

    cli.do(hold)
    why = cli.json("job", "why", "mail", "bob0")
    assert (why["reason"], why["scope"], why["used"], why["limit"]["concurrency"]) == ("limit_reached", "queue", 1, 1)
    assert why["holders"] == ["acme0"]
    assert cli.ok("job", "why", "mail", "bob0") == "Limit of queue 'mail' is reached: 1 of 1 run.\n"
    [closed] = cli.json("top", "--interval", "0.1")["closed_limits"]
    assert (closed["scope"], closed["name"], closed["running"]) == ("queue", "mail", 1)
    cli.do(clear)


def test_a_deleted_queue_keeps_its_limits_unless_asked(cli: Cli) -> None:
    """`queue delete` leaves the limits, `queue delete --settings` takes them."""
    cli.do(fill)
    cli.ok("limit", "set", "mail", "--concurrency", "1")
    cli.ok("queue", "delete", "mail", "--yes")
    assert len(cli.json("limit", "ls", "mail")) == 1
    cli.ok("queue", "delete", "mail", "--yes", "--settings")
    assert cli.json("limit", "ls", "mail") == []


# top and doctor ------------------------------------------------------------------------------------

FULL = LimitInfo(scope="queue", name="mail0", limit=Limit(concurrency=2), running=2, waiting=5)
RATED = LimitInfo(
    scope="group", name="mail0", group="acme", limit=Limit(rate="1/min"), waiting=1,
    opens_at=NOW + timedelta(seconds=30),
)  # fmt: skip
GROUPS = LimitInfo(scope="groups", name="mail0", limit=Limit(concurrency=2), closed=7)


@pytest.mark.parametrize(
    ("info", "closed"),
    [
        (FULL, True),
        (RATED, True),
        (GROUPS, True),
        (LimitInfo(scope="group", name="q", group="g", waiting=1, paused_since=NOW), True),
        (LimitInfo(scope="queue", name="q", limit=Limit(concurrency=2), running=2), False),
        (LimitInfo(scope="queue", name="q", limit=Limit(concurrency=2), running=1, waiting=9), False),
        (LimitInfo(scope="groups", name="q", limit=Limit(concurrency=2)), False),
    ],
)
def test_a_limit_is_closed_if_jobs_wait_for_it(info: LimitInfo, closed: bool) -> None:
    """A limit holds jobs back if some wait, and it is full, paused, or opens later."""
    assert is_closed(info) == closed


def test_top_lists_closed_limits() -> None:
    """The screen has a table of closed limits while there are any, and still fits the terminal."""
    overview = make_overview(queued=5, failures=20, queues=50)
    frame = Frame("sqlite:x", replace(overview, limits=[FULL, RATED, GROUPS]), {}, {})
    for height in (24, 40):
        lines = drawn_frame(frame, height)
        assert len(lines) <= height
        assert any("mail0, group acme" in line for line in lines)
    text = "\n".join(plain_lines(frame))
    assert "2/2" in text
    assert "7 closed" in text
    assert "in 30s" in text
    assert "closed limit" not in "\n".join(plain_lines(Frame("sqlite:x", overview, {}, {})))


def worker(**fields: object) -> WorkerInfo:
    given = {
        "id": "w", "host": "h", "pid": 1, "processes": [], "queues": ["mail"], "capacity": 100, "allowed": 100,
        "busy": 0, "memory": 0, "lease_age": None, "running": 0, "runs": [], "started_at": None, "seen_at": NOW,
        "until": NOW, **fields,
    }  # fmt: skip
    return WorkerInfo(**given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        (Limit(concurrency=10), []),
        (Limit(concurrency=11), ["11 at once is above the capacity of the live workers, 10 runs"]),
        (Limit(rate="100/s"), []),
        (Limit(rate="1000000/s"), ["1000000/s is more than 1 worker processes can start"]),
        (Limit(rate="1000000/s", by="cost"), []),
    ],
)
def test_doctor_warns_of_limits_that_never_close(limit: Limit, expected: list[str]) -> None:
    """A concurrency above the capacity of the live workers, and a rate that none can reach, are warnings."""
    info = LimitInfo(scope="queue", name="mail", limit=limit)
    overview = Overview(at=NOW, queues=[], workers=[worker()], limits=[info])
    found = check_limits(overview, lambda queue: HandlerOptions())
    assert [finding.message.split(":")[0] for finding in found] == expected
    assert check_limits(Overview(at=NOW, queues=[], workers=[], limits=[info]), lambda queue: None) == []


def test_doctor_knows_the_room_of_families_and_handlers() -> None:
    """The room of a family is that of all its queues, and that of a handler with `concurrency=n` is n per process."""
    info = LimitInfo(scope="family", name="llm", limit=Limit(concurrency=9))
    overview = Overview(at=NOW, queues=[], workers=[worker(queues=["llm/a", "llm/b"], processes=[2, 3])], limits=[info])
    assert check_limits(overview, lambda queue: HandlerOptions(concurrency=3)) == []
    assert len(check_limits(overview, lambda queue: HandlerOptions(concurrency=2))) == 1
    assert check_limits(overview, lambda queue: None) == []


def test_doctor_reads_limits(cli: Cli) -> None:
    """`doctor` reads the limits of a storage, and has no finding about one without workers."""
    cli.do(fill)
    cli.do(lambda app: app.queue("mail").set_limit(Limit(concurrency=1000), group=EVERY))
    assert not [each for each in cli_findings(cli) if "limit" in each["about"]]
    cli.do(clear)


def cli_findings(cli: Cli) -> list[dict[str, str]]:
    result = cli.run("doctor", "--json")
    return json.loads(result.stdout)["findings"]
