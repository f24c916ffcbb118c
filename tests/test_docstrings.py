"""Everything public has a docstring with a first line of one sentence."""

from __future__ import annotations

import enum
import inspect
from collections.abc import Iterator
from typing import Any

import pytest

import penstock

CLASSES = [name for name in penstock.__all__ if inspect.isclass(getattr(penstock, name))]


def public_members(kind: type[Any]) -> Iterator[tuple[str, Any]]:
    """Return the methods and properties that a user of a class may call, those of its bases in Penstock included."""
    for base in kind.__mro__:
        if base.__module__.partition(".")[0] != "penstock":
            continue
        for name, value in vars(base).items():
            if name.startswith("_"):
                continue
            if isinstance(value, property):
                yield f"{base.__name__}.{name}", value.fget
            elif isinstance(value, staticmethod | classmethod):
                yield f"{base.__name__}.{name}", value.__func__
            elif inspect.isfunction(value):
                yield f"{base.__name__}.{name}", value


def complaint(text: str | None) -> str | None:
    """Return the fault of a docstring, or None."""
    if not text or not text.strip():
        return "has no docstring"
    first = inspect.cleandoc(text).split("\n\n")[0]
    if not (first[0].isupper() or first[0].isdigit() or first[0] in '`"'):
        return "begins with no sentence"
    if first.rstrip()[-1] not in ".:":
        return "does not end its first sentence"
    return None


@pytest.mark.parametrize("name", CLASSES)
def test_a_public_class_and_its_methods_explain_themselves(name: str) -> None:
    """The class and each of its public methods and properties begin with a sentence of their own."""
    kind = getattr(penstock, name)
    found = {name: complaint(vars(kind).get("__doc__"))}
    if not issubclass(kind, enum.Enum):
        found.update({title: complaint(inspect.getdoc(value)) for title, value in public_members(kind)})
    bad = [f"{title} {why}" for title, why in found.items() if why]
    assert not bad, "\n".join(bad)
