"""Who may import whom: the layers, checked on the syntax tree, type-only and late imports included."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parent.parent / "src"

#: Pure words, each of which may import those before it.
WORDS = (
    "_version", "errors", "clock", "job", "policy", "outcome", "headers", "serde", "sealed", "task", "events", "run",
    "ends", "entry", "merging", "presence", "presets", "vitals", "why", "durability",
)  # fmt: skip
ASKING = {
    "app",
    "looking",
    "queue",
    "status",
    "waiting",
    "reservation",
    "holding",
    "feed",
    "calls",
    "sync",
    "admin",
    "doctor",
    "transfer",
}
WORKING = {"worker", "supervisor"}
FACES = {"__main__", "cli", "dashboard"}
TESTING = {"testing"}
#: What pytest loads wherever Penstock is installed; it stands beside the package.
PLUGIN = "_penstock_pytest"
BACKENDS = {"sqlite", "redis"}

#: What a part may import from outside of the standard library.
THIRD_PARTY = {
    "words": {"msgspec"},
    "storage.base": {"msgspec"},
    "storage": set[str](),
    "storage.sqlite": {"msgspec"},
    "storage.redis": {"msgspec", "redis", "hiredis"},
    "asking": {"msgspec"},
    "working": {"msgspec", "uvloop"},
    "faces": {"msgspec", "click", "rich", "starlette", "uvicorn"},
    "testing": {"msgspec", "hypothesis"},
    "plugin": {"pytest"},
    "root": set[str](),
}

#: Parts of the standard library that belong to one place.
HOMES = {"sqlite3": "storage.sqlite"}

#: The one module of the package that may import a part of it inside of a function: `connect` picks the backend.
LATE = "penstock.storage"


@dataclass(frozen=True)
class Import:
    """One import as it stands in a file: who, whom, where, and inside which function."""

    by: str
    of: str
    line: int
    function: str | None = None

    def __str__(self) -> str:
        return f"{self.by} (line {self.line}) imports {self.of}"


def sources() -> dict[str, str]:
    """Every module of the package by its dotted name, with its text."""
    found: dict[str, str] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = path.read_text(encoding="utf-8")
    return found


def imports_of(name: str, text: str, modules: set[str], package: bool) -> Iterator[Import]:
    """Every import statement of a module, wherever it stands."""

    def walk(node: ast.AST, function: str | None) -> Iterator[Import]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Import):
                yield from (Import(name, alias.name, child.lineno, function) for alias in child.names)
            elif isinstance(child, ast.ImportFrom):
                base = origin(child, name, package)
                for alias in child.names:
                    full = f"{base}.{alias.name}"
                    yield Import(name, full if full in modules else base, child.lineno, function)
            elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                yield from walk(child, child.name)
            else:
                yield from walk(child, function)

    yield from walk(ast.parse(text), None)


def origin(node: ast.ImportFrom, name: str, package: bool) -> str:
    """The module that a `from … import` names, dots resolved."""
    if not node.level:
        return node.module or ""
    parts = name.split(".")
    base = parts[: len(parts) - node.level + (1 if package else 0)]
    return ".".join([*base, node.module] if node.module else base)


def all_imports(texts: dict[str, str]) -> list[Import]:
    """The imports of a whole package."""
    modules = set(texts)
    packages = {name.rpartition(".")[0] for name in modules}
    return [found for name, text in texts.items() for found in imports_of(name, text, modules, name in packages)]


def part_of(module: str) -> str:
    """The part that a module of Penstock belongs to; a module of no part has no place in the layout."""
    if module == PLUGIN:
        return "plugin"
    _, *rest = module.split(".")
    if not rest:
        return "root"
    head = rest[0]
    if head in WORDS and len(rest) == 1:
        return "words"
    if head == "storage":
        if len(rest) == 1:
            return "storage"
        if rest[1] == "base" and len(rest) == 2:
            return "storage.base"
        if rest[1] in BACKENDS:
            return f"storage.{rest[1]}"
    for part, heads in (("asking", ASKING), ("working", WORKING), ("faces", FACES), ("testing", TESTING)):
        if head in heads:
            return part
    raise AssertionError(f"{module} is in no layer: give it a place in tests/test_imports.py, or another name")


#: Which parts a part may import; a part may always import itself.
MAY = {
    "words": set[str](),
    "storage.base": {"words"},
    "storage": {"words", "storage.base"},
    "storage.sqlite": {"words", "storage.base"},
    "storage.redis": {"words", "storage.base"},
    "asking": {"words", "storage.base", "storage"},
    "working": {"words", "storage.base"},
    "root": {"words", "storage.base", "storage", "asking", "working"},
    "faces": {"words", "storage.base", "storage", "asking", "working", "root"},
    "testing": {"words", "storage.base", "storage", "asking", "working", "root"},
    "plugin": {"asking", "root", "testing"},
}


def fault(found: Import) -> str | None:
    """What is wrong with an import, or None."""
    by, top = part_of(found.by), found.of.split(".")[0]
    if top != "penstock":
        return outside_fault(by, top)
    of = part_of(found.of)
    if found.function is not None:
        backend = of.startswith("storage.") and of != "storage.base"
        if (found.by == LATE and backend) or (by == "plugin" and of in MAY[by]):
            return None
        return f"inside {found.function}(): only {LATE} may import late, and only a backend"
    if by == of == "words":
        before = WORDS.index(found.of.split(".")[1]) < WORDS.index(found.by.split(".")[1])
        return None if before else f"a word may import earlier words only, in the order {', '.join(WORDS)}"
    if by == of or of in MAY[by]:
        return None
    return f"{by} may import {', '.join(sorted(MAY[by])) or 'nothing'} and itself, not {of}"


def outside_fault(by: str, top: str) -> str | None:
    """What is wrong with importing a library, or None."""
    if top in HOMES and by != HOMES[top]:
        return f"{top} belongs to {HOMES[top]} alone"
    if top in sys.stdlib_module_names or top in THIRD_PARTY[by]:
        return None
    allowed = ", ".join(sorted(THIRD_PARTY[by]))
    return f"{by} may import the standard library{' and ' + allowed if allowed else ''}, not {top}"


def cycle_in(found: list[Import]) -> list[str] | None:
    """A round trip through the imports, or None."""
    graph: dict[str, set[str]] = {}
    for item in found:
        if item.of.split(".")[0] == "penstock":
            graph.setdefault(item.by, set()).add(item.of)
    finished: set[str] = set()

    def visit(module: str, path: list[str]) -> list[str] | None:
        if module in path:
            return [*path[path.index(module) :], module]
        if module in finished:
            return None
        for target in sorted(graph.get(module, ())):
            if trip := visit(target, [*path, module]):
                return trip
        finished.add(module)
        return None

    for module in sorted(graph):
        if trip := visit(module, []):
            return trip
    return None


def test_every_import_goes_down_the_layers() -> None:
    """Every module has a layer, and imports only what that layer may."""
    assert all(part_of(module) for module in sources())
    faults = [f"{found}: {why}" for found in all_imports(sources()) if (why := fault(found))]
    assert not faults, "\n".join(["", *faults])


def test_imports_have_no_cycles() -> None:
    """No module imports itself by way of others, type-only and late imports included."""
    trip = cycle_in(all_imports(sources()))
    assert trip is None, " → ".join(trip or [])


@pytest.mark.parametrize(
    ("module", "line", "why"),
    [
        ("penstock.errors", "from penstock.job import State", "earlier words"),
        ("penstock.job", "import redis", "not redis"),
        ("penstock.job", "from penstock.storage.base import Put", "not storage.base"),
        ("penstock.storage.sqlite", "from penstock.storage.redis.keys import ready", "not storage.redis"),
        ("penstock.storage.redis.keys", "from penstock.storage import connect", "not storage"),
        ("penstock.storage.redis", "import sqlite3", "sqlite3 belongs to storage.sqlite"),
        ("penstock.app", "from penstock.worker import Worker", "not working"),
        ("penstock.worker.loop", "from penstock.queue import Queue", "not asking"),
        ("penstock.worker.loop", "from penstock.storage import connect", "not storage"),
        ("penstock.worker.loop", "from penstock import Penstock", "not root"),
        ("penstock.app", "from penstock.cli import main", "not faces"),
        ("penstock.app", "from penstock.testing import Clock", "not testing"),
        ("penstock.testing.clock", "import pytest", "not pytest"),
        ("_penstock_pytest", "def f():\n    from penstock.worker import Worker", "inside f()"),
        ("penstock.app", "def f():\n    from penstock.job import State", "inside f()"),
        ("penstock.app", "if TYPE_CHECKING:\n    from .worker import Worker", "not working"),
    ],
)
def test_the_rule_refuses(module: str, line: str, why: str) -> None:
    """An import that breaks the rule is refused, with the reason."""
    found = list(imports_of(module, line, set(sources()), package=False))
    assert [why in (fault(item) or "") for item in found] == [True]


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("penstock.job", "from penstock.clock import Clock"),
        ("penstock.storage.base", "import msgspec\nfrom penstock.job import State"),
        ("penstock.storage", "def connect(url):\n    from penstock.storage.redis import RedisStorage"),
        ("penstock.storage.redis.keys", "from penstock.storage.redis.scripts import load"),
        ("penstock.worker.loop", "from penstock.storage.base import Storage"),
        ("penstock.cli.demo", "from penstock import Penstock\nimport click"),
        ("_penstock_pytest", "import pytest\ndef f():\n    from penstock.testing import Clock"),
    ],
)
def test_the_rule_allows(module: str, line: str) -> None:
    """An import that keeps the rule passes."""
    found = list(imports_of(module, line, set(sources()), package=False))
    assert [fault(item) for item in found] == [None] * len(found)


def test_a_cycle_is_found_through_a_late_import() -> None:
    """A cycle that is closed inside of a function is still a cycle."""
    texts = {
        "penstock.job": "def f():\n    from penstock import clock",
        "penstock.clock": "from penstock.job import State",
    }
    assert cycle_in(all_imports(texts)) == ["penstock.clock", "penstock.job", "penstock.clock"]


def test_a_module_without_a_layer_is_refused() -> None:
    """A new module must be given a place before anything may import it."""
    with pytest.raises(AssertionError, match=r"penstock\.helpers is in no layer"):
        part_of("penstock.helpers")
