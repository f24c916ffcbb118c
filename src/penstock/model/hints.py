"""Messages for names that other systems use and for the wrong kind of app, with the name to use instead."""

from __future__ import annotations

__all__ = ["need_async_with", "need_with", "no_task_attribute"]

#: Methods of tasks in other systems, and the same here.
TASK_METHODS = {
    "delay": "enqueue(...)",
    "send": "enqueue(...)",
    "kiq": "enqueue(...)",
    "apply_async": "options(...).enqueue(...)",
    "send_with_options": "options(...).enqueue(...)",
    "schedule": "options(delay=...).enqueue(...)",
    "apply": "call(...), or the task itself to run it here",
    "map": "enqueue_many(...)",
}


def no_task_attribute(task: object, name: str) -> AttributeError:
    """Return the error for an attribute that a task does not have."""
    text = f"{type(task).__name__!r} object has no attribute {name!r}"
    if instead := TASK_METHODS.get(name):
        text += f"; use {instead}"
    return AttributeError(text, name=name, obj=task)


def need_async_with(name: str) -> TypeError:
    """Return the error for `with` where the object needs an event loop."""
    return TypeError(f"this {name} is async: write `async with`, or import {name} from penstock.sync for `with`")


def need_with(name: str) -> TypeError:
    """Return the error for `async with` where the object is of `penstock.sync`."""
    return TypeError(f"this {name} is of penstock.sync: write `with`, or import {name} from penstock for `async with`")
