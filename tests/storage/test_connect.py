"""Storages by URL."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from penstock import Penstock
from penstock.storage import SqliteLocation, connect, location_of, redact
from penstock.sync import Penstock as SyncPenstock


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


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("redis://:secret@host:x/0", "the port must be a number"),
        ("redis://:secret@host:99999", "the port must be a number"),
        ("redis://:sec/ret@host:6379", "the port must be a number"),
        ("redis://:sec?ret@host:6379", "the port must be a number"),
        ("redis+cluster://:secret@a:1,b:y", "the port must be a number"),
        ("redis+sentinel://a:z/main", "the port must be a number"),
        ("redis://[::1/0", "the address is not valid"),
        ("redis://:secret@host/zero", "the database after the address must be a number"),
        ("valkeys://:secret@host/1/2", "the database after the address must be a number"),
        ("unix:///run/redis.sock?db=x&password=secret", "the database after the address must be a number"),
        ("redis+sentinel://a:1/main/x", "the database after the address must be a number"),
        ("redis+cluster://:secret@host/1", "a Cluster has only the database 0"),
        ("redis+sentinel://a:1", "it must name its service"),
        ("unix://", "unix:// needs the path of a socket"),
        ("redis://:secret@host?socket_timeout=0", "socket_timeout in a storage URL"),
    ],
)
@pytest.mark.parametrize("kind", [Penstock, SyncPenstock])
def test_a_mistake_in_the_url_of_a_server_is_one_line_at_once(kind: Any, url: str, reason: str) -> None:
    """The app is refused when it is made; the message has the URL without its secrets, and the reason."""
    with pytest.raises(ValueError, match=r"^url '") as caught:
        kind(url)
    text = str(caught.value)
    assert reason in text
    assert "\n" not in text
    assert "sec" not in text.replace("seconds", "")


@pytest.mark.parametrize(
    "url", ["redis://", "redis://h", "rediss://u:p@h:1/3", "unix:///x.sock?db=2", "valkey://[::1]:7"]
)
def test_the_urls_of_servers_that_make_sense_are_accepted(url: str) -> None:
    """A URL needs no port, no database and no credentials."""
    assert Penstock(url).is_open is False


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
