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
        ("redis://:sec/ret@host:6379", "are written %2F %3F %23"),
        ("redis://:sec?ret@host:6379", "are written %2F %3F %23"),
        ("redis://:sec#ret@host:6379", "are written %2F %3F %23"),
        ("redis://u:12/sec@host:6379", "are written %2F %3F %23"),
        ("redis://u:12?sec@host:6379", "are written %2F %3F %23"),
        ("redis://u:12#sec@host:6379", "are written %2F %3F %23"),
        ("redis://host?password=sec#ret", "are written %2F %3F %23"),
        ("redis://:secret", "the port must be a number"),
        ("redis://:sec\nret@host", "it has a control character"),
        ("redis+cluster://:secret@a:1,b:y", "the port must be a number"),
        ("redis+sentinel://a:z/main", "the port must be a number"),
        ("redis://[::1/0", "the address is not valid"),
        ("redis://:secret@host/zero", "the database after the address must be a number"),
        ("valkeys://:secret@host/1/2", "the database after the address must be a number"),
        ("unix:///run/redis.sock?db=x&password=secret", "db in a storage URL is a number"),
        ("redis://:secret@host/1?db=2", "the database after the address and the option db differ"),
        ("redis+sentinel://a:1/main/x", "the database after the address must be a number"),
        ("redis+cluster://:secret@host/1", "a Cluster has only the database 0"),
        ("redis+sentinel://a:1", "it must name its service"),
        ("unix://", "unix:// needs the path of a socket"),
        ("redis://:secret@host?socket_timeout=0", "socket_timeout in a storage URL is a number of seconds above 0"),
        ("redis://:secret@host?socket_timout=4", "the option socket_timout is not known; known: client_name, db, "),
        ("redis+cluster://:secret@a:1?ssl_ciphers=x&tls=1", "the option ssl_ciphers is not known; known: client_name"),
        ("redis+sentinel://:secret@a/main?tsl=1", "the option tsl is not known; known: client_name, db, password, "),
        ("unix:///run/redis.sock?tls=1", "the option tls is not known; known: client_name, db, password, "),
        ("redis://host?password=sec&ret=1", "an option is not known; known: client_name, db, password, "),
        ("redis://host?SECRET=1", "an option is not known; known: client_name, db, password, "),
        ("redis://:secret@host?tls=1", "with TLS this URL begins with rediss://"),
        (
            "valkey://:secret@host?ssl_ca_certs=x",
            "the option ssl_ca_certs needs TLS: the URL must begin with valkeys://",
        ),
        ("redis+sentinel://a/main?ssl_ca_certs=x", "the option ssl_ca_certs needs TLS: add tls=1"),
        ("redis+cluster://a?ssl_ca_certs=x&tls=0", "the option ssl_ca_certs needs TLS: add tls=1"),
        ("redis+sentinel://a/main?tls=secret", "tls in a storage URL is 1 or 0"),
        ("redis+cluster://a?tls=", "tls in a storage URL is 1 or 0"),
        ("rediss://a?ssl_cert_reqs=secret", "ssl_cert_reqs in a storage URL is required, optional or none"),
        ("rediss://a?ssl_check_hostname=secret", "ssl_check_hostname in a storage URL is 1 or 0"),
        ("rediss://a?protocol=4", "protocol in a storage URL is 2 or 3"),
        ("redis://a?db=1&db=2", "the option db is given twice"),
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
    assert "ret" not in text


@pytest.mark.parametrize(
    "url", ["redis://", "redis://h", "rediss://u:p@h:1/3", "unix:///x.sock?db=2", "valkey://[::1]:7"]
)
def test_the_urls_of_servers_that_make_sense_are_accepted(url: str) -> None:
    """A URL needs no port, no database and no credentials."""
    assert Penstock(url).is_open is False


def test_unknown_options_are_refused() -> None:
    """An option that would be ignored is an error."""
    with pytest.raises(ValueError, match=r"synchronous=NORMAL\|FULL, not journal$"):
        connect("sqlite:jobs.db?journal=off")
    with pytest.raises(ValueError, match="synchronous must be NORMAL or FULL"):
        connect("sqlite:jobs.db?synchronous=maybe")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://user:secret@host:6379/0", "redis://***@host:6379/0"),
        ("redis://:sec@ret@host", "redis://***@host"),
        ("redis://:sec/ret@host", "redis://***@host"),
        ("redis://host?password=secret&db=1", "redis://host?password=***&db=1"),
        ("redis://:pa?ss@host", "redis://***@host"),
        ("redis://:pa#ss@host", "redis://***@host"),
        ("redis://:password", "redis://***"),
        ("redis:user:password@host", "redis:***@host"),
        ("user:password@host", "***@host"),
        ("postgres://u:se?cret@h/db", "postgres://***@h/db"),
        ("redis://host?password=a&piece&tls=1", "redis://host?password=***&***&tls=1"),
        ("redis+sentinel://a:1,[::1]:2/main?ssl_password=x", "redis+sentinel://a:1,[::1]:2/main?ssl_password=***"),
        ("sqlite:jobs.db", "sqlite:jobs.db"),
        ("sqlite:/home/me@work/jobs.db", "sqlite:/home/me@work/jobs.db"),
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
