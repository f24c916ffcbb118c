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

from penstock.cli.base import EXIT_USAGE, CommandError, debug_option
from penstock.cli.secrets import redact_secrets, register_secrets
from penstock.client.app import Penstock
from penstock.host import AppHost
from penstock.model.storage_info import Inspectable
from penstock.storage import choose_url, location_of, redact
from penstock.worker.supervisor import CannotImport, load

__all__ = [
    "ProjectSettings",
    "Target",
    "describe_location",
    "find_app_source",
    "load_app",
    "read_project",
    "target_options",
    "uses_file",
]

KNOWN_KEYS = ("app", "url", "namespace")

URL_RULES = "a port must be a number, and / : @ ? # in a password must be written %2F %3A %40 %3F %23"


class ProjectSettings(NamedTuple):
    """The settings in `[tool.penstock]` of the nearest pyproject.toml, and its directory."""

    directory: Path | None = None
    app: str | None = None
    url: str | None = None
    namespace: str | None = None


def read_project() -> ProjectSettings:
    """Read the settings of the project around this directory; empty without a `[tool.penstock]`."""
    here = Path.cwd()
    for directory in (here, *here.parents):
        path = directory / "pyproject.toml"
        if not path.is_file():
            continue
        try:
            settings = tomllib.loads(path.read_text("utf-8")).get("tool", {}).get("penstock", {})
        except (OSError, ValueError) as error:
            raise CommandError(f"{path} cannot be read: {error}", EXIT_USAGE) from error
        for key, value in settings.items():
            if key not in KNOWN_KEYS or not isinstance(value, str):
                raise CommandError(
                    f"{path}: [tool.penstock] knows {', '.join(KNOWN_KEYS)}, each a text; not {key!r}", EXIT_USAGE
                )
        return ProjectSettings(directory, settings.get("app"), settings.get("url"), settings.get("namespace"))
    return ProjectSettings()


def find_app_source(given: str | None) -> str | None:
    """Return the name of the app to use, the given one, that in PENSTOCK_APP, or the project's."""
    return given or os.environ.get("PENSTOCK_APP") or read_project().app


def load_app(source: str) -> AppHost:
    """Import an app; this directory and the project's are importable."""
    directory = read_project().directory
    for path in (None if directory is None else str(directory), os.getcwd()):
        if path is not None and path not in sys.path:
            sys.path.insert(0, path)
    return load(source)


class Target(NamedTuple):
    """The options that choose an app or a storage."""

    url: str | None = None
    namespace: str | None = None
    app: str | None = None
    serde: str | None = None

    def build(self) -> Penstock:
        """Return the app, not opened: the user's if one is named, else one without handlers on the URL."""
        if self.url is not None and self.app is not None:
            raise CommandError("give --url or --app, not both", EXIT_USAGE)
        source = None if self.url is not None else find_app_source(self.app)
        if source is None:
            url, namespace = self.url_and_namespace()
            try:
                return Penstock(url, namespace=namespace, serde=self.serde or "json")
            except ValueError as error:
                raise CommandError(f"{redact(url)!r} cannot be used as a URL: {error}", EXIT_USAGE) from error
        if self.namespace is not None or self.serde is not None:
            raise CommandError(f"--namespace and --serde need --url: the app {source} has its own", EXIT_USAGE)
        try:
            app = load_app(source)
        except CannotImport as error:
            raise CannotImport(f"{error} (with --url this command needs no app)") from error.__cause__
        if not isinstance(app, Penstock):
            raise CommandError(f"{source} is a {type(app).__name__}, but this command needs a Penstock", EXIT_USAGE)
        return app

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
        app = self.build()
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


def target_options(function: Callable[..., Any] | None = None, *, serde: bool = False) -> Any:
    """Add --url, --namespace and --app; the command gets them as one `Target`, its first argument."""
    if function is None:
        return functools.partial(target_options, serde=serde)

    @functools.wraps(function)
    def wrapped(url: str | None, namespace: str | None, app: str | None, **options: Any) -> Any:
        chosen = options.pop("serde", None)
        if url is not None:
            register_secrets(url)
        return function(Target(url, namespace, app, chosen), **options)

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
