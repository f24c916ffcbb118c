"""Every example does what its page says, also when a worker is killed in the middle."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from tests.docs.blocks import ROOT, blocks
from tests.examples.conftest import Show, page

EXAMPLES = sorted(path.parent.name for path in (ROOT / "examples").glob("*/Procfile"))

Start = Callable[..., Show]


@pytest.mark.parametrize("name", EXAMPLES)
def test_one_command_starts_it(name: str) -> None:
    """The first command of its page is all that a reader types, and is the program that is run here."""
    first = next(block.text for block in blocks("sh") if block.page == page(name)).splitlines()[0]
    assert first == f"make example NAME={name}"
    typed = [*first.split(), "--dry-run", "--old-file", ".venv/.installed"]
    done = subprocess.run(typed, cwd=ROOT, text=True, capture_output=True, check=True)
    assert f"bin/python examples/run.py {name}\n" in done.stdout


def test_an_unknown_example_is_refused() -> None:
    """Whoever asks for another one is told which there are."""
    done = subprocess.run([sys.executable, "examples/run.py", "other"], cwd=ROOT, text=True, capture_output=True)
    assert done.returncode == 2
    assert ", ".join(EXAMPLES) in done.stderr


def test_reports(start: Start) -> None:
    """An order gives one job for its key, progress while it runs, and a report although its worker was killed."""
    show = start("reports", PACE="0.3")
    show.line("Uvicorn running on")
    show.line(r"process \d+ works")
    with httpx.Client(base_url=f"http://127.0.0.1:{show.port}", timeout=60) as client:
        key, order = {"Idempotency-Key": "ann-2030"}, {"customer": "ann", "months": 12}
        answer = client.post("/reports", json=order, headers=key)
        assert (answer.status_code, answer.headers["Location"]) == (202, "/reports/ann-2030")
        assert client.post("/reports", json=order, headers=key).json()["id"] == "ann-2030"
        assert client.post("/reports", json={"customer": "bob"}, headers=key).status_code == 409
        assert client.post("/reports", json={"customer": ""}).status_code == 422
        seen: list[dict[str, Any]] = []
        killed = False
        with client.stream("GET", "/reports/ann-2030/events") as stream:
            for line in filter(None, stream.iter_lines()):
                seen.append(json.loads(line.removeprefix("data: ")))
                if seen[-1]["fraction"] > 0 and not killed:
                    show.kill("worker")
                    killed = True
        assert any(0 < each["fraction"] < 1 for each in seen)
        assert (seen[-1]["state"], seen[-1]["report"]["total"]) == ("completed", 7800)
        assert seen[-1]["attempts"] == 2
        assert client.get("/reports/ann-2030").json() == seen[-1]
        assert client.get("/reports/other").status_code == 404
        other = client.post("/reports", json={"customer": "eve", "months": 120}).json()["id"]
        client.delete(f"/reports/{other}")
        with client.stream("GET", f"/reports/{other}/events") as stream:
            assert '"state":"cancelled"' in list(filter(None, stream.iter_lines()))[-1]
        assert "EventSource" in client.get("/").text
    show.stop()
    show.ended()
    assert show.as_its_page_says()


def test_webhooks(start: Start) -> None:
    """Each customer accepts its events in order, each once, although their sender was killed."""
    show = start("webhooks")
    show.line("ann #3: accepted")
    show.kill("worker")
    printed = show.ended()
    for customer in ("ann", "bob", "eve"):
        numbers = [int(number) for number in re.findall(rf"{customer} #(\d): accepted", printed)]
        assert numbers == [number for number in range(1, 9) if (customer, number) != ("eve", 4)]
    assert printed.count("gave up eve #4: 422") == 1
    assert show.as_its_page_says()


def test_pictures(start: Start) -> None:
    """Bad pictures cost a process each time and nobody else, and a killed worker nothing but time."""
    show = start("pictures")
    show.line("ant: signed")
    show.kill("worker")
    printed = show.ended()
    assert {"ant", "bee", "cat", "dog", "elk", "fox"} == set(re.findall(r"(\w+): signed", printed))
    assert show.as_its_page_says()


def test_edge(start: Start, redis_url: str) -> None:
    """Readings taken offline reach the server once each and in order, through power cuts and a repeated import."""
    show = start("edge", PENSTOCK_URL=redis_url)
    show.ended()
    assert show.as_its_page_says()


def test_quotes(start: Start, redis_url: str) -> None:
    """Answers and errors come back from another process; a caller does not notice that it was killed meanwhile."""
    show = start("quotes", PENSTOCK_URL=redis_url)
    show.line("Japan: no answer yet")
    show.kill("service")
    show.ended()
    assert show.as_its_page_says()


def test_feeds(start: Start) -> None:
    """Each feed is listened to by exactly one worker at a time, whether workers stop or are killed."""
    show = start("feeds")
    printed = show.ended()
    assert "TIMES" not in printed
    assert show.as_its_page_says()
