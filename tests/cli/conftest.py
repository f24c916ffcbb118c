"""Fixtures of the command-line tests: commands run in this process, on SQLite and Redis, in an empty directory."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
from click.testing import CliRunner, Result

from penstock import Penstock
from penstock.cli import main
from tests.servers import Server, Servers
from tests.support import eventually, new_namespace

T = TypeVar("T")


class Cli:
    """`penstock` with a storage in its environment; `do` uses the same storage directly."""

    def __init__(self, url: str, directory: Path) -> None:
        self.url = url
        self.namespace = new_namespace()
        self.directory = directory

    @property
    def environment(self) -> dict[str, str]:
        return {"PENSTOCK_URL": self.url, "PENSTOCK_NAMESPACE": self.namespace}

    def run(self, *arguments: str, stdin: str | bytes | None = None, **environment: str | None) -> Result:
        """Run a command; fails on an exception or a traceback."""
        result = CliRunner().invoke(
            main, list(arguments), input=stdin, env={**self.environment, **environment}, prog_name="penstock"
        )
        assert result.exception is None or isinstance(result.exception, SystemExit), repr(result.exception)
        assert "Traceback" not in result.stderr
        return result

    def ok(self, *arguments: str, **options: Any) -> str:
        """Run a command that must exit with 0; returns its stdout."""
        result = self.run(*arguments, **options)
        assert result.exit_code == 0, result.output
        return result.stdout

    def json(self, *arguments: str, **options: Any) -> Any:
        """Run a command with --json; returns the decoded output."""
        return json.loads(self.ok(*arguments, "--json", **options))

    def fails(self, *arguments: str, code: int = 1, **options: Any) -> str:
        """Run a command that must exit with `code`; returns its one line of error."""
        result = self.run(*arguments, **options)
        assert result.exit_code == code, result.output
        [line] = [line for line in result.stderr.splitlines() if line.startswith("Error: ")]
        return line

    def do(self, act: Callable[[Penstock], Awaitable[T]]) -> T:
        """Run a function with an app on the same storage."""

        async def work() -> T:
            async with Penstock(self.url, namespace=self.namespace) as app:
                return await act(app)

        return asyncio.run(work())


@pytest.fixture(params=["sqlite", "redis"])
def url(request: pytest.FixtureRequest, servers: Servers, tmp_path: Path) -> str:
    """The URL of the storage: an SQLite file or a Redis server."""
    if request.param == "sqlite":
        return f"sqlite:{tmp_path / 'jobs.db'}"
    server = servers.get("redis")
    assert isinstance(server, Server)
    return f"redis://{server.address}/0"


@pytest.fixture
def cli(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cli]:
    """A storage of its own for the test, cleared after it."""
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    for name in ("PENSTOCK_APP", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    cli = Cli(url, work)
    yield cli
    cli.do(delete_all)


async def wait_for_worker(app: Penstock) -> None:
    """Wait until a worker is listed."""
    await eventually(app.workers, within=20)


async def delete_all(app: Penstock) -> None:
    """Delete all queues."""
    for name in await app.queues():
        await app.queue(name).delete()


on_sqlite = pytest.mark.parametrize("url", ["sqlite"], indirect=True)
on_redis = pytest.mark.parametrize("url", ["redis"], indirect=True)
