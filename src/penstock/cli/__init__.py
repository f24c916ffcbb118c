"""The `penstock` command: its table of subcommands, each imported only when used."""

from __future__ import annotations

import click

from penstock._version import __version__
from penstock.cli.base import LazyCommand, LazyGroup

__all__ = ["COMMANDS", "main"]

#: Headings under which `penstock --help` lists the commands.
RUN, ENQUEUE, INSPECT, MAINTAIN = "Run workers", "Enqueue jobs", "Inspect and change", "Check and maintain"

#: Every command by name, with the module it is imported from and the first sentence of its help.
COMMANDS = {
    "worker": LazyCommand(
        RUN, "penstock.cli.worker", "worker", "Run the handlers of an app; `worker ls` lists the workers."
    ),
    "dev": LazyCommand(RUN, "penstock.cli.worker", "dev", "Run handlers while you write them: reload, and a live log."),
    "demo": LazyCommand(RUN, "penstock.cli.demo", "demo", "Enqueue and run three kinds of example jobs."),
    "enqueue": LazyCommand(ENQUEUE, "penstock.cli.enqueue", "enqueue", "Add a job to a queue."),
    "call": LazyCommand(ENQUEUE, "penstock.cli.enqueue", "call", "Add a job, wait for it and print its result."),
    "queue": LazyCommand(INSPECT, "penstock.cli.queue", "queue", "Show queues; pause, resume, clear and delete them."),
    "job": LazyCommand(INSPECT, "penstock.cli.job", "job", "Show jobs; cancel, retry and delete them."),
    "events": LazyCommand(INSPECT, "penstock.cli.events", "events", "Print the events of all processes, live."),
    "top": LazyCommand(INSPECT, "penstock.cli.top", "top", "Watch queues, workers and failures, live."),
    "doctor": LazyCommand(
        MAINTAIN, "penstock.cli.doctor", "doctor", "Check a storage: what can be lost, what goes wrong, what to change."
    ),
    "bench": LazyCommand(MAINTAIN, "penstock.cli.bench", "bench", "Measure how fast a storage is from here."),
    "export": LazyCommand(MAINTAIN, "penstock.cli.transfer", "export", "Write jobs as JSON lines."),
    "import": LazyCommand(MAINTAIN, "penstock.cli.transfer", "import_", "Read jobs from JSON lines."),
    "completion": LazyCommand(
        MAINTAIN, "penstock.cli.completion", "completion", "Print a completion script for your shell."
    ),
}


@click.group(
    cls=LazyGroup,
    lazy=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"]},
    examples="""
        penstock demo                                  # see it work, with no server
        penstock dev jobs:app                          # run the `app` in jobs.py while you write it
        penstock enqueue thumbnails '{"name": "cat"}'  # add a job for it
        penstock top                                   # watch queues and workers
        penstock COMMAND --help                        # each command has examples
    """,
)
@click.version_option(__version__, prog_name="penstock")
def main() -> None:
    """Penstock, a job queue on SQLite, Redis and Valkey.

    Commands find your app by --app MODULE:APP, by PENSTOCK_APP, or by `app` in [tool.penstock] of
    pyproject.toml, and import it, which runs its code. A pyproject.toml that other users can write to is
    not used. Commands that need no handlers also work without an app: give --url or PENSTOCK_URL, which
    comes before pyproject.toml.
    """
