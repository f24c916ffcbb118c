"""`penstock completion`: the script for each shell, and live completion of queue names."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from penstock.cli.base import Command
from penstock.cli.target import Target, open_app

__all__ = ["completion", "optional_queue_argument", "queue_argument", "queue_names"]

F = TypeVar("F", bound=Callable[..., Any])

#: How long (seconds) a completion may wait for the storage: the shell is blocked meanwhile.
TIMEOUT = 1.0


#: The names that are offered. A shell runs a name such as `$(…)`, and splits or expands others.
SAFE_NAME = re.compile(r"[A-Za-z0-9._/@+][A-Za-z0-9._/@+-]*")


def queue_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the queues whose names begin with `incomplete`; none if the storage does not answer in time.

    No app is imported: the URL is given, in PENSTOCK_URL or in the project, or there are no names.
    """
    target = Target(ctx.params.get("url"), ctx.params.get("namespace"), ctx.params.get("app"))

    async def read_names() -> list[str]:
        async with asyncio.timeout(TIMEOUT), open_app(target.build_without_app()) as app:
            return await app.queues()

    with contextlib.suppress(Exception):  # an error would be printed into the line that the user is typing
        return offer(asyncio.run(read_names()), incomplete) if target.names_url() else []
    return []


def offer(names: Iterable[str], incomplete: str) -> list[CompletionItem]:
    """Return the names from the storage that begin with `incomplete`, without those that a shell would interpret."""
    return [CompletionItem(name) for name in names if name.startswith(incomplete) and SAFE_NAME.fullmatch(name)]


def queue_argument(function: F) -> F:
    """Add the argument that names a queue."""
    return click.argument("queue", shell_complete=queue_names)(function)


def optional_queue_argument(function: F) -> F:
    """Add the argument that names a queue, which may be left out."""
    return click.argument("queue", required=False, shell_complete=queue_names)(function)


@click.command(
    cls=Command,
    examples="""
        penstock completion bash >> ~/.bashrc
        penstock completion zsh >> ~/.zshrc
        penstock completion fish > ~/.config/fish/completions/penstock.fish
    """,
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print a completion script for your shell: commands, options and queue names.

    Names are read from the storage of --url, PENSTOCK_URL or `url` in pyproject.toml. Completion imports no
    app, and leaves out names that a shell could take for more than a name.
    """
    from click.shell_completion import get_completion_class

    made = get_completion_class(shell)
    assert made is not None
    click.echo(made(ctx.find_root().command, {}, "penstock", "_PENSTOCK_COMPLETE").source())
