"""Choice of the app and storage of a command: by options, environment or pyproject.toml."""

from __future__ import annotations

import functools
import os
import sys
import tomllib
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import click

from penstock.cli.audit import logged_command
from penstock.cli.base import EXIT_USAGE, CommandError, debug_option
from penstock.cli.output import echo
from penstock.cli.secrets import redact_secrets, register_secrets
from penstock.cli.trust import distrust, distrust_module, distrust_project
from penstock.client.app import Penstock
from penstock.host import AppHost
from penstock.model.storage_info import Inspectable
from penstock.storage import choose_url, location_of
from penstock.worker.supervisor import CannotImport, load

__all__ = [
    "AppSource",
    "ProjectSettings",
    "Target",
    "check_location",
    "describe_location",
    "find_app_source",
    "load_app",
    "open_app",
    "read_project",
    "target_options",
    "uses_file",
]

KNOWN_KEYS = ("app", "url", "namespace")

REMEDY = "name the app (--app; for a worker MODULE:APP) or the storage (--url), or change owner and mode (chown, chmod)"

URL_RULES = "a port must be a number, and / : @ ? # in a password must be written %2F %3A %40 %3F %23"


class ProjectSettings(NamedTuple):
    """The settings in `[tool.penstock]` of the nearest pyproject.toml, and its directory.

    A file that is not trusted has no settings here, only the reason why it is passed over.
    """

    directory: Path | None = None
    app: str | None = None
    url: str | None = None
    namespace: str | None = None
    #: One line for the user if a file was passed over: which, why, and the remedy.
    refusal: str = ""


class AppSource(NamedTuple):
    """The name of an app, "module:app", and the directories in which its module is searched first."""

    name: str
    directories: tuple[Path, ...]
    #: Why the current directory is not among them.
    refusal: str = ""


def read_project() -> ProjectSettings:
    """Read the settings of the project around this directory; empty without a `[tool.penstock]`."""
    here = Path.cwd()
    for directory in (here, *here.parents):
        path = directory / "pyproject.toml"
        if not path.is_file():
            continue
        if reason := distrust_project(path, here):
            return ProjectSettings(refusal=explain(path, reason) if is_ours(path) else "")
        settings = read_settings(path)
        name = settings.get("app", "").partition(":")[0]
        if name and (reason := distrust_module(directory, name)):
            return ProjectSettings(refusal=explain(path, reason))
        return ProjectSettings(directory, settings.get("app"), settings.get("url"), settings.get("namespace"))
    return ProjectSettings()


def read_settings(path: Path) -> dict[str, str]:
    """Return `[tool.penstock]` of a pyproject.toml; a mistake in it is a `CommandError`."""
    try:
        settings = tomllib.loads(path.read_text("utf-8")).get("tool", {}).get("penstock", {})
    except (OSError, ValueError) as error:
        raise CommandError(f"{path} cannot be read: {error}", EXIT_USAGE) from error
    for key, value in settings.items():
        if key not in KNOWN_KEYS or not isinstance(value, str):
            raise CommandError(
                f"{path}: [tool.penstock] knows {', '.join(KNOWN_KEYS)}, each a text; not {key!r}", EXIT_USAGE
            )
    return settings


def explain(path: Path, reason: str) -> str:
    """Return the line about a pyproject.toml that is passed over."""
    return f"{path} is not used: {reason.replace(f'{path} ', 'it ')}; {REMEDY}"


def is_ours(path: Path) -> bool:
    """Return whether a pyproject.toml that is not trusted may have settings of Penstock: it is not parsed."""
    try:
        return b"penstock" in path.read_bytes()
    except OSError:
        return True


def find_app_source(given: str | None, *, url_first: bool = False) -> AppSource | None:
    """Return the app to use: the given one, that in PENSTOCK_APP, or the project's; None if there is none.

    With `url_first`, PENSTOCK_URL comes before the project's app. A name that was typed is also searched for in the
    current directory, as `python -m` does. One from the environment is searched for there only if the directory is
    trusted, because the same variable is set wherever the user goes.
    """
    here, settings = Path.cwd(), read_project()
    around = () if settings.directory is None else (settings.directory,)
    if given:
        return AppSource(given, (*around, here))
    if name := os.environ.get("PENSTOCK_APP"):
        refusal = distrust(here) or ""
        return AppSource(name, around if refusal else (*around, here), refusal)
    if settings.refusal:
        echo(settings.refusal, err=True)
    if settings.app is None or (url_first and os.environ.get("PENSTOCK_URL")):
        return None
    return AppSource(settings.app, (*around, here))


def load_app(source: AppSource) -> AppHost:
    """Import an app, from its directories first."""
    for path in map(str, source.directories):
        if path not in sys.path:
            sys.path.insert(0, path)
    try:
        return load(source.name)
    except CannotImport as error:
        if not source.refusal:
            raise
        note = f"{error} (this directory is not searched: {source.refusal}; --app searches it)"
        raise CannotImport(note) from error.__cause__


class Target(NamedTuple):
    """The options that choose an app or a storage."""

    url: str | None = None
    namespace: str | None = None
    app: str | None = None
    serde: str | None = None
    #: Whether the command uses handlers or serdes, so that the project's app comes before PENSTOCK_URL.
    needs_app: bool = False
    #: Whether the command changes something, so that it is in the activity.
    changes: bool = False

    def build(self) -> Penstock:
        """Return the app, not opened: the user's if one is named, else one without handlers on the URL."""
        if self.url is not None and self.app is not None:
            raise CommandError("give --url or --app, not both", EXIT_USAGE)
        source = None if self.url is not None else find_app_source(self.app, url_first=not self.needs_app)
        if source is None:
            return self.build_without_app()
        if self.namespace is not None or self.serde is not None:
            raise CommandError(f"--namespace and --serde need --url: the app {source.name} has its own", EXIT_USAGE)
        try:
            app = load_app(source)
        except CannotImport as error:
            raise CannotImport(f"{error} (with --url this command needs no app)") from error.__cause__
        if not isinstance(app, Penstock):
            raise CommandError(
                f"{source.name} is a {type(app).__name__}, but this command needs a Penstock", EXIT_USAGE
            )
        return app

    def build_without_app(self) -> Penstock:
        """Return an app without handlers on the URL, not opened; imports nothing of the user."""
        url, namespace = self.url_and_namespace()
        try:
            return Penstock(url, namespace=namespace, serde=self.serde or "json")
        except ValueError as error:
            raise CommandError(str(error), EXIT_USAGE) from error

    def names_url(self) -> bool:
        """Return whether a URL is given, in the environment or in the project; an app that is named hides the last."""
        if self.app is not None:
            return False
        if self.url is not None or os.environ.get("PENSTOCK_URL"):
            return True
        return not os.environ.get("PENSTOCK_APP") and read_project().url is not None

    def url_and_namespace(self) -> tuple[str, str]:
        """Return URL and namespace without an app: from options, environment, project, or the defaults."""
        settings = read_project()
        try:
            url = choose_url(self.url, settings.url)
        except ValueError as error:
            raise CommandError(str(error), EXIT_USAGE) from error
        namespace = self.namespace or os.environ.get("PENSTOCK_NAMESPACE") or settings.namespace or "penstock"
        return register_secrets(url), namespace

    @asynccontextmanager
    async def opened(self, *, create: bool = False) -> AsyncGenerator[Penstock, None]:
        """Yield the app on its open storage; only `create` makes a file that does not exist."""
        async with open_app(self.build(), create=create) as app:
            if not self.changes:
                yield app
                return
            async with logged_command(app):
                yield app


@asynccontextmanager
async def open_app(app: Penstock, *, create: bool = False) -> AsyncGenerator[Penstock, None]:
    """Yield an app on its open storage; only `create` makes a file that does not exist."""
    check_location(app, create)
    try:
        await app.open()
    except ValueError:  # its text may quote any part of the URL, password included, so it is not printed
        raise CommandError(f"{describe_location(app)} cannot be used as a URL: {URL_RULES}", EXIT_USAGE) from None
    async with app:
        yield app


def uses_file(app: AppHost) -> bool:
    """Return whether the storage of an app is a file or memory, and not a server."""
    return isinstance(app.storage, Inspectable) and location_of(app.storage.where) is not None


def check_location(app: Penstock, create: bool) -> None:
    """Refuse storages that this process cannot read: another process's memory, and a missing file."""
    location = location_of(app.storage.where) if isinstance(app.storage, Inspectable) else None
    if location is None:
        return
    if location.path == ":memory:":
        raise CommandError(
            "memory: is private to the process that made it; give a file or a server with --url", EXIT_USAGE
        )
    try:
        os.stat(location.path)
    except (FileNotFoundError, NotADirectoryError):
        if not create:
            text = f"there is no {location.path} here; give the storage with --url or PENSTOCK_URL"
            raise CommandError(text) from None
    except OSError:
        return  # the error of opening the file names the reason


def describe_location(app: Penstock) -> str:
    """Return the location of an app's storage as it may be printed, without passwords."""
    location = app.storage.where if isinstance(app.storage, Inspectable) else type(app.storage).__name__
    return redact_secrets(location if app.namespace == "penstock" else f"{location} (namespace {app.namespace})")


def target_options(
    function: Callable[..., Any] | None = None, *, serde: bool = False, needs_app: bool = False, changes: bool = False
) -> Any:
    """Add --url, --namespace and --app; the command gets them as one `Target`, its first argument.

    With `needs_app` the command uses handlers or serdes, so that the project's app comes before PENSTOCK_URL. With
    `changes` what it does is added to the activity.
    """
    if function is None:
        return functools.partial(target_options, serde=serde, needs_app=needs_app, changes=changes)

    @functools.wraps(function)
    def wrapped(url: str | None, namespace: str | None, app: str | None, **options: Any) -> Any:
        chosen = options.pop("serde", None)
        if url is not None:
            register_secrets(url)
        return function(Target(url, namespace, app, chosen, needs_app, changes), **options)

    decorated: Any = debug_option(wrapped)
    if serde:
        kinds = click.Choice(["json", "msgpack", "raw"])
        decorated = click.option("--serde", type=kinds, help="How payloads are encoded, with --url.  [default: json]")(
            decorated
        )
    decorated = click.option("--app", metavar="MODULE:APP", help="The app.  [default: PENSTOCK_APP, or the project's]")(
        decorated
    )
    decorated = click.option("--namespace", help="The namespace at --url.  [default: PENSTOCK_NAMESPACE, or penstock]")(
        decorated
    )
    return click.option(
        "--url", help="The storage, if no app is given.  [default: PENSTOCK_URL, or sqlite:penstock.db]"
    )(decorated)
