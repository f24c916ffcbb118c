"""Passwords in URLs: never in errors, logs, `repr`, output, tracebacks or process titles."""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import re
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock import Penstock, Worker, sync
from tests.servers import Server, free_port, redis_program, start_or_skip

#: As it is, and as it stands in a URL.
SECRET, QUOTED = "s3cr/et pass", "s3cr%2Fet%20pass"
USER = "kim-the-user"

JOBS = """
import asyncio, os
from penstock import Penstock

app = Penstock(os.environ["THE_URL"])

@app.handler("q", max_retries=0)
def run(payload):
    if payload == "fail":
        raise ValueError("as asked")
    return payload
"""


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A server that requires a user name and a password."""
    server = start_or_skip(lambda: Server(redis_program()).start())
    with server.client() as client:
        client.execute_command("ACL", "SETUSER", USER, "on", f">{SECRET}", "~*", "&*", "+@all")
        client.execute_command("ACL", "SETUSER", "default", "off")
    yield server
    server.remove()


@pytest.fixture
def url(server: Server) -> str:
    return f"redis://{USER}:{QUOTED}@{server.address}/0"


def assert_no_secret(text: str) -> None:
    """Assert that neither the password nor a piece of it is in the text."""
    for piece in (SECRET, QUOTED, "s3cr", "et pass", "et%20pass"):
        assert piece not in text, text


def failure_text(call: Callable[[], Any]) -> str:
    """Return the text of the exception that a call raises, with its causes and its traceback."""
    try:
        call()
    except BaseException as error:
        lines = traceback.format_exception(error)
        # The source lines of this test contain the secret; only the text of the exceptions is checked.
        return "".join([repr(error), str(error), *(line for line in lines if not line.startswith("  File"))])
    raise AssertionError("it did not fail")


def wrong_urls(server: Server) -> list[str]:
    """Return URLs that fail in every way, with the password in odd positions."""
    dead = free_port()
    login = f"{USER}:{QUOTED}"
    return [
        f"redis://{login}@127.0.0.1:{dead}/0",
        f"redis://{USER}:{QUOTED}x@{server.address}/0",  # a wrong password
        f"rediss://{login}@{server.address}/0",
        f"redis+cluster://{login}@{server.address}",
        f"redis+cluster://{login}@127.0.0.1:{dead}",
        f"redis+sentinel://{login}@{server.address}/service",
        f"redis+sentinel://{login}@127.0.0.1:{dead}/service?sentinel_password={QUOTED}",
        f"redis+sentinel://{login}@127.0.0.1:{dead}",
        f"redis://{login}@127.0.0.1:port/0",
        f"redis://{login}@{server.address}/0?nonsense=1",
        f"redis://{server.address}/0?username={USER}&password={QUOTED}x",
        f"unix://{login}@/no/such/socket",
        f"postgres://{login}@host/db",
        f"redis//{login}@host",
    ]


async def test_errors_of_an_app_have_no_password(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    """For every wrong URL the error, its causes and the log are without the password."""
    with caplog.at_level(logging.DEBUG):
        for url in wrong_urls(server):
            text = await _failure_text_of_open(url)
            assert_no_secret(text)
            assert_no_secret(failure_text(lambda url=url: sync.Penstock(url).queue("q").enqueue(1)))
    assert_no_secret(caplog.text)


async def _failure_text_of_open(url: str) -> str:
    try:
        app = Penstock(url)
        assert_no_secret(repr(app) + repr(app.storage) + repr(app.queue("q")) + repr(Worker(app)))
        await app.open()
    except Exception as error:
        return repr(error) + "".join(line for line in traceback.format_exception(error))
    await app.close()
    raise AssertionError(f"{re.sub('//.*@', '//', url)} was opened")


async def test_errors_after_opening_have_no_password(url: str, caplog: pytest.LogCaptureFixture) -> None:
    """Errors of a storage that was open before are without the password."""
    with caplog.at_level(logging.DEBUG):
        app = Penstock(url)
        async with app:
            await app.queue("q").enqueue(1)
            assert_no_secret(repr(app.storage) + repr(app) + repr(vars(app.storage)))
            await app.queue("q").delete()
        for failing in (app.storage.find, app.storage.counts):
            with pytest.raises(penstock.StorageError) as refused:
                await failing("q")
            assert_no_secret(str(refused.value) + "".join(traceback.format_exception(refused.value)))
        with pytest.raises(Exception, match=r".") as unpicklable:
            pickle.dumps(app)
        assert_no_secret(str(unpicklable.value))
    assert_no_secret(caplog.text)


class Shell:
    """Runs commands and returns their output."""

    def __init__(self, directory: Path, url: str) -> None:
        (directory / "secretjobs.py").write_text(JOBS)
        self.directory = directory
        source = str(Path(penstock.__file__).parents[1])
        kept = {key: value for key, value in os.environ.items() if not key.startswith("PENSTOCK_")}
        self.environment = {**kept, "PYTHONPATH": f"{source}:{directory}", "THE_URL": url, "PENSTOCK_URL": url}

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "penstock", *arguments],
            cwd=self.directory, env=self.environment, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip

    def run(self, *arguments: str) -> str:
        process = self.start(*arguments)
        try:
            output, _ = process.communicate(timeout=90)
        finally:
            process.kill()
        return output


COMMANDS = [
    ["queue", "ls"],
    ["queue", "show", "q"],
    ["job", "ls", "q"],
    ["job", "show", "q", "none"],
    ["job", "why", "q", "none"],
    ["worker", "ls"],
    ["doctor"],
    ["export", "q"],
    ["enqueue", "q", "1"],
    ["worker", "secretjobs:app", "--drain", "--processes", "0", "-v"],
]


@pytest.mark.timeout(400)  # a dozen processes, one after the other
@pytest.mark.parametrize("debug", [[], ["--debug"]], ids=["plain", "debug"])
def test_output_of_commands_has_no_password(tmp_path: Path, url: str, server: Server, debug: list[str]) -> None:
    """Commands that succeed, fail or print a traceback never print the password."""
    dead = f"redis://{USER}:{QUOTED}@127.0.0.1:{free_port()}/0"
    for used in (url, dead, f"redis://{USER}:{QUOTED}wrong@{server.address}/0"):
        shell = Shell(tmp_path, used)
        for command in COMMANDS if used == url and debug else COMMANDS[::3]:
            assert_no_secret(shell.run(*command, *debug))
    assert_no_secret(Shell(tmp_path, url).run("queue", "ls", "--url", dead, *debug))


def test_process_titles_and_logs_of_workers_have_no_password(tmp_path: Path, url: str) -> None:
    """A worker with child processes has the password neither in its log nor in its command line."""
    shell = Shell(tmp_path, url)
    shell.run("enqueue", "q", '"work"')
    shell.run("enqueue", "q", '"fail"')
    worker = shell.start("worker", "secretjobs:app", "--processes", "2", "-v")
    try:
        end = time.monotonic() + 60
        while len(process_tree(worker.pid)) < 4 and time.monotonic() < end:  # it, its fork server and two children
            time.sleep(0.05)
        pids = process_tree(worker.pid)
        assert len(pids) >= 4
        for pid in pids:
            with contextlib.suppress(OSError):  # one that has just ended
                title = Path(f"/proc/{pid}/cmdline").read_bytes() + Path(f"/proc/{pid}/comm").read_bytes()
                assert_no_secret(title.decode(errors="replace"))
    finally:
        worker.terminate()
        output, _ = worker.communicate(timeout=60)
    assert "worker" in output
    assert_no_secret(output)


def process_tree(pid: int) -> list[int]:
    """Return the ids of a process and all its descendants."""
    found = [pid]
    for each in found:
        for task in Path(f"/proc/{each}/task").glob("*/children"):
            with contextlib.suppress(OSError):
                found += [int(child) for child in task.read_text().split()]
    return found
