"""URL of a server, Sentinels or a Cluster, checked and taken apart. No error quotes a part that may be a password."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any, NamedTuple, cast
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from redis import connection as redis_connection

__all__ = ["CLUSTER", "READ_TIMEOUT", "SENTINEL", "UNIX", "ServerUrl", "parse_url"]

CLUSTER, SENTINEL, UNIX = "redis+cluster", "redis+sentinel", "unix"
_PLAIN, _TLS = ("redis", "valkey"), ("rediss", "valkeys")

#: The timeout (seconds) of an answer, unless the URL has `socket_timeout`. On a Cluster it is shorter, because only
#: after a timeout do its clients look for the new primary of a slot.
READ_TIMEOUT, CLUSTER_READ_TIMEOUT = 15.0, 5.0

_BEFORE_PATH = re.compile("^[^:]*:(//[^/?#]*)?")
_ENCODE = "/ ? # @ : % in a password or path are written %2F %3F %23 %40 %3A %25"


class ServerUrl(NamedTuple):
    """The parts of a URL. Its `repr` is the address alone."""

    scheme: str
    #: The address without user, password and options.
    where: str
    hosts: list[tuple[str, int]]
    #: The file of a unix socket.
    path: str
    #: The name that Sentinels know the primary by.
    service: str
    database: int
    #: User and password of the servers, and of the Sentinels, as arguments of redis-py's clients.
    login: dict[str, Any]
    sentinel_login: dict[str, Any]
    #: The TLS arguments of redis-py's clients: the same for every server and Sentinel; empty without TLS.
    tls: dict[str, Any]
    #: Further arguments of redis-py's clients.
    options: dict[str, Any]
    #: The timeout (seconds) of an answer.
    read_timeout: float

    def __repr__(self) -> str:
        return f"ServerUrl({self.where!r})"

    @property
    def cluster(self) -> bool:
        return self.scheme == CLUSTER


# options -------------------------------------------------------------------------------------------


def _switch(text: str) -> bool:
    return {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}[text.lower()]


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds < math.inf:
        raise ValueError
    return seconds


def _one_of(*values: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in values:
            raise ValueError
        return text

    return parse


def _protocol(text: str) -> int:
    return int(_one_of("2", "3")(text))


def _database(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise ValueError
    return int(text)


def _flags(text: str) -> Any:
    return cast(Any, redis_connection).URL_QUERY_ARGUMENT_PARSERS["ssl_include_verify_flags"](text)


class _Option(NamedTuple):
    """An option after the `?`: how its text is parsed, and the words for its values in an error."""

    parse: Callable[[str], Any] = str
    values: str = "a text"


_COMMON = {
    "db": _Option(_database, "a number"),
    "username": _Option(),
    "password": _Option(),
    "socket_timeout": _Option(_seconds, "a number of seconds above 0"),
    "client_name": _Option(),
    "protocol": _Option(_protocol, "2 or 3"),
}
_TLS_OPTIONS = {
    "ssl_ca_certs": _Option(),
    "ssl_ca_data": _Option(),
    "ssl_certfile": _Option(),
    "ssl_keyfile": _Option(),
    "ssl_cert_reqs": _Option(_one_of("required", "optional", "none"), "required, optional or none"),
    "ssl_check_hostname": _Option(_switch, "1 or 0"),
    "ssl_include_verify_flags": _Option(_flags, "a list of flags"),
    "ssl_exclude_verify_flags": _Option(_flags, "a list of flags"),
}
#: redis-py's Cluster clients drop or refuse these.
_TLS_OPTIONS_OF_SERVERS = {
    "ssl_ca_path": _Option(),
    "ssl_ciphers": _Option(),
    "ssl_min_version": _Option(int, "a number, as in ssl.TLSVersion"),
    "ssl_password": _Option(),
}
_SWITCHED_TLS = {"tls": _Option(_switch, "1 or 0")}
_SENTINEL_LOGIN = {"sentinel_username": _Option(), "sentinel_password": _Option()}


def _options_of(scheme: str) -> dict[str, _Option]:
    """Return the options that a URL of this scheme can have."""
    if scheme == CLUSTER:
        return _COMMON | _SWITCHED_TLS | _TLS_OPTIONS
    if scheme == SENTINEL:
        return _COMMON | _SWITCHED_TLS | _TLS_OPTIONS | _TLS_OPTIONS_OF_SERVERS | _SENTINEL_LOGIN
    return _COMMON | _TLS_OPTIONS | _TLS_OPTIONS_OF_SERVERS if scheme in _TLS else _COMMON


def _parse_options(scheme: str, query: str) -> dict[str, Any]:
    known, given = _options_of(scheme), dict[str, Any]()
    for key, text in parse_qsl(query, keep_blank_values=True):
        if key not in known:
            raise ValueError(_unknown(scheme, key, secret_before=any("password" in name for name in given)))
        if key in given:
            raise ValueError(f"the option {key} is given twice")
        try:
            if not text:
                raise ValueError
            given[key] = known[key].parse(text)
        except (KeyError, TypeError, ValueError):
            raise ValueError(f"{key} in a storage URL is {known[key].values}") from None
    return given


def _unknown(scheme: str, key: str, *, secret_before: bool) -> str:
    """Return the error for an unknown option. The name is left out if it may be a part of a password."""
    if key == "tls" and scheme in _PLAIN:
        return f"the option tls is for Sentinel and Cluster; with TLS this URL begins with {scheme}s://"
    if key in _TLS_OPTIONS | _TLS_OPTIONS_OF_SERVERS and scheme in _PLAIN:
        return f"the option {key} needs TLS: the URL must begin with {scheme}s://"
    named = f"the option {key}" if re.fullmatch("[a-z][a-z_]{1,39}", key) and not secret_before else "an option"
    return f"{named} is not known; known: {', '.join(sorted(_options_of(scheme)))}"


# parts ---------------------------------------------------------------------------------------------


def parse_url(url: str) -> ServerUrl:
    """Take a URL apart; raises `ValueError`, without quoting it, for one that cannot be meant."""
    if any(character < " " or character == "\x7f" for character in url):
        raise ValueError("it has a control character")
    if "#" in url or "@" in _BEFORE_PATH.sub("", url):
        raise ValueError(f"there is a # or @ behind the address; {_ENCODE}")
    try:
        parts = urlsplit(url)
        hosts = _hosts(parts.netloc, 26379 if parts.scheme == SENTINEL else 6379)
    except ValueError as error:
        reason = "port must be a number below 65536" if "port" in str(error).lower() else "address is not valid"
        raise ValueError(f"the {reason}; {_ENCODE}") from None
    given = _parse_options(parts.scheme, parts.query)
    service, database = _service_and_database(parts, given)
    tls = _tls(parts.scheme, given)
    return ServerUrl(
        scheme=parts.scheme,
        where=f"{parts.scheme}://{parts.netloc.rpartition('@')[2] or parts.path}",
        hosts=hosts,
        path=unquote(parts.path),
        service=service,
        database=database,
        login=_login(
            unquote(parts.username or "") or given.get("username"),
            unquote(parts.password or "") or given.get("password"),
        ),
        sentinel_login=_login(given.get("sentinel_username"), given.get("sentinel_password")),
        tls=tls,
        options={key: given[key] for key in ("client_name", "protocol") if key in given},
        read_timeout=given.get("socket_timeout", CLUSTER_READ_TIMEOUT if parts.scheme == CLUSTER else READ_TIMEOUT),
    )


def _service_and_database(parts: SplitResult, given: dict[str, Any]) -> tuple[str, int]:
    """Return the service of Sentinels, if it is such a URL, and the number of the database."""
    service, path = "", parts.path.strip("/")
    if parts.scheme == UNIX:
        if not path:
            raise ValueError("unix:// needs the path of a socket")
        path = ""
    elif parts.scheme == SENTINEL:
        service, _, path = path.partition("/")
        if not service:
            raise ValueError("it must name its service: redis+sentinel://host:26379/mymaster")
    try:
        database = _database(path) if path else given.get("db", 0)
    except ValueError:
        raise ValueError("the database after the address must be a number, as in /0") from None
    if given.get("db", database) != database:
        raise ValueError("the database after the address and the option db differ")
    if parts.scheme == CLUSTER and database:
        raise ValueError("a Cluster has only the database 0")
    return unquote(service), database


def _login(username: str | None, password: str | None) -> dict[str, Any]:
    given = {"username": username, "password": password}
    return {key: value for key, value in given.items() if value}


def _tls(scheme: str, given: dict[str, Any]) -> dict[str, Any]:
    options = {key: value for key, value in given.items() if key.startswith("ssl_")}
    if scheme in _TLS or given.get("tls"):
        return {"ssl": True, **options}
    if options:
        raise ValueError(f"the option {next(iter(options))} needs TLS: add tls=1")
    return {}


def _hosts(netloc: str, default_port: int) -> list[tuple[str, int]]:
    hosts: list[tuple[str, int]] = []
    for part in netloc.rpartition("@")[2].split(","):
        bare = urlsplit(f"//{part}")
        hosts.append((unquote(bare.hostname or "127.0.0.1"), bare.port or default_port))
    return hosts
