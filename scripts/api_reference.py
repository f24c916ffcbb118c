"""Write docs/reference/api.md from the docstrings of public names; with --check, only test whether it is up to date."""

from __future__ import annotations

import enum
import importlib
import inspect
import sys
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

import penstock

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "api.md"

TOP = """\
# The Python API

<!-- This page is written by scripts/api_reference.py from the docstrings. -->

Every public name. Durations are seconds (`float`) or `timedelta`; times are aware `datetime`s or Unix timestamps.
`Span` and `Moment` in the signatures mean just that. `UNSET` is *not given*. [All options](options.md) explains each
option of a handler, a job and a worker.
"""

#: Headings and their names, in this order; all other public classes are under the last heading.
SECTIONS = {
    "The app": ["Penstock"],
    "Queues and tasks": ["Queue", "Task", "Entry", "Update", "Enqueued", "Cancelled", "Reservation"],
    "Jobs, workers and events": ["JobStatus", "Page", "State", "Why", "Reason", "WorkerInfo", "RunInfo", "Event"],
    "Histories": ["Attempt", "Line", "Stream", "Part", "current_job"],
    "For operators": ["Activity", "Bulk", "BulkPreview", "BulkAction", "Release"],
    "Inside a handler": ["Job", "Progress", "Failure", "Outcome", "Retry", "PermanentError", "HandlerOptions"],
    "Workers": ["Worker"],
    "Serdes": ["Serde", "Signed", "Encrypted"],
    "Errors and the rest": [],
}
#: Classes that users do not construct.
NOT_CONSTRUCTED = {"Bulk", "Queue", "Task", "Reservation", "Job", "Page", "EventStream", "Stream", "TaskCall"}
#: Methods of an app and a queue that are for workers, not for users.
FOR_WORKERS = {
    "blocking_storage",
    "build_job",
    "codec",
    "emit",
    "new_job",
    "opened",
    "options",
    "payload_type",
    "using_storage",
}
MODULES = {
    "penstock.sync": "The same names and errors without `await`. Only differences are listed; methods are those above.",
    "penstock.dashboard": (
        'Pages for a browser: [how to use it](../how-to/dashboard.md). Needs `pip install "penstock[dashboard]"`.'
    ),
    "penstock.telemetry": "Metrics for Prometheus: [how to use them](../how-to/monitoring.md).",
    "penstock.telemetry.logs": "Log records with the running job: [how to use them](../how-to/logs.md).",
    "penstock.telemetry.otel": "Traces of OpenTelemetry: [how to use them](../how-to/traces.md).",
    "penstock.telemetry.sentry": "Events of Sentry: [how to use it](../how-to/traces.md#sentry).",
    "penstock.testing": (
        "For your own tests: [how to use it](../how-to/testing.md). `AnyApp` is an app of either kind: with a\n"
        "`penstock.Penstock` coroutines are awaited, with a `penstock.sync.Penstock` the result is returned at once."
    ),
    "penstock.testing.conformance": "For storages of your own.",
}
#: Modules whose classes are shown without their methods.
BRIEF = {"penstock.sync", "penstock.testing.conformance"}

MEMBERS = (property, cached_property, staticmethod, classmethod)


def members(kind: type[Any]) -> Iterator[tuple[str, Any]]:
    """Yield the public methods and properties of a class and its bases in Penstock, in their order."""
    seen: set[str] = set()
    for base in kind.__mro__:
        if base.__module__.partition(".")[0] != "penstock":
            continue
        for name, value in vars(base).items():
            plain = inspect.isfunction(value) or isinstance(value, MEMBERS) or is_documented_slot(value)
            inner = name in FOR_WORKERS and kind.__name__ in ("Penstock", "Queue")
            if plain and not name.startswith("_") and name not in seen and not inner:
                seen.add(name)
                yield name, value


def is_documented_slot(value: Any) -> bool:
    """Return whether a member of a class is a slot that has a docstring."""
    return inspect.ismemberdescriptor(value) and bool(inspect.getdoc(value))


def slot_annotation(slot: Any, name: str) -> Any:
    """Return the annotation of a slot in its class."""
    return slot.__objclass__.__annotations__[name]


def signature(name: str, function: Any, *, bound: bool = True) -> str:
    """Return the call signature, on several lines if it is long."""
    given = list(inspect.signature(function).parameters.values())
    pieces: list[str] = []
    star = False
    for parameter in given[1:] if bound and given and given[0].name in ("self", "cls") else given:
        if parameter.kind is parameter.KEYWORD_ONLY and not star:
            pieces.append("*")
            star = True
        star = star or parameter.kind is parameter.VAR_POSITIONAL
        mark = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
        kind = "" if parameter.annotation is parameter.empty else f": {annotation_text(parameter.annotation)}"
        default = "" if parameter.default is parameter.empty else f" = {parameter.default!r}"
        pieces.append(f"{mark}{parameter.name}{kind}{default if kind else default.replace(' ', '')}")
    gives = inspect.signature(function).return_annotation
    tail = "" if gives is inspect.Signature.empty or name[0].isupper() else f" -> {annotation_text(gives)}"
    asynchronous = "await " if inspect.iscoroutinefunction(inspect.unwrap(function)) else ""
    line = f"{asynchronous}{name}({', '.join(pieces)}){tail}"
    if len(line) <= 100:
        return line
    return f"{asynchronous}{name}(\n" + "".join(f"    {piece},\n" for piece in pieces) + f"){tail}"


def annotation_text(annotation: Any) -> str:
    """Return an annotation as it is written in the source."""
    return annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))


def prose(thing: Any) -> str:
    """Return a docstring with its paragraphs unchanged."""
    return inspect.getdoc(thing) or ""


def fields(kind: type[msgspec.Struct]) -> Iterator[str]:
    """Yield the fields of a struct as a table."""
    yield "| field | type | default |\n|---|---|---|"
    for field in msgspec.structs.fields(kind):
        annotation = next(
            (vars(base)["__annotations__"][field.name] for base in kind.__mro__
             if field.name in vars(base).get("__annotations__", {})), field.type,
        )  # fmt: skip
        if field.default is not msgspec.NODEFAULT:
            default = f"`{field.default!r}`"
        else:
            default = "" if field.default_factory is msgspec.NODEFAULT else f"`{field.default_factory()!r}`"
        yield f"| `{field.name}` | `{annotation_text(annotation).replace('|', chr(92) + '|')}` | {default} |"
    yield ""


def class_lines(name: str, kind: Any, level: str = "###", *, whole: bool = True) -> Iterator[str]:
    """Yield the lines about one class or function: docstring, signature, fields and methods."""
    yield f"\n{level} {name}\n"
    if inspect.isfunction(kind):
        yield f"```text\n{signature(name, kind)}\n```\n\n{prose(kind)}\n"
        return
    yield f"{prose(kind)}\n"
    if issubclass(kind, enum.Enum):
        yield "Values: " + ", ".join(f"`{value.value}`" for value in kind) + ".\n"
        return
    if issubclass(kind, msgspec.Struct):
        yield from fields(kind)
    elif "__init__" in vars(kind) and not (getattr(kind, "_is_protocol", False) or kind.__name__ in NOT_CONSTRUCTED):
        yield f"```text\n{signature(kind.__name__, kind.__init__)}\n```\n"
    for member, value in members(kind) if whole else ():
        yield from member_lines(name, member, value, f"{level}#")


def member_lines(owner: str, name: str, value: Any, level: str) -> Iterator[str]:
    """Yield the lines about one method or property."""
    yield f"{level} {owner}.{name}\n"
    get: Any = value.fget if isinstance(value, property) else value.func if isinstance(value, cached_property) else None
    if get is not None or is_documented_slot(value):
        gives = slot_annotation(value, name) if get is None else inspect.signature(get).return_annotation
        yield f"```text\n{name}: {annotation_text(gives)}\n```\n"
    else:
        function = value.__func__ if isinstance(value, staticmethod | classmethod) else value
        yield f"```text\n{signature(name, function)}\n```\n"
    yield f"{prose(value)}\n"


def page() -> str:
    """Return the whole page."""
    lines = [TOP]
    named = {name for names in SECTIONS.values() for name in names}
    others = {name: getattr(penstock, name) for name in penstock.__all__ if name not in named}
    rest = [name for name, value in others.items() if inspect.isclass(value) or inspect.isfunction(value)]
    for title, names in SECTIONS.items():
        lines.append(f"\n## {title}")
        for name in names or rest:
            lines += class_lines(name, getattr(penstock, name))
    for module, text in MODULES.items():
        found = importlib.import_module(module)
        lines.append(f"\n## {module}\n\n{text}")
        for name in found.__all__:
            lines += class_lines(f"{module}.{name}", getattr(found, name), whole=module not in BRIEF)
    return "\n".join(lines).rstrip() + "\n"


def main(arguments: list[str]) -> int:
    """Write the page; with --check, return 1 if that would change it."""
    text = page()
    if "--check" in arguments:
        same = PAGE.exists() and PAGE.read_text("utf-8") == text
        print("docs/reference/api.md is up to date" if same else "run: python scripts/api_reference.py")
        return 0 if same else 1
    PAGE.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
