"""`penstock health`: whether a worker is alive, for probes that run a command."""

from __future__ import annotations

from datetime import datetime

import click

from penstock.cli.base import Command, run
from penstock.cli.output import echo, echo_json, format_duration, json_option
from penstock.cli.target import Target, target_options
from penstock.errors import StorageError
from penstock.model.clock import as_datetime
from penstock.model.printing import quote_name
from penstock.model.source import source
from penstock.model.worker_info import WorkerInfo

__all__ = ["health"]


@click.command(
    cls=Command,
    examples="""
        penstock health                          # a worker of this host is alive
        penstock health --worker "$HOSTNAME"     # that of `penstock worker --id "$HOSTNAME"`
        penstock health --json | jq '.workers[].id'
    """,
)
@click.option("--worker", "id", metavar="ID", help="The id of the worker.  [default: any worker of this host]")
@json_option
@target_options
def health(target: Target, id: str | None, as_json: bool) -> None:
    """Exit with 0 if a worker is alive, with 1 if not: a probe for containers.

    A worker is alive while the storage has its heartbeat, which ends 25 seconds after the last one. If the storage
    cannot be reached, the exit code is 0, too: to restart the worker would not help.
    """

    async def work() -> tuple[list[WorkerInfo], datetime]:
        async with target.opened() as app:
            return await app.workers(), as_datetime(await app.storage.time())

    host = source.host()
    try:
        workers, now = run(work())
    except StorageError:
        if as_json:
            echo_json({"reachable": False, "workers": []})
        else:
            echo("the storage cannot be reached, which is no reason to restart a worker", err=True)
        return
    found = [worker for worker in workers if (worker.host == host if id is None else worker.id == id)]
    ages = [(now - worker.seen_at).total_seconds() for worker in found]
    if as_json:
        rows = [
            {"id": worker.id, "host": worker.host, "pid": worker.pid, "heard_seconds_ago": round(age, 3)}
            for worker, age in zip(found, ages, strict=True)
        ]
        echo_json({"reachable": True, "workers": rows})
    elif not found:
        wanted = f"worker of {quote_name(host)}" if id is None else f"worker {quote_name(id)}"
        echo(f"no live {wanted}; `penstock worker ls` lists the live ones")
    else:
        for worker, age in zip(found, ages, strict=True):
            echo(f"worker {quote_name(worker.id)} is alive; its last heartbeat came {format_duration(age)} ago")
    if not found:
        raise click.exceptions.Exit(1)
