"""The command line: arguments in, one call out, printed."""

from __future__ import annotations

import click

from penstock._version import __version__
from penstock.cli.base import Lazy, LazyGroup

__all__ = ["COMMANDS", "main"]

WORK, ASK, LOOK, CARE = "Work", "Ask", "Look and change", "Look after it"

#: Every command, where it is, and what the list says of it (the first sentence of its own help).
COMMANDS = {
    "worker": Lazy(WORK, "penstock.cli.worker", "worker", "Run the handlers of an app; `worker ls` lists who works."),
    "dev": Lazy(WORK, "penstock.cli.worker", "dev", "Work while you write: reload, and a live log."),
    "demo": Lazy(
        WORK, "penstock.cli.demo", "demo", "Enqueue jobs of three kinds, work them here, and show what happened."
    ),
    "enqueue": Lazy(ASK, "penstock.cli.enqueue", "enqueue", "Add a job to a queue."),
    "call": Lazy(ASK, "penstock.cli.enqueue", "call", "Add a job, wait for its end and print its result."),
    "queue": Lazy(LOOK, "penstock.cli.queue", "queue", "Look at queues; pause, resume and delete them."),
    "job": Lazy(LOOK, "penstock.cli.job", "job", "Look at jobs; cancel and retry them."),
    "events": Lazy(LOOK, "penstock.cli.events", "events", "Tell what happens in all processes, live."),
    "top": Lazy(LOOK, "penstock.cli.top", "top", "Watch queues, workers and failures, live."),
    "doctor": Lazy(CARE, "penstock.cli.doctor", "doctor", "Say what can be lost, what goes wrong, what to change."),
    "bench": Lazy(CARE, "penstock.cli.bench", "bench", "Measure how fast a storage is from here."),
    "export": Lazy(CARE, "penstock.cli.transfer", "export", "Write jobs as JSON lines."),
    "import": Lazy(CARE, "penstock.cli.transfer", "import_", "Read jobs from JSON lines."),
    "completion": Lazy(CARE, "penstock.cli.completion", "completion", "Print a script that completes in your shell."),
}


@click.group(
    cls=LazyGroup,
    lazy=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"]},
    examples="""
        penstock demo                                  # see it work, with no server
        penstock dev jobs:app                          # run the `app` in jobs.py while you write it
        penstock enqueue thumbnails '{"name": "cat"}'  # give it a job
        penstock top                                   # watch
        penstock COMMAND --help                        # each command has examples
    """,
)
@click.version_option(__version__, prog_name="penstock")
def main() -> None:
    """Penstock, a job queue on SQLite, Redis and Valkey.

    Commands find the app as --app MODULE:APP, in PENSTOCK_APP, or as `app` in [tool.penstock] of
    pyproject.toml. Those that only look at jobs can do without one: --url or PENSTOCK_URL.
    """
