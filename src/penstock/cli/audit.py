"""The entries of the activity that commands write: who ran which command, on what, and how it ended."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

import click

from penstock.cli.base import EXIT_USAGE
from penstock.cli.secrets import redact_secrets
from penstock.client.app import Penstock
from penstock.ops.activity import log_activity

__all__ = ["logged_command"]

#: The parameters of commands that name what they change. A payload is in none of them.
TARGETS = ("action", "filter", "key", "name", "group", "family", "worker", "release", "state")


@asynccontextmanager
async def logged_command(app: Penstock) -> AsyncGenerator[None, None]:
    """Add the running command to the activity, with its outcome.

    A question that was answered with no, or that could not be asked, and a mistake in the command add nothing.
    """
    outcome = "done"
    try:
        yield
    except (click.Abort, click.UsageError):
        outcome = ""
        raise
    except click.exceptions.Exit as end:
        outcome = "done" if end.exit_code == 0 else f"exit {end.exit_code}"
        raise
    except click.ClickException as error:
        outcome = "" if error.exit_code == EXIT_USAGE else error.format_message()
        raise
    except Exception as error:
        outcome = f"{type(error).__name__}: {error}"
        raise
    finally:
        if outcome:
            await _log(app, redact_secrets(outcome)[:200])


async def _log(app: Penstock, outcome: str) -> None:
    context = click.get_current_context(silent=True)
    if context is None:
        return
    params: dict[str, Any] = context.params
    given = params.get("ids") or params.get("id") or ()
    ids = [given] if isinstance(given, str) else [str(each) for each in cast("Sequence[object]", given)]
    names = [
        *cast("Sequence[object]", params.get("queues") or params.get("workers") or ()),
        *(params[name] for name in TARGETS if params.get(name)),
    ]
    target = " ".join(map(str, names))
    queue = params.get("queue")
    verb = " ".join(context.command_path.split()[1:])
    await log_activity(
        app, verb, via="cli", queue=queue if isinstance(queue, str) else None, ids=ids, target=target, outcome=outcome
    )
