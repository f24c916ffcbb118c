"""The dashboard as an ASGI application, which runs by itself or under any prefix of another one."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import threading
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
from a2wsgi import ASGIMiddleware
from starlette.datastructures import URL
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from penstock.client.app import Penstock
from penstock.dashboard.answers import (
    JSON,
    clear_message,
    error_page,
    json_answer,
    login_page,
    message_of,
    path_of,
    plain_error,
    wants_json,
    with_mount,
)  # fmt: skip
from penstock.dashboard.auth import Authenticator, Viewer, WhoFunction, anyone, authenticator, basic, token
from penstock.dashboard.bulk_tasks import end_all
from penstock.dashboard.context import BadRequest, NotThere, PageContext, Settings, Shell
from penstock.dashboard.exports import history_answer, payload_answer
from penstock.dashboard.guard import LoginAttempts, address_of, headers_for, is_known_host, is_same_origin
from penstock.dashboard.live import stream
from penstock.dashboard.posts import POSTS, TOO_MANY, WRONG, log_in, log_out, refusal_of, set_theme
from penstock.dashboard.probes import OPEN_PROBES, FleetMetrics
from penstock.dashboard.reader import Reader
from penstock.dashboard.redact import DEFAULT, Redactor
from penstock.dashboard.refusals import Refusals
from penstock.dashboard.rendering import render, render_parts, static_file
from penstock.dashboard.routes import PAGES, Page
from penstock.errors import PenstockError, StorageError
from penstock.model.activity import Activity
from penstock.ops.activity import add_entry
from penstock.sync import Penstock as SyncPenstock

__all__ = ["Dashboard"]

log = logging.getLogger("penstock.dashboard")

#: How long (seconds) a login waits for its entry in the activity.
RECORD_TIMEOUT = 2.0


class Dashboard:
    """A dashboard for an app, closed unless `auth` lets a viewer in; an ASGI application, and `.wsgi` a WSGI one.

    - `auth`: `token(...)`, `basic(...)`, `anyone(role)`, or a function of the request that returns a `Viewer` or None
    - `redact`: the keys whose values are shown as •••, in payloads, results and headers
    - `redact_text`: regular expressions for secrets in messages, tracebacks and log lines
    - `title`, `badge`: the name at the top, and a word beside it, such as "production"
    - `trace_url`: the address of a trace, with `{trace_id}` in it, or a function of the id
    - `frame_ancestors`: the sites that may show the dashboard in a frame
    - `allow_hosts`: the names that the `Host` of a request may have
    - `max_streams`: how many viewers get live updates by a stream; further ones poll
    """

    def __init__(
        self,
        app: Penstock | SyncPenstock,
        *,
        auth: token | basic | anyone | WhoFunction,
        redact: Iterable[str] = DEFAULT,
        redact_text: Iterable[str | re.Pattern[str]] = (),
        title: str | None = None,
        badge: str | None = None,
        trace_url: Callable[[str], str] | str | None = None,
        frame_ancestors: str | None = None,
        allow_hosts: Collection[str] | None = None,
        max_streams: int = 100,
    ) -> None:
        self.app = app.async_app if isinstance(app, SyncPenstock) else app
        if not isinstance(self.app, Penstock):
            raise TypeError(f"app must be a Penstock, not {type(app).__name__}")
        if isinstance(allow_hosts, str):
            raise TypeError("allow_hosts must be a list of names, not a str")
        self.auth: Authenticator = authenticator(auth)
        self.reader = Reader(self.app)
        metrics = FleetMetrics(self.app)
        #: The answers for programs, which have a token and no session.
        self._programs = {"metrics": metrics.metrics, "scale": metrics.scale}
        self.redactor = Redactor(redact, redact_text)
        self.settings = Settings(title=title or "Penstock", badge=badge, trace_url=trace_url)
        self.attempts = LoginAttempts()
        #: Those of strangers apart from those of viewers, so that strangers use up no entries of viewers.
        self._strangers, self._refused = Refusals(self._record), Refusals(self._record)
        self._hosts = allow_hosts
        self._headers = headers_for(frame_ancestors)
        self._max_streams, self._streams = max_streams, 0
        self._wsgi: Any = None
        self._thread: tuple[asyncio.AbstractEventLoop, threading.Thread] | None = None

    @property
    def wsgi(self) -> Any:
        """The same as a WSGI application, which runs in a thread with an event loop of its own."""
        if self._wsgi is None:
            loop = asyncio.new_event_loop()
            thread = threading.Thread(target=loop.run_forever, name="penstock dashboard", daemon=True)
            thread.start()
            self._thread = loop, thread
            self._wsgi = whole_answers(ASGIMiddleware(self, loop=loop))  # pyright: ignore[reportArgumentType]
        return self._wsgi

    def close_wsgi(self) -> None:
        """End the thread of `.wsgi`, and close the storage that it opened. Idempotent."""
        if self._thread is None:
            return
        loop, thread = self._thread
        self._wsgi = self._thread = None
        for work in (self.close(), self.app.close()):
            asyncio.run_coroutine_threadsafe(work, loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1000})
            return
        request = Request(with_mount(scope), receive)
        try:
            response = await self._respond(request)
        except Exception:
            log.exception("a page of the dashboard failed")
            response = plain_error(request, 500, "This page failed; the log of the server has the reason.")
        for name, value in self._headers.items():
            response.headers.setdefault(name, value)
        await response(scope, receive, send)

    async def end_streams(self) -> None:
        """End the streams of live updates: their pages connect again, or poll."""
        await self.reader.end_streams()

    async def close(self) -> None:
        """End the task that reads the storage, and the bulk actions of this process; the app stays open."""
        await end_all()
        for refusals in (self._strangers, self._refused):
            await refusals.close()
        await self.reader.close()

    # requests ---------------------------------------------------------------------------------------

    async def _respond(self, request: Request) -> Response:
        path = path_of(request.scope)
        if path in OPEN_PROBES:
            return await OPEN_PROBES[path](self.reader)
        safe = request.method in ("GET", "HEAD")
        if not is_known_host(request, self._hosts, self.auth.open):
            if not safe:
                await self._note_stranger(request, path, "unknown host")
            return plain_error(request, 400, "This host is not known here: name it in allow_hosts.")
        if path.startswith("static/"):
            return self._static(path.removeprefix("static/"))
        if not safe and not is_same_origin(request):
            await self._note_stranger(request, path, "from another site")
            return plain_error(request, 403, "This request comes from another site.")
        if path == "login" and request.method == "POST":
            response, found = await log_in(self.auth, self.attempts, self.settings, request)
            await self._note_login(request, found)
            return response
        viewer = await self._viewer(request, path)
        if isinstance(viewer, Response):
            return viewer
        if request.method not in ("GET", "HEAD", "POST"):
            return plain_error(request, 405, "GET and POST are the methods here.")
        return await self._answer(request, path, viewer, safe)

    async def _viewer(self, request: Request, path: str) -> Viewer | Response:
        """Return the viewer of a request, or the answer to a stranger."""
        address, tried = address_of(request), self.auth.attempted(request)
        if isinstance(self.auth, token) and request.method == "GET" and "token" in request.query_params:
            return await self._exchange(request, self.auth)
        if tried and (wait := self.attempts.blocked(address)):
            await self._note_login(request, TOO_MANY)
            return plain_error(request, 429, f"Too many tries; wait {wait} s.", {"Retry-After": str(wait)})
        viewer = await self.auth.viewer(request)
        if viewer is not None:
            return viewer
        if tried:
            self.attempts.failed(address)
            await self._note_login(request, WRONG)
        elif request.method not in ("GET", "HEAD"):
            await self._note_stranger(request, path, "not logged in")
        if path in self._programs:
            challenge = self.auth.challenge() or {"WWW-Authenticate": "Bearer"}
            return plain_error(request, 401, "This needs a reader: Authorization: Bearer TOKEN.", challenge)
        if self.auth.has_login and not wants_json(request) and request.method == "GET":
            return login_page(self.settings, request)
        return plain_error(request, 401, "You are not known here.", self.auth.challenge())

    async def _exchange(self, request: Request, auth: token) -> Response:
        """Answer a link with a token: a session, and the same address without the token."""
        if wait := self.attempts.blocked(address_of(request)):
            await self._note_login(request, TOO_MANY)
            return plain_error(request, 429, f"Too many tries; wait {wait} s.", {"Retry-After": str(wait)})
        viewer = auth.match(request.query_params["token"])
        await self._note_login(request, viewer or WRONG)
        if viewer is None:
            self.attempts.failed(address_of(request))
            return login_page(self.settings, request, "That token is not valid.")
        response = RedirectResponse(own_address(request.url.remove_query_params("token")), 303)
        auth.start_session(viewer, response, request)
        return response

    async def _note_stranger(self, request: Request, path: str, why: str) -> None:
        """Record a request that changes something and has no viewer; its path is given only if there is such a one."""
        verb = path if path in (*POSTS, "login", "logout", "theme") else "request"
        address = address_of(request)
        await self._strangers.add(
            Activity(who="", verb=verb, via="dashboard", outcome=f"refused: {why}", address=address)
        )

    async def _note_login(self, request: Request, found: Viewer | str) -> None:
        """Record a login: of a viewer, or why there is none."""
        if isinstance(found, str):
            await self._note_stranger(request, "login", found)
            return
        address = address_of(request)
        await self._record(
            Activity(who=found.name, role=found.role, verb="login", via="dashboard", outcome="done", address=address)
        )

    async def _record(self, entry: Activity) -> None:
        """Add an entry to the activity; a storage that does not answer does not keep a stranger's answer back."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(RECORD_TIMEOUT):
                await add_entry(self.app, entry)

    async def _answer(self, request: Request, path: str, viewer: Viewer, safe: bool) -> Response:
        """Answer a request of a viewer; errors that are the viewer's or the storage's become pages."""
        form = None if safe else await request.form(max_fields=2_000, max_part_size=4_000_000)
        context = PageContext(self.app, self.reader, self.redactor, self.settings, request, viewer, form)
        try:
            if safe:
                return await self._get(context, path)
            if path == "theme":
                return set_theme(context)
            if path == "logout":
                return await log_out(context, self.auth)
            if path not in POSTS:
                raise NotThere("There is no such action.")
            return await POSTS[path](context, self.shell)
        except NotThere as error:
            return await self._problem(context, 404, "Not found", str(error))
        except BadRequest as error:
            return await self._problem(context, 400, "That does not work", str(error))
        except PermissionError as error:
            if not safe:
                await self._refused.add(refusal_of(context, str(error)))
            return await self._problem(context, 403, "Not allowed", f"Your role, {viewer.role}, may not do this.")
        except StorageError as error:
            return await self._problem(context, 503, "The storage does not answer", context.text(error))
        except (PenstockError, ValueError, TypeError, OverflowError) as error:
            return await self._problem(context, 400, "That does not work", context.text(error))

    async def _get(self, context: PageContext, path: str) -> Response:
        if path in PAGES:
            return await self._page(context, path, PAGES[path])
        if path == "live":
            return self._live(context)
        if path == "history":
            return await history_answer(context)
        if path == "payload":
            return await payload_answer(context)
        if path in self._programs:
            return await self._programs[path](context)
        raise NotThere(f"There is no page {path!r}.")

    async def _page(self, context: PageContext, path: str, page: Page) -> Response:
        if page.verb is not None and not context.viewer.may(page.verb):
            raise PermissionError(page.verb)
        view = await page.view(context)
        if wants_json(context.request):
            return json_answer(view)
        shell = self.shell(context, path, getattr(view, "at", None), getattr(view, "outage", ""))
        values = {"view": view, "shell": shell, "title": page.title}
        parts = context.request.headers.get("x-penstock-part")
        if parts is not None:
            return Response(render_parts(page.template, values, parts.split(",")), media_type="text/html")
        response = Response(render(page.template, values), media_type="text/html")
        clear_message(response, context)
        return response

    def shell(self, context: PageContext, path: str, at: datetime | None = None, error: str = "") -> Shell:
        """Return what a page shows around its content."""
        query = context.request.url.query if context.request.method == "GET" else ""
        return Shell(
            base=context.base,
            title=self.settings.title,
            badge=self.settings.badge,
            viewer=context.viewer,
            page=PAGES[path].section if path in PAGES else "-",
            here=f"{context.base}/{path}{'?' + query if query else ''}",
            theme=context.theme(),
            at=at or datetime.now(UTC),
            error=context.text(error),
            live="wsgi_environ" not in context.request.scope,
            can_log_out=self.auth.has_login,
            message=message_of(context.request),
        )

    async def _problem(self, context: PageContext, status: int, title: str, text: str) -> Response:
        if wants_json(context.request) or "x-penstock-part" in context.request.headers:
            return Response(msgspec.json.encode({"error": text}), status, media_type=JSON)
        again = own_address(context.request.url) if status == 503 and context.request.method == "GET" else ""
        return error_page(self.shell(context, "-"), status, title, text, again)

    def _static(self, rest: str) -> Response:
        found = static_file(rest)
        if found is None:
            return PlainTextResponse("not found\n", 404)
        return Response(found[0], media_type=found[1], headers={"Cache-Control": "public, max-age=31536000, immutable"})

    def _live(self, context: PageContext) -> Response:
        """Answer with a stream of changed topics; pages poll where a stream is not possible."""
        if "wsgi_environ" in context.request.scope or self._streams >= self._max_streams:
            return plain_error(context.request, 503, "No stream is free: poll.")

        async def counted() -> AsyncIterator[bytes]:
            self._streams += 1
            try:
                async for event in stream(self.reader):
                    yield event
            finally:
                self._streams -= 1

        return StreamingResponse(counted(), media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        """Close the reader with the server, where the dashboard is the whole application."""
        while True:
            message: Mapping[str, Any] = await receive()
            if message["type"] == "lifespan.startup":
                await send({"type": "lifespan.startup.complete"})
            elif message["type"] == "lifespan.shutdown":
                await self.close()
                await send({"type": "lifespan.shutdown.complete"})
                return


def whole_answers(wsgi: Any) -> Any:
    """Return a WSGI application whose answers are complete when the host gets them; streams are refused there.

    A host that does not iterate to the end, as after a disconnect, would leave the task of the request pending for
    ever.
    """

    def answer(environ: Any, start_response: Any) -> list[bytes]:
        return [b"".join(wsgi(environ, start_response))]

    return answer


def own_address(url: URL) -> str:
    """Return an address without its host; a path that begins with two slashes would name another host."""
    return f"/{url.path.lstrip('/')}{'?' + url.query if url.query else ''}"
