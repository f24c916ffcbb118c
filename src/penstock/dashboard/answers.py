"""Answers that are no page of their own: errors, the login form, JSON, and the message after an action."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from datetime import UTC, datetime
from urllib.parse import unquote

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from penstock.dashboard.auth import Viewer
from penstock.dashboard.context import THEME_COOKIE, THEMES, Message, PageContext, Settings, Shell
from penstock.dashboard.rendering import render

__all__ = [
    "JSON", "clear_message", "error_page", "json_answer", "login_page", "message_of", "path_of", "plain_error",
    "set_message", "wants_json", "with_mount",
]  # fmt: skip

JSON = "application/json"
MESSAGE_COOKIE = "penstock_message"


def with_mount(scope: Scope) -> Scope:
    """Return a scope whose path is the whole one, and whose `root_path` is the prefix of the dashboard.

    Some hosts (Litestar) cut the prefix off the path and name it nowhere: `raw_path` still has it.
    """
    path = str(scope["path"]).rstrip("/")
    whole = unquote((scope.get("raw_path") or b"").partition(b"?")[0].decode("latin-1")).rstrip("/")
    if whole == path or not whole.endswith(path):
        return scope
    return {**scope, "path": whole or "/", "root_path": whole.removesuffix(path)}


def path_of(scope: Scope) -> str:
    """Return the path of a request below the mount, without slashes around it."""
    path, root = str(scope["path"]), str(scope.get("root_path", ""))
    return path.removeprefix(root).strip("/")


def wants_json(request: Request) -> bool:
    """Return whether a request asks for the view model of a page."""
    accept = request.headers.get("accept", "")
    return JSON in accept and "text/html" not in accept


def json_answer(value: object, status: int = 200) -> Response:
    """Return a value as JSON."""
    return Response(msgspec.json.encode(value), status, media_type=JSON)


def plain_error(request: Request, status: int, text: str, headers: Mapping[str, str] | None = None) -> Response:
    """Return an error that needs no page."""
    if wants_json(request):
        return Response(msgspec.json.encode({"error": text}), status, media_type=JSON, headers=dict(headers or {}))
    return Response(f"{text}\n", status, media_type="text/plain", headers=dict(headers or {}))


def error_page(shell: Shell, status: int, title: str, text: str, again: str = "") -> Response:
    """Return an error as a page; `again` is the address of a request that may succeed later."""
    values = {"shell": shell, "title": title, "text": text, "status": status, "again": again}
    return Response(render("error.html", values), status, media_type="text/html")


def login_page(settings: Settings, request: Request, problem: str = "", status: int = 401) -> Response:
    """Return the form that asks for a token."""
    theme = request.cookies.get(THEME_COOKIE, "system")
    base = request.scope.get("root_path", "")
    shell = Shell(
        base=base, title=settings.title, badge=settings.badge, viewer=Viewer("", "reader"), page="-", here=f"{base}/",
        theme=theme if theme in THEMES else "system", at=datetime.now(UTC), error="", live=False, can_log_out=False,
        message=None,
    )  # fmt: skip
    return Response(render("login.html", {"shell": shell, "problem": problem}), status, media_type="text/html")


def message_of(request: Request) -> Message | None:
    """Return the message that the last action left, or None."""
    given = request.cookies.get(MESSAGE_COOKIE, "")
    try:
        return msgspec.json.decode(base64.urlsafe_b64decode(given), type=Message) if given else None
    except (msgspec.MsgspecError, binascii.Error, ValueError):
        return None


def set_message(response: Response, context: PageContext, message: Message) -> None:
    """Leave a message for the next page."""
    value = base64.urlsafe_b64encode(msgspec.json.encode(message)).decode()
    response.set_cookie(
        MESSAGE_COOKIE, value, max_age=15, path=context.base or "/", httponly=True, samesite="strict",
        secure=context.request.url.scheme == "https",
    )  # fmt: skip


def clear_message(response: Response, context: PageContext) -> None:
    """Forget the message that a page has shown."""
    if MESSAGE_COOKIE in context.request.cookies:
        response.delete_cookie(MESSAGE_COOKIE, path=context.base or "/", httponly=True, samesite="strict")
