"""The page about the architecture names files, functions and classes that exist, and every package."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.docs.blocks import ROOT
from tests.docs.test_site import script
from tests.test_imports import LAYERS

PAGE = ROOT / "docs" / "explanation" / "architecture.md"
PACKAGE = ROOT / "src" / "penstock"
LINK = re.compile(r"\[`(?P<path>[^`:\s]+)(?:: (?P<name>[^`]+))?`\]\((?P<to>[^)]+)\)")
CODE = re.compile(r"`([^`\n]+)`")
CLASS = re.compile(r"[A-Z][a-z]\w*")
FILE = re.compile(r"\w+\.(?:py|lua|sql)")
WALKS = ("Enqueue", "Claim", "Run", "Settle", "Wait for a result", "Cancel", "Crash")
#: Layers that are not worth a box or a paragraph.
SMALL = {"penstock", "penstock._times", "penstock._version", "penstock.__main__", "_penstock_pytest"}


class Link(NamedTuple):
    """A link of the page: the file it names, the function or class in it, and the address."""

    line: int
    path: str
    name: str | None
    to: str


def links(text: str) -> Iterator[Link]:
    """Yield the links to the code, with their lines."""
    for found in LINK.finditer(text):
        yield Link(text.count("\n", 0, found.start()) + 1, found["path"], found["name"], found["to"])


def names_in(path: Path) -> set[str]:
    """Return the functions, classes and methods of a Python file, or the functions of a Lua file."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".lua":
        return set(re.findall(r"^local function (\w+)", text, re.MULTILINE))
    found: set[str] = set()
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            inner = (each for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef))
            found.update(f"{node.name}.{each.name}" for each in inner)
    return found


def fault(link: Link, package: Path = PACKAGE) -> str | None:
    """Return what is wrong with a link, or None."""
    target = package / link.path
    if not target.exists():
        return f"line {link.line}: there is no {link.path}"
    if (PAGE.parent / link.to).resolve() != (PACKAGE / link.path).resolve():
        return f"line {link.line}: {link.path} leads to {link.to}"
    if link.name is not None and link.name not in names_in(target):
        return f"line {link.line}: {link.name} is gone from {link.path}; it has {', '.join(sorted(names_in(target)))}"
    return None


def test_every_file_and_function_of_the_page_exists() -> None:
    """A step names a file below src/penstock, and a function, class or method in it."""
    found = list(links(PAGE.read_text(encoding="utf-8")))
    assert len(found) > 50
    assert [why for link in found if (why := fault(link))] == []


def test_every_class_and_file_in_the_text_exists() -> None:
    """Classes and file names that the page mentions without a link are somewhere in the package."""
    files = list(PACKAGE.rglob("*"))
    known = {path.name for path in files}
    for path in files:
        if path.suffix == ".py":
            known |= names_in(path)
    mentioned = CODE.findall(PAGE.read_text(encoding="utf-8"))
    assert [each for each in mentioned if (CLASS.fullmatch(each) or FILE.fullmatch(each)) and each not in known] == []


def test_files_of_a_package_paragraph_are_in_that_package() -> None:
    """A paragraph that begins with a package names files of that package, unless the file is linked."""
    for paragraph in PAGE.read_text(encoding="utf-8").split("\n\n"):
        if not (head := LINK.match(paragraph.removeprefix("**"))):
            continue
        package = PACKAGE / head["path"]
        files = [each for each in CODE.findall(LINK.sub("", paragraph)) if FILE.fullmatch(each)]
        if package.is_dir():
            assert [each for each in files if not (package / each).exists()] == [], head["path"]


@pytest.mark.parametrize("walk", WALKS)
def test_every_walk_is_a_list_of_steps(walk: str) -> None:
    """Each part of a job's life is followed step by step, each step beginning with a link."""
    part = PAGE.read_text(encoding="utf-8").partition(f"\n### {walk}\n")[2].partition("\n### ")[0]
    steps = re.findall(r"^\d+\. (.*)$", part, re.MULTILINE)
    assert len(steps) >= 5
    assert [step for step in steps if not LINK.match(step)] == []


def test_every_layer_has_a_paragraph_and_a_box() -> None:
    """Every layer of tests/test_imports.py is linked on the page and drawn."""
    linked = {link.path for link in links(PAGE.read_text(encoding="utf-8"))}
    drawn = {name for name, *_ in script("architecture_diagram").BOXES}
    for layer in set(LAYERS) - SMALL:
        path = layer.removeprefix("penstock.").replace(".", "/")
        assert linked & {path, f"{path}.py"}, f"{layer} has no paragraph on {PAGE.name}"
        assert layer in drawn, f"{layer} is not drawn by scripts/architecture_diagram.py"
    assert drawn <= set(LAYERS) | {"penstock.worker.supervisor"}


def test_a_name_that_is_gone_is_named() -> None:
    """A link to a file or function that does not exist is reported with its line and name."""
    text = (
        "[`client/queue.py: Queue.hurry`](../../src/penstock/client/queue.py)\n[`gone.py`](../../src/penstock/gone.py)"
    )
    first, second = [fault(link) or "" for link in links(text)]
    assert "line 1: Queue.hurry is gone from client/queue.py" in first
    assert second == "line 2: there is no gone.py"
