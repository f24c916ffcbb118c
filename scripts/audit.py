"""Checks of the dependencies that need no network: version bounds, hashes, installed versions, and imports.

It does not look for known vulnerabilities: that needs a database, which scripts/vulnerabilities.py asks.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
#: Extras for the development of Penstock; the others are for users.
DEVELOPMENT = {"test", "bench", "docs", "dev"}


def declared() -> dict[str, list[Requirement]]:
    """Return the requirements of the package ("") and of each extra."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    groups = {"": project["dependencies"], **project["optional-dependencies"]}
    return {name: [Requirement(line) for line in lines] for name, lines in groups.items()}


def without_bound(groups: dict[str, list[Requirement]]) -> Iterator[str]:
    """Yield requirements without a lower bound, and those that pin a version for users.

    There are no upper bounds: a library that sets them keeps its users from fixed versions.
    """
    for group, requirements in groups.items():
        for each in requirements:
            if each.name == "penstock":
                continue
            operators = {part.operator for part in each.specifier}
            where = f"{each} in [{group}]" if group else str(each)
            if not operators & {">=", "==", "~="}:
                yield f"{where} has no lower bound"
            if each.url:
                yield f"{where} comes from a URL"
            if group not in DEVELOPMENT and operators & {"==", "<", "<=", "~="}:
                yield f"{where} keeps users from newer versions"


def not_as_declared(groups: dict[str, list[Requirement]]) -> Iterator[str]:
    """Yield requirements that the installed packages do not satisfy, indirect ones included."""
    seen: set[str] = set()
    todo = [(each, "pyproject.toml") for requirements in groups.values() for each in requirements]
    while todo:
        each, by = todo.pop()
        name = canonicalize_name(each.name)
        if each.marker is not None and not each.marker.evaluate({"extra": ""}):
            continue
        try:
            found = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            if by == "pyproject.toml":
                continue  # an extra that is not installed here
            yield f"{each}, wanted by {by}, is not installed"
            continue
        if not each.specifier.contains(found.version, prereleases=True):
            yield f"{name} {found.version} is installed, but {by} wants {each.specifier}"
        if name not in seen and name != "penstock":
            seen.add(name)
            todo += [(Requirement(line), name) for line in found.requires or ()]


def not_released(groups: dict[str, list[Requirement]]) -> Iterator[str]:
    """Yield packages that were installed from a file or a checkout instead of a release."""
    for each in {canonicalize_name(each.name) for requirements in groups.values() for each in requirements}:
        try:
            origin = metadata.distribution(each).read_text("direct_url.json")
        except metadata.PackageNotFoundError:
            continue
        if origin is not None and each != "penstock":
            yield f"{each} was not installed from a release: {origin.strip()}"


def locked(path: Path) -> dict[str, list[Requirement]]:
    """Return the requirements of a file of requirements with hashes, by name: several for several Pythons."""
    found: dict[str, list[Requirement]] = {}
    for entry in path.read_text(encoding="utf-8").replace("\\\n", " ").splitlines():
        if entry.strip() and not entry.startswith("#"):
            each = Requirement(entry.partition(" --hash=")[0])
            found.setdefault(canonicalize_name(each.name), []).append(each)
    return found


def badly_locked(directory: Path) -> Iterator[str]:
    """Yield lines of the files with hashes that have none, pin no version, or name an address or an index."""
    for path in sorted(directory.glob("*.txt")):
        for entry in path.read_text(encoding="utf-8").replace("\\\n", " ").splitlines():
            if not entry.strip() or entry.startswith("#"):
                continue
            if entry.startswith("-") or "://" in entry or " @ " in entry:
                yield f"{path.name} names an address: {entry[:60]}"
            elif "==" not in entry or not re.search(r"--hash=sha256:[0-9a-f]{64}", entry):
                yield f"{path.name} has no version or no hash for {entry[:60]}"


def not_as_locked(directory: Path, groups: dict[str, list[Requirement]]) -> Iterator[str]:
    """Yield requirements that no version in dev.txt satisfies, and packages that are installed in another version."""
    pinned = locked(directory / "dev.txt")
    for group in ("", "redis", "crypto", "testing", "test", "uvloop", "dev"):
        for each in groups[group]:
            versions = [next(iter(pin.specifier)).version for pin in pinned.get(canonicalize_name(each.name), ())]
            if each.name != "penstock" and not any(each.specifier.contains(version) for version in versions):
                yield f"requirements/dev.txt has no version for {each}: run make lock"
    for name, pins in pinned.items():
        wanted = [pin for pin in pins if pin.marker is None or pin.marker.evaluate()]
        try:
            found = metadata.version(name)
        except metadata.PackageNotFoundError:
            if wanted:
                yield f"{wanted[0]} is not installed: run make venv"
            continue
        if wanted and not any(pin.specifier.contains(found) for pin in wanted):
            yield f"{name} {found} is installed, and requirements/dev.txt has {wanted[0].specifier}: run make venv"


#: Modules that have another name than the packages that bring them.
MODULES = {"opentelemetry": "opentelemetry-api"}


def undeclared(groups: dict[str, list[Requirement]]) -> Iterator[str]:
    """Yield imports of the package that no requirement declares."""
    known = {canonicalize_name(each.name) for requirements in groups.values() for each in requirements}
    known |= {module for module, package in MODULES.items() if package in known}
    for path in sorted((ROOT / "src").rglob("*.py")):
        for name in imported(path):
            if name not in sys.stdlib_module_names and name != "penstock" and canonicalize_name(name) not in known:
                yield f"{path.relative_to(ROOT)} imports {name}, which nothing declares"


def imported(path: Path) -> Iterator[str]:
    """Yield the top-level names that a file imports."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


def unsafe() -> Iterator[str]:
    """Yield imports and calls in the package that could execute data: pickle and its like, eval, exec."""
    for path in sorted((ROOT / "src").rglob("*.py")):
        for name in imported(path):
            if name in ("pickle", "marshal", "shelve", "dill", "cloudpickle"):
                yield f"{path.relative_to(ROOT)} imports {name}"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("eval", "exec"):
                yield f"{path.relative_to(ROOT)}:{node.lineno} calls {node.func.id}"


def main() -> int:
    groups = declared()
    faults = [
        *without_bound(groups),
        *not_as_declared(groups),
        *not_released(groups),
        *badly_locked(ROOT / "requirements"),
        *not_as_locked(ROOT / "requirements", groups),
        *undeclared(groups),
        *unsafe(),
    ]
    for fault in faults:
        print(f"audit: {fault}")
    count = sum(len(requirements) for requirements in groups.values())
    print(f"audit: {count} requirements, {len(faults)} faults; known vulnerabilities were not looked up (no network)")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
