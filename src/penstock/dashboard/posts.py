"""Answers to POST requests: actions, questions before them, the theme, login and logout."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol
from urllib.parse import unquote

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from penstock.client.bulk import change_jobs, start_bulk, stop_bulk
from penstock.dashboard.actions import ACTIONS, Done, log_activity
from penstock.dashboard.answers import json_answer, login_page, plain_error, set_message, wants_json
from penstock.dashboard.auth import VERBS, Authenticator, Verb, Viewer, token
from penstock.dashboard.bulk_tasks import start_task
from penstock.dashboard.context import THEME_COOKIE, THEMES, BadRequest, Message, NotThere, PageContext, Settings, Shell
from penstock.dashboard.formatting import number
from penstock.dashboard.guard import LoginAttempts, address_of
from penstock.dashboard.pages.doctor import examined
from penstock.dashboard.questions import ASKS_NAME, WORDS, bulk_verb, question, wanted_filter
from penstock.dashboard.rendering import link, render, render_parts, visible
from penstock.errors import PenstockError, StorageError
from penstock.model.activity import Activity
from penstock.model.ids import check_name

__all__ = ["POSTS", "TOO_MANY", "WRONG", "log_in", "log_out", "refusal_of", "set_theme"]


#: The most jobs that one request selects.
MAX_SELECTED = 1_000

#: Why a login was refused, as the activity has it.
WRONG, TOO_MANY = "wrong token or password", "too many tries"


class MakeShell(Protocol):
    """The method of the dashboard that makes the shell of a page."""

    def __call__(self, context: PageContext, path: str, /) -> Shell:
        """Return the shell."""
        ...


def checked_verb(context: PageContext) -> Verb:
    """Return the verb of a request; raises `BadRequest` for an unknown one and `PermissionError` for a refused one."""
    given = context.param("verb")
    if given not in VERBS:
        raise BadRequest(f"There is no action {given!r}.")
    verb: Verb = given
    if not context.viewer.may(verb):
        raise PermissionError(verb)
    return verb


async def act(context: PageContext, shell: MakeShell) -> Response:
    """Carry an action out, record it, and answer with the page it came from."""
    verb = checked_verb(context)
    if verb not in ACTIONS:
        raise BadRequest(f"{verb!r} needs another form.")
    try:
        done = await (act_on_many(context, verb) if context.param("bulk") else ACTIONS[verb](context))
    except StorageError:
        raise
    except (PenstockError, BadRequest, NotThere, ValueError, TypeError) as error:
        text = context.text(error)
        done = Done(message=Message(text=text, good=False), queue=context.param("queue") or None, outcome=text)
        await log_activity(context, verb, done)
        raise (NotThere if isinstance(error, NotThere) else BadRequest)(text) from None
    await log_activity(context, verb, done)
    await context.reader.refresh()
    return answer(context, done.message, done.goto)


async def act_on_many(context: PageContext, verb: Verb) -> Done:
    """Apply a verb to selected jobs at once, or store a bulk action for all that match a filter."""
    known = bulk_verb(verb)
    given = context.param("selected").split()
    if len(given) > MAX_SELECTED:
        raise BadRequest(f"{number(len(given))} jobs are selected; one request may name {number(MAX_SELECTED)}.")
    if given:
        pairs = [(unquote(queue), unquote(id)) for queue, _, id in (line.partition("/") for line in given)]
        by_queue: dict[str, list[str]] = {}
        for queue, id in pairs:
            by_queue.setdefault(check_name(queue, "queue"), []).append(check_name(id, "id"))
        count = sum([await change_jobs(context.app, known, queue, ids) for queue, ids in by_queue.items()])
        text = f"{WORDS[known]}: {number(count)} of {number(len(pairs))} jobs changed."
        return Done(message=Message(text=text), ids=tuple(id for _, id in pairs), queue=pairs[0][0], count=len(pairs))
    wanted = wanted_filter(context)
    name = visible(wanted.queue) if wanted.queue else "all queues"
    total = context.param("total")
    exact = int(total) if total.isascii() and total.isdigit() else None
    if verb == "delete" and (exact is None or exact > ASKS_NAME) and context.param("confirm") != name:
        raise BadRequest("Nothing was deleted: the name that was typed is not that of the queue.")
    moment = context.param("as_of")
    if not (moment.isascii() and moment.isdigit()):
        raise BadRequest("The time of the preview is missing.")
    action = await start_bulk(
        context.app, known, wanted.text, who=context.viewer.name, as_of=int(moment[:15]), total=exact, via="dashboard",
        redacting=context.redactor,
    )  # fmt: skip
    start_task(context, action.id)
    undo = link(context.base, "stop", {"id": action.id})
    text = f"{WORDS[known]} starts in 5 s."
    return Done(
        message=Message(text=text, undo=undo), goto=context.link("activity"), queue=wanted.queue, target=wanted.text,
        count=exact or 0, outcome=f"bulk action {action.id}",
    )  # fmt: skip


async def stop(context: PageContext, shell: MakeShell) -> Response:
    """Stop a bulk action, or undo it before its start."""
    if not context.viewer.may("stop_bulk"):
        raise PermissionError("stop_bulk")
    id = context.param("id")
    stopped = await stop_bulk(context.app, id)
    state = None if stopped is None or stopped.state not in ("undone", "stopped") else stopped.state
    texts = {"undone": "Undone: nothing was changed.", "stopped": "Stopped; what was done stays done."}
    text = texts.get(state or "", "There is nothing to stop: it has ended.")
    message = Message(text=text, good=state is not None)
    await log_activity(context, "stop_bulk", Done(message=message, target=id, outcome=state or "nothing to stop"))
    return answer(context, message)


async def check(context: PageContext, shell: MakeShell) -> Response:
    """Search the storage for damage, and show the result."""
    if not context.viewer.may("check"):
        raise PermissionError("check")
    view = await examined(context, check=True)
    await log_activity(context, "check", Done(message=Message(text="")))
    if wants_json(context.request):
        return json_answer(view)
    values: dict[str, Any] = {"shell": shell(context, "doctor"), "view": view, "title": "Doctor"}
    return Response(render("doctor.html", values), media_type="text/html")


def answer(context: PageContext, message: Message, goto: str = "") -> Response:
    """Return a message: as JSON, or on the page that the request came from."""
    if wants_json(context.request):
        return json_answer({"message": message, "goto": goto})
    response = RedirectResponse(goto or next_page(context), 303)
    set_message(response, context, message)
    return response


def next_page(context: PageContext) -> str:
    """Return the page to show after an action: the given one if it is of this dashboard, else the overview."""
    wanted, base = context.param("next"), context.base
    if wanted.startswith(f"{base}/") and not wanted.startswith(f"{base}//") and "\\" not in wanted:
        return wanted if wanted.isprintable() else f"{base}/"
    return f"{base}/"


async def ask(context: PageContext, shell: MakeShell) -> Response:
    """Answer with the question before an action that cannot be undone."""
    verb = checked_verb(context)
    asked = await question(context, verb)
    if wants_json(context.request):
        return json_answer(asked)
    values: dict[str, Any] = {
        "shell": shell(context, "-"),
        "view": asked,
        "title": asked.title,
        "next": next_page(context),
    }
    if "x-penstock-part" in context.request.headers:
        return Response(render_parts("question.html", values, ["question"]), media_type="text/html")
    return Response(render("question.html", values), media_type="text/html")


def refusal_of(context: PageContext, verb: str) -> Activity:
    """Return the entry for a change that the viewer's role does not allow."""
    return Activity(
        who=context.viewer.name, verb=verb, via="dashboard", queue=context.param("queue") or None, outcome="refused",
        ids=tuple(filter(None, [context.param("id")])), role=context.viewer.role, address=address_of(context.request),
    )  # fmt: skip


def set_theme(context: PageContext) -> Response:
    """Keep the theme that the viewer chose."""
    theme = context.param("theme")
    if theme not in THEMES:
        raise BadRequest(f"The theme must be one of {', '.join(THEMES)}.")
    wants = wants_json(context.request)
    response: Response = json_answer({"theme": theme}) if wants else RedirectResponse(next_page(context), 303)
    response.set_cookie(
        THEME_COOKIE, theme, max_age=365 * 86_400, path=context.base or "/", samesite="strict", httponly=True,
        secure=context.request.url.scheme == "https",
    )  # fmt: skip
    return response


async def log_in(
    auth: Authenticator, attempts: LoginAttempts, settings: Settings, request: Request
) -> tuple[Response, Viewer | str]:
    """Answer the form that asks for a token; returns the answer, and the viewer or why there is none."""
    if not isinstance(auth, token):
        return plain_error(request, 404, "There is no form to log in here."), "there is no form"
    address = address_of(request)
    if wait := attempts.blocked(address):
        return login_page(settings, request, f"Too many tries; wait {wait} s.", 429), TOO_MANY
    given = (await request.form(max_fields=10)).get("token")
    viewer = auth.match(given.strip()) if isinstance(given, str) else None
    if viewer is None:
        attempts.failed(address)
        return login_page(settings, request, "That token is not valid."), WRONG
    response = RedirectResponse(f"{request.scope.get('root_path', '')}/", 303)
    auth.start_session(viewer, response, request)
    return response, viewer


async def log_out(context: PageContext, auth: Authenticator) -> Response:
    """End the session, and record that."""
    await log_activity(context, "logout", Done(message=Message(text="")))
    response = RedirectResponse(f"{context.base}/", 303)
    if isinstance(auth, token):
        auth.end_session(response, context.request)
    return response


Post = Callable[[PageContext, MakeShell], Awaitable[Response]]

POSTS: dict[str, Post] = {"act": act, "preview": ask, "stop": stop, "check": check}
