"""A viewer of the dashboard in a process of its own: `python -m bench.dashboard_viewer URL`.

It starts `penstock dashboard`, holds the stream `/live` of the overview, and fetches its parts whenever they change, as
the page does in a browser. It prints `looking` when the first page is there. When its input ends it leaves, and prints
the number of fetches.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import threading

import httpx

from bench.process import Process, die_with_parent

TOKEN = "0123456789abcdef-bench"
PARTS = {"x-penstock-part": "status,banner,numbers,attention,queues"}


def watch(base: str, counts: list[int]) -> None:
    """Fetch the parts of the overview after each event of the stream, until the dashboard ends."""
    with httpx.Client(headers={"authorization": f"Bearer {TOKEN}"}, timeout=60) as client:
        assert client.get(f"{base}/").status_code == 200
        print("looking", flush=True)
        with contextlib.suppress(httpx.TransportError), client.stream("GET", f"{base}/live") as stream:
            for line in stream.iter_lines():
                if line.startswith("data:"):
                    counts.append(client.get(f"{base}/", headers=PARTS).status_code)


def main(url: str) -> None:
    """Look until the input ends."""
    command = [sys.executable, "-m", "penstock", "dashboard", "--port", "0", "--url", url]
    environment = {**os.environ, "PENSTOCK_DASHBOARD_TOKEN": TOKEN}
    child = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, preexec_fn=die_with_parent)
    assert child.stdout is not None
    found = next(match[0] for line in child.stdout if (match := re.search(r"http://[^/\s]+", line.decode())))
    counts: list[int] = []
    threading.Thread(target=watch, args=(found, counts), daemon=True).start()
    sys.stdin.read()
    Process(child).stop()
    assert set(counts) <= {200}, set(counts)
    print(len(counts), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
