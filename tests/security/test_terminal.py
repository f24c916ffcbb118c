"""Terminals and logs: no character of a name, id, group, worker, header, error or URL drives them.

Every command runs on a real pseudo-terminal with names of all control characters, bidi marks and newlines. On a dumb
terminal no such character may appear at all but the newline; on another one only the colours that commands write.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from rich.console import Console

from penstock import BulkAction, Every, Job, Limit, Penstock, PermanentError, Progress, Worker
from penstock.cli.controls import Controls
from penstock.cli.top_screen import Frame, plain_lines, render
from penstock.log_config import Coloured, Escaping
from penstock.model.history import NewLine
from penstock.model.printing import escape_controls
from penstock.model.worker_info import Heartbeat
from penstock.ops.activity import log_activity
from penstock.ops.overview import read_detail, read_overview
from penstock.storage.auditing import need_auditing
from penstock.storage.base import ClaimRef, Report, Reported, Request
from tests.security.hostile_names import FORBIDDEN, HOSTILE, every_command, raw
from tests.security.terminals import Shown, Terminals
from tests.support import report_progress

FORGED = "2026-01-01 00:00:00,000 CRITICAL 1 sshd: root login accepted"

#: One name with every forbidden character, a forged line, and the codes that set a title and clear the screen.
NAME = f"n\x1b]0;t\x07\x1b[2J{''.join(sorted(FORBIDDEN))}$(touch made)`touch made`\n{FORGED}"

#: An argument of a process cannot have a NUL.
ARGUMENT = NAME.replace("\0", "")

#: The sequences that commands themselves write: styles, and for a progress bar those that move the cursor.
STYLES = re.compile(r"\x1b\[[0-9;]*m")
PROGRESS = re.compile(r"\x1b\[(\?25[lh]|2K|1A)|\r")

APP = f"""
import os
from penstock import Penstock
app = Penstock(os.environ["PENSTOCK_URL"])

@app.handler({NAME!r}, max_retries=0)
async def fail(payload):
    raise RuntimeError(payload)
"""


class Case(NamedTuple):
    """A command with hostile names; `shows` is a part of its output that proves that it had something to escape."""

    arguments: tuple[str, ...]
    shows: str = "\\x1b]0;t\\x07"
    until: str = ""
    meanwhile: tuple[str, ...] = ()
    environment: dict[str, str] | None = None


def case(*arguments: str, shows: str = "\\x1b]0;t\\x07", **others: Any) -> Case:
    return Case(arguments, shows, **others)


FAILED, QUEUED, LATER, DONE, RUNNING = (f"{NAME}{letter}" for letter in "fqlcr")
#: The name of a schedule, which is shorter than other names may be.
TIMED = NAME[:100]
#: The id of a bulk action.
ACTION = f"{NAME}a"
#: A queue whose results are bytes.
BYTES = f"{NAME}b"
OTHER = "sqlite:nowhere/" + ARGUMENT

#: Cases for every command: a new command without one fails the test below.
CASES = {
    "worker": [
        case("worker", "jobs:app", "--processes", "0", "--drain", "--id", NAME, shows="failed for good"),
        case("worker", f"jobs:{NAME}"),
    ],
    "worker ls": [case("worker", "ls")],
    "worker quiet": [case("worker", "quiet", NAME), case("worker", "quiet", f"{NAME}x")],
    "worker stop": [case("worker", "stop", NAME, "--yes"), case("worker", "stop", NAME, until="[y/N]")],
    "dev": [case("dev", f"jobs:{NAME}", until="waiting for a change")],
    "demo": [case("demo", "--url", OTHER)],
    "enqueue": [
        case("enqueue", NAME, "1", "--id", FAILED),
        case("enqueue", NAME, "1", "--id", f"{NAME}new", "--delay", "1h"),
        case("enqueue", f"{NAME}x", "1"),
        case("enqueue", NAME, ARGUMENT),
        case("enqueue", "q", "1", "--header", ARGUMENT.replace("=", "")),
        case("enqueue", "q", "1", "--at", ARGUMENT),
    ],
    "call": [
        case("call", NAME, "1", "--id", FAILED, "--wait", "1ms"),
        case("call", NAME, "1", "--id", DONE, shows="\\u001b]0;t\\u0007"),
    ],
    "queue ls": [case("queue", "ls"), case("queue", "ls", "--url", OTHER), case("queue", "ls", "--app", ARGUMENT)],
    "queue show": [case("queue", "show", NAME), case("queue", "show", f"{NAME}x")],
    "queue pause": [case("queue", "pause", NAME, f"{NAME}x")],
    "queue resume": [case("queue", "resume", NAME)],
    "queue clear": [case("queue", "clear", NAME, until="[y/N]"), case("queue", "clear", NAME, "--yes")],
    "queue delete": [case("queue", "delete", NAME, until="[y/N]"), case("queue", "delete", NAME, "--yes")],
    "job ls": [case("job", "ls", NAME), case("job", "ls", f"{NAME}x"), case("job", "ls", NAME, "--after", NAME)],
    "job show": [case("job", "show", NAME, id) for id in (FAILED, QUEUED, DONE, RUNNING, f"{NAME}x")],
    "job why": [
        *(case("job", "why", NAME, id) for id in (QUEUED, RUNNING, f"{NAME}x")),
        case("job", "why", NAME, FAILED, shows="failed"),
    ],
    "job wait": [
        case("job", "wait", NAME, FAILED),
        case("job", "wait", NAME, DONE, shows="\\u001b]0;t\\u0007"),
        case("job", "wait", BYTES, DONE, "--serde", "msgpack"),
        case("job", "wait", NAME, QUEUED, "--timeout", "1ms"),
    ],
    "job cancel": [case("job", "cancel", NAME, QUEUED, f"{NAME}x")],
    "job retry": [case("job", "retry", NAME, "--all", until="[y/N]"), case("job", "retry", NAME, FAILED, f"{NAME}x")],
    "job delete": [
        case("job", "delete", NAME, QUEUED, f"{NAME}x", "--yes"),
        case("job", "delete", NAME, DONE, until="[y/N]"),
    ],
    "job watch": [
        case("job", "watch", NAME, DONE, shows="\\u001b]0;t"),
        case("job", "watch", NAME, f"{NAME}x"),
        case("job", "watch", NAME, RUNNING, until="progress  "),
    ],
    "job attempts": [case("job", "attempts", NAME, FAILED), case("job", "attempts", NAME, f"{NAME}x")],
    "job log": [case("job", "log", NAME, RUNNING), case("job", "log", NAME, f"{NAME}x")],
    "job bulk retry": [
        case("job", "bulk", "retry", "state:failed", "--dry-run"),
        case("job", "bulk", "retry", "state:failed", until="[y/N]"),
        case("job", "bulk", "retry", f"id:{FAILED}x", "--yes", shows="done"),
        case("job", "bulk", "retry", f"colour:{ARGUMENT}", shows="unknown key"),
    ],
    "job bulk cancel": [case("job", "bulk", "cancel", "state:queued", "--dry-run")],
    "job bulk run-now": [case("job", "bulk", "run-now", f"state:{ARGUMENT}")],
    "job bulk delete": [case("job", "bulk", "delete", "state:completed", "--dry-run")],
    "job bulk ls": [case("job", "bulk", "ls")],
    "job bulk stop": [case("job", "bulk", "stop", ACTION, shows="undone"), case("job", "bulk", "stop", NAME)],
    "job run-now": [case("job", "run-now", NAME, QUEUED, f"{NAME}x")],
    "activity": [case("activity"), case("activity", "--queue", NAME), case("activity", "--after", ARGUMENT)],
    "release": [case("release", NAME[:100]), case("release", ARGUMENT[:90])],
    "schedule ls": [case("schedule", "ls")],
    "schedule show": [case("schedule", "show", NAME, TIMED), case("schedule", "show", f"{NAME}x", TIMED)],
    "schedule next": [case("schedule", "next", NAME, f"{TIMED}x"), case("schedule", "next", "--cron", ARGUMENT)],
    "schedule add": [
        case("schedule", "add", NAME, f"{TIMED}x", "--every", "30d"),
        case("schedule", "add", NAME, TIMED, "--cron", "0 0 * * *", "--tz", ARGUMENT),
    ],
    "schedule edit": [
        case("schedule", "edit", NAME, TIMED, "--every", "31d"),
        case("schedule", "edit", NAME, f"{TIMED}x", "--every", "31d"),
    ],
    "schedule pause": [
        case("schedule", "pause", NAME, TIMED, "--note", ARGUMENT),
        case("schedule", "pause", NAME, f"{TIMED}x"),
    ],
    "schedule resume": [case("schedule", "resume", NAME, f"{TIMED}x")],
    "schedule trigger": [case("schedule", "trigger", NAME, TIMED), case("schedule", "trigger", NAME, f"{TIMED}x")],
    "schedule backfill": [
        case("schedule", "backfill", NAME, f"{TIMED}x", "--from", "2026-01-01T00:00Z", "--to", "2026-02-01T00:00Z")
    ],
    "schedule reset": [case("schedule", "reset", NAME, f"{TIMED}x")],
    "schedule rm": [case("schedule", "rm", NAME, f"{TIMED}x"), case("schedule", "rm", NAME, TIMED, "--yes")],
    "limit ls": [case("limit", "ls", NAME), case("limit", "ls", f"{NAME}x")],
    "failures ls": [case("failures", "ls"), case("failures", "ls", NAME), case("failures", "ls", f"{NAME}x")],
    "failures show": [case("failures", "show", NAME, ""), case("failures", "show", NAME, ARGUMENT)],
    "failures retry": [case("failures", "retry", NAME, ""), case("failures", "retry", NAME, ARGUMENT)],
    "history": [case("history", NAME), case("history", f"{NAME}x")],
    "limit set": [
        case("limit", "set", NAME, "--group", NAME, "--concurrency", "1"),
        case("limit", "set", NAME, "--rate", ARGUMENT),
    ],
    "limit reset": [case("limit", "reset", NAME, "--group", NAME)],
    "events": [case("events", "--limit", "1", meanwhile=("enqueue", NAME, "1", "--group", NAME))],
    "top": [
        case("top", "--once", "--interval", "100ms"),
        case("top", "--once", "--url", OTHER),
        case("top", ARGUMENT),
        case("top", "--queue", f"{NAME}x", "--once", "--interval", "100ms", "--url", "sqlite:jobs.db"),
    ],
    "doctor": [case("doctor"), case("doctor", OTHER)],
    "dashboard": [case("dashboard", "--url", OTHER)],
    "metrics": [case("metrics", "--url", OTHER)],
    "health": [case("health", "--url", "sqlite:jobs.db", "--worker", NAME)],
    "bench": [case("bench", "--url", OTHER, "--jobs", "100")],
    "export": [
        case("export", "nosuch", "-o", "out"),
        case("export", "-o", "out"),
        case("export", shows="give --output"),
        case("export", "-o", "nowhere/" + ARGUMENT),
    ],
    "import": [
        case("import", "jobs.jsonl", "--queue", f"{NAME}x", shows="imported"),
        case("import", "wrong.jsonl"),
        case("import", ARGUMENT),
    ],
    "completion": [
        case("completion", "bash", shows="_PENSTOCK_COMPLETE"),
        case("completion", ARGUMENT),
        case(
            shows="plain,ls",
            environment={"_PENSTOCK_COMPLETE": "bash_complete", "COMP_WORDS": "penstock queue ", "COMP_CWORD": "2"},
        ),
        case(
            shows="plain,mail",
            environment={"_PENSTOCK_COMPLETE": "bash_complete", "COMP_WORDS": "penstock job ls ", "COMP_CWORD": "3"},
        ),
    ],
}

ODD_ERROR: Any = type("Odd\x1b[2J\u202e", (PermanentError,), {})


async def fill(url: str) -> None:
    """Make a queue with jobs in all states, a worker, and texts of all kinds, each hostile."""
    app = Penstock(url)

    @app.handler(NAME, max_retries=0)
    async def run(payload: str, job: Job) -> str:
        if payload == "fail":
            raise ODD_ERROR(NAME)
        return NAME

    @app.handler(BYTES, serde="msgpack")
    async def answer(payload: int) -> bytes:
        return NAME.partition("\n")[0].encode()  # the lines of a result are printed as lines

    async with app:
        queue = app.queue(NAME)
        await app.queue(BYTES).enqueue(1, id=DONE)
        await queue.enqueue("fail", id=FAILED, group=NAME, headers={"h": NAME})
        await queue.enqueue("complete", id=DONE)
        await Worker(app, id=NAME).drain()
        await app.queue("mail").enqueue(1)
        await queue.enqueue(NAME, id=RUNNING, group=NAME, headers={"h": NAME, NAME: "v"})
        claimed = await app.storage.claim([Request(NAME, 1)], NAME, 3_600_000, "t" * 16)
        held = ClaimRef(NAME, RUNNING, claimed.claims[0].token)
        assert await report_progress(app.storage, held, Progress(0.5, NAME).encode())
        line = Report(queue=NAME, id=RUNNING, token=held.token, lines=(NewLine(NAME),))
        assert await app.storage.report([line]) == [Reported(True)]
        await log_activity(app, NAME, via="cli", who=NAME, queue=NAME, target=NAME, ids=[NAME], outcome=NAME)
        await queue.enqueue(NAME, id=QUEUED, group=NAME, headers={"h": NAME, NAME: "v"})
        await queue.enqueue(NAME, id=LATER, delay=3600)
        await queue.enqueue(NAME)
        later = await app.storage.time() + 3_600_000
        action = BulkAction(id=ACTION, who=NAME, verb="retry", filter=NAME, as_of=later, starts_at=later)
        assert await need_auditing(app.storage).put_bulk(action) == 1
        await queue.schedules.put(TIMED, Every(days=30), payload=NAME)
        await queue.set_limit(Limit(concurrency=1), group=NAME)
        await app.storage.beat(NAME, 3_600_000, Heartbeat(host=NAME, queues=[NAME], capacity=1).encode())


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the storage, an app, an export and a wrong export."""
    directory = tmp_path_factory.mktemp("terminal")
    asyncio.run(fill(f"sqlite:{directory / 'jobs.db'}"))
    (directory / "jobs.py").write_text(APP)
    (directory / "jobs.jsonl").touch()
    return directory


@pytest.fixture(scope="module")
def terminals() -> Iterator[Terminals]:
    """The process that runs commands on terminals."""
    made = Terminals()
    yield made
    made.close()


class Screen:
    """Commands on a terminal, each on a copy of the storage."""

    def __init__(self, terminals: Terminals, template: Path, directory: Path, kind: str) -> None:
        self._terminals = terminals
        self._kind = kind
        self.directory = directory / "work"
        shutil.copytree(template, self.directory)

    def run(self, *arguments: str, **others: Any) -> str:
        """Run a command; returns its output, from which the sequences of commands themselves are removed."""
        environment: dict[str, str] = others.pop("environment", None) or {}
        shown: Shown = self._terminals.run(
            *arguments, cwd=self.directory, TERM=self._kind, NO_COLOR="1", COLUMNS="2500",
            PENSTOCK_URL="sqlite:jobs.db", **environment, **others,
        )  # fmt: skip
        if self._kind == "dumb":
            return shown.output
        output = STYLES.sub("", shown.output)
        return PROGRESS.sub("", output) if arguments[:1] in (("export",), ("import",), ("demo",)) else output

    def check(self, *arguments: str, **others: Any) -> str:
        """Run a command and check that its output has no forbidden character and no forged line."""
        output = self.run(*arguments, **others)
        assert not raw(output), (arguments, raw(output), output)
        assert not any(line.startswith(FORGED) for line in output.splitlines()), output
        assert "Error: unexpected" not in output
        return output


@pytest.fixture(params=["dumb", "xterm-256color"])
def screen(terminals: Terminals, template: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Screen:
    """A dumb terminal, which gets plain lines, and one that gets tables."""
    return Screen(terminals, template, tmp_path, request.param)


def test_every_command_has_a_case() -> None:
    """A new command needs a case here."""
    assert set(CASES) == set(every_command())


@pytest.mark.parametrize("command", sorted(CASES))
def test_no_name_drives_the_terminal(screen: Screen, command: str) -> None:
    """No case of a command prints a forbidden character or a forged line; the names are printed escaped."""
    if command == "import":
        screen.check("export", "-o", "jobs.jsonl")
        text = (screen.directory / "jobs.jsonl").read_text()
        assert not raw(text)
        (screen.directory / "wrong.jsonl").write_text(
            re.sub('"state":"[a-z]+"', '"state":"\\\\u001b]0;t\\\\u0007"', text)
        )
    for each in CASES[command]:
        output = screen.check(*each.arguments, until=each.until, meanwhile=each.meanwhile, environment=each.environment)
        assert each.shows in output, (each.arguments, output)
        assert each.until in output, (each.arguments, output)
    assert not (screen.directory / "made").exists()


@pytest.mark.parametrize("screen", ["dumb"], indirect=True)
@pytest.mark.parametrize("command", sorted(CASES))
def test_no_argument_drives_the_terminal(screen: Screen, command: str) -> None:
    """The error for an unknown option, which quotes it, has no forbidden character; neither has a traceback."""
    assert "\\x1b]0;t\\x07" in screen.check(*command.split(), f"--{ARGUMENT}")
    assert "\\x1b]0;t\\x07" in screen.check(f"--{ARGUMENT}", *command.split())
    assert "\\x1b]0;t\\x07" in screen.check(*command.split()[:-1], ARGUMENT)
    if command != "doctor" and any(parameter.name == "app" for parameter in every_command()[command].params):
        alone = command in ("worker", "dev", "dashboard", "metrics", "health")  # their cases name a URL
        arguments = (command,) if alone else CASES[command][0].arguments
        chosen = ["--app", f"jobs:{ARGUMENT}"] if command not in ("worker", "dev") else [f"jobs:{ARGUMENT}"]
        output = screen.check(*arguments, *chosen, "--debug", until="waiting for a change")
        assert "Traceback" in output


#: The commands with --json that print names then: the first case of each, unless that prints none.
JSON = {
    name: CASES[name][0]
    for name, command in every_command().items()
    if any(parameter.name == "as_json" for parameter in command.params)
    and name not in ("bench", "import", "schedule next", "history", "job bulk run-now")
} | {
    "job watch": case("job", "watch", NAME, RUNNING, until='"message"'),
    "job retry": case("job", "retry", NAME, FAILED),
    "queue pause": case("queue", "pause", NAME),
    "job run-now": case("job", "run-now", NAME, LATER),
}


@pytest.mark.parametrize("command", sorted(JSON))
def test_json_has_no_raw_character_and_the_same_values(screen: Screen, command: str) -> None:
    """With --json everything that is not printable is escaped, and parses to the names as they are."""
    each = JSON[command]
    output = screen.check(*each.arguments, "--json", until=each.until, meanwhile=each.meanwhile)
    documents = output.splitlines() if command in ("job watch", "job log") else [output]
    found = [text for document in documents for text in strings_in(json.loads(document))]
    assert any(NAME in text or TIMED in text for text in found), output


def strings_in(value: Any) -> Iterator[str]:
    """Yield the texts in a decoded JSON value, its keys included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from (*strings_in(key), *strings_in(inner))
    elif isinstance(value, list):
        for inner in value:
            yield from strings_in(inner)


@pytest.mark.parametrize("name", ["".join(map(chr, range(0x250))), "\U000e0041\U0001f600\ud7ff", *HOSTILE[-6:]])
def test_escaped_json_parses_to_the_same_value(name: str) -> None:
    """The escapes are those of JSON, for characters beyond U+FFFF as well."""
    document = json.dumps({name: [name]}, ensure_ascii=False, indent=2)
    escaped = escape_controls(document, json=True)
    assert not raw(escaped)
    assert json.loads(escaped) == {name: [name]}


async def test_the_screen_of_top_has_no_raw_character(template: Path, tmp_path: Path) -> None:
    """Neither the tables, nor the title with its URL, nor the line about an outage, nor a filter that was typed."""
    shutil.copy(template / "jobs.db", tmp_path / "jobs.db")
    async with Penstock(f"sqlite:{tmp_path / 'jobs.db'}") as app:
        overview = await read_overview(app, failures=5)
        detail = await read_detail(app, NAME, 5)
    controls = Controls()
    controls.has_keys = True
    for outage in ("", NAME):
        frame = Frame(NAME, overview, {}, {}, outage, detail)
        for shown, chosen in (("", None), (NAME, None), ("", NAME), ("", f"{NAME}x")):
            controls.filter, controls.chosen = shown, chosen
            console = Console(width=3000, height=50, force_terminal=True, no_color=True)
            with console.capture() as captured:
                console.print(render(frame, 3000, 50, controls))
            output = STYLES.sub("", captured.get())
            assert not raw(output)
            assert "\\x1b]0;t\\x07" in output
        assert not raw("".join(escape_controls(line) for line in plain_lines(frame)))


def test_a_record_of_the_log_cannot_be_forged() -> None:
    """The formatters escape control characters, and indent all lines of a record but the first."""
    try:
        raise RuntimeError(NAME)
    except RuntimeError as error:
        info = (type(error), error, error.__traceback__)
    for formatter in (Escaping("%(levelname)s %(message)s"), Coloured()):
        for exc_info in (None, info):
            record = logging.LogRecord("x", logging.ERROR, "f.py", 1, "job %s", (NAME,), exc_info)
            text = STYLES.sub("", formatter.format(record))
            assert not raw(text)
            first, *rest = text.split("\n")
            assert "\\x1b]0;t\\x07" in first
            assert rest
            assert all(line.startswith("  ") for line in rest)
            assert (exc_info is None) or "  Traceback (most recent call last):" in rest
    plain = Escaping().format(logging.LogRecord("x", logging.INFO, "f.py", 1, "one\n  two\n    three", (), None))
    assert plain == "one\n  two\n    three"


async def test_log_lines_of_a_worker_are_clean_for_every_formatter(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Messages themselves have no forbidden character, so a program with its own formatter is safe too."""
    caplog.set_level(logging.DEBUG, "penstock")
    await fill(f"sqlite:{tmp_path / 'jobs.db'}")
    app = Penstock(f"sqlite:{tmp_path / 'jobs.db'}")
    app.log_events()

    @app.handler(NAME, max_retries=1, min_backoff=0)
    async def fail(payload: str) -> None:
        raise RuntimeError(NAME)

    async with app:
        await app.queue(NAME).enqueue(1, id=f"{NAME}1")
        await app.queue(NAME).cancel(LATER)
        await Worker(app, id=NAME).drain(scheduled=True)
    messages = [record.getMessage() for record in caplog.records]
    assert any("failed for good" in message and "\\x1b]0;t\\x07" in message for message in messages)
    for message in messages:
        assert not raw(message), message
        assert all(line.startswith("  ") for line in message.split("\n")[1:])
