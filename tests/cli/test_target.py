"""Choice of the app and storage of a command, and errors about them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Cli, on_sqlite

JOBS = """
import os
from penstock import Penstock
from penstock.sync import Penstock as Sync

app = Penstock(os.environ["JOBS_URL"], namespace=os.environ["JOBS_NAMESPACE"])
plain = Sync(os.environ["JOBS_URL"], namespace=os.environ["JOBS_NAMESPACE"])

@app.handler("mail", serde="msgpack")
async def mail(payload): ...
"""


@pytest.fixture
def project(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cli]:
    """A directory with an app in it, whose storage only the app knows."""
    (cli.directory / "some_jobs.py").write_text(JOBS)
    monkeypatch.setenv("JOBS_URL", cli.url)
    monkeypatch.setenv("JOBS_NAMESPACE", cli.namespace)
    path = list(sys.path)
    yield cli
    sys.path[:] = path
    sys.modules.pop("some_jobs", None)


NOWHERE: dict[str, Any] = {"PENSTOCK_URL": None, "PENSTOCK_NAMESPACE": None}


@on_sqlite
def test_the_app_is_found_by_option_environment_and_project(project: Cli) -> None:
    """--app, PENSTOCK_APP and [tool.penstock] all choose the app, with its namespace and serdes."""
    project.ok("enqueue", "mail", '{"a": 1}', "--id", "a", "--app", "some_jobs:app", **NOWHERE)
    shown = project.json("job", "show", "mail", "a", PENSTOCK_APP="some_jobs:app", **NOWHERE)
    assert shown["payload"] == {"a": 1}
    (project.directory / "pyproject.toml").write_text('[tool.penstock]\napp = "some_jobs:app"\n')
    assert project.json("job", "show", "mail", "a", **NOWHERE)["payload"] == {"a": 1}


@on_sqlite
def test_a_sync_app_can_be_named(project: Cli) -> None:
    """--app takes a `penstock.sync` app, on the same storage."""
    project.ok("enqueue", "mail", "1", "--app", "some_jobs:plain", **NOWHERE)
    assert project.json("queue", "ls", "--app", "some_jobs:app", **NOWHERE)[0]["name"] == "mail"


@on_sqlite
def test_pyproject_is_found_in_a_parent_directory(project: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """pyproject.toml is searched for in parent directories, and its directory is importable."""
    (project.directory / "pyproject.toml").write_text('[tool.penstock]\napp = "some_jobs:app"\n')
    below = project.directory / "deep" / "er"
    below.mkdir(parents=True)
    monkeypatch.chdir(below)
    assert project.ok("enqueue", "mail", "1", "--id", "a", **NOWHERE) == "mail/a: queued\n"


@on_sqlite
def test_a_project_may_name_a_url(cli: Cli) -> None:
    """[tool.penstock] may have a url and a namespace instead of an app."""
    text = f'[tool.penstock]\nurl = "{cli.url}"\nnamespace = "{cli.namespace}"\n'
    (cli.directory / "pyproject.toml").write_text(text)
    cli.ok("enqueue", "mail", "1", "--id", "a", **NOWHERE)
    assert cli.do(lambda app: app.queue("mail").status("a")) is not None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('[tool.penstock]\nqueue = "mail"\n', "knows app, url, namespace"),
        ("[tool.penstock]\napp = 1\n", "each a text"),
        ("[tool.penstock\n", "cannot be read"),
    ],
)
@on_sqlite
def test_a_wrong_project_is_one_line(cli: Cli, text: str, expected: str) -> None:
    """A mistake in pyproject.toml is an error of one line that names the file."""
    (cli.directory / "pyproject.toml").write_text(text)
    line = cli.fails("queue", "ls", code=2)
    assert "pyproject.toml" in line
    assert expected in line


@on_sqlite
def test_a_url_wins_over_the_app(project: Cli) -> None:
    """With --url the app of PENSTOCK_APP is not imported; --url and --app together are refused."""
    project.ok("enqueue", "mail", "1", "--url", project.url, PENSTOCK_APP="nowhere:app")
    assert "not both" in project.fails("queue", "ls", "--url", project.url, "--app", "some_jobs:app", code=2)
    assert "has its own" in project.fails("queue", "ls", "--namespace", "x", "--app", "some_jobs:app", code=2)


@on_sqlite
def test_a_missing_module_is_one_line(cli: Cli) -> None:
    """An app that cannot be imported is an error of one line that suggests --url; exit code 2."""
    line = cli.fails("queue", "ls", PENSTOCK_APP="nowhere:app", code=2)
    assert "there is no module 'nowhere'" in line
    assert "--url" in line


@on_sqlite
def test_a_file_that_is_not_there_is_not_made(cli: Cli) -> None:
    """Reading a missing SQLite file does not create it; enqueueing does."""
    here = cli.directory / "penstock.db"
    assert "there is no penstock.db here" in cli.fails("queue", "ls", **NOWHERE)
    assert not here.exists()
    cli.ok("enqueue", "mail", "1", **NOWHERE)
    assert here.exists()
    assert cli.json("queue", "ls", **NOWHERE)[0]["name"] == "mail"


@pytest.mark.parametrize(
    ("url", "code", "expected"),
    [
        ("redis://127.0.0.1:1/0", 1, "cannot reach redis://127.0.0.1:1"),
        ("redis://:sesame@127.0.0.1:1/0", 1, "is it running there?"),
        ("redis://:sesame@127.0.0.1:port/0", 2, "url 'redis://***@***': the port must be"),
        ("redis://:se/same@127.0.0.1:6379/0", 2, "in a password or path are written"),
        ("postgres://me:sesame@host/db", 2, "names no storage"),
        ("memory:", 2, "private to the process"),
        ("sqlite:", 2, "needs a path"),
        ("sqlite:/nowhere/at/all.db", 1, "there is no /nowhere/at/all.db"),
    ],
)
def test_a_wrong_url_is_one_line_without_its_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str, code: int, expected: str
) -> None:
    """A wrong URL is an error of one line without its password, from --url and from the environment."""
    monkeypatch.chdir(tmp_path)
    cli = Cli(url, tmp_path)
    for given in ([], ["--url", url]):
        result = cli.run("queue", "ls", *given)
        assert result.exit_code == code
        [line] = result.stderr.splitlines()
        assert expected in line
        assert "sesame" not in line
        assert "se/same" not in line


@on_sqlite
@pytest.mark.parametrize("value", ["", "  "])
def test_an_empty_url_is_an_error(cli: Cli, value: str) -> None:
    """PENSTOCK_URL and --url that are set but empty are usage errors, not a penstock.db in this directory."""
    line = cli.fails("enqueue", "mail", "1", PENSTOCK_URL=value, code=2)
    assert "PENSTOCK_URL is set but empty" in line
    assert "url is empty" in cli.fails("enqueue", "mail", "1", "--url", value, code=2)
    assert list(cli.directory.iterdir()) == []
    cli.ok("enqueue", "mail", "1", "--url", cli.url, PENSTOCK_URL=value)


@on_sqlite
def test_a_file_error_is_not_about_a_server(cli: Cli) -> None:
    """An error about a file names its reason and does not ask whether a server is running."""
    (cli.directory / "notes.db").write_text("no database, only text\n" * 100)
    line = cli.fails("queue", "ls", "--url", "sqlite:notes.db")
    assert "notes.db is not an SQLite database" in line
    assert "running there" not in line
    assert "there is no directory" in cli.fails("enqueue", "mail", "1", "--url", "sqlite:nowhere/jobs.db")
