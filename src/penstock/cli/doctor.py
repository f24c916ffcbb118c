"""`penstock doctor`: check a storage and the jobs in it, and print findings with their remedies."""

from __future__ import annotations

from typing import Any

import click

from penstock.cli.base import EXIT_USAGE, Command, CommandError, run
from penstock.cli.output import (
    DIM,
    Cell,
    Column,
    Styled,
    console,
    count,
    echo,
    echo_json,
    is_terminal,
    json_option,
    plain_text,
    rich_table,
)
from penstock.cli.secrets import redact_secrets, register_secrets
from penstock.cli.target import Target, target_options
from penstock.errors import PenstockError
from penstock.ops.doctor import Finding, Level, Report, examine

__all__ = ["doctor"]

MARKS = {Level.FINE: Styled("✔", "green"), Level.NOTE: Styled("•", "cyan"), Level.WARNING: Styled("✘", "bold red")}


@click.command(
    cls=Command,
    examples="""
        penstock doctor redis://localhost:6379
        penstock doctor sqlite:penstock.db
        penstock doctor --json | jq '.findings[] | select(.level == "warning")'
    """,
)
@click.argument("location", metavar="[URL]", required=False)
@click.option("--no-check", is_flag=True, help="Skip the search for damage, which reads the whole SQLite file.")
@json_option
@target_options
def doctor(target: Target, location: str | None, no_check: bool, as_json: bool) -> None:
    """Check a storage: what can be lost, what goes wrong, what to change.

    The exit code is 0 when all is fine, 1 when there are warnings, 2 when the storage cannot be reached.
    """
    if location is not None:
        if target.url is not None:
            raise click.UsageError("give the URL as an argument or as --url, not both")
        target = target._replace(url=register_secrets(location))

    async def work() -> Report:
        async with target.opened() as app:
            return await examine(app, check=not no_check)

    try:
        report = run(work())
    except CommandError as error:
        raise CommandError(error.message, EXIT_USAGE) from error
    except (PenstockError, OSError) as error:
        raise CommandError(str(error), EXIT_USAGE) from error
    if as_json:
        echo_json(report_json(report))
    else:
        show(report)
    if report.warnings:
        raise click.exceptions.Exit(1)


def report_json(report: Report) -> dict[str, Any]:
    """Return the report as it is printed with --json."""
    found = [{"level": f.level, "about": f.about, "says": f.message, "fix": f.fix} for f in report.findings]
    return {
        "where": redact_secrets(report.where),
        "warnings": len(report.warnings),
        "findings": found,
        "can_be_lost": report.lost,
    }


def show(report: Report) -> None:
    """Print the report: as tables on a terminal, else as lines."""
    if is_terminal():
        draw(report)
    else:
        echo(f"storage: {redact_secrets(report.where)}")
        for finding in report.findings:
            echo(f"{finding.level:<7}  {finding.about}: {finding.message}")
            if finding.fix and finding.level is not Level.FINE:
                echo(f"{'':7}  -> {finding.fix}")
        echo("what can be lost:")
        for line in report.lost:
            echo(f"  - {line}")
    echo(summary_line(report))


def draw(report: Report) -> None:
    """Print the report on a terminal."""
    from rich.padding import Padding
    from rich.text import Text

    out = console()
    out.print(Text.assemble(("storage ", "bold"), plain_text(redact_secrets(report.where))))
    out.print()
    out.print(
        rich_table(
            [Column(""), Column("about"), Column("found", elastic=True)], [finding_row(f) for f in report.findings]
        )
    )
    out.print()
    out.print(Text("What can be lost", "bold"))
    for line in report.lost:
        out.print(Padding(Text(plain_text(line)), (0, 0, 0, 2)))
    out.print()


def finding_row(finding: Finding) -> list[Cell]:
    style = {Level.WARNING: "red", Level.NOTE: "", Level.FINE: DIM}[finding.level]
    text = finding.message
    if finding.fix and finding.level is not Level.FINE:
        text = f"{text} → {finding.fix}"
    return [MARKS[finding.level], Styled(finding.about, "bold"), Styled(text, style)]


def summary_line(report: Report) -> str:
    """Return the last line: the number of warnings."""
    if not report.warnings:
        return "all is fine"
    return f"{count(len(report.warnings), 'warning')}: each says what to change"
