"""What every command has: help that teaches, mistakes told in one line, and exit codes that mean something."""

from __future__ import annotations

import asyncio
import errno
import importlib
import sys
import traceback
from collections.abc import Callable, Coroutine
from difflib import get_close_matches
from typing import Any, NamedTuple, TypeVar

import click

from penstock.cli.secrets import hide
from penstock.errors import PenstockError, StorageUnavailable
from penstock.worker.supervisor import CannotImport

__all__ = ["Command", "Group", "Lazy", "LazyGroup", "Stop", "confirm", "debug_option", "run", "yes_option"]

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

#: Mistakes of whoever typed the command: usage, or an app that cannot be imported.
USAGE = 2


class Stop(click.ClickException):
    """The command ends here: one line says why, and what to do about it."""

    def __init__(self, message: str, exit_code: int = 1) -> None:
        super().__init__(hide(" ".join(message.split())))
        vars(self)["exit_code"] = exit_code


class Teaching(click.Command):
    """A command, or a group, whose help ends with examples."""

    def __init__(self, *args: Any, examples: str = "", **options: Any) -> None:
        super().__init__(*args, **options)
        self.examples = [line.strip() for line in examples.strip().splitlines()]

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The examples, as they are."""
        super().format_epilog(ctx, formatter)
        if self.examples:
            with formatter.section("Examples"):
                for line in self.examples:
                    formatter.write(f"{'':{formatter.current_indent}}{line}\n")


class Command(Teaching):
    """A command whose errors are one line (with --debug, a traceback too)."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run it; whatever goes wrong is told in one line."""
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except Exception as error:
            if getattr(error, "errno", None) == errno.EPIPE:
                raise  # whoever read our output has had enough
            if ctx.meta.get("debug"):
                traceback.print_exc()
            raise explained(error) from error


def explained(error: Exception) -> Stop:
    """An error as one line, and the exit code that goes with it."""
    text = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, CannotImport):
        more = "" if error.__cause__ is None else " (--debug shows the traceback)"
        return Stop(f"{text}{more}", USAGE)
    if isinstance(error, StorageUnavailable):
        return Stop(f"{text.rstrip('.')}; is it running there? --url or PENSTOCK_URL names another place")
    if isinstance(error, (PenstockError, OSError)):
        return Stop(text)
    if isinstance(error, (ValueError, TypeError, ImportError)):
        return Stop(text, USAGE)
    return Stop(f"unexpected {type(error).__name__}: {text} (--debug shows the traceback)")


class Group(Teaching, click.Group):
    """A group of commands of this kind; a name that is nearly right is answered with the right one."""

    command_class = Command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, or say which one was probably meant."""
        name = args[0]
        if self.get_command(ctx, name) is None and not ctx.resilient_parsing and not name.startswith("-"):
            near = get_close_matches(name, self.list_commands(ctx), n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(self.list_commands(ctx))}"
            raise click.UsageError(f"there is no command {name!r}; {hint}", ctx)
        return super().resolve_command(ctx, args)


class Lazy(NamedTuple):
    """A command that is imported when it is used: where it is, and what the list of commands says of it."""

    section: str
    module: str
    attribute: str
    says: str


class LazyGroup(Group):
    """The commands by name. Only the one that is used is imported, so that none pays for the others."""

    def __init__(self, *args: Any, lazy: dict[str, Lazy], **options: Any) -> None:
        super().__init__(*args, **options)
        self.lazy = lazy

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Every name, in the order of the list."""
        return list(self.lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command; None when there is none of this name."""
        found = self.lazy.get(cmd_name)
        return None if found is None else getattr(importlib.import_module(found.module), found.attribute)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The commands, section by section."""
        width = max(map(len, self.lazy))
        for section in dict.fromkeys(lazy.section for lazy in self.lazy.values()):
            rows = [(f"{name:{width}}", lazy.says) for name, lazy in self.lazy.items() if lazy.section == section]
            with formatter.section(section):
                formatter.write_dl(rows)


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a command's coroutine to its end."""
    return asyncio.run(work)


def debug_option(function: F) -> F:
    """The option that shows tracebacks."""

    def remember(ctx: click.Context, _: click.Parameter, value: bool) -> None:
        ctx.meta["debug"] = ctx.meta.get("debug") or value

    return click.option(
        "--debug", is_flag=True, expose_value=False, callback=remember, help="Show the traceback of an error."
    )(function)


def yes_option(function: F) -> F:
    """The option that stands for an answer."""
    return click.option("--yes", "-y", is_flag=True, help="Do it without asking.")(function)


def confirm(question: str, yes: bool) -> None:
    """Ask before something that cannot be taken back; where nobody can answer, --yes must have been given."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise Stop(f"{question} Nobody is here to answer: add --yes to do it", USAGE)
    click.confirm(question, abort=True, err=True)
