"""The context of a request: its viewer, its query, and the app behind the pages."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any
from urllib.parse import quote

import msgspec
from starlette.datastructures import FormData
from starlette.requests import Request

from penstock.client.app import Penstock
from penstock.client.queue import Queue
from penstock.dashboard.auth import Verb, Viewer
from penstock.dashboard.protocols import auditing_of
from penstock.dashboard.reader import Reader, Reading
from penstock.dashboard.redact import Redactor
from penstock.dashboard.rendering import link, static_link
from penstock.model.clock import as_datetime
from penstock.model.ids import check_name
from penstock.storage.auditing import Auditing
from penstock.storage.base import Storage

__all__ = ["BadRequest", "Message", "NotThere", "PageContext", "Settings", "Shell"]

THEMES = ("system", "light", "dark")
THEME_COOKIE = "penstock_theme"


class BadRequest(Exception):
    """A request that cannot be answered as it is: the message is shown to the viewer."""


class NotThere(Exception):
    """A job, queue, worker or page that does not exist: the message is shown to the viewer."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a dashboard that its pages need."""

    title: str
    badge: str | None
    trace_url: Callable[[str], str] | str | None


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to an action, shown on the next page; `undo` is the address of the opposite action."""

    text: str
    good: bool = True
    undo: str = ""


class Shell(msgspec.Struct, frozen=True, kw_only=True):
    """The frame around the content of every page."""

    base: str
    title: str
    badge: str | None
    viewer: Viewer
    page: str
    here: str
    theme: str
    at: datetime
    error: str
    live: bool
    can_log_out: bool
    message: Message | None

    def may(self, verb: Verb) -> bool:
        """Return whether the viewer may ask for a change: other buttons are not shown."""
        return self.viewer.may(verb)

    def link(self, path: str, **query: object) -> str:
        """Return the address of a page."""
        return link(self.base, path, query)

    def act(self, verb: Verb, **query: object) -> str:
        """Return the address that an action is sent to; its target is in the query, which any name survives."""
        return link(self.base, "act", {"verb": verb, **query, "next": self.here})

    def ask(self, verb: Verb, **query: object) -> str:
        """Return the address that asks before an action."""
        return link(self.base, "preview", {"verb": verb, **query, "next": self.here})

    def static(self, name: str) -> str:
        """Return the address of a static file."""
        return static_link(self.base, name)

    def quoted(self, text: str) -> str:
        """Return a text for the value of an input: percent-encoded, because forms change newlines and lose NUL."""
        return quote(text, safe="")


class PageContext:
    """The request of a page, and what its view model is made from."""

    def __init__(
        self,
        app: Penstock,
        reader: Reader,
        redactor: Redactor,
        settings: Settings,
        request: Request,
        viewer: Viewer,
        form: FormData | None = None,
    ) -> None:
        self.app, self.reader, self.redactor, self.settings = app, reader, redactor, settings
        self.request, self.viewer, self._form = request, viewer, form
        self.base: str = request.scope.get("root_path", "")
        self._reading: Reading | None = None

    @property
    def admin(self) -> bool:
        """Whether the viewer is an admin."""
        return self.viewer.role == "admin"

    def param(self, name: str, default: str = "") -> str:
        """Return a part of the query, or of the form, or the default."""
        if (given := self.request.query_params.get(name)) is not None:
            return given
        value = None if self._form is None else self._form.get(name)
        return value if isinstance(value, str) else default

    def ids(self) -> list[str]:
        """Return the jobs that a form names, each as its queue and id, percent-encoded, with a slash between them."""
        given = [] if self._form is None else self._form.getlist("ids")
        return [value for value in given if isinstance(value, str)]

    def needed(self, name: str) -> str:
        """Return a part of the query that names a thing; raises `BadRequest` for one that cannot be."""
        try:
            return check_name(self.param(name), name)
        except (TypeError, ValueError) as error:
            raise BadRequest(str(error)) from None

    def queue(self) -> Queue:
        """Return the queue that the query names."""
        return self.app.queue(self.needed("queue"))

    def link(self, path: str, **query: object) -> str:
        """Return the address of a page."""
        return link(self.base, path, query)

    async def storage(self) -> Storage:
        """Return the storage, open."""
        return await self.app.opened()

    async def records(self) -> Auditing | None:
        """Return the records about operators; None if the storage keeps none."""
        return auditing_of(await self.storage())

    async def reading(self) -> Reading:
        """Return the last reading of all queues, the same for the whole request."""
        if self._reading is None:
            self._reading = await self.reader.latest()
        return self._reading

    async def now(self) -> datetime:
        """Return the time of the storage's clock."""
        return as_datetime(await (await self.storage()).time())

    def theme(self) -> str:
        """Return the theme that the viewer chose."""
        chosen = self.request.cookies.get(THEME_COOKIE, "system")
        return chosen if chosen in THEMES else "system"

    def text(self, text: Any) -> str:
        """Return a text without secrets."""
        return self.redactor.text(str(text))
