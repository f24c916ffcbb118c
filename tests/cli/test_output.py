"""How answers look: ages, sizes, bars, tables, the frames of `penstock top`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from rich.console import Console

from penstock import State, WorkerInfo
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
from penstock.cli.top_screen import Frame, divide_rows, plain_lines, render, sparkline
from penstock.errors import JobError
from penstock.ops.overview import FailedJob, Overview, QueueView, Rate, rates

NOW = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-1, "0ms"), (0, "0ms"), (0.25, "250ms"), (1, "1s"), (59.9, "59s"), (60, "1m00s"), (3599, "59m59s"),
        (3600, "1h00m"), (86399, "23h59m"), (86400, "1d0h"), (10 * 86400 + 7200, "10d2h"),
    ],
)  # fmt: skip
def test_ages(seconds: float, text: str) -> None:
    """A span is told in its two largest units."""
    assert format_duration(seconds) == text


def test_moments_sizes_and_numbers() -> None:
    """A moment says how far away it is, sizes have a unit, and numbers agree with their nouns."""
    assert format_time(NOW - timedelta(seconds=90), NOW) == "2030-01-02 03:02:35Z (1m30s ago)"
    assert format_time(NOW + timedelta(hours=2), NOW).endswith("(in 2h00m)")
    assert format_time(None) == "-"
    assert [format_bytes(n) for n in (0, 999, 1000, 1_500_000, 2e9, 3e12)] == [
        "0 B", "999 B", "1.0 kB", "1.5 MB", "2.0 GB", "3.0 TB",
    ]  # fmt: skip
    assert [count(n, "job") for n in (0, 1, 1200)] == ["0 jobs", "1 job", "1,200 jobs"]
    assert [bar(n, 100, 4) for n in (0, 50, 100, 150)] == ["░░░░", "██░░", "████", "████"]
    assert bar(1, 0, 4) == "░░░░"


def test_control_characters_are_shown() -> None:
    """What could command a terminal is escaped; lines stay where lines are meant."""
    assert escape_controls("a\x1b[31m\n\x07é") == r"a\x1b[31m\n\x07é"
    assert escape_controls("a\nb\r", lines=True) == "a\nb\\r"
    assert escape_controls("a‮b") == r"a\u202eb"


def test_tables_in_text_are_aligned_and_whole() -> None:
    """Columns stand under their headings, numbers at the right, and nothing is cut off."""
    columns = [Column("queue"), Column("jobs", True)]
    assert align_columns(columns, [["mail", "1"], [Styled("x" * 200, "bold"), "1,000"]])[0].split() == ["queue", "jobs"]
    assert [line[-5:] for line in align_columns(columns, [["mail", "1"], ["y", "1,000"]])] == [
        " jobs",
        "    1",
        "1,000",
    ]


def test_a_drawn_table_takes_nothing_for_markup() -> None:
    """A name that looks like markup of the drawing library is shown as it is."""
    console = Console(width=60, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(rich_table([Column("queue")], [["[red]mail[/red]"]]))
    assert "[red]mail[/red]" in console.export_text()
    console.file.close()


def survey(at: datetime = NOW, finished: int = 0, failures: int = 0, queues: int = 1, **counts: int) -> Overview:
    states = {state: counts.get(state.value, 0) for state in State}
    error = JobError("ValueError", "no\nsuch address")
    return Overview(
        at=at,
        queues=[
            QueueView(name=f"mail{n}", counts=states, oldest=at - timedelta(seconds=90), finished=finished, overdue=0)
            for n in range(queues)
        ],
        workers=[
            WorkerInfo(
                id="w1", host="h", pid=1, processes=[2], queues=["mail0"], capacity=100, allowed=50, busy=45,
                memory=10**8, lease_age=None, running=9, runs=[], started_at=None, until=at,
                seen_at=at - timedelta(seconds=2),
            )
        ],
        failures=[FailedJob(queue="mail0", id=f"j{n}", at=at, attempts=2, error=error) for n in range(failures)],
    )  # fmt: skip


def test_rates_come_from_two_looks() -> None:
    """What ended is counted by the storage; what arrived is what ended and what is more than before."""
    before = survey(NOW, finished=100, queued=10)
    after = survey(NOW + timedelta(seconds=2), finished=140, queued=30)
    assert rates(before, after) == {"mail0": Rate(arriving=30.0, ending=20.0)}
    assert rates(before, before) == {}
    again = survey(NOW + timedelta(seconds=2), finished=4)  # the queue was forgotten, and counts anew
    assert rates(before, again)["mail0"].ending == 2.0


def drawn_frame(frame: Frame, height: int = 40) -> list[str]:
    with open("/dev/null", "w") as nowhere:
        console = Console(width=110, height=height, record=True, file=nowhere)
        console.print(render(frame, height))
        return console.export_text().splitlines()


def test_a_frame_shows_queues_workers_and_failures() -> None:
    """The screen has the sums, a line for each queue with its rates, the load of each worker and the last failures."""
    frame = Frame("sqlite:x", survey(queued=7, failed=1, failures=1), {"mail0": Rate(12.5, 0.4)}, {"mail0": [0, 1, 2]})
    text = "\n".join(drawn_frame(frame))
    assert "7 open jobs" in text
    [queue] = [line for line in text.splitlines() if line.startswith("mail0")]
    assert queue.split()[:8] == ["mail0", "7", "0", "0", "1", "12", "0.4", "1m30s"]
    assert "████▌"[:4] in text
    assert "45/50 of 100" in text
    assert "ValueError: no such address" in text
    assert any("mail0" in line for line in plain_lines(frame))


def test_a_frame_fits_its_terminal() -> None:
    """Whatever there is, the screen is not longer than the terminal, and says that there is more."""
    frame = Frame("sqlite:x", survey(queued=7, failures=20, queues=50), {}, {})
    for height in (24, 40):
        lines = drawn_frame(frame, height)
        assert len(lines) <= height
        assert any("more" in line for line in lines)
    assert divide_rows(frame, 1000) == (50, 1, 20)


def test_a_frame_says_what_is_wrong() -> None:
    """While the storage is away the first line says so."""
    frame = Frame("redis://x", survey(), {}, {}, "cannot reach redis://x")
    assert "cannot reach redis://x; trying again" in drawn_frame(frame)[0]


def test_sparks() -> None:
    """Past rates are drawn as blocks, the highest in full, nothing as a gap."""
    assert sparkline([0, 1, 7]) == " ▂█"
    assert sparkline([0, 0]) == ""
