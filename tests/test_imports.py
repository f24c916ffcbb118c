"""The allowed imports: layers are folders, checked on the syntax tree, type-only and late imports included."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parent.parent / "src"


@dataclass(frozen=True)
class Layer:
    """A folder or module of the package, the layers below it that it may import, and its libraries."""

    path: str
    below: frozenset[str] = frozenset()
    libraries: frozenset[str] = field(default=frozenset({"msgspec"}))


def layer(path: str, below: str = "", libraries: str = "msgspec") -> Layer:
    return Layer(path, frozenset(below.split()), frozenset(libraries.split()))


SHARED = (
    "penstock.aio penstock.host penstock.claims penstock.limit_changes penstock.ticking penstock.app_loader "
    "penstock.log_config"
)
PROTOCOLS = (
    "penstock.storage.base penstock.storage.limiting penstock.storage.observing penstock.storage.scheduling "
    "penstock.storage.recording penstock.storage.auditing penstock.storage.flowing"
)
BOTTOM = f"penstock._version penstock.errors penstock.model {PROTOCOLS}"
PACKAGE = f"{BOTTOM} {SHARED} penstock.storage penstock.client penstock.worker penstock.ops penstock.sync penstock"

#: From the bottom to the top. A module belongs to the layer with the longest path that its name begins with.
LAYERS = {
    each.path: each
    for each in (
        layer("penstock._version", libraries=""),
        layer("penstock._times", libraries=""),
        layer("penstock.errors", "penstock._times"),
        layer("penstock.model", "penstock._times penstock.errors", "msgspec cronsim"),
        layer("penstock.storage.limiting", "penstock.errors penstock.model"),
        layer("penstock.storage.observing", "penstock.errors penstock.model"),
        layer("penstock.storage.scheduling", "penstock.errors penstock.model"),
        layer("penstock.storage.recording", "penstock.errors penstock.model"),
        layer("penstock.storage.auditing", "penstock.errors penstock.model"),
        layer("penstock.storage.base", "penstock.errors penstock.model penstock.storage.limiting"),
        layer("penstock.storage.flowing", "penstock.errors penstock.model penstock.storage.base"),
        layer("penstock.storage.sqlite", f"{BOTTOM} penstock.aio"),
        layer("penstock.storage.redis", f"{BOTTOM} penstock.aio", "msgspec redis hiredis"),
        layer("penstock.storage", f"{BOTTOM} penstock.storage.sqlite penstock.storage.redis", ""),
        layer("penstock.aio", "penstock.errors"),
        layer("penstock.host", BOTTOM),
        layer("penstock.claims", f"{BOTTOM} penstock.host penstock.aio"),
        layer("penstock.limit_changes", f"{BOTTOM} penstock.host"),
        layer("penstock.ticking", f"{BOTTOM} penstock.host"),
        layer("penstock.app_loader", f"{BOTTOM} penstock.host"),
        layer("penstock.log_config", "penstock.model"),
        layer("penstock.client", f"{BOTTOM} {SHARED} penstock.storage"),
        layer("penstock.worker", f"{BOTTOM} {SHARED}", "msgspec uvloop"),
        layer("penstock.ops", f"{BOTTOM} {SHARED} penstock.storage penstock.client"),
        layer("penstock.sync", f"{BOTTOM} {SHARED} penstock.storage penstock.client penstock.worker"),
        layer("penstock", f"{BOTTOM} {SHARED} penstock.storage penstock.client penstock.worker", ""),
        layer("penstock.telemetry", PACKAGE, "msgspec prometheus_client opentelemetry sentry_sdk"),
        layer(
            "penstock.dashboard",
            f"{PACKAGE} penstock.telemetry",
            "msgspec cronsim starlette jinja2 markupsafe a2wsgi uvicorn",
        ),
        layer("penstock.cli", f"{PACKAGE} penstock.telemetry penstock.dashboard", "msgspec click rich"),
        layer("penstock.__main__", "penstock.cli", ""),
        layer(
            "penstock.testing", f"{PACKAGE} penstock.storage.sqlite penstock.storage.redis", "msgspec hypothesis redis"
        ),
        layer("_penstock_pytest", "penstock penstock.sync penstock.testing", "pytest"),
    )
}

#: Parts of the standard library that belong to one layer.
HOMES = {"sqlite3": "penstock.storage.sqlite"}

#: Layers that are imported inside of functions, so that a program loads only those that it uses.
ON_DEMAND = frozenset({"penstock.storage.sqlite", "penstock.storage.redis", "penstock.dashboard"})
#: pytest loads this module wherever Penstock is installed, so it imports the package inside of its fixtures.
PLUGIN = "_penstock_pytest"


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
    """Return every module of the package by its dotted name, with its text."""
    found: dict[str, str] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = path.read_text(encoding="utf-8")
    return found


def imports_of(name: str, text: str, modules: set[str], package: bool) -> Iterator[Import]:
    """Yield every import statement of a module, at any depth."""

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
    """Return the module that a `from … import` names, dots resolved."""
    if not node.level:
        return node.module or ""
    parts = name.split(".")
    base = parts[: len(parts) - node.level + (1 if package else 0)]
    return ".".join([*base, node.module] if node.module else base)


def all_imports(texts: dict[str, str]) -> list[Import]:
    """Return the imports of a whole package."""
    modules = set(texts)
    packages = {name.rpartition(".")[0] for name in modules}
    return [found for name, text in texts.items() for found in imports_of(name, text, modules, name in packages)]


def parents_of(module: str) -> list[str]:
    """Return the packages that Python imports before a module, outermost first."""
    parts = module.split(".")
    return [".".join(parts[:size]) for size in range(1, len(parts))]


def layer_of(module: str) -> Layer:
    """Return the layer of a module. The package itself is a layer of its own, with no other module in it."""
    for path in reversed([*parents_of(module), module]):
        if path in LAYERS and (path != "penstock" or module == "penstock"):
            return LAYERS[path]
    raise AssertionError(f"{module} is in no layer: move it into a folder, or give it a layer in tests/test_imports.py")


def fault(found: Import) -> str | None:
    """Return the fault of an import, or None."""
    by, top = layer_of(found.by), found.of.split(".")[0]
    if top != "penstock":
        return library_fault(by, top)
    of = layer_of(found.of)
    if by is not of and of.path not in by.below:
        return f"{by.path} may import {', '.join(sorted(by.below)) or 'nothing'} and itself, not {of.path}"
    if by.path == PLUGIN:
        return None
    on_demand = of.path in ON_DEMAND and by is not of
    if on_demand and found.function is None:
        return f"{of.path} is imported on demand, inside of a function"
    if found.function is not None and not on_demand:
        return f"inside {found.function}(): import it at the top of the file"
    return None


def library_fault(by: Layer, top: str) -> str | None:
    """Return the fault of importing a library, or None."""
    if top in HOMES and by.path != HOMES[top]:
        return f"{top} belongs to {HOMES[top]} alone"
    if top in sys.stdlib_module_names or top in by.libraries:
        return None
    allowed = ", ".join(sorted(by.libraries))
    return f"{by.path} may import the standard library{' and ' + allowed if allowed else ''}, not {top}"


def cycle_in(found: list[Import]) -> list[str] | None:
    """Return a cycle in the imports, or None.

    Importing `a.b.c` runs `a` and `a.b` first, so these count too, unless the importing module is inside of them.
    """
    graph: dict[str, set[str]] = {}
    for item in found:
        if item.of.split(".")[0] == "penstock":
            running = {item.by, *parents_of(item.by)}
            targets = {item.of, *(parent for parent in parents_of(item.of) if parent not in running)}
            graph.setdefault(item.by, set()).update(targets)
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
    """Every module is in a layer, and imports only the layers below it."""
    assert all(layer_of(module) for module in sources())
    faults = [f"{found}: {why}" for found in all_imports(sources()) if (why := fault(found))]
    assert not faults, "\n".join(["", *faults])


def test_imports_have_no_cycles() -> None:
    """No module imports itself by way of others; parent packages, type-only and late imports included."""
    trip = cycle_in(all_imports(sources()))
    assert trip is None, " → ".join(trip or [])


def test_every_layer_is_a_folder_or_a_module() -> None:
    """The table of layers names nothing that does not exist."""
    modules = set(sources())
    named = {path for each in LAYERS.values() for path in (each.path, *each.below)}
    assert named <= modules


@pytest.mark.parametrize(
    ("module", "line", "why"),
    [
        ("penstock.errors", "from penstock.model.job import State", "not penstock.model"),
        ("penstock.model.job", "import redis", "not redis"),
        ("penstock.model.job", "from penstock.storage.base import Put", "not penstock.storage.base"),
        ("penstock.storage.sqlite", "from penstock.storage.redis.keys import ready", "not penstock.storage.redis"),
        ("penstock.storage.redis.keys", "from penstock.storage import connect", "not penstock.storage"),
        ("penstock.storage.redis", "import sqlite3", "sqlite3 belongs to penstock.storage.sqlite"),
        ("penstock.storage", "from penstock.storage.redis import RedisStorage", "on demand"),
        ("penstock.client.app", "from penstock.worker import Worker", "not penstock.worker"),
        ("penstock.claims", "from penstock.client.queue import Queue", "not penstock.client"),
        ("penstock.worker.loop", "from penstock.client.queue import Queue", "not penstock.client"),
        ("penstock.worker.loop", "from penstock.storage import connect", "not penstock.storage"),
        ("penstock.worker.loop", "from penstock import Penstock", "not penstock"),
        ("penstock.client.app", "from penstock.cli import main", "not penstock.cli"),
        ("penstock.client.app", "from penstock.testing import Clock", "not penstock.testing"),
        ("penstock.testing.clock", "import pytest", "not pytest"),
        ("_penstock_pytest", "def f():\n    from penstock.worker import Worker", "not penstock.worker"),
        ("penstock.client.app", "def f():\n    from penstock.model.job import State", "inside f()"),
        ("penstock.client.app", "if TYPE_CHECKING:\n    from ..worker import Worker", "not penstock.worker"),
    ],
)
def test_an_import_against_the_layers_is_refused(module: str, line: str, why: str) -> None:
    """An import that breaks the rule is refused, with the reason."""
    found = list(imports_of(module, line, set(sources()), package=False))
    assert [why in (fault(item) or "") for item in found] == [True]


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("penstock.model.job", "from penstock.model.clock import Clock"),
        ("penstock.storage.base", "import msgspec\nfrom penstock.model.job import State"),
        ("penstock.storage", "def connect(url):\n    from penstock.storage.redis import RedisStorage"),
        ("penstock.storage.redis.keys", "from penstock.storage.redis.scripts import load"),
        ("penstock.worker.loop", "from penstock.storage.base import Storage"),
        ("penstock.cli.demo", "from penstock import Penstock\nimport click"),
        ("_penstock_pytest", "import pytest\ndef f():\n    from penstock.testing import Clock"),
    ],
)
def test_an_import_down_the_layers_is_allowed(module: str, line: str) -> None:
    """An import that keeps the rule passes."""
    found = list(imports_of(module, line, set(sources()), package=False))
    assert [fault(item) for item in found] == [None] * len(found)


def test_a_cycle_is_found_through_a_late_import() -> None:
    """A cycle that is closed inside of a function is still a cycle."""
    texts = {
        "penstock.model.job": "def f():\n    from penstock.model import clock",
        "penstock.model.clock": "from penstock.model.job import State",
    }
    assert cycle_in(all_imports(texts)) == ["penstock.model.clock", "penstock.model.job", "penstock.model.clock"]


def test_a_cycle_is_found_through_a_parent_package() -> None:
    """A package whose `__init__` imports another one that imports its submodules is in a cycle with it."""
    texts = {
        "penstock.worker": "from penstock.supervisor import Supervisor",
        "penstock.worker.loop": "",
        "penstock.supervisor": "from penstock.supervisor.child import main",
        "penstock.supervisor.child": "from penstock.worker.loop import Loop",
    }
    trip = cycle_in(all_imports(texts)) or []
    assert {"penstock.worker", "penstock.supervisor"} <= set(trip)


def test_a_module_without_a_layer_is_refused() -> None:
    """A new module stands in the folder of a layer, or is given a layer, before anything may import it."""
    with pytest.raises(AssertionError, match=r"penstock\.helpers is in no layer"):
        layer_of("penstock.helpers")
