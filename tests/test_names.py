"""Names of modules, classes, functions, parameters and variables use the words of the glossary, not images."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("src", "tests", "chaos", "bench", "fuzz", "scripts", "examples", "sim")

#: Images and speech for which the field has a plain word.
IMAGES = frozenset(
    [
        *("aftermath", "bell", "bells", "board", "boards", "bury", "buried", "condemn", "convicted", "crew", "deaf"),
        *("desk", "doom", "doomed", "ear", "ears", "faces", "guilty", "hear", "hears", "heard", "heart"),
        *("innocent", "mailbox", "mourn", "patience", "said", "say", "says"),
        *("sealed", "seat", "seats", "spell", "spelled", "tell", "tells", "told", "unheard", "vitals", "ways", "weigh"),
        *("hired", "hire", "hiring", "riddle", "tale", "mood", "moods", "vain", "owed", "cramped"),
    ]
)


def words_of(name: str) -> set[str]:
    """Return the words of an identifier in snake or camel case."""
    return {word.lower() for part in name.split("_") for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", part)}


def names_in(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Yield the names that a module defines, with their lines."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name, node.lineno
        elif isinstance(node, ast.arg):
            yield node.arg, node.lineno
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node.lineno
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr, node.lineno


def faults_below(folder: str) -> Iterator[str]:
    for path in sorted((ROOT / folder).rglob("*.py")):
        where = str(path.relative_to(ROOT))
        if words_of(path.stem) & IMAGES:
            yield f"{where}: the module's name"
        for name, line in names_in(ast.parse(path.read_text(encoding="utf-8"))):
            if found := (words_of(name) & IMAGES):
                yield f"{where}:{line}: {name} ({', '.join(sorted(found))})"


@pytest.mark.parametrize("folder", FOLDERS)
def test_names_are_plain_words(folder: str) -> None:
    """No module, class, function, parameter or variable is named by an image."""
    faults = sorted(set(faults_below(folder)))
    assert not faults, "\n".join(["", *faults])


@pytest.mark.parametrize("name", ["hear", "_told", "BoardLeases", "EARS_EVERY", "heard_stop", "test_patience"])
def test_an_image_in_a_name_is_found(name: str) -> None:
    """Words are found in snake case, camel case and constants."""
    assert words_of(name) & IMAGES


def test_plain_names_pass() -> None:
    """A word inside of another word is no image."""
    assert not words_of("ClearDashboard_keyboard_handler_always") & IMAGES
