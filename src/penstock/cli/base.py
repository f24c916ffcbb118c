"""Base classes of all commands: help with examples, errors as one line, and exit codes."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import importlib
import sys
import traceback
from collections.abc import Callable, Coroutine, Generator
from difflib import get_close_matches
from typing import Any, NamedTuple, TypeVar

import click

from penstock.cli.output import echo
from penstock.cli.secrets import redact_secrets
from penstock.errors import PenstockError, StorageUnavailable
from penstock.model.printing import escape_controls
from penstock.worker.supervisor import CannotImport

__all__ = [
    "Command",
    "CommandError",
    "Group",
    "LazyCommand",
    "LazyGroup",
    "confirm",
    "debug_option",
    "explain_unavailable",
    "print_traceback",
    "run",
    "yes_option",
]

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

#: Exit code for mistakes in the command itself: wrong usage, or an app that cannot be imported.
EXIT_USAGE = 2


class CommandError(click.ClickException):
    """An error that ends the command with one line: the reason, and what to do about it.

    The line has no passwords, and its control characters are escaped: it may quote names from the storage.
    """

    def __init__(self, message: str, exit_code: int = 1) -> None:
        super().__init__(escape_controls(redact_secrets(" ".join(message.split()))))
        vars(self)["exit_code"] = exit_code


class CommandWithExamples(click.Command):
    """A command or group whose help ends with examples."""

    def __init__(self, *args: Any, examples: str = "", **options: Any) -> None:
        super().__init__(*args, **options)
        self.examples = [line.strip() for line in examples.strip().splitlines()]

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples below the options, without wrapping them."""
        super().format_epilog(ctx, formatter)
        if self.examples:
            with formatter.section("Examples"):
                for line in self.examples:
                    formatter.write(f"{'':{formatter.current_indent}}{line}\n")


class Command(CommandWithExamples):
    """A command that prints errors as one line, and with --debug their traceback too."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; every error is raised as a `CommandError`."""
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except Exception as error:
            if getattr(error, "errno", None) == errno.EPIPE:
                raise  # the reader of a pipe has closed it: not an error of this command
            if ctx.meta.get("debug"):
                print_traceback(error)
            raise as_command_error(error) from error


def print_traceback(error: BaseException) -> None:
    """Print the traceback of an error on stderr; each line is indented, so that a message cannot imitate other output.

    Passwords are removed and control characters escaped, as in the line of the error.
    """
    for line in "".join(traceback.format_exception(error)).splitlines():
        echo(f"  {redact_secrets(line)}", err=True)


@contextlib.contextmanager
def escaped_usage_errors() -> Generator[None, None, None]:
    """Escape control characters in errors that click raises inside the block: they quote arguments."""
    try:
        yield
    except CommandError:
        raise
    except click.ClickException as error:
        message = error.format_message()
        # click has no arguments in these two, and lays them out in lines.
        if message.isprintable() or isinstance(error, (click.MissingParameter, click.exceptions.NoArgsIsHelpError)):
            raise
        if isinstance(error, click.UsageError):
            raise click.UsageError(escape_controls(message), error.ctx) from error
        raise CommandError(message, error.exit_code) from error


def explain_unavailable(error: StorageUnavailable, advice: str) -> str:
    """Return an error as one line; if a server could not be reached, with a question and this advice."""
    text = " ".join(str(error).split()).rstrip(".")
    return f"{text}; is it running there? {advice}" if text.startswith("cannot reach ") else text


def as_command_error(error: Exception) -> CommandError:
    """Return the `CommandError` for an error: its text as one line, and its exit code."""
    text = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, CannotImport):
        more = "" if error.__cause__ is None else " (--debug shows the traceback)"
        return CommandError(f"{text}{more}", EXIT_USAGE)
    if isinstance(error, StorageUnavailable):
        return CommandError(explain_unavailable(error, "--url or PENSTOCK_URL names another storage"))
    if isinstance(error, (PenstockError, OSError)):
        return CommandError(text)
    if isinstance(error, (ValueError, TypeError, ImportError)):
        return CommandError(text, EXIT_USAGE)
    return CommandError(f"unexpected {type(error).__name__}: {text} (--debug shows the traceback)")


class Group(CommandWithExamples, click.Group):
    """A group of commands; a misspelled name is answered with the closest one."""

    command_class = Command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; the error for an unknown one suggests the closest name."""
        name = args[0]
        if self.get_command(ctx, name) is None and not ctx.resilient_parsing and not name.startswith("-"):
            near = get_close_matches(name, self.list_commands(ctx), n=1)
            hint = f"did you mean {near[0]}?" if near else f"the commands are {', '.join(self.list_commands(ctx))}"
            raise click.UsageError(f"there is no command {name!r}; {hint}", ctx)
        return super().resolve_command(ctx, args)


class LazyCommand(NamedTuple):
    """A command that is imported only when it is used."""

    section: str
    module: str
    attribute: str
    summary: str


class LazyGroup(Group):
    """A group of lazily imported commands: starting one does not load the others."""

    def __init__(self, *args: Any, lazy: dict[str, LazyCommand], **options: Any) -> None:
        super().__init__(*args, **options)
        self.lazy = lazy

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Parse the arguments of the group itself."""
        with escaped_usage_errors():
            return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        """Parse the arguments of a command and run it."""
        with escaped_usage_errors():
            return super().invoke(ctx)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return every name, in the order of the table."""
        return list(self.lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a command; None if there is none of this name."""
        found = self.lazy.get(cmd_name)
        return None if found is None else getattr(importlib.import_module(found.module), found.attribute)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands, section by section."""
        width = max(map(len, self.lazy))
        for section in dict.fromkeys(lazy.section for lazy in self.lazy.values()):
            rows = [(f"{name:{width}}", lazy.summary) for name, lazy in self.lazy.items() if lazy.section == section]
            with formatter.section(section):
                formatter.write_dl(rows)


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a command's coroutine and return its result."""
    return asyncio.run(work)


def debug_option(function: F) -> F:
    """Add --debug, which shows tracebacks."""

    def remember(ctx: click.Context, _: click.Parameter, value: bool) -> None:
        ctx.meta["debug"] = ctx.meta.get("debug") or value

    return click.option(
        "--debug", is_flag=True, expose_value=False, callback=remember, help="Show the traceback of an error."
    )(function)


def yes_option(function: F) -> F:
    """Add --yes, which answers the question of `confirm`."""
    return click.option("--yes", "-y", is_flag=True, help="Do it without asking.")(function)


def confirm(question: str, yes: bool) -> None:
    """Ask before an action that cannot be undone; without a terminal to ask at, --yes is required."""
    if yes:
        return
    question = escape_controls(question)
    if not sys.stdin.isatty():
        raise CommandError(f"{question} There is no terminal to ask at: add --yes to do it", EXIT_USAGE)
    click.confirm(question, abort=True, err=True)
