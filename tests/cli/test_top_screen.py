"""Frames of `penstock top`: the screen and its rates."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from msgspec.structs import replace
from rich.console import Console

from penstock import FailureGroup, HistoryPoint, Latency, State, WorkerInfo
from penstock.cli.controls import Controls
from penstock.cli.top_screen import Frame, divide_rows, order_queues, plain_lines, render, sparkline
from penstock.errors import JobError
from penstock.ops.overview import FailedJob, Overview, QueueDetail, QueueView, Rate, rates

UP, DOWN, F1 = "\x1b[A", "\x1bOB", "\x1bOP"

NOW = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)


def make_overview(at: datetime = NOW, finished: int = 0, failures: int = 0, queues: int = 1, **counts: int) -> Overview:
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


def test_rates_are_computed_from_two_overviews() -> None:
    """The ending rate comes from the storage's counter; the arriving rate adds the growth of open jobs."""
    before = make_overview(NOW, finished=100, queued=10)
    after = make_overview(NOW + timedelta(seconds=2), finished=140, queued=30)
    assert rates(before, after) == {"mail0": Rate(arriving=30.0, ending=20.0)}
    assert rates(before, before) == {}
    # The storage dropped the counter of an empty queue: it restarts from zero.
    again = make_overview(NOW + timedelta(seconds=2), finished=4)
    assert rates(before, again)["mail0"].ending == 2.0


def drawn_frame(frame: Frame, height: int = 40, width: int = 110, controls: Controls | None = None) -> list[str]:
    with open("/dev/null", "w") as nowhere:
        console = Console(width=width, height=height, record=True, file=nowhere)
        console.print(render(frame, width, height, controls or Controls()))
        return console.export_text().splitlines()


def test_a_frame_shows_queues_workers_and_failures() -> None:
    """The screen has the sums, a row per queue with its rates, the load of each worker and the latest failures."""
    frame = Frame(
        "sqlite:x", make_overview(queued=7, failed=1, failures=1), {"mail0": Rate(12.5, 0.4)}, {"mail0": [0, 1, 2]}
    )
    text = "\n".join(drawn_frame(frame))
    assert "7 open jobs" in text
    [queue] = [line for line in text.splitlines() if line.startswith("mail0")]
    assert queue.split()[:8] == ["mail0", "7", "0", "0", "1", "12", "0.4", "1m30s"]
    assert "████▌"[:4] in text
    assert "45/50 of 100" in text
    assert "ValueError: no such address" in text
    assert any("mail0" in line for line in plain_lines(frame))


def test_a_frame_shows_the_next_tick_of_a_queue_with_schedules() -> None:
    """The column is there if a queue has a tick; one whose time has come is due."""
    overview = make_overview(queues=3)
    ticks = [NOW + timedelta(seconds=90), NOW, None]
    queues = [replace(queue, next_tick=tick) for queue, tick in zip(overview.queues, ticks, strict=True)]
    frame = Frame("sqlite:x", replace(overview, queues=queues), {}, {})
    for lines in (drawn_frame(frame), plain_lines(frame)):
        assert any("next tick" in line for line in lines)
        assert [
            line.rstrip().endswith(end)
            for line, end in zip(
                [line for line in lines if line.startswith("mail")], ["in 1m30s", "due", "-"], strict=True
            )
        ] == [True, True, True]
    assert "next tick" not in "\n".join(plain_lines(Frame("sqlite:x", overview, {}, {})))


def test_a_frame_fits_its_terminal() -> None:
    """A frame never has more lines than the terminal, and shows the number of rows left out."""
    frame = Frame("sqlite:x", make_overview(queued=7, failures=20, queues=50), {}, {})
    for height in (24, 40):
        lines = drawn_frame(frame, height)
        assert len(lines) <= height
        assert any("more" in line for line in lines)
    assert divide_rows((50, 1, 20), 1000) == (50, 1, 20)
    assert divide_rows((50, 1, 20), 9) == (4, 1, 4)


def test_optional_columns_are_left_out_whole() -> None:
    """At 80 columns a long name and large numbers leave no room for the sparkline; wider, it is there."""
    overview = make_overview(queued=1_234_567, scheduled=12_345)
    frame = Frame("sqlite:x", overview, {"mail0": Rate(1234.0, 1234.0)}, {"mail0": [1.0] * 20})
    [narrow] = [line for line in drawn_frame(frame, width=80) if line.startswith("queue ")]
    [wide] = [line for line in drawn_frame(frame, width=110) if line.startswith("queue ")]
    assert (narrow.split()[-1], wide.split()[-1]) == ("workers", "recent")
    assert max(map(len, drawn_frame(frame, width=80))) <= 80


def test_queues_are_sorted_and_filtered() -> None:
    """The screen shows the queues that match the filter, in the order of the key."""
    frame = Frame("sqlite:x", make_overview(queued=7, failures=2, queues=12), {"mail7": Rate(0.0, 3.0)}, {})
    controls = Controls()
    controls.sort = "out/s"
    rows = [line.split()[0] for line in drawn_frame(frame, controls=controls) if line.startswith("mail")]
    assert rows[0] == "mail7"
    controls.filter = "IL7"
    text = "\n".join(drawn_frame(frame, controls=controls))
    assert [line.split()[0] for line in text.splitlines() if line.startswith("mail")] == ["mail7"]
    assert "no workers of these queues" in text
    assert "nothing has failed" in text


def test_the_arrows_move_the_cursor_over_the_queues_that_are_shown() -> None:
    """The cursor begins at the first queue, stops at both ends, and the table moves with it; Esc removes it."""
    frame = Frame("sqlite:x", make_overview(queued=7, queues=30), {}, {})
    controls = Controls()
    controls.sort, controls.has_keys = "name", True
    controls.list_queues = lambda: order_queues(frame, controls)
    controls.press(UP + UP)
    assert controls.cursor == "mail0"
    controls.press(DOWN * 40 + F1)
    assert controls.cursor == "mail9"  # by name it is the last
    rows = [line.split()[0] for line in drawn_frame(frame, 24, controls=controls) if line.startswith("mail")]
    assert rows[-1] == "mail9"
    controls.press("k/IL1\r")
    assert order_queues(frame, controls)[0] == "mail1"
    controls.press("\r")
    assert (controls.cursor, controls.chosen) == ("mail1", "mail1")  # what was under the cursor is not shown any more
    controls.press("s/" + DOWN)
    assert (controls.sort, controls.typing, controls.cursor) == ("name", False, "mail1")  # keys of the list
    controls.press("\x1b")
    assert (controls.chosen, controls.filter) == (None, "IL1")
    controls.press("\x1b")
    controls.press("\x1b")
    assert (controls.cursor, controls.filter) == (None, "")
    controls.list_queues = tuple
    controls.press("\r")
    assert controls.chosen is None


def test_a_chosen_queue_is_shown_alone() -> None:
    """It has its states, latencies, error groups, workers and failures, and fits a low and narrow terminal."""
    overview = make_overview(queued=1_234, failed=7, failures=3, queues=5)
    groups = [
        FailureGroup(
            queue="mail0", key=f"{n}3f2a81c0aa", type="ConnectionError", message="no answer\n" * 30, kind="retriable",
            first_at=NOW, last_at=NOW, count=512, open=412, sample="a",
        )
        for n in range(9)
    ]  # fmt: skip
    point = HistoryPoint(
        since=NOW, until=NOW + timedelta(minutes=1), wait=Latency(5, 1.0, 1.0, 3.0, 4.0), run=Latency(0)
    )
    failures = [*overview.failures, *(replace(overview.failures[0], id=f"k{n}") for n in range(9))]
    detail = QueueDetail(name="mail0", groups=groups, failures=failures, recent=point)
    frame = Frame("sqlite:x", overview, {}, {}, detail=detail)
    controls = Controls()
    controls.chosen, controls.has_keys = "mail0", True
    for width, height in ((80, 24), (120, 40)):
        lines = drawn_frame(frame, height, width, controls)
        text = "\n".join(lines)
        assert len(lines) <= height
        assert max(map(len, lines)) <= width
        assert "queued 1,234  failed 7" in text
        assert "wait p50 1s  p95 3s  run p50 -  p95 -  (03:04 to 03:05 UTC)" in text
        assert "ConnectionError: no answer no answer" in text
        assert "412  512" in text
        assert "and 4 more" in text or "and 3 more" in text
        assert "mail1" not in text
        assert ("ValueError" in text) == (height == 40)
        assert lines[-1].startswith("q to quit  Esc for all queues")
    controls.chosen = "gone"
    assert "queue gone has no jobs, no pause and no worker any more" in "\n".join(drawn_frame(frame, controls=controls))


def test_a_frame_shows_the_error_of_an_outage() -> None:
    """While the storage is unavailable, the first line has the error."""
    frame = Frame("redis://x", make_overview(), {}, {}, "cannot reach redis://x")
    assert "trying again: cannot reach redis://x" in drawn_frame(frame)[0]


def test_sparkline() -> None:
    """Rates are drawn as blocks scaled to the highest, and zero as a gap."""
    assert sparkline([0, 1, 7]) == " ▂█"
    assert sparkline([0, 0]) == ""
