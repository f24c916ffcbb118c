"""`penstock doctor`: findings from settings and jobs, and the command on real storages."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock import Cron, Penstock, ScheduleInfo, State, WorkerInfo
from penstock.errors import ErrorKind, JobError
from penstock.model.ids import new_token
from penstock.model.storage_info import FileInfo, NodeInfo, ServerInfo
from penstock.ops.doctor import (
    Finding,
    Level,
    QueueSymptoms,
    check_file,
    check_schedules,
    check_server,
    check_work,
    warnings_at_start,
)
from penstock.ops.overview import Overview, QueueView
from penstock.storage.base import Fail, Request, Settlement, Stall
from penstock.storage.redis import RedisStorage
from tests.cli.conftest import Cli, on_redis, on_sqlite
from tests.servers import Server, redis_program

GOOD = NodeInfo(
    where="redis://host", version="7.2.1", policy="noeviction", max_memory=1_000_000_000, used_memory=1_000_000,
    machine_memory=8_000_000_000, aof=True, appendfsync="everysec", save="", needs_replicas=0, latency_ms=0.2,
)  # fmt: skip
FILE = FileInfo(
    path="/x/penstock.db", version="3.40.1", schema=1, journal_mode="wal", synchronous="NORMAL", size=10**6,
    free=10**10, filesystem="ext4", faults=[],
)  # fmt: skip


def findings_of(finds: list[Finding], level: Level) -> dict[str, str]:
    return {find.about: f"{find.message} {find.fix}" for find in finds if find.level is level}


def server(**changes: Any) -> tuple[list[Finding], str]:
    findings, lost = check_server(ServerInfo(schema=1, cluster=False, nodes=[msgspec.structs.replace(GOOD, **changes)]))
    return findings, " ".join(lost)


def test_good_settings_are_fine() -> None:
    """A server with an append-only file, free memory and noeviction gives no warning."""
    findings, lost = server()
    assert findings_of(findings, Level.WARNING) == {}
    assert "one second" in lost


@pytest.mark.parametrize(
    ("changes", "about", "expected"),
    [
        ({"policy": "allkeys-lru"}, "eviction", "jobs among them"),
        ({"policy": "volatile-ttl"}, "eviction", "time to live"),
        ({"policy": "allkeys-lru", "evicted": 7}, "eviction", "has deleted 7 keys"),
        ({"used_memory": 900_000_000}, "memory", "900 of 1,000 MB"),
        ({"role": "slave"}, "role", "give the URL of the primary"),
        ({"version": "5.0.9"}, "version", "use Redis 7.0 or newer"),
        ({"ahead_ms": 61_000.0}, "clock", "61.0 s ahead of"),
        ({"ahead_ms": -5_000.0}, "clock", "5.0 s behind"),
        ({"latency_ms": 80.0}, "latency", "80.00 ms"),
        ({"clients": 95, "max_clients": 100}, "connections", "raise maxclients"),
        ({"writes_work": False}, "disk", "failed"),
        ({"aof": False}, "persistence", "CONFIG SET appendonly yes"),
        ({"aof": False, "save": "3600 1 300 100"}, "persistence", "save 3600 1 300 100"),
        ({"aof": False, "save": None}, "persistence", "snapshots"),
        ({"appendfsync": "no"}, "persistence", "appendfsync everysec"),
    ],
)
def test_a_bad_setting_of_a_server_gives_one_warning(changes: dict[str, Any], about: str, expected: str) -> None:
    """Each setting that can lose jobs or stop work gives one warning with its remedy."""
    findings, _ = server(**changes)
    warnings = findings_of(findings, Level.WARNING)
    assert list(warnings) == [about]
    assert expected in warnings[about]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"aof": False}, "Every job, when the server is restarted"),
        ({"aof": False, "save": "60 1", "changes": 12}, "12 changes are unsaved"),
        ({"appendfsync": "always"}, "Nothing that was accepted"),
        ({"replicas": 1}, "before a failover"),
        ({}, "there is no copy"),
    ],
)
def test_possible_losses_follow_from_the_settings_of_a_server(changes: dict[str, Any], expected: str) -> None:
    """The report has a sentence about what a server's settings can lose."""
    assert expected in server(**changes)[1]


def test_each_node_of_a_cluster_is_named() -> None:
    """With several servers each finding names its server."""
    nodes = [msgspec.structs.replace(GOOD, where=f"host:{port}") for port in (1, 2)]
    findings, _ = check_server(ServerInfo(schema=1, cluster=True, nodes=nodes))
    assert {"eviction of host:1", "eviction of host:2"} <= {find.about for find in findings}


@pytest.mark.parametrize(
    ("changes", "about", "expected"),
    [
        ({"mode": 0o644}, "permissions", "chmod 600"),
        ({"free": 10**7}, "disk", "make room"),
        ({"free": 0}, "disk", "the disk is full"),
        ({"obstacle": "it belongs to root; run it as root"}, "access", "belongs to root run it as root"),
        ({"journal_mode": "delete"}, "journal", "block each other"),
        ({"log_size": 10**9}, "log", "1,000 MB"),
        ({"filesystem": "nfs4"}, "file system", "network"),
        ({"filesystem": "tmpfs"}, "file system", "restarts"),
        ({"faults": ["row 7 missing", "x"]}, "integrity", "row 7 missing and 1 more"),
        ({"path": ""}, "place", "memory"),
    ],
)
def test_a_bad_state_of_a_file_gives_one_warning(changes: dict[str, Any], about: str, expected: str) -> None:
    """Each state of a file that can lose or reveal jobs gives one warning."""
    findings, _ = check_file(msgspec.structs.replace(FILE, **changes))
    warnings = findings_of(findings, Level.WARNING)
    assert list(warnings) == [about]
    assert expected in warnings[about]


def test_the_advice_on_permissions_names_files_only() -> None:
    """The advice names files only: the directory of wake-up sockets next to them needs its other mode bits."""
    findings, _ = check_file(msgspec.structs.replace(FILE, mode=0o644))
    assert [find.fix for find in findings if find.fix] == ["chmod 600 /x/penstock.db, and its -wal and -shm"]


def test_a_good_file_is_fine() -> None:
    """A private file on a real disk gives no warning; the report names the loss in a power cut."""
    findings, lost = check_file(FILE)
    assert findings_of(findings, Level.WARNING) == {}
    assert "power cut" in lost[0]
    assert "not when the power fails" in check_file(msgspec.structs.replace(FILE, synchronous="FULL"))[1][0]


NOW = datetime(2030, 1, 1, tzinfo=UTC)


def view(
    workers: list[str] | None = None, since: datetime | None = None, overdue: int = 0, damaged: int = 0, **counts: int
) -> QueueView:
    states = {state: counts.get(state.value, 0) for state in State}
    return QueueView(
        name="mail", counts=states, workers=workers or [], paused_since=since, overdue=overdue, damaged=damaged
    )


def worker() -> WorkerInfo:
    return WorkerInfo(
        id="w", host="h", pid=1, processes=[], queues=["mail"], capacity=100, allowed=100, busy=10, memory=0,
        lease_age=None, running=1, runs=[], started_at=None, seen_at=NOW, until=NOW,
    )  # fmt: skip


def health(queue: QueueView, symptoms: QueueSymptoms | None = None, workers: bool = True) -> list[Finding]:
    overview = Overview(at=NOW, queues=[queue], workers=[worker()] if workers else [])
    return check_work(overview, {"mail": symptoms or QueueSymptoms()})


OLD = int((NOW - timedelta(minutes=20)).timestamp() * 1000)


@pytest.mark.parametrize(
    ("queue", "symptoms", "level", "expected"),
    [
        (view(queued=3), None, Level.WARNING, "3 jobs due, and no worker serves it"),
        (view(["w"], queued=3), QueueSymptoms(oldest=OLD), Level.WARNING, "one of them for 20 minutes"),
        (view(["w"], since=NOW, queued=3), QueueSymptoms(oldest=OLD), Level.NOTE, "paused since"),
        (view(["w"], overdue=2), None, Level.NOTE, "workers reap their jobs shortly"),
        (view(overdue=2), None, Level.WARNING, "no worker serves the queue to reap their jobs"),
        (view(["w"], damaged=1204), None, Level.WARNING, "damaged records found: 1,204; they were set aside"),
        (view(["w"], failed=1), None, Level.NOTE, "1 failed job"),
        (view(["w"], failed=9), QueueSymptoms(stall_failures=2), Level.WARNING, "they kill it"),
        (view(["w"], queued=1), QueueSymptoms(stalled=1), Level.NOTE, "have lost a worker before"),
    ],
)
def test_trouble_in_a_queue_gives_a_finding(
    queue: QueueView, symptoms: QueueSymptoms | None, level: Level, expected: str
) -> None:
    """A queue without workers, with late or killing jobs, expired leases or damaged records gives a finding."""
    assert expected in findings_of(health(queue, symptoms), level)["queue mail"]


def test_no_workers_is_a_warning_only_with_open_jobs() -> None:
    """No workers are a warning if there are open jobs, else a note."""
    assert "workers" in findings_of(health(view(scheduled=1), workers=False), Level.WARNING)
    assert "workers" in findings_of(health(view(completed=1), workers=False), Level.NOTE)


# real storages -----------------------------------------------------------------------------------


def test_the_command_examines_a_storage(cli: Cli) -> None:
    """`doctor` names the storage and what can be lost, and exits with 1 on warnings."""
    cli.do(lambda app: app.queue("mail").enqueue(1))
    result = cli.run("doctor", cli.url, PENSTOCK_URL=None)
    assert result.exit_code == 1
    assert "1 job due, and no worker serves it" in result.stdout
    assert "what can be lost:" in result.stdout
    found = cli.run("doctor", "--json")
    assert found.exit_code == 1
    report = msgspec.json.decode(found.stdout)
    assert report["where"].startswith(("sqlite:", "redis://"))
    assert {"level", "about", "says", "fix"} == set(report["findings"][0])
    assert report["can_be_lost"]


def schedule(**changes: Any) -> ScheduleInfo:
    """Return a schedule of which nothing is wrong, with changes."""
    good = ScheduleInfo(
        queue="q", name="n", when=Cron("0 2 * * *", tz="Europe/Paris"), payload=None, payload_function=None, start=None,
        end=None, jitter=0, overlap="skip", catch_up="latest", grace=30, most=100, source="api", paused_since=None,
        note="", next_at=datetime(2030, 1, 2, 1, tzinfo=UTC), last_at=None, last_id=None, fired=0, skipped=0, missed=0,
        dropped=0, retired_since=None, changed=[], version=1,
    )  # fmt: skip
    return msgspec.structs.replace(good, **changes)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"when": "0 2 * * * (Mars/X)"}, "not known on this machine"),
        ({"next_at": datetime(2030, 1, 2, 2, tzinfo=UTC)}, "differ between machines"),
        ({"retired_since": datetime(2029, 12, 31, tzinfo=UTC), "next_at": None}, "penstock schedule rm q other"),
        ({"next_at": datetime(2029, 12, 31, 1, tzinfo=UTC)}, "start a worker that has its handler"),
        ({"next_at": datetime(2029, 12, 31, 1, tzinfo=UTC), "source": "code"}, "start a worker that declares it"),
    ],
)
def test_trouble_of_a_schedule_gives_a_warning(changes: dict[str, Any], expected: str) -> None:
    """Unknown and different time zones, a retired schedule, a tick that is not fired: one warning each."""
    findings = check_schedules([schedule(), schedule(name="other", **changes)], False, datetime(2030, 1, 1, tzinfo=UTC))
    [(about, text)] = findings_of(findings, Level.WARNING).items()
    assert about == "schedule q/other"
    assert expected in text
    assert findings_of(findings, Level.FINE) == {"schedules": "2 "}


def test_without_schedules_the_doctor_is_silent_about_them() -> None:
    """Paused schedules are counted; without any there is no line."""
    now = datetime(2030, 1, 1, tzinfo=UTC)
    assert check_schedules([], False, now) == []
    paused = schedule(paused_since=now, next_at=None)
    assert findings_of(check_schedules([paused], True, now), Level.FINE) == {"schedules": "1 and more, 1 paused "}


@on_sqlite
def test_all_is_fine(cli: Cli) -> None:
    """For a good file without jobs `doctor` exits with 0."""
    cli.do(Penstock.queues)
    assert cli.ok("doctor").splitlines()[-1] == "all is fine"
    assert "integrity" not in cli.ok("doctor", "--no-check")


@on_sqlite
def test_a_damaged_file_is_found(cli: Cli, tmp_path: Path) -> None:
    """A file that others can read, or that is damaged, gives a warning."""
    cli.do(lambda app: app.queue("mail").enqueue_many([{"text": "x" * 500}] * 500))
    path = tmp_path / "jobs.db"
    path.chmod(0o644)
    assert "chmod 600" in cli.run("doctor").stdout
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(size // 2)
        file.write(os.urandom(20_000))
    result = cli.run("doctor")
    assert result.exit_code in (1, 2)
    assert "damaged" in result.output
    path.unlink()


@on_sqlite
def test_jobs_that_lose_their_workers_are_found(cli: Cli) -> None:
    """Queued jobs that have stalled before are a note, and failed ones a warning; without a stall no job is read."""

    async def lose(app: Penstock) -> None:
        await app.queue("mail").enqueue_many([1, 2])
        claims = (await app.storage.claim([Request("mail", 2)], "w", 60_000, new_token())).claims
        error = JobError("Stall", "its worker is gone", ErrorKind.STALL).encode()
        back, failed = claims
        await app.storage.settle([
            Settlement(back.queue, back.id, back.token, Stall()),
            Settlement(failed.queue, failed.id, failed.token, Stall()),
        ])  # fmt: skip
        [again] = (await app.storage.claim([Request("mail", 1)], "w", 60_000, new_token())).claims
        await app.storage.settle([Settlement(again.queue, again.id, again.token, Fail(error, None))])

    assert "lost" not in cli.run("doctor", "--no-check").stdout.partition("what can be lost")[0]
    cli.do(lose)
    found = cli.run("doctor", "--no-check").stdout
    assert "1 of the first queued jobs have lost a worker before" in found
    assert "1 of the newest failed jobs lost their worker every time" in found


@on_redis
def test_expired_leases_are_found(cli: Cli) -> None:
    """A job whose lease expired gives a finding."""

    async def leave(app: Penstock) -> None:
        await app.queue("mail").enqueue(1)
        await app.storage.claim([Request("mail", 1)], "gone", 1, new_token())

    cli.do(leave)
    assert "expired leases: 1" in cli.run("doctor").stdout


@pytest.mark.parametrize("url", ["redis://127.0.0.1:1/0", "sqlite:nowhere.db", "bogus:", "redis://127.0.0.1:x"])
def test_an_unreachable_storage_is_exit_code_2(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A storage that cannot be opened is an error of one line with exit code 2."""
    monkeypatch.chdir(tmp_path)
    Cli("sqlite:x", tmp_path).fails("doctor", url, code=2, PENSTOCK_URL=None)


@pytest.fixture
def evicting_server() -> Iterator[Server]:
    """A server that evicts keys when its memory is full."""
    server = Server(redis_program()).start()
    try:
        with server.client() as client:
            client.config_set("maxmemory-policy", "allkeys-lru")
            client.config_set("maxmemory", 100_000_000)
        yield server
    finally:
        server.remove()


async def test_a_worker_warns_of_a_server_that_drops_jobs(evicting_server: Server) -> None:
    """A policy other than noeviction gives a warning at the start of a worker."""
    storage = RedisStorage(f"redis://{evicting_server.address}/0")
    await storage.open()
    try:
        [line] = await warnings_at_start(storage)
    finally:
        await storage.close()
    assert "maxmemory-policy is allkeys-lru" in line
    assert "CONFIG SET maxmemory-policy noeviction" in line
