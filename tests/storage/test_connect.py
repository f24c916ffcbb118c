"""Storages by URL."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from penstock.storage import SqliteLocation, connect, location_of, redact


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("memory:", SqliteLocation(":memory:")),
        ("memory://", SqliteLocation(":memory:")),
        ("sqlite:jobs.db", SqliteLocation("jobs.db")),
        ("sqlite:dir/jobs.db", SqliteLocation("dir/jobs.db")),
        ("sqlite:/abs/jobs.db", SqliteLocation("/abs/jobs.db")),
        ("sqlite:///abs/jobs.db", SqliteLocation("/abs/jobs.db")),
        ("sqlite:jobs.db?synchronous=full", SqliteLocation("jobs.db", "FULL")),
        ("sqlite:~/jobs.db", SqliteLocation(str(Path.home() / "jobs.db"))),
        ("file:data", SqliteLocation("data/penstock.db")),
        ("file:///var/data", SqliteLocation("/var/data/penstock.db")),
        ("redis://localhost", None),
        ("valkeys://user:pass@host:1/2", None),
        ("redis+sentinel://a:1,b:2/main", None),
        ("unix:///run/redis.sock", None),
    ],
)
def test_where_a_url_leads(url: str, place: SqliteLocation | None) -> None:
    """Files by path, relative or absolute; servers are left to their backend."""
    assert location_of(url) == place


@pytest.mark.parametrize("url", ["jobs.db", "postgres://u:secret@host", "memory:x", "sqlite:", "file:", ""])
def test_a_url_that_names_no_storage_is_refused(url: str) -> None:
    """The message lists what is known, or what is missing, and keeps secrets."""
    with pytest.raises(ValueError, match=r"url") as caught:
        connect(url)
    assert "secret" not in str(caught.value)


def test_unknown_options_are_refused() -> None:
    """An option that would be ignored is an error."""
    with pytest.raises(ValueError, match="synchronous"):
        connect("sqlite:jobs.db?journal=off")
    with pytest.raises(ValueError, match="synchronous=maybe"):
        connect("sqlite:jobs.db?synchronous=maybe")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://user:secret@host:6379/0", "redis://***@host:6379/0"),
        ("redis://:sec@ret@host", "redis://***@host"),
        ("redis://:sec/ret@host", "redis://***@host"),
        ("redis://host?password=secret&db=1", "redis://host?password=***&db=1"),
        ("sqlite:jobs.db", "sqlite:jobs.db"),
    ],
)
def test_credentials_are_never_shown(url: str, shown: str) -> None:
    """User and password are cut out, wherever they stand."""
    assert redact(url) == shown


def test_a_missing_redis_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the redis package the error names the extra to install, and hides the password."""
    for name in list(sys.modules):
        if name.startswith("penstock.storage.redis"):
            monkeypatch.delitem(sys.modules, name)
        elif name.partition(".")[0] in ("redis", "hiredis"):
            monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, "redis", None)
    with pytest.raises(ModuleNotFoundError, match=r'pip install "penstock\[redis\]"') as caught:
        connect("redis://:secret@host")
    assert "secret" not in str(caught.value)
