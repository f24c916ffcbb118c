"""The command line: arguments in, one call out, printed."""

from __future__ import annotations

import click

from penstock._version import __version__
from penstock.cli.demo import demo
from penstock.cli.worker import worker

__all__ = ["main"]


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="penstock")
def main() -> None:
    """Penstock, a job queue."""


main.add_command(demo)
main.add_command(worker)
