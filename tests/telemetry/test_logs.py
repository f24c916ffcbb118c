"""Log records with the job that wrote them."""

from __future__ import annotations

import io
import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog
from opentelemetry.sdk.trace import TracerProvider

from penstock import Penstock, Worker
from penstock.log_config import JOB_FIELDS, configure
from penstock.sync import Penstock as SyncPenstock
from penstock.telemetry.logs import JobContextFilter, JsonLines, add_job


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    """The output of the logger "mine", in JSON with the fields of the job."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.addFilter(JobContextFilter())
    handler.setFormatter(JsonLines())
    logger = logging.getLogger("mine")
    logger.addHandler(handler)
    yield stream
    logger.removeHandler(handler)


async def test_a_record_has_the_fields_of_the_job_and_of_the_span(app: Penstock, stream: io.StringIO) -> None:
    """Plain and async handlers alike; outside of runs the fields are left out."""
    logger = logging.getLogger("mine")
    tracer = TracerProvider().get_tracer("test")

    @app.handler("plain")
    def plain(payload: Any) -> None:
        logger.warning("in %s", "plain", extra={"amount": 3})

    @app.handler("async")
    async def handle(payload: Any) -> None:
        with tracer.start_as_current_span("inner") as span:
            logger.warning("in async")
            assert span.get_span_context().is_valid

    logger.warning("outside")
    await app.queue("plain").enqueue("secret-payload", id="a", group="g")
    await app.queue("async").enqueue("secret-payload", id="b")
    await Worker(app, id="w1").drain()
    lines = {line["message"]: line for line in map(json.loads, stream.getvalue().splitlines())}
    assert not set(JOB_FIELDS) & set(lines["outside"])
    assert lines["in plain"].items() >= {
        "queue": "plain", "job_id": "a", "attempt": 1, "group": "g", "worker": "w1", "amount": 3, "level": "WARNING",
        "logger": "mine",
    }.items()  # fmt: skip
    assert {"time", "process"} <= set(lines["in plain"])
    assert (len(lines["in async"]["trace_id"]), len(lines["in async"]["span_id"])) == (32, 16)
    assert "group" not in lines["in async"]
    assert "secret-payload" not in stream.getvalue()


def test_the_filter_lets_a_format_name_the_fields_and_keeps_those_that_are_given() -> None:
    """A format with %(job_id)s works for every record; a record that names a job itself keeps it."""
    record = logging.makeLogRecord({"msg": "m", "queue": "own"})
    assert JobContextFilter().filter(record)
    text = logging.Formatter("%(queue)s %(job_id)s %(attempt)s %(group)s %(worker)s %(trace_id)s %(span_id)s")
    assert text.format(record) == "own None None None None None None"


def test_a_json_line_is_one_line_whatever_is_logged() -> None:
    """Line breaks, odd characters, exceptions and objects are encoded."""
    try:
        raise ValueError("no\nway")
    except ValueError:
        found = sys.exc_info()
    record = logging.makeLogRecord({"msg": "a\nb \x1b \udcff", "exc_info": found, "thing": object(), "message": "x"})
    line = JsonLines().format(record)
    assert "\n" not in line
    assert line.isascii()
    decoded = json.loads(line)
    assert decoded["message"] == "a\nb \x1b \udcff"
    assert decoded["exception"].endswith("ValueError: no\nway")
    assert decoded["thing"].startswith("<object")


async def test_structlog_gets_the_fields_by_a_processor(app: Penstock) -> None:
    """Fields of the event itself are kept."""
    with structlog.testing.capture_logs(processors=[add_job]) as lines:

        @app.handler("q")
        async def handle(payload: Any) -> None:
            structlog.get_logger().info("hello", job_id="own")

        await app.queue("q").enqueue(1, id="a")
        await Worker(app, id="w1").drain()
        structlog.get_logger().info("outside")
    assert lines == [
        {"event": "hello", "log_level": "info", "job_id": "own", "queue": "q", "attempt": 1, "worker": "w1"},
        {"event": "outside", "log_level": "info"},
    ]


@pytest.mark.parametrize("processes", ["0", "1"])
def test_a_worker_logs_in_json(tmp_path: Path, processes: str) -> None:
    """Every line of the command and of its children is an object; a line of a handler has its job."""
    (tmp_path / "jobs.py").write_text(
        "import logging\nfrom penstock import Penstock\napp = Penstock('sqlite:jobs.db')\n"
        "@app.handler('q')\nasync def handle(payload):\n    logging.getLogger('mine').info('hello')\n"
    )
    with SyncPenstock(f"sqlite:{tmp_path}/jobs.db") as app:
        app.queue("q").enqueue("secret-payload", id="a")
    command = [sys.executable, "-m", "penstock", "worker", "jobs:app", "--drain", "--log-format", "json", "--id", "w1"]
    done = subprocess.run(
        [*command, "--processes", processes], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True
    )
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    [hello] = [line for line in lines if line["message"] == "hello"]
    assert {hello[name] for name in ("queue", "job_id", "worker")} == {"q", "a", "w1"}
    [ended] = [line for line in lines if line.get("outcome") == "completed"]
    assert (ended["queue"], ended["job_id"]) == ("q", "a")
    assert "secret-payload" not in done.stderr


def test_an_unknown_format_is_refused() -> None:
    """The error names the argument."""
    with pytest.raises(ValueError, match="log_format must be one of text, json, not 'xml'"):
        configure(logging.INFO, log_format="xml")  # type: ignore[arg-type]
