"""Formatting of output: durations, times, sizes, bars and tables."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from rich.console import Console

from penstock.cli.output import (
    Column,
    Styled,
    align_columns,
    bar,
    count,
    escape_controls,
    format_bytes,
    format_duration,
    format_time,
    rich_table,
)
from tests.cli.conftest import Cli, on_sqlite
from tests.cli.terminal import Terminal

NOW = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-1, "0ms"), (0, "0ms"), (0.25, "250ms"), (1, "1s"), (59.9, "59s"), (60, "1m00s"), (3599, "59m59s"),
        (3600, "1h00m"), (86399, "23h59m"), (86400, "1d0h"), (10 * 86400 + 7200, "10d2h"),
    ],
)  # fmt: skip
def test_format_duration(seconds: float, text: str) -> None:
    """A duration is shown in its two largest units."""
    assert format_duration(seconds) == text


def test_format_time_bytes_counts_and_bars() -> None:
    """Times have their distance from now, sizes a unit, and numbers the right noun."""
    assert format_time(NOW - timedelta(seconds=90), NOW) == "2030-01-02 03:02:35Z (1m30s ago)"
    assert format_time(NOW + timedelta(hours=2), NOW).endswith("(in 2h00m)")
    assert format_time(None) == "-"
    assert [format_bytes(n) for n in (0, 999, 1000, 1_500_000, 2e9, 3e12)] == [
        "0 B", "999 B", "1.0 kB", "1.5 MB", "2.0 GB", "3.0 TB",
    ]  # fmt: skip
    assert [count(n, "job") for n in (0, 1, 1200)] == ["0 jobs", "1 job", "1,200 jobs"]
    assert [bar(n, 100, 4) for n in (0, 50, 100, 150)] == ["░░░░", "██░░", "████", "████"]
    assert bar(1, 0, 4) == "░░░░"


def test_control_characters_are_escaped() -> None:
    """Control characters are escaped; line feeds are kept with `lines`."""
    assert escape_controls("a\x1b[31m\n\x07é") == r"a\x1b[31m\n\x07é"
    assert escape_controls("a\nb\r", lines=True) == "a\nb\\r"
    assert escape_controls("a‮b") == r"a\u202eb"


def test_tables_in_text_are_aligned_and_whole() -> None:
    """Plain tables have aligned columns, numbers at the right, and no shortened cell."""
    columns = [Column("queue"), Column("jobs", True)]
    assert align_columns(columns, [["mail", "1"], [Styled("x" * 200, "bold"), "1,000"]])[0].split() == ["queue", "jobs"]
    assert [line[-5:] for line in align_columns(columns, [["mail", "1"], ["y", "1,000"]])] == [
        " jobs",
        "    1",
        "1,000",
    ]


def test_a_drawn_table_takes_nothing_for_markup() -> None:
    """Text that looks like rich markup is printed as it is."""
    console = Console(width=60, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(rich_table([Column("queue")], [["[red]mail[/red]"]]))
    assert "[red]mail[/red]" in console.export_text()
    console.file.close()


@on_sqlite
def test_lists_are_drawn_at_a_terminal(cli: Cli) -> None:
    """On a terminal a list has colours and a rule, JSON is indented, and NO_COLOR removes the colours."""
    cli.do(lambda app: app.queue("mail").enqueue(1))
    for arguments, environment, coloured in (
        (["queue", "ls"], {}, True),
        (["queue", "ls"], {"NO_COLOR": "1"}, False),
        (["queue", "ls", "--json"], {}, False),
    ):
        given = {**cli.environment, **environment}
        with Terminal(*arguments, environment=given, cwd=cli.directory) as terminal:
            assert terminal.wait_for_exit() == 0
        assert "mail" in terminal.text
        assert ("\x1b[36m" in terminal.raw) == coloured
        if "--json" in arguments:
            assert '\n    "name": "mail"' in terminal.text.replace("\r", "")
        else:
            assert "───" in terminal.text
