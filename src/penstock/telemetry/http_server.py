"""A small HTTP server in a thread of its own: it answers even while the event loop of the program hangs."""

from __future__ import annotations

import hmac
import json
import logging
import socket
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlsplit

__all__ = ["Answer", "HttpServer", "Request", "Route", "json_answer", "parse_address", "text_answer"]

log = logging.getLogger("penstock.telemetry")

#: The paths of probes, which have no token.
FREE = frozenset({"/healthz", "/readyz"})

#: How long (seconds) a client may take to send its request.
TIMEOUT = 10


class Request(NamedTuple):
    """A request: the parameters of its query, and the types that the client accepts."""

    query: Mapping[str, str]
    accept: str


class Answer(NamedTuple):
    """An answer: its status, its body, and the type of that."""

    status: int
    body: bytes
    type: str = "text/plain; charset=utf-8"


Route = Callable[[Request], Answer]


def text_answer(text: str, status: int = 200) -> Answer:
    """Return an answer of one line of text."""
    return Answer(status, f"{text}\n".encode())


def json_answer(value: Any, status: int = 200) -> Answer:
    """Return an answer in JSON."""
    return Answer(status, json.dumps(value).encode(), "application/json")


class HttpServer:
    """Serves a few fixed paths by GET until it is closed.

    With a `token` each request needs `Authorization: Bearer TOKEN`, but for the paths in `free`: probes have none.
    """

    def __init__(
        self, host: str, port: int, routes: Mapping[str, Route], token: str | None = None, free: frozenset[str] = FREE
    ) -> None:
        server_class = _Server6 if ":" in host else _Server
        self._server = server_class((host, port), _handler(routes, token, free))
        self._thread = threading.Thread(target=self._server.serve_forever, name="penstock http", daemon=True)

    @property
    def port(self) -> int:
        """The port it listens on."""
        return self._server.server_address[1]

    def start(self) -> None:
        """Serve from now on."""
        self._thread.start()

    def close(self) -> None:
        """End the thread and close the port. Idempotent."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    """Server whose threads do not keep the program alive."""

    daemon_threads = True
    block_on_close = False

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log the error of a connection as a detail: a client that went away is none of the program's."""
        log.debug("an HTTP connection failed", exc_info=True)


class _Server6(_Server):
    """The same server on an address of IPv6."""

    address_family = socket.AF_INET6


def _handler(routes: Mapping[str, Route], token: str | None, free: frozenset[str]) -> type[BaseHTTPRequestHandler]:
    """Return the class that answers the requests of a server."""

    class Handler(BaseHTTPRequestHandler):
        """Answers one connection."""

        timeout = TIMEOUT
        server_version = "penstock"
        sys_version = ""

        def do_GET(self) -> None:
            """Answer a request."""
            url = urlsplit(self.path)
            route = routes.get(url.path)
            given = self.headers.get("Authorization", "")
            if route is None:
                answer = text_answer(f"not found; there are: {' '.join(sorted(routes))}", 404)
            elif token is not None and url.path not in free and not _equal(given, f"Bearer {token}"):
                answer = text_answer("this needs Authorization: Bearer TOKEN", 401)
            else:
                answer = self._call(route, dict(parse_qsl(url.query, keep_blank_values=True)))
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.type)
            self.send_header("Content-Length", str(len(answer.body)))
            self.send_header("Cache-Control", "no-store")
            self.send_header("X-Content-Type-Options", "nosniff")
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(answer.body)

        do_HEAD = do_GET  # noqa: N815

        def _call(self, route: Route, query: dict[str, str]) -> Answer:
            try:
                return route(Request(query, self.headers.get("Accept", "")))
            except Exception:
                log.exception("a request for %s failed", urlsplit(self.path).path)
                return text_answer("internal error", 500)

        def log_message(self, format: str, *args: Any) -> None:
            """Log nothing: probes come every few seconds."""

    return Handler


def _equal(given: str, wanted: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "surrogateescape"), wanted.encode("utf-8", "surrogateescape"))


def parse_address(text: str) -> tuple[str, int]:
    """Return the host and port of "HOST:PORT"; without a host it is loopback. Raises `ValueError`."""
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or int(port) > 65_535:
        raise ValueError(f"HOST:PORT must end with a port, not {text!r}")
    return host.strip("[]") or "127.0.0.1", int(port)
