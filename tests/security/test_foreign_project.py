"""A pyproject.toml of another user: its app is not imported and its settings are not used.

The other user is real: files are given to a second uid, which needs root.
"""

from __future__ import annotations

import asyncio
import grp
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from penstock import Penstock
from penstock.cli.target import find_app_source, read_project
from penstock.cli.trust import distrust
from tests.cli.conftest import Cli
from tests.security.hostile_names import SOURCE
from tests.servers import skip_or_fail

OTHER_USER = 65534

PROJECT = '[tool.penstock]\napp = "theirs:app"\n'
MODULE = """
import os
from penstock import Penstock
from penstock.cli.target import find_app_source, read_project

with open(os.environ["RAN"], "w") as file:
    file.write("ran")
app = Penstock(f"sqlite:{os.environ['RAN']}.db")
app.listen("mail", print)
"""


class Place:
    """A directory of the user below one of others: `shared/own/work`, with the file that the module writes."""

    def __init__(self, path: Path) -> None:
        self.shared = path / "shared"
        self.own = self.shared / "own"
        self.work = self.own / "work"
        self.work.mkdir(parents=True)
        self.ran = path / "ran"
        self.url = f"sqlite:{path / 'jobs.db'}"

    def plant(self, directory: Path, user: int = OTHER_USER) -> None:
        """Put a project with an app into a directory, as a user."""
        for name, text in (("pyproject.toml", PROJECT), ("theirs.py", MODULE)):
            (directory / name).write_text(text)
            os.chown(directory / name, user, user)

    def run(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a command in the innermost directory of the user."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PENSTOCK_", "_PENSTOCK"))}
        return subprocess.run(
            [sys.executable, "-P", "-m", "penstock", *arguments], cwd=self.work, capture_output=True, text=True,
            env={**kept, "PYTHONPATH": str(SOURCE), "RAN": str(self.ran), **environment}, timeout=60, check=False,
        )  # fmt: skip

    def press_tab(self, *words: str, **environment: str) -> list[str]:
        """Return the lines that a shell gets when it completes the word after these; none on stderr."""
        typed = " ".join(["penstock", *words, ""])
        done = self.run(
            _PENSTOCK_COMPLETE="bash_complete", COMP_WORDS=typed, COMP_CWORD=str(len(words) + 1), **environment
        )
        assert done.stderr == ""
        return done.stdout.split()


@pytest.fixture(autouse=True)
def second_user() -> None:
    """The right to act as a second user."""
    if os.geteuid() != 0:
        skip_or_fail("a second user needs root")


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """Directories of the user in a sticky directory that all users may write to, as in /tmp."""
    made = Place(tmp_path)
    os.chmod(made.shared, 0o1777)

    async def enqueue() -> None:
        async with Penstock(made.url) as app:
            await app.queue("mail").enqueue(1, id="a")

    asyncio.run(enqueue())
    return made


@pytest.mark.parametrize("with_url", [False, True], ids=["without a URL", "with PENSTOCK_URL"])
@pytest.mark.parametrize("command", [["queue", "ls"], ["enqueue", "mail", "1"], ["worker", "--drain"]], ids=" ".join)
def test_a_project_of_another_user_runs_no_code(place: Place, command: list[str], with_url: bool) -> None:
    """Its app is not imported; one line on stderr names the file, the reason and the remedy."""
    place.plant(place.shared)
    done = place.run(*command, **({"PENSTOCK_URL": place.url} if with_url else {}))
    assert not place.ran.exists()
    assert not list(place.shared.rglob("__pycache__"))
    [line] = [line for line in done.stderr.splitlines() if "pyproject.toml is not used" in line]
    assert line.startswith(f"{place.shared / 'pyproject.toml'} is not used: ")
    assert "65534" in line or "nobody" in line
    assert "--app" in line
    assert "--url" in line
    assert (done.returncode == 0) == (command[0] == "enqueue" or (with_url and command[0] == "queue"))


def test_tab_imports_no_app_of_another_user_and_none_of_the_user(place: Place) -> None:
    """Completion uses a URL or nothing: it imports no app, even of the user, and stderr is empty."""
    place.plant(place.shared)
    assert place.press_tab("queue", "show") == []
    assert place.press_tab("queue", "show", PENSTOCK_URL=place.url) == ["plain,mail"]
    place.plant(place.work, user=0)
    assert place.press_tab("queue", "show") == []
    assert place.press_tab("queue", "show", PENSTOCK_APP="theirs:app") == []
    assert place.press_tab("queue", "show", "--app", "theirs:app") == []
    assert place.press_tab("queue", "show", "--url", place.url) == ["plain,mail"]
    (place.work / "pyproject.toml").write_text(f'{PROJECT}url = "{place.url}"\n')
    assert place.press_tab("queue", "show") == ["plain,mail"]
    assert not place.ran.exists()


def test_an_app_of_the_user_in_a_shared_directory_is_used(place: Place) -> None:
    """A project of the user below a sticky directory that all may write to is used, as is one of root."""
    place.plant(place.own, user=0)
    done = place.run("queue", "ls", "--json")
    assert place.ran.exists()
    assert "is not used" not in done.stderr


def test_penstock_url_comes_before_the_app_of_a_project(place: Place) -> None:
    """With PENSTOCK_URL a command imports no app of a project, unless it encodes payloads: enqueue and call."""
    place.plant(place.work, user=0)
    for command in (["queue", "ls"], ["job", "show", "mail", "a"], ["queue", "pause", "mail"], ["worker", "ls"]):
        assert place.run(*command, PENSTOCK_URL=place.url).returncode == 0
    assert not place.ran.exists()
    assert place.run("enqueue", "mail", "1", PENSTOCK_URL=place.url).returncode == 0
    assert place.ran.exists()


def test_penstock_app_is_not_searched_in_a_directory_of_another_user(place: Place) -> None:
    """The variable is set wherever the user goes, so it imports nothing from there; a typed --app does."""
    place.plant(place.work, user=0)
    (place.work / "pyproject.toml").unlink()
    os.chown(place.work, OTHER_USER, OTHER_USER)
    done = place.run("queue", "ls", PENSTOCK_APP="theirs:app")
    assert done.returncode == 2
    assert not place.ran.exists()
    assert f"this directory is not searched: {place.work} belongs to" in done.stderr
    place.run("queue", "ls", "--app", "theirs:app")
    assert place.ran.exists()


@pytest.fixture
def project(place: Place, monkeypatch: pytest.MonkeyPatch) -> Place:
    """A project of the user in `own`, seen from `own/work`."""
    place.plant(place.own, user=0)
    monkeypatch.chdir(place.work)
    return place


OWN, FOREIGN = 0, OTHER_USER


@pytest.mark.parametrize(
    ("path", "mode", "owner", "group", "reason"),
    [
        ("own/pyproject.toml", 0o644, OWN, FOREIGN, None),
        ("own/pyproject.toml", 0o664, OWN, OWN, None),
        ("own/pyproject.toml", 0o664, OWN, FOREIGN, "may write to"),
        ("own/pyproject.toml", 0o646, OWN, OWN, "all users may write to"),
        ("own/pyproject.toml", 0o644, FOREIGN, OWN, "belongs to"),
        ("own", 0o755, FOREIGN, OWN, "belongs to"),
        ("own", 0o775, OWN, FOREIGN, "may write to"),
        ("own", 0o1777, OWN, OWN, "all users may write to"),
        ("own/work", 0o755, FOREIGN, OWN, "belongs to"),
        ("own/work", 0o777, OWN, OWN, "all users may write to"),
        ("own/work", 0o1777, OWN, OWN, "all users may write to"),
        ("own/theirs.py", 0o646, OWN, OWN, "all users may write to"),
        ("own/theirs.py", 0o644, FOREIGN, OWN, "belongs to"),
        (".", 0o777, FOREIGN, FOREIGN, None),
    ],
)
def test_each_file_and_directory_of_a_project_must_be_the_users_own(
    project: Place, path: str, mode: int, owner: int, group: int, reason: str | None
) -> None:
    """The file, its directory, those below it and the module count; the directories above do not."""
    changed = project.shared / path
    os.chown(changed, owner, group)
    changed.chmod(mode)
    found = read_project()
    assert found.app == (None if reason else "theirs:app")
    assert bool(found.refusal) == bool(reason)
    if reason:
        assert found.refusal.startswith(f"{project.own / 'pyproject.toml'} is not used: ")
        named = "it" if path.endswith(".toml") else changed
        assert f"{reason} {named} " in found.refusal or f"{named} {reason} " in found.refusal


@pytest.mark.parametrize(
    ("mode", "owner", "used"), [(0o1777, OWN, True), (0o777, OWN, False), (0o1777, FOREIGN, False)]
)
def test_a_sticky_directory_is_passed_on_the_way_to_a_project(
    project: Place, monkeypatch: pytest.MonkeyPatch, mode: int, owner: int, used: bool
) -> None:
    """Between project and current directory, a directory that all may write to is passed only if it is sticky."""
    below = project.work / "below"
    below.mkdir()
    monkeypatch.chdir(below)
    os.chown(project.work, owner, owner)
    project.work.chmod(mode)
    assert (read_project().app is not None) == used


def test_a_project_of_root_is_used_by_other_users(project: Place) -> None:
    """Root can do everything anyway, so its files are trusted."""
    parents = [directory for directory in project.work.parents if not directory.stat().st_mode & stat.S_IXOTH]
    try:
        for directory in parents:
            directory.chmod(0o711)
        os.seteuid(OTHER_USER)
        assert read_project().app == "theirs:app"
    finally:
        os.seteuid(0)
        for directory in parents:
            directory.chmod(0o700)


def test_a_private_group_may_write_and_one_with_other_members_may_not(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A group is private if it is the primary one, has the number of the user, and has no other members."""
    place.own.chmod(0o775)
    os.chown(place.own, 0, 0)
    assert distrust(place.own) is None
    os.chown(place.own, 0, OTHER_USER)
    assert "may write to" in (distrust(place.own) or "")
    os.chown(place.own, 0, 0)
    monkeypatch.setattr(grp, "getgrgid", lambda gid: grp.struct_group(("root", "x", gid, ["root"])))
    assert distrust(place.own) is None
    monkeypatch.setattr(grp, "getgrgid", lambda gid: grp.struct_group(("root", "x", gid, ["root", "other"])))
    assert distrust(place.own) == f"the group root may write to {place.own} (mode 775)"


def test_a_package_that_others_may_write_to_is_not_imported(project: Place) -> None:
    """Each package around the module of a project's app counts."""
    package = project.own / "package" / "inner"
    package.mkdir(parents=True)
    (package / "jobs.py").write_text("app = None\n")
    (project.own / "pyproject.toml").write_text('[tool.penstock]\napp = "package.inner.jobs:app"\n')
    assert read_project().app == "package.inner.jobs:app"
    package.chmod(0o777)
    assert f"all users may write to {package}" in read_project().refusal


def test_a_foreign_project_without_settings_of_penstock_gives_no_line(
    project: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    """The search ends there, as at a file of the user, and nothing is printed."""
    (project.work / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    os.chown(project.work / "pyproject.toml", OTHER_USER, OTHER_USER)
    assert read_project() == (None, None, None, None, "")
    assert find_app_source(None) is None
    assert capsys.readouterr().err == ""


def test_a_named_app_or_url_gives_no_line_about_a_foreign_project(project: Place) -> None:
    """The remedies that the line names also end it."""
    os.chown(project.own, OTHER_USER, OTHER_USER)
    cli = Cli(project.url, project.work)
    cli.namespace = "penstock"
    assert "is not used" in cli.run("queue", "ls").stderr
    assert cli.run("queue", "ls", "--url", project.url).stderr == ""
    assert "is not used" not in cli.run("queue", "ls", "--app", "nowhere:app", PENSTOCK_URL=None).stderr
