"""The server of `penstock dashboard`: a signal ends it at once and quietly, also while a page is open."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from penstock.sync import Penstock

TOKEN = "0123456789abcdef-admin"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_server_quietly_while_a_stream_is_open(
    tmp_path: Path, number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stream of the page ends with the server, and nothing is logged."""
    monkeypatch.setenv("PENSTOCK_DASHBOARD_TOKEN", TOKEN)
    url = f"sqlite:{tmp_path}/jobs.db"
    with Penstock(url) as app:
        app.queue("mail").enqueue(1)
    command = [sys.executable, "-m", "penstock", "dashboard", "--port", "0", "--url", url]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stderr is not None
    base = next(found[0] for line in process.stdout if (found := re.search(r"http://[^/\s]+", line)))
    with (
        httpx.Client(headers={"authorization": f"Bearer {TOKEN}"}, timeout=60) as client,
        client.stream("GET", f"{base}/live") as stream,
    ):
        lines = stream.iter_lines()
        assert next(lines).startswith("retry")
        process.send_signal(number)
        assert [line for line in lines if line.startswith("error")] == []
    assert process.wait(60) == 0
    assert process.stderr.read() == ""
    process.stdout.close()
    process.stderr.close()
