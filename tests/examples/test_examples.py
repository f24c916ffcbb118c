"""The examples do what their pages show, even if a worker is killed."""

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
from tests.examples.conftest import RunningExample, page

EXAMPLES = sorted(path.parent.name for path in (ROOT / "examples").glob("*/Procfile"))

Start = Callable[..., RunningExample]


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_first_command_of_the_page_starts_the_example(name: str) -> None:
    """The first command of an example's page runs the program that is tested here."""
    first = next(block.text for block in blocks("sh") if block.page == page(name)).splitlines()[0]
    assert first == f"make example NAME={name}"
    typed = [*first.split(), "--dry-run", "--old-file", ".venv/.installed"]
    done = subprocess.run(typed, cwd=ROOT, text=True, capture_output=True, check=True)
    assert f"bin/python examples/run.py {name}\n" in done.stdout


def test_an_unknown_example_is_refused() -> None:
    """The error for an unknown example lists the known ones."""
    done = subprocess.run([sys.executable, "examples/run.py", "other"], cwd=ROOT, text=True, capture_output=True)
    assert done.returncode == 2
    assert ", ".join(EXAMPLES) in done.stderr


def test_reports(start: Start) -> None:
    """A report has one job per key, shows progress, and is completed although its worker was killed."""
    example = start("reports", PACE="0.3")
    example.line("Uvicorn running on")
    example.line(r"process \d+ works")
    with httpx.Client(base_url=f"http://127.0.0.1:{example.port}", timeout=60) as client:
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
                    example.kill("worker")
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
    example.stop()
    example.wait_for_exit()
    assert example.printed_as_on_its_page()


def test_webhooks(start: Start) -> None:
    """Each customer accepts its events in order and once, although the worker was killed."""
    example = start("webhooks")
    example.line("ann #3: accepted")
    example.kill("worker")
    printed = example.wait_for_exit()
    for customer in ("ann", "bob", "eve"):
        numbers = [int(number) for number in re.findall(rf"{customer} #(\d): accepted", printed)]
        assert numbers == [number for number in range(1, 9) if (customer, number) != ("eve", 4)]
    assert printed.count("gave up eve #4: 422") == 1
    assert example.printed_as_on_its_page()


def test_pictures(start: Start) -> None:
    """Pictures that kill their process fail without harm to the others, and a killed worker delays them only."""
    example = start("pictures")
    example.line("ant: signed")
    example.kill("worker")
    printed = example.wait_for_exit()
    assert {"ant", "bee", "cat", "dog", "elk", "fox"} == set(re.findall(r"(\w+): signed", printed))
    assert example.printed_as_on_its_page()


def test_edge(start: Start, redis_url: str) -> None:
    """Readings taken offline reach the server once and in order, after power cuts and a repeated import."""
    example = start("edge", PENSTOCK_URL=redis_url)
    example.wait_for_exit()
    assert example.printed_as_on_its_page()


def test_quotes(start: Start, redis_url: str) -> None:
    """Results and errors come back from another process, even if that was killed before the answer."""
    example = start("quotes", PENSTOCK_URL=redis_url)
    example.line("Japan: no answer yet")
    example.kill("service")
    example.wait_for_exit()
    assert example.printed_as_on_its_page()


def test_feeds(start: Start) -> None:
    """Each feed has exactly one worker at a time, whether workers stop or are killed."""
    example = start("feeds")
    printed = example.wait_for_exit()
    assert "TIMES" not in printed
    assert example.printed_as_on_its_page()
