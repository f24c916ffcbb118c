"""Questions before actions that cannot be undone: what will happen, and what must be typed."""

from __future__ import annotations

from typing import cast, get_args
from urllib.parse import quote, unquote

import msgspec

from penstock.client.bulk import preview_bulk
from penstock.client.job_filter import FilterError, JobFilter, parse_filter, quote_value
from penstock.dashboard.auth import Verb
from penstock.dashboard.context import BadRequest, PageContext
from penstock.dashboard.formatting import number
from penstock.dashboard.pages.job_rows import row_of_status
from penstock.dashboard.rendering import link, visible
from penstock.model.activity import BulkVerb

__all__ = ["ASKS_NAME", "Question", "bulk_verb", "question", "wanted_filter"]

#: How many jobs a question shows, and above which number a deletion asks for the name of the queue.
SAMPLES, ASKS_NAME = 5, 1_000

WORDS: dict[BulkVerb, str] = {"retry": "Retry", "cancel": "Cancel", "run_now": "Run now", "delete": "Delete"}
EFFECTS: dict[BulkVerb, str] = {
    "retry": "They go to the end of the line with all counts zero.",
    "cancel": "Jobs that wait are cancelled; running ones go on.",
    "run_now": "Scheduled and retrying jobs become due now.",
    "delete": "They are gone for good, with their results and histories.",
}


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """A question: its title, its text, the button, the address of the action, and a name that must be typed."""

    title: str
    text: str
    button: str
    action: str
    danger: bool = True
    confirm: str = ""
    samples: list[str] = []
    fields: dict[str, str] = {}


def bulk_verb(verb: str) -> BulkVerb:
    """Return a verb that works on many jobs; raises `BadRequest` for any other."""
    if verb not in get_args(BulkVerb):
        raise BadRequest(f"{verb!r} does not work on many jobs.")
    return cast("BulkVerb", verb)


async def question(context: PageContext, verb: Verb) -> Question:
    """Return the question before an action."""
    if context.param("bulk"):
        return await (
            selected(context, verb) if context.ids() and not context.param("matching") else matching(context, verb)
        )
    keep = ("queue", "id", "name", "group", "scope")
    target = {key: context.param(key) for key in keep if context.param(key)}
    action = link(context.base, "act", {"verb": verb, **target, "next": context.param("next")})
    if verb == "delete_queue":
        queue = context.queue()
        count = sum((await queue.counts()).values())
        text = f"The queue and its {number(count)} jobs are deleted at once; outcomes of running jobs are lost."
        return Question(
            title=f"Delete queue {visible(queue.name)}?", text=text, button="Delete queue", action=action,
            confirm=visible(queue.name),
        )  # fmt: skip
    texts: dict[str, tuple[str, str, str]] = {
        "delete": ("Delete this job?", "It is gone for good, with its result and its history.", "Delete job"),
        "kill": ("Interrupt this run?", "The run ends where it is, and the job is cancelled.", "Interrupt"),
        "stop_worker": ("Stop this worker?", "It finishes its runs and exits, as after SIGTERM.", "Stop worker"),
        "remove_schedule": ("Remove this schedule?", "The jobs that it has put stay.", "Remove"),
    }
    if verb not in texts:
        raise BadRequest(f"{verb!r} needs no question.")
    title, text, button = texts[verb]
    name = context.param("id") or context.param("name")
    return Question(title=title, text=f"{visible(name)}: {text[0].lower()}{text[1:]}", button=button, action=action)


async def selected(context: PageContext, verb: Verb) -> Question:
    """Return the question before an action on the jobs that are selected."""
    given = context.ids()
    count = f"{len(given)} job{'s' * (len(given) != 1)}"
    action = link(context.base, "act", {"verb": verb, "bulk": "1", "next": context.param("next")})
    samples, word = [unquote(each.partition("/")[2]) for each in given[:SAMPLES]], WORDS[bulk_verb(verb)]
    if len(given) > SAMPLES:
        samples.append(f"and {len(given) - SAMPLES} more")
    return Question(
        title=f"{word} {count}?", text=EFFECTS[bulk_verb(verb)], button=f"{word} {count}", action=action,
        danger=verb == "delete", samples=samples, fields={"selected": " ".join(given)},
    )  # fmt: skip


async def matching(context: PageContext, verb: Verb) -> Question:
    """Return the question before an action on all jobs that match a filter: their number, and some of them."""
    wanted = wanted_filter(context)
    look = await preview_bulk(context.app, bulk_verb(verb), wanted.text, context.redactor)
    count, exact = look.count, look.exact
    samples = [f"{row.id} {row.payload}" for row in (row_of_status(context, job) for job in look.samples)]
    many = f"{'' if exact else 'at least '}{number(count)} job{'s' * (count != 1)}"
    word = WORDS[bulk_verb(verb)]
    action = link(context.base, "act", {"verb": verb, "bulk": "1", "next": context.param("next")})
    fields = {"filter": quote(wanted.text), "as_of": str(look.as_of), "total": str(count) if exact else ""}
    chosen = f"Filter: {wanted.text}" if wanted.text else "There is no filter: all jobs of all queues"
    text = f"{EFFECTS[bulk_verb(verb)]} {chosen}. Jobs that are newer than this question are left out."
    name = ""
    if verb == "delete" and (count > ASKS_NAME or not exact):
        name = visible(wanted.queue) if wanted.queue else "all queues"
    return Question(
        title=f"{word} {many}?", text=text, button=f"{word} {many}" if count else "", action=action,
        danger=verb == "delete", confirm=name, samples=samples, fields=fields,
    )  # fmt: skip


def wanted_filter(context: PageContext) -> JobFilter:
    """Return the filter that a form names: as text, or by a queue with an error group or a state."""
    text = unquote(context.param("filter"))
    for key, name in (("queue", "queue"), ("state", "state"), ("error_group", "key")):
        if value := context.param(name):
            text = f"{text} {key}:{quote_value(value)}".strip()
    try:
        return parse_filter(text, context.redactor.hides)
    except FilterError as error:
        raise BadRequest(str(error)) from None
