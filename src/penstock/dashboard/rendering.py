"""Rendering of pages and their parts: templates, filters, and addresses of static files."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined, pass_context
from jinja2.runtime import Context
from markupsafe import Markup, escape

from penstock.dashboard import formatting
from penstock.model.printing import escape_controls

__all__ = ["NAVIGATION", "STATIC", "TYPES", "link", "render", "render_parts", "static_file", "static_link"]

#: The entries of the navigation by their path: title, and the key that goes there after `g`.
NAVIGATION = {
    "": ("Overview", "o"), "queues": ("Queues", "q"), "jobs": ("Jobs", "j"), "groups": ("Groups", "k"),
    "workers": ("Workers", "w"), "failures": ("Failures", "f"), "schedules": ("Schedules", "s"),
    "limits": ("Limits", "l"), "doctor": ("Doctor", "d"), "activity": ("Activity", "a"),
}  # fmt: skip

STATIC = Path(str(files("penstock.dashboard"))) / "static"

#: The static files by their suffix; no other is sent.
TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


def link(base: str, path: str, query: Mapping[str, object] | None = None) -> str:
    """Return the address of a page below the mount, with the parts of the query that are not None."""
    given = [(key, str(value)) for key, value in (query or {}).items() if value is not None and value != ""]
    return f"{base}/{path}{'?' + urlencode(given, errors='surrogatepass') if given else ''}"


@lru_cache(maxsize=64)
def static_digest(name: str) -> str:
    """Return the digest of a static file, so that its address changes with its content."""
    return hashlib.sha256((STATIC / name).read_bytes()).hexdigest()[:16]


def static_link(base: str, name: str) -> str:
    """Return the address of a static file."""
    return f"{base}/static/{static_digest(name)}/{name}"


@lru_cache(maxsize=1)
def static_names() -> frozenset[str]:
    """Return the names of all static files."""
    return frozenset(str(path.relative_to(STATIC)) for path in STATIC.rglob("*") if path.suffix in TYPES)


def static_file(rest: str) -> tuple[bytes, str] | None:
    """Return content and type of `<digest>/<name>`; None if there is no such file."""
    _, _, name = rest.partition("/")
    if name not in static_names():
        return None
    path = STATIC / name
    return path.read_bytes(), TYPES[path.suffix]


@pass_context
def time_tag(context: Context, moment: datetime | None) -> str:
    """Return a time relative to that of the page, with the exact one in its title."""
    if moment is None:
        return Markup('<span class="none">–</span>')
    exact = formatting.exact_time(moment)
    text = formatting.ago(moment, context["shell"].at)
    return Markup('<time datetime="{}" title="{}">{}</time>').format(exact, exact, text)


def visible(text: object) -> str:
    """Return a name or message with its control characters escaped, so that it cannot hide or fake others."""
    return escape_controls(str(text))


def prose(text: object) -> Markup:
    """Return a sentence as HTML, with what stands between backticks as code."""
    parts = visible(text).split("`")
    if len(parts) % 2 == 0:  # one is not closed
        return Markup(escape("`".join(parts)))
    code = Markup("<code>{}</code>")
    return Markup("").join(code.format(part) if at % 2 else escape(part) for at, part in enumerate(parts))


def clipped(text: str, most: int = 120) -> str:
    """Return the beginning of a text in one line."""
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 1]}…"


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("penstock.dashboard", "templates"), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True, auto_reload=False,
    )  # fmt: skip
    filters: dict[str, Any] = environment.filters
    filters.update(
        number=formatting.number, per_minute=formatting.per_minute, duration=formatting.duration,
        size=formatting.bytes_text, when=time_tag, visible=visible, clipped=clipped, prose=prose,
    )  # fmt: skip
    return environment


ENVIRONMENT = _environment()


def _complete(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a template with its macros, which see the same shell."""
    macros = ENVIRONMENT.get_template("macros.html").make_module({"shell": values["shell"]})
    return {**values, "m": macros, "navigation": NAVIGATION}


def render(template: str, values: Mapping[str, Any]) -> str:
    """Return a whole page."""
    return ENVIRONMENT.get_template(template).render(_complete(values))


def render_parts(template: str, values: Mapping[str, Any], wanted: Iterable[str]) -> str:
    """Return the named parts of a page, each a block `part_…` of its template; unknown ones are left out."""
    found = ENVIRONMENT.get_template(template)
    context = found.new_context(_complete(values))
    blocks = {**ENVIRONMENT.get_template("base.html").blocks, **found.blocks}
    names = [f"part_{name}" for name in dict.fromkeys(wanted)]
    return "".join("".join(blocks[name](context)) for name in names if name in blocks)
