"""The actions of the dashboard: one function for each verb, and the entry that each leaves in the activity."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec

from penstock.client.bulk import change_jobs
from penstock.client.queue import Queue
from penstock.dashboard.auth import Verb
from penstock.dashboard.context import BadRequest, Message, PageContext
from penstock.dashboard.formatting import number
from penstock.dashboard.guard import address_of
from penstock.dashboard.job_changes import change_job, checked_payload, parse_moment, parse_payload, with_hidden
from penstock.dashboard.protocols import auditing_of
from penstock.dashboard.rendering import link, visible
from penstock.model.cron import Cron
from penstock.model.every import Every
from penstock.model.limit import EVERY, EveryGroup, Limit
from penstock.ops import activity

__all__ = ["ACTIONS", "Done", "log_activity"]


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an action: the message for the viewer, the facts for the activity, and a page to go to."""

    message: Message
    queue: str | None = None
    target: str = ""
    ids: tuple[str, ...] = ()
    count: int = 0
    outcome: str = "done"
    goto: str = ""


Action = Callable[[PageContext], Awaitable[Done]]


def done(text: str, *, good: bool = True, undo: str = "", goto: str = "", **facts: object) -> Done:
    """Return the result of an action; without success its outcome is the text."""
    message = Message(text=text, good=good, undo=undo)
    given: dict[str, object] = {"outcome": "done" if good else text, **facts}
    return msgspec.convert({"message": message, "goto": goto, **given}, Done)


async def log_activity(context: PageContext, verb: str, result: Done) -> None:
    """Add an entry to the activity, if the storage keeps one; payloads are in none."""
    await activity.log_activity(
        context.app,
        verb,
        via="dashboard",
        who=context.viewer.name,
        queue=result.queue,
        target=context.text(result.target)[:500],
        ids=result.ids,
        count=result.count,
        outcome=context.text(result.outcome)[:500],
        role=context.viewer.role,
        address=address_of(context.request),
    )


def target(context: PageContext) -> tuple[Queue, str]:
    """Return the queue and the id of the job that a request names."""
    return context.queue(), context.needed("id")


async def retry(context: PageContext) -> Done:
    """Enqueue a failed or cancelled job again."""
    queue, id = target(context)
    count = await queue.retry(id)
    text = "The job is queued again." if count else "The job was not retried: it has not failed, or is gone."
    return done(text, good=bool(count), queue=queue.name, ids=(id,))


async def run_now(context: PageContext) -> Done:
    """Make a scheduled or retrying job due now."""
    queue, id = target(context)
    moved = bool(await change_jobs(context.app, "run_now", queue.name, [id]))
    text = "The job is due now." if moved else "The job was not moved: it is not scheduled or retrying, or is gone."
    return done(text, good=moved, queue=queue.name, ids=(id,))


async def cancel(context: PageContext) -> Done:
    """Cancel a waiting job, or ask a run to end."""
    queue, id = target(context)
    answer = await queue.cancel(id, running="signal")
    if answer.requested:
        return done("The run was asked to end.", queue=queue.name, ids=(id,))
    good = bool(answer) or answer.already
    text = "The job is cancelled." if good else f"The job was not cancelled: it is {answer.status}."
    return done(text, good=good, queue=queue.name, ids=(id,))


async def kill(context: PageContext) -> Done:
    """Interrupt the run of a job."""
    queue, id = target(context)
    answer = await queue.cancel(id, running="kill")
    good = answer.requested or bool(answer)
    text = "The run is being interrupted." if good else f"There is no run to interrupt: the job is {answer.status}."
    return done(text, good=good, queue=queue.name, ids=(id,))


async def delete(context: PageContext) -> Done:
    """Delete a job for good."""
    queue, id = target(context)
    [answer] = await queue.discard(id)
    text = "The job is deleted." if answer else f"The job was not deleted: {answer.status.replace('_', ' ')}."
    goto = context.link("queue", name=queue.name) if answer else ""
    return done(text, good=bool(answer), goto=goto, queue=queue.name, ids=(id,))


async def edit(context: PageContext) -> Done:
    """Give a waiting job another payload and due time."""
    queue, id = target(context)
    value = await with_hidden(context, queue.name, id, parse_payload(context.param("payload")))
    data = checked_payload(context, queue.name, id, value)
    await change_job(context, queue.name, id, data, parse_moment(context.param("run_at")))
    goto = context.link("job", queue=queue.name, id=id)
    return done("The job is changed.", goto=goto, queue=queue.name, ids=(id,))


async def enqueue(context: PageContext) -> Done:
    """Add a job, checked against the annotation of the queue's handler; `copy` is the same with a job to begin with."""
    queue, copied = context.queue(), context.param("id")
    value = parse_payload(context.param("payload"))
    value = await with_hidden(context, queue.name, copied, value)
    checked_payload(context, queue.name, copied or "new", value)
    run_at, group = parse_moment(context.param("run_at")), context.param("group") or None
    try:
        priority = int(context.param("priority") or 0)
    except ValueError:
        raise BadRequest("The priority must be a whole number.") from None
    moment = None if run_at is None else run_at / 1000
    answer = await queue.enqueue(value, group=group, priority=priority, run_at=moment)
    goto = context.link("job", queue=queue.name, id=answer.id)
    return done("The job is enqueued.", goto=goto, queue=queue.name, ids=(answer.id,))


async def pause(context: PageContext) -> Done:
    """Pause a queue, or one group of it."""
    queue, group = context.queue(), context.param("group") or None
    changed = await queue.pause(group, by=context.viewer.name)
    what = f"Group {visible(group)}" if group else f"Queue {visible(queue.name)}"
    undo = link(context.base, "act", {"verb": "resume", "queue": queue.name, "group": group})
    text = f"{what} is paused." if changed else f"{what} was paused already."
    return done(text, undo=undo if changed else "", queue=queue.name, target=group or "")


async def resume(context: PageContext) -> Done:
    """Resume a queue, or one group of it."""
    queue, group = context.queue(), context.param("group") or None
    changed = await queue.resume(group)
    what = f"Group {visible(group)}" if group else f"Queue {visible(queue.name)}"
    undo = link(context.base, "act", {"verb": "pause", "queue": queue.name, "group": group})
    text = f"{what} is resumed." if changed else f"{what} was not paused."
    return done(text, undo=undo if changed else "", queue=queue.name, target=group or "")


async def delete_queue(context: PageContext) -> Done:
    """Delete a queue and every job in it, if its name was typed."""
    queue = context.queue()
    if context.param("confirm") != visible(queue.name):
        raise BadRequest("Nothing was deleted: the name that was typed is not that of the queue.")
    count = await queue.delete()
    text = f"Queue {visible(queue.name)} is deleted, with {number(count)} jobs."
    return done(text, goto=context.link("queues"), queue=queue.name, count=count)


async def trigger(context: PageContext) -> Done:
    """Put a job of a schedule now."""
    queue, name = context.queue(), context.needed("name")
    answer = await queue.schedules.trigger(name)
    text = "A job of the schedule is enqueued." if answer else "No job was enqueued: the last one has not ended."
    return done(text, good=bool(answer), queue=queue.name, target=name, ids=(answer.id,))


async def pause_schedule(context: PageContext) -> Done:
    """Stop the ticks of a schedule."""
    queue, name = context.queue(), context.needed("name")
    changed = await queue.schedules.pause(name, note=f"by {context.viewer.name}")
    undo = link(context.base, "act", {"verb": "resume_schedule", "queue": queue.name, "name": name})
    return done("The schedule is paused.", undo=undo if changed else "", queue=queue.name, target=name)


async def resume_schedule(context: PageContext) -> Done:
    """Let a schedule tick again."""
    queue, name = context.queue(), context.needed("name")
    changed = await queue.schedules.resume(name)
    undo = link(context.base, "act", {"verb": "pause_schedule", "queue": queue.name, "name": name})
    return done("The schedule ticks again.", undo=undo if changed else "", queue=queue.name, target=name)


async def edit_schedule(context: PageContext) -> Done:
    """Change when a schedule ticks: a cron expression with its zone, or a span in seconds."""
    queue, name, text = context.queue(), context.needed("name"), context.param("when").strip()
    try:
        when = Every(int(text)) if text.isdigit() else Cron(text, tz=context.param("zone") or "UTC")
    except (TypeError, ValueError) as error:
        raise BadRequest(f"The schedule was not changed: {error}") from None
    await queue.schedules.edit(name, when=when)
    return done("The schedule is changed.", goto=context.link("schedules"), queue=queue.name, target=name)


async def remove_schedule(context: PageContext) -> Done:
    """Delete a schedule that code does not declare."""
    queue, name = context.queue(), context.needed("name")
    removed = await queue.schedules.remove(name)
    text = "The schedule is removed." if removed else "There is no such schedule."
    return done(text, good=removed, queue=queue.name, target=name)


def limit_scope(context: PageContext) -> tuple[str, str | EveryGroup | None]:
    """Return the name and the group of the limit that a request is about; of a family the group is None."""
    scope, name = context.param("scope"), context.needed("name")
    if scope not in ("family", "queue", "groups", "group"):
        raise BadRequest("The scope must be family, queue, groups or group.")
    return name, EVERY if scope == "groups" else context.needed("group") if scope == "group" else None


async def set_limit(context: PageContext) -> Done:
    """Change a limit at run time."""
    name, group = limit_scope(context)
    concurrency, rate = context.param("concurrency").strip(), context.param("rate").strip()
    burst = context.param("burst").strip()
    try:
        limit = Limit(
            concurrency=int(concurrency) if concurrency else None, rate=rate or None, burst=int(burst) if burst else 1
        )
    except (TypeError, ValueError) as error:
        raise BadRequest(f"The limit was not changed: {error}") from None
    family = context.param("scope") == "family"
    changed = await (
        context.app.set_limit(name, limit) if family else context.app.queue(name).set_limit(limit, group=group)
    )
    text = "The limit is changed." if changed else "The limit was the same already."
    return done(text, goto=context.link("limits"), queue=name, target=str(context.param("group")))


async def reset_limit(context: PageContext) -> Done:
    """Forget the change of a limit, so that the declared one holds."""
    name, group = limit_scope(context)
    family = context.param("scope") == "family"
    changed = await (context.app.reset_limit(name) if family else context.app.queue(name).reset_limit(group))
    text = "The declared limit holds again." if changed else "The limit had not been changed."
    return done(text, good=changed, queue=name, target=str(context.param("group")))


async def ask_worker(context: PageContext, request: str) -> Done:
    """Ask a worker to claim no more, or to stop."""
    id, storage = context.needed("id"), auditing_of(await context.storage())
    if storage is None:
        raise BadRequest("This storage cannot pass requests to workers.")
    asked = await storage.ask_worker(id, "stop" if request == "stop" else "quiet")
    what = "stops after its runs" if request == "stop" else "claims no more jobs"
    text = f"Worker {visible(id)} {what}." if asked else f"There is no live worker {visible(id)}."
    return done(text, good=asked, target=id)


async def quiet_worker(context: PageContext) -> Done:
    """Ask a worker to claim no more."""
    return await ask_worker(context, "quiet")


async def stop_worker(context: PageContext) -> Done:
    """Ask a worker to stop."""
    return await ask_worker(context, "stop")


ACTIONS: dict[Verb, Action] = {
    "retry": retry, "run_now": run_now, "cancel": cancel, "kill": kill, "delete": delete, "edit": edit,
    "enqueue": enqueue, "copy": enqueue, "pause": pause, "resume": resume, "delete_queue": delete_queue,
    "trigger": trigger, "pause_schedule": pause_schedule, "resume_schedule": resume_schedule,
    "edit_schedule": edit_schedule, "remove_schedule": remove_schedule, "set_limit": set_limit,
    "reset_limit": reset_limit, "quiet_worker": quiet_worker, "stop_worker": stop_worker,
}  # fmt: skip
