"""The recorder: no verb of a storage escapes it unseen, and what it writes survives a process that is killed."""

from __future__ import annotations

from pathlib import Path

from chaos.jobs import build
from chaos.log import Log, read_all
from chaos.queues import FAILING, SETTINGS
from chaos.recorder import LEFT_ALONE, RECORDED, number_of
from penstock import Worker
from penstock.storage.base import Storage


def test_every_verb_is_written_down_or_left_alone_on_purpose() -> None:
    """A new verb of the storage makes somebody think of what the checker must know of it."""
    verbs = {name for name in vars(Storage) if not name.startswith("_")}
    assert verbs == RECORDED | LEFT_ALONE
    assert not RECORDED & LEFT_ALONE


async def test_a_run_is_written_down_from_claim_to_end(tmp_path: Path) -> None:
    """A claim, its run and its settlement are in the history in this order, under one token."""
    log = Log(tmp_path, "all")
    async with build("memory:", log) as app:
        await app.queue("plain").enqueue({"n": 7, "mood": "ok"}, id="a")
        await Worker(app, id="w").drain()
        result = await app.queue("plain").result("a")
    log.close()
    records = [record for record in read_all(tmp_path) if record["k"] not in ("file", "renew")]
    assert [record["k"] for record in records] == ["claim", "start", "end", "settle", "settled"]
    claim, start, _, settle, settled = records
    assert [claim["claims"][0][0], claim["claims"][0][1], claim["claims"][0][-1]] == ["plain", "a", 7]
    assert {claim["tok"], start["jobs"][0][1], settle["ends"][0][2], result["tok"]} == {claim["tok"]}
    assert settled["states"] == ["completed"]


def test_a_torn_line_is_no_record(tmp_path: Path) -> None:
    """What a process wrote before it was killed is read; the line that it was in the middle of is not."""
    log = Log(tmp_path, "w0")
    log.write("start", r=1, q="plain", u=2, jobs=[])
    log.close()
    [path] = tmp_path.glob("*.log")
    with path.open("ab") as file:
        file.write(b'{"k":"end","r":1,"ho')
    assert [record["k"] for record in read_all(tmp_path)] == ["file", "start"]


def test_the_number_of_a_payload_is_found() -> None:
    """The number comes first in a producer's payload; anything else has none."""
    assert number_of(b'{"n":12,"mood":"ok"}') == 12
    assert number_of(b'{"n":3}') == 3
    assert number_of(b"\x93\x01") is None
    assert number_of(None) is None


def test_the_queues_are_within_the_capacity_that_is_checked() -> None:
    """Every handler says its size, so that the checker knows what a run weighs."""
    assert all(0 < options["size"] <= 100 and "concurrency" not in options for options in SETTINGS.values())
    assert FAILING["size"] > 0
