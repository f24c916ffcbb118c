"""Rows of options in force, and of who set them, for the pages Queue and Job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, cast

import msgspec

from penstock.client.app import Penstock
from penstock.dashboard.formatting import duration
from penstock.model.options import HandlerOptions, JobBounds, rules_for

__all__ = ["OptionRow", "bound_rows", "option_rows"]

#: Options that are shown also if they have their default.
ALWAYS = ("timeout", "max_retries", "result_ttl", "size", "concurrency")

#: Options that can be changed at run time: the limits in force are in the storage.
LIMITS = ("limit", "group_limit")

DURATIONS = ("timeout", "result_ttl", "failed_ttl", "min_backoff", "max_backoff")


class OptionRow(msgspec.Struct, frozen=True, kw_only=True):
    """An option that holds: its value in words, who set it, and, of a job's own bound, the option of the handler."""

    name: str
    value: str
    source: Literal["job", "handler", "preset", "default"]
    handler: str = ""


def bound_rows(app: Penstock, queue: str, stored: bytes) -> list[OptionRow]:
    """Return a job's own bounds, and for the unset ones the options of its handler, if this process knows it."""
    bounds, options, known = JobBounds.decode(stored), app.options(queue), queue in app.handlers
    rules = rules_for(options, bounds)
    rows: list[OptionRow] = []
    for name in JobBounds.__struct_fields__:
        if getattr(bounds, name) is not msgspec.UNSET:
            usual = option_words(options, name) if known else ""
            rows.append(OptionRow(name=name, value=option_words(rules, name), source="job", handler=usual))
        elif known:
            rows.append(OptionRow(name=name, value=option_words(options, name), source=source_of(app, queue, name)))
    return rows


def option_rows(app: Penstock, queue: str) -> list[OptionRow]:
    """Return the options of a queue's handler, without usual ones that are the default; none if it is not known here.

    Limits are left out, because they can be changed at run time, and functions.
    """
    if queue not in app.handlers:
        return []
    options, rows = app.options(queue), list[OptionRow]()
    unused = "size" if options.concurrency is not None else "concurrency"
    for name in HandlerOptions.__struct_fields__:
        source = source_of(app, queue, name)
        if name in LIMITS or name == unused or callable(getattr(options, name)):
            continue
        if name in ALWAYS or source != "default":
            rows.append(OptionRow(name=name, value=option_words(options, name), source=source))
    return rows


def source_of(app: Penstock, queue: str, name: str) -> Literal["handler", "preset", "default"]:
    """Return who set an option: the handler or the preset of the app, else it is the default."""
    usual = getattr(app.defaults.options, name)
    if getattr(app.options(queue), name) != usual:
        return "handler"
    return "default" if usual == getattr(HandlerOptions(), name) else "preset"


def option_words(options: HandlerOptions, name: str) -> str:
    """Return the value of an option in words."""
    value: Any = getattr(options, name)
    if name == "result_ttl" and options.retain != "ttl":
        return "not kept" if options.retain == "none" else "kept for ever"
    if value is None:
        return "none"
    if name in DURATIONS:
        return duration(value)
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {item}" for key, item in cast("Mapping[str, Any]", value).items())
    if name == "permanent":
        return ", ".join(each.__name__ for each in options.permanent)
    return str(value)
