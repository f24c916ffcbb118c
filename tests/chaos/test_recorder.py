"""Tests of the recorder: every method of a storage is accounted for, and records survive the kill of their process."""

from __future__ import annotations

from pathlib import Path

from chaos.jobs import LimitedCode, build
from chaos.log import Log, read_all
from chaos.queues import FAIL_HANDLER_OPTIONS, SETTINGS
from chaos.recorder import NOT_RECORDED, RECORDED, number_of
from chaos.settings_recorder import NOT_RECORDED_SETTINGS, RECORDED_SETTINGS
from penstock import Every, Limit, Worker
from penstock.storage.base import Storage
from penstock.storage.limiting import Limiting
from penstock.storage.scheduling import Scheduling


def test_every_storage_method_is_recorded_or_listed_as_not_recorded() -> None:
    """A new method of Storage fails this test until it is recorded or listed in NOT_RECORDED."""
    verbs = {name for name in vars(Storage) if not name.startswith("_")}
    assert verbs == RECORDED | NOT_RECORDED
    assert not RECORDED & NOT_RECORDED


def test_every_method_of_limits_and_schedules_is_recorded_or_listed_as_not_recorded() -> None:
    """A new method of Limiting or Scheduling fails this test until it is in one of the two lists."""
    verbs = {name for kind in (Limiting, Scheduling) for name in vars(kind) if not name.startswith("_")}
    assert verbs == RECORDED_SETTINGS | NOT_RECORDED_SETTINGS
    assert not RECORDED_SETTINGS & NOT_RECORDED_SETTINGS


async def test_changes_of_limits_and_schedules_are_recorded(tmp_path: Path) -> None:
    """The changes and triggers of a producer are in the history, each request before its answer."""
    log = Log(tmp_path, "all")
    async with build(f"sqlite:{tmp_path / 'jobs.db'}", log, None, LimitedCode(0, 0)) as app:
        queue = app.queue("tick")
        await queue.set_limit(Limit(concurrency=3, rate="10/s", burst=2))
        await queue.schedules.put("a", Every(2), payload={"n": 1, "behaviour": "ok"})
        await queue.schedules.trigger("a")
        await queue.schedules.pause("a")
        await queue.schedules.remove("a")
    log.close()
    records = [record for record in read_all(tmp_path) if record["k"] != "file"]
    verbs = ["set_limit", "set_schedule", "fire", "set_schedule", "drop_schedule"]
    assert [record["k"] for record in records] == [each for verb in verbs for each in (verb, f"{verb}_answer")]
    assert records[0]["rule"] == [3, 100_000, 2, False]
    created, fired, paused = records[2], records[4]["firings"][0], records[6]
    assert (created["v"], created["when"], created["fires"], paused["fires"]) == (0, "every 2", True, False)
    assert (fired["v"], fired["start"], fired["manual"]) == (records[3]["v"], created["cursor"], True)
    assert [tick[1] for tick in fired["ticks"]] == records[5]["fired"][0][-1]


async def test_a_run_is_recorded_from_claim_to_settle(tmp_path: Path) -> None:
    """A claim, its handler run and its settle are in the history in this order, with one token."""
    log = Log(tmp_path, "all")
    async with build("memory:", log) as app:
        await app.queue("plain").enqueue({"n": 7, "behaviour": "ok"}, id="a")
        await Worker(app, id="w").drain()
        result = await app.queue("plain").result("a")
    log.close()
    records = [record for record in read_all(tmp_path) if record["k"] not in ("file", "renew")]
    assert [record["k"] for record in records] == ["claim", "run_start", "run_end", "settle", "settle_answer"]
    claim, start, _, settle, settled = records
    assert [claim["claims"][0][0], claim["claims"][0][1], claim["claims"][0][-1]] == ["plain", "a", 7]
    assert {claim["tok"], start["jobs"][0][1], settle["settlements"][0][2], result["tok"]} == {claim["tok"]}
    assert settled["states"] == ["completed"]


def test_a_torn_line_is_no_record(tmp_path: Path) -> None:
    """The whole lines of a killed process are read; its last, incomplete line is skipped."""
    log = Log(tmp_path, "w0")
    log.write("run_start", r=1, q="plain", u=2, jobs=[])
    log.close()
    [path] = tmp_path.glob("*.log")
    with path.open("ab") as file:
        file.write(b'{"k":"run_end","r":1,"ho')
    assert [record["k"] for record in read_all(tmp_path)] == ["file", "run_start"]


def test_the_number_of_a_payload_is_found() -> None:
    """The number is the first field of a producer's payload; other payloads give None."""
    assert number_of(b'{"n":12,"behaviour":"ok"}') == 12
    assert number_of(b'{"n":3}') == 3
    assert number_of(b"\x93\x01") is None
    assert number_of(None) is None


def test_the_queues_are_within_the_capacity_that_is_checked() -> None:
    """Every handler has a size of at most 100 units and no concurrency: the checker counts the units of a run by it."""
    assert all(0 < options["size"] <= 100 and "concurrency" not in options for options in SETTINGS.values())
    assert FAIL_HANDLER_OPTIONS["size"] > 0
