"""`penstock export` and `penstock import`: copies of jobs between storages."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock import Job, JobStatus, Penstock, PermanentError, Worker
from penstock.model.ids import new_token
from penstock.ops.export import import_jobs
from penstock.storage.base import Request
from tests.cli.conftest import Cli, delete_all, on_redis, on_sqlite
from tests.servers import Server, Servers


async def fill(app: Penstock) -> None:
    """Put finished, queued, scheduled and retrying jobs; one has a payload that is not UTF-8."""

    @app.handler("mail", min_backoff=3600, max_backoff=3600)
    async def mail(payload: Any, job: Job) -> Any:
        if payload == "bad":
            raise PermanentError("no such address")
        if payload == "again":
            raise ValueError("busy")
        return f"sent {payload}"

    queue = app.queue("mail")
    await queue.enqueue("good", id="good")
    await queue.enqueue("bad", id="bad")
    await queue.enqueue("again", id="again", group="g")
    await Worker(app).drain()
    await queue.enqueue({"é": [1, None]}, id="next", priority=3, headers={"who": "me"}, max_retries=2, timeout=9)
    await queue.enqueue("behind", id="behind", group="g")
    await queue.enqueue("later", id="later", delay=3600)
    await app.queue("bytes", serde="raw").enqueue(b"\xff\x00\n", id="raw")


async def everything(app: Penstock) -> dict[str, list[JobStatus]]:
    return {name: list(await app.queue(name).find()) for name in await app.queues()}


@pytest.fixture
def other_storage(cli: Cli, servers: Servers, tmp_path: Path) -> Iterator[Cli]:
    """A storage of the other kind: Redis for SQLite, SQLite for Redis."""
    url = f"sqlite:{tmp_path / 'other_storage.db'}"
    if cli.url.startswith("sqlite"):
        server = servers.get("redis")
        assert isinstance(server, Server)
        url = f"redis://{server.address}/0"
    other_storage = Cli(url, cli.directory)
    yield other_storage
    other_storage.do(delete_all)


def test_exported_jobs_are_equal_after_import(cli: Cli, other_storage: Cli, tmp_path: Path) -> None:
    """Imported jobs equal the exported ones in content and order, and a second import changes nothing."""
    cli.do(fill)
    path = str(tmp_path / "all.jsonl")
    result = cli.run("export", "-o", path)
    assert result.exit_code == 0
    assert "exported 7 jobs of 2 queues" in result.stderr
    before = cli.do(everything)
    assert "imported 7 jobs" in other_storage.ok("import", path)
    assert other_storage.do(everything) == before
    assert "left as they are: 7 jobs" in other_storage.ok("import", path)
    assert other_storage.do(everything) == before


def test_an_export_is_readable(cli: Cli) -> None:
    """Each line is a job in JSON, with UTF-8 payloads as text, others in base64; the first line is a header."""
    cli.do(fill)
    header, *lines = [json.loads(line) for line in cli.ok("export").splitlines()]
    assert header["penstock_export"] == 1
    assert header["queues"] == ["bytes", "mail"]
    jobs = {line["id"]: line for line in lines}
    assert jobs["raw"]["payload_base64"] == "/wAK"
    assert json.loads(jobs["next"]["payload"]) == {"é": [1, None]}
    assert (jobs["next"]["headers"], jobs["next"]["bounds"]) == ({"who": "me"}, {"timeout": 9000, "max_retries": 2})
    assert (jobs["bad"]["state"], jobs["bad"]["error"]["type"], jobs["bad"]["attempts"]) == (
        "failed",
        "PermanentError",
        1,
    )
    assert (jobs["again"]["state"], jobs["again"]["retries"]) == ("retrying", 1)


def test_import_from_a_pipe_into_another_queue(cli: Cli) -> None:
    """An export can be piped, and imported into a queue of another name."""
    cli.do(fill)
    data = cli.run("export", "mail").stdout_bytes
    assert cli.json("import", "--queue", "mail2", stdin=data)["stored"] == {
        "retrying": 1, "queued": 2, "scheduled": 1, "completed": 1, "failed": 1,
    }  # fmt: skip
    assert cli.do(lambda app: app.queue("mail2").counts()) == cli.do(lambda app: app.queue("mail").counts())


def test_running_and_blocked_jobs_are_not_exported(cli: Cli) -> None:
    """A running job and the one blocked behind it are left out, and counted on stderr."""

    async def hold(app: Penstock) -> None:
        await app.queue("q").enqueue(1, id="a")
        await app.storage.claim([Request("q", 1)], "w", 60_000, new_token())
        await app.queue("q").enqueue(2, id="a", on_conflict="update")
        await app.queue("q").enqueue(3, id="b")

    cli.do(hold)
    result = cli.run("export")
    assert [json.loads(line)["id"] for line in result.stdout.splitlines()[1:]] == ["b"]
    assert "left out: 1 running and 1 blocked" in result.stderr


@on_sqlite
def test_an_export_file_is_private_and_complete(cli: Cli, tmp_path: Path) -> None:
    """Only the owner can read the file, and an export that fails leaves no file."""
    cli.do(fill)
    path = tmp_path / "all.jsonl"
    cli.ok("export", "-o", str(path))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    missing = tmp_path / "nowhere" / "all.jsonl"
    cli.fails("export", "-o", str(missing))
    assert sorted(os.listdir(tmp_path)) == ["all.jsonl", "jobs.db", "work"]


@on_sqlite
def test_a_queue_that_is_not_there(cli: Cli) -> None:
    """An export of an unknown queue is an error that lists the existing ones."""
    cli.do(fill)
    assert "there are: bytes, mail" in cli.fails("export", "mial")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "the input is empty"),
        ('{"some": "json"}\n', "line 1: this is not an export"),
        ('{"penstock_export": 2}\n', "newer Penstock"),
        ('{"penstock_export": 1}\n{"id": 1}\n', "line 2: this is not a job"),
        ('{"penstock_export": 1}\nnot json\n', "line 2: this is not a job"),
        ('{"penstock_export": 1}\n{JOB, "state": "running"}\n', "belongs to its worker"),
        ('{"penstock_export": 1}\n{JOB, "state": "queued", "id": ""}\n', "id must be 1 to 512 bytes"),
        ('{"penstock_export": 1}\n{JOB, "state": "queued", "priority": 99999999999}\n', "priority"),
        (
            '{"penstock_export": 1}\n{JOB, "state": "queued", "stalls": 9223372036854775807}\n',
            "line 2: this is not a job",
        ),
        ('{"penstock_export": 1}\n{JOB, "state": "queued", "retries": 9223372036854775808}\n', "0 and 65535"),
        (
            '{"penstock_export": 1}\n{JOB, "state": "queued", "retries": 99999999999999999999}\n',
            "line 2: this is not a job",
        ),
        ('{"penstock_export": 1}\n{JOB, "state": "queued", "payload": "LONG"}\n', "payload has 1048577 bytes"),
        ('{"penstock_export": 1}\n{JOB, "state": "queued", "headers": {"h": "LONG"}}\n', "headers has"),
        (
            '{"penstock_export": 1}\n{JOB, "state": "failed", "error": {"type": "E", "message": "LONG"}}\n',
            "error has",
        ),
    ],
)
@on_sqlite
def test_an_invalid_import_is_one_line(cli: Cli, text: str, expected: str) -> None:
    """A file that cannot be imported is an error with line and reason, and exit code 2."""
    job = '"queue": "q", "id": "a", "created_at": "2026-01-01T00:00:00Z", "run_at": "2026-01-01T00:00:00Z"'
    line = cli.fails("import", stdin=text.replace("JOB", job).replace("LONG", "x" * 1_048_577), code=2)
    assert "stdin: " in line
    assert expected in line
    assert cli.json("queue", "ls") == []


@on_redis
def test_expired_jobs_are_not_imported(cli: Cli) -> None:
    """A finished job whose TTL is over is not imported."""
    job = {
        "queue": "q", "id": "a", "state": "completed", "created_at": "2020-01-01T00:00:00Z",
        "run_at": "2020-01-01T00:00:00Z", "payload": "1", "result": "2", "expires_at": "2020-01-02T00:00:00Z",
    }  # fmt: skip
    text = '{"penstock_export": 1}\n' + json.dumps(job) + "\n"
    assert "1 finished job whose result has expired" in cli.ok("import", stdin=text)
    assert cli.json("queue", "ls") == []


@on_sqlite
def test_a_storage_without_restore_gets_waiting_jobs_only(cli: Cli) -> None:
    """A storage without `restore` gets waiting jobs as new ones; finished ones are counted as refused."""
    cli.do(fill)
    lines = cli.run("export", "mail").stdout_bytes.splitlines()

    class Plain:
        """A storage with the verbs of the protocol and no more."""

        def __init__(self, storage: Any) -> None:
            self._storage = storage

        def __getattr__(self, name: str) -> Any:
            if name in ("restore", "inspect", "meters", "latest", "where"):
                raise AttributeError(name)
            return getattr(self._storage, name)

    async def bring(app: Penstock) -> tuple[int, int]:
        plain: Any = Plain(app.storage)
        other = Penstock(storage=plain)
        taken = [taken async for taken in import_jobs(other, lines, "mail2")][-1]
        return taken.stored.total(), taken.refused

    assert cli.do(bring) == (4, 2)


@on_sqlite
def test_an_export_of_a_damaged_file_writes_the_jobs_before_the_damage(cli: Cli, tmp_path: Path) -> None:
    """Export of a damaged file writes the jobs that can be read, names the rest, and exits with 1."""
    names = ["first", "second"]
    for name in names:
        cli.do(lambda app, name=name: app.queue(name).enqueue_many([{"text": "x" * 900}] * 200))  # type: ignore[misc]
    path = tmp_path / "jobs.db"
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(size - 150_000)  # the records of the second queue
        file.write(bytes(100_000))
    out = cli.directory / "out.jsonl"
    line = cli.fails("export", "-o", str(out))
    assert "second (queued)" in line
    assert "penstock doctor" in line
    lines = out.read_text().splitlines()
    assert sum('"queue":"first"' in each for each in lines) == 200
    assert 0 < sum('"queue":"second"' in each for each in lines) < 200
    path.unlink()


@on_sqlite
def test_a_larger_payload_is_imported_if_its_size_is_allowed(cli: Cli) -> None:
    """`--max-payload` allows payloads and results beyond the default of 1 MiB."""
    job = {"queue": "q", "id": "a", "state": "queued", "created_at": "2026-01-01T00:00:00Z",
           "run_at": "2026-01-01T00:00:00Z", "payload": "x" * 1_100_000}  # fmt: skip
    text = f'{{"penstock_export": 1}}\n{json.dumps(job)}\n'
    assert "payload has 1100000 bytes" in cli.fails("import", stdin=text, code=2)
    assert "imported 1 job" in cli.ok("import", "--max-payload", "2000000", stdin=text)
