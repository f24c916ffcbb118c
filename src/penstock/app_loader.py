"""Import of apps by name, "module:app", and the name under which an app can be imported."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

from penstock.errors import PenstockError
from penstock.host import AppHost, async_app
from penstock.model.printing import escape_controls, place_of

__all__ = [
    "SKIPPED_DIRECTORIES",
    "CannotImport",
    "is_app",
    "load",
    "load_all",
    "loaded_files",
    "modification_times",
    "modules_of",
    "source_of",
]

#: Directories without sources of the project.
SKIPPED_DIRECTORIES = {"node_modules", "__pycache__", "site-packages", "venv"}


class CannotImport(PenstockError):
    """The app cannot be imported; the message names the module and the remedy."""


def load(source: str) -> AppHost:
    """Import the app "module:app"; "module:create_app()" is called, and a bare module means its `app`."""
    name, _, path = source.partition(":")
    module, path = import_module(name, source), path or "app"
    call = path.endswith("()")
    found: Any = module
    for part in path.removesuffix("()").split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise CannotImport(f"module {name!r} has no {part!r}{hint(module, name)}") from None
    if call:
        try:
            found = found()
        except Exception as error:
            raise CannotImport(f"{source} failed: {describe(error)}") from error
    found = async_app(found)
    if not is_app(found):
        what = "add () to call it" if callable(found) else f"it is a {type(found).__name__}"
        raise CannotImport(f"{source} is not a Penstock app ({what}){hint(module, name)}")
    return found


def import_module(name: str, source: str) -> ModuleType:
    if not name or name.endswith(".py") or "/" in name:
        wanted = name.removesuffix(".py").replace("/", ".").strip(".") or "jobs"
        raise CannotImport(f"{source!r} is not a module; write it as Python imports it, e.g. {wanted}:app")
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not (name == error.name or name.startswith(error.name + ".")):
            raise CannotImport(f"importing {name!r} failed: {one_line(error)}{place(error)}") from error
        raise CannotImport(
            f"there is no module {error.name!r} in {os.getcwd()} or on PYTHONPATH; "
            "run this command where it can be imported"
        ) from error
    except BaseException as error:  # a module may also call sys.exit()
        if isinstance(error, KeyboardInterrupt):
            raise
        raise CannotImport(f"importing {name!r} failed: {describe(error)}") from error


def source_of(app: AppHost) -> str:
    """Return the "module:name" under which child processes can import this app; `__main__` is the last choice."""
    found: list[tuple[bool, int, str]] = []
    for name, module in list(sys.modules.items()):
        if name == "__mp_main__" or (name == "__main__" and not can_run_again(module)):
            continue
        for attribute, value in list(getattr(module, "__dict__", {}).items()):
            ours = str(type(value).__module__).startswith("penstock.")  # __module__ of some types is a slot, not a str
            if value is app or (ours and async_app(value) is app):
                defines = getattr(module, "__spec__", None) is not None
                found.append((name == "__main__" or not defines, len(name), f"{name}:{attribute}"))
    if not found:
        raise CannotImport(
            "processes: child processes import the app, and it was not found at the top of any module; "
            "give it a name there (app = Penstock(...)), or run `penstock worker module:app`"
        )
    return min(found)[2]


def modules_of(app: AppHost) -> tuple[str, ...]:
    """Return the modules of an app's handlers, which importing the app's own module may not load."""
    functions = [handler.function for handler in app.handlers.values() if handler.loaded]
    names = {getattr(function, "__module__", None) for function in functions}
    return tuple(sorted(name for name in names if name and name in sys.modules and not name.startswith("penstock.")))


def load_all(source: str, modules: Iterable[str], serves: Iterable[str]) -> AppHost:
    """Import the app and the modules of its handlers; raises `CannotImport` if a handler in `serves` is missing."""
    app = load(source)
    for name in modules:
        import_module(name, name)
    if missing := sorted(set(serves) - set(app.handlers)):
        raise CannotImport(
            f"{source} has no handler for {', '.join(map(repr, missing))} in a child process; "
            "register handlers where their module is imported, not inside a function"
        )
    return app


def loaded_files() -> set[str]:
    """Return the files of loaded modules below this directory, without installed packages."""
    here, found = os.getcwd() + os.sep, set[str]()
    for module in list(sys.modules.values()):
        path = getattr(module, "__file__", None)
        if path and os.path.abspath(path).startswith(here) and not SKIPPED_DIRECTORIES & set(Path(path).parts):
            found.add(os.path.abspath(path))
    return found


def modification_times(paths: Iterable[str]) -> dict[str, int]:
    """Return when each file was changed last (nanoseconds), 0 if it is not there."""
    times: dict[str, int] = {}
    for path in paths:
        try:
            times[path] = os.stat(path).st_mtime_ns
        except OSError:
            times[path] = 0
    return times


def can_run_again(main: ModuleType) -> bool:
    """Return whether a child process can import this `__main__`, which has no file if it was typed in or piped."""
    path = getattr(main, "__file__", None)
    return getattr(main, "__spec__", None) is not None or (path is not None and os.path.exists(path))


def is_app(value: object) -> bool:
    return not isinstance(value, type) and all(hasattr(value, name) for name in ("storage", "handlers", "codec"))


def hint(module: ModuleType, name: str) -> str:
    apps = [attribute for attribute, value in vars(module).items() if is_app(value)]
    return f"; did you mean {name}:{apps[0]}?" if apps else ""


def describe(error: BaseException) -> str:
    """Return an error of an import as one line: its type, its message, and its place."""
    return f"{type(error).__name__}: {one_line(error)}{place(error)}"


def place(error: BaseException) -> str:
    """Return the file and line of an error in brackets; "" if the message has them, or if they are not known."""
    if isinstance(error, SyntaxError):
        return ""
    found = place_of("".join(traceback.format_tb(error.__traceback__)))
    return f" ({found})" if found else ""


def one_line(error: BaseException) -> str:
    """Return the message of an error as one line, with its control characters escaped."""
    return escape_controls(" ".join(str(error).split())) or type(error).__name__
