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
        RUN,
        "penstock.cli.worker",
        "worker",
        "Run the handlers of an app; list, quiet and stop workers.",
    ),
    "dev": LazyCommand(RUN, "penstock.cli.worker", "dev", "Run handlers while you write them: reload, and a live log."),
    "demo": LazyCommand(RUN, "penstock.cli.demo", "demo", "Enqueue and run three kinds of example jobs."),
    "enqueue": LazyCommand(ENQUEUE, "penstock.cli.enqueue", "enqueue", "Add a job to a queue."),
    "call": LazyCommand(ENQUEUE, "penstock.cli.enqueue", "call", "Add a job, wait for it and print its result."),
    "queue": LazyCommand(INSPECT, "penstock.cli.queue", "queue", "Show queues; pause, resume, clear and delete them."),
    "schedule": LazyCommand(
        INSPECT, "penstock.cli.schedule", "schedule", "Show schedules; add, edit, pause, trigger and remove them."
    ),
    "job": LazyCommand(INSPECT, "penstock.cli.job", "job", "Show jobs; cancel, retry and delete them."),
    "limit": LazyCommand(INSPECT, "penstock.cli.limit", "limit", "Show, set and reset limits."),
    "failures": LazyCommand(
        INSPECT, "penstock.cli.failures", "failures", "Show jobs that failed alike, and retry them."
    ),
    "history": LazyCommand(
        INSPECT,
        "penstock.cli.history",
        "history",
        "Show what a queue did: jobs in and out per minute, failures, and how long jobs waited and ran.",
    ),
    "events": LazyCommand(INSPECT, "penstock.cli.events", "events", "Print the events of all processes, live."),
    "activity": LazyCommand(
        INSPECT, "penstock.cli.activity", "activity", "List what operators have changed, newest first."
    ),
    "release": LazyCommand(
        INSPECT, "penstock.cli.activity", "release", "Note that a release begins now, or list the last 50."
    ),
    "top": LazyCommand(INSPECT, "penstock.cli.top", "top", "Watch queues, workers and failures, live."),
    "dashboard": LazyCommand(
        INSPECT, "penstock.cli.dashboard", "dashboard", "Serve pages about queues, jobs and workers for a browser."
    ),
    "metrics": LazyCommand(
        MAINTAIN, "penstock.cli.metrics", "metrics", "Serve the metrics of all queues and workers, for Prometheus."
    ),
    "health": LazyCommand(MAINTAIN, "penstock.cli.health", "health", "Exit with 0 if a worker is alive, for probes."),
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
