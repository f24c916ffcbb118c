"""The handlers that a worker, or one of its child processes, serves."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from penstock.host import AppHost
from penstock.model.formats import check_type
from penstock.model.handler import Handler
from penstock.model.ids import fail_queue_of
from penstock.ticking import need_scheduling
from penstock.worker.run import units_of

__all__ = ["select_handlers", "share_of"]


def select_handlers(app: AppHost, queues: Sequence[str] | None, capacity: int) -> dict[str, Handler]:
    """Return the handlers of an app, or those of the named queues with their fail queues, checked."""
    known = dict(app.handlers)
    check_schedules(app)
    if queues is not None:
        for queue in queues:
            if queue not in known:
                raise ValueError(f"queues: {queue!r} has no handler; known: {', '.join(map(repr, sorted(known)))}")
        wanted = {*queues, *(fail_queue_of(q) for q in queues if known[q].options.on_failure)}
        known = {queue: handler for queue, handler in known.items() if queue in wanted}
    for queue, handler in known.items():
        check_type(app.codec(queue).payload, handler.signature.payload)
        if units_of(handler) > capacity:
            size = handler.options.size
            raise ValueError(f"capacity ({capacity}) must be at least the size of {queue!r} ({size})")
    return known


def check_schedules(app: AppHost) -> None:
    """Check the schedules that code declares; raises `ValueError` or `NotSupported`."""
    for queue, name in app.declared_schedules:
        if queue not in app.handlers:
            raise ValueError(f"schedule {name!r} is for queue {queue!r}, which has no handler")
    if app.declared_schedules:
        need_scheduling(app.storage)


def share_of(handlers: dict[str, Handler], slot: int, slots: int) -> dict[str, Handler]:
    """Return the handlers for one of several processes: `concurrency=n` is divided among them."""
    share: dict[str, Handler] = {}
    for queue, handler in handlers.items():
        n = handler.options.concurrency
        if n is None:
            share[queue] = handler
        elif part := n // slots + (slot < n % slots):
            options = msgspec.structs.replace(handler.options, concurrency=part)
            share[queue] = handler.with_options(options)
    return share
