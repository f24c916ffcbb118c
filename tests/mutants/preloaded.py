"""A process that forks pytest runs, so that pytest and redis are imported once for all mutants.

It reads requests from its standard input, one JSON object per line: the arguments of pytest, the package's
source folder and the file for the output. It answers each with the exit code of the run. Neither Penstock nor a
module of the tests is imported before the fork: each run imports its own.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import sys
import time
from typing import Any, NoReturn

import pytest
import redis.asyncio
import redis.cluster

#: Modules that the runs find imported.
PRELOADED = (pytest, redis.asyncio, redis.cluster)

#: Seconds after which a run is killed.
TIMEOUT = 100.0
KILLED = -signal.SIGKILL


def run(request: dict[str, Any]) -> NoReturn:
    """Run pytest in this process, which ends with its exit code."""
    code = 70
    try:
        output = os.open(request["output"], os.O_WRONLY | os.O_CREAT, 0o600)
        for stream in (1, 2):
            os.dup2(output, stream)
        os.environ["PYTHONPATH"] = os.environ["PENSTOCK_EXPECTED_AT"] = request["source"]
        sys.path[0] = os.getcwd()
        sys.path.insert(0, request["source"])
        code = int(pytest.main(request["arguments"]))
        atexit._run_exitfuncs()  # os._exit, which leaves the parent's loop alone, would skip them
        sys.stdout.flush()
    finally:
        os._exit(code)


def wait(pid: int) -> int:
    """Wait for a run and return its exit code; kill it after the timeout."""
    until = time.monotonic() + TIMEOUT
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > until:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return KILLED
        time.sleep(0.02)


def main() -> None:
    """Answer requests until the standard input is closed."""
    for line in sys.stdin:
        pid = os.fork()
        if not pid:
            run(json.loads(line))
        print(wait(pid), flush=True)


if __name__ == "__main__":
    main()
