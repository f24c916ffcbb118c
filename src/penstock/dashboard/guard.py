"""Checks of a request before anything else: its host, its origin, and the tries of its address; headers of answers."""

from __future__ import annotations

import ipaddress
import time
from collections import deque
from collections.abc import Collection, Mapping
from urllib.parse import urlsplit

from starlette.requests import Request

from penstock.dashboard.auth import bearer

__all__ = ["LoginAttempts", "headers_for", "is_known_host", "is_same_origin"]

#: Failed tries that an address has in a minute, and how many addresses are remembered.
TRIES, WINDOW, MAX_ADDRESSES = 5, 60.0, 10_000


def headers_for(frame_ancestors: str | None) -> dict[str, str]:
    """Return the headers of every answer."""
    return {
        "Content-Security-Policy": (
            "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
            f"form-action 'self'; base-uri 'none'; frame-ancestors {frame_ancestors or chr(39) + 'none' + chr(39)}"
        ),
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cache-Control": "no-store",
        "Cross-Origin-Opener-Policy": "same-origin",
    }


def is_same_origin(request: Request) -> bool:
    """Return whether an unsafe request comes from a page of this dashboard, or from a program with a token.

    Browsers send `Sec-Fetch-Site` to trustworthy origins; elsewhere the host of `Origin` must be that of `Host`.
    """
    if (site := request.headers.get("sec-fetch-site")) is not None:
        return site == "same-origin"
    if (origin := request.headers.get("origin")) is not None:
        try:
            return urlsplit(origin).netloc.lower() == request.headers.get("host", "").lower() != ""
        except ValueError:
            return False
    return bearer(request) is not None


def is_known_host(request: Request, allowed: Collection[str] | None, open: bool) -> bool:
    """Return whether the `Host` of a request is known; a page of another name that resolves to this machine is not.

    Without a list, any host will do where a viewer needs a proof, as cookies belong to one host; where none is needed
    (`open`) only addresses and localhost.
    """
    name = host_name(request.headers.get("host", ""))
    if allowed is not None:
        return name in {each.lower() for each in allowed}
    return not open or name == "localhost" or is_address(name)


def host_name(host: str) -> str:
    """Return the name or address of a `Host`, without its port."""
    host = host.strip().lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.rpartition(":")[0] if host.count(":") == 1 else host


def is_address(name: str) -> bool:
    """Return whether a name is an IP address, which no name server can point elsewhere."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


class LoginAttempts:
    """Failed tries by address: after five in a minute an address waits."""

    def __init__(self) -> None:
        self._failed: dict[str, deque[float]] = {}

    def blocked(self, address: str) -> int:
        """Return the seconds until an address may try again, 0 if it may now."""
        times = self._failed.get(address)
        if times is None:
            return 0
        now = time.monotonic()
        while times and now - times[0] > WINDOW:
            times.popleft()
        if not times:
            del self._failed[address]
        return int(WINDOW - (now - times[0])) + 1 if len(times) >= TRIES else 0

    def failed(self, address: str) -> None:
        """Count a failed try."""
        if len(self._failed) >= MAX_ADDRESSES:
            self._failed.pop(next(iter(self._failed)))
        self._failed.setdefault(address, deque(maxlen=TRIES)).append(time.monotonic())


def address_of(request: Request) -> str:
    """Return the address of the peer; empty where the server does not give it."""
    return request.client.host if request.client else environ_address(request.scope.get("wsgi_environ"))


def environ_address(environ: Mapping[str, str] | None) -> str:
    """Return the address of the peer in a WSGI environment."""
    return "" if environ is None else environ.get("REMOTE_ADDR", "")
