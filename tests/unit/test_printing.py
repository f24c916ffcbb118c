"""Text for lines of a log: escaped, bounded, with plurals and places."""

from __future__ import annotations

import json
import os

import pytest

from penstock.model.printing import count, format_span, indent, is_library, job_name, join_names, one_line, place_of


def frames(*paths: str) -> str:
    """Return a traceback with one frame for each path, outermost first."""
    return "".join(f'  File "{path}", line {line}, in f\n    f()\n' for line, path in enumerate(paths, 1))


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "0 ms"),
        (25.84, "25.8 ms"),
        (4000, "4 s"),
        (90_500, "90.5 s"),
        (300_000, "5 min"),
        (43_200_000, "12 h"),
    ],
)
def test_a_span_has_one_unit(ms: float, text: str) -> None:
    """The unit grows with the span."""
    assert format_span(ms) == text


def test_numbers_have_their_plural() -> None:
    """One is singular, everything else plural, also with an irregular noun."""
    assert [count(n, "run") for n in (0, 1, 2, 1204)] == ["0 runs", "1 run", "2 runs", "1,204 runs"]
    assert count(2, "child process", "child processes") == "2 child processes"


def test_a_text_of_a_user_is_one_bounded_line() -> None:
    """Newlines, escape sequences and lone surrogates are escaped, and a long text is cut."""
    assert one_line("a\nb\x1b[0m\udcff") == r"a\nb\x1b[0m\udcff"
    assert one_line("x" * 301) == "x" * 300 + "…"
    assert job_name("q\n", "i:1") == r"'q\n'/i:1"
    assert indent(["a\x07", "b"]) == "\n  a\\x07\n  b"


def test_a_few_jobs_are_named() -> None:
    """Up to five jobs are named; the rest is an ellipsis."""
    assert join_names([("q", "1"), ("q", "2")]) == "q/1, q/2"
    assert join_names([("q", str(n)) for n in range(9)]) == "q/0, q/1, q/2, q/3, q/4, …"


def test_the_place_of_an_error_is_the_innermost_line_of_the_project() -> None:
    """Frames of Python, of installed packages and of Penstock come second."""
    here, library = os.path.join(os.getcwd(), "shop", "jobs.py"), os.path.abspath(json.__file__)
    package = "/venv/lib/python3.11/site-packages/requests/api.py"
    worker = os.path.join(os.getcwd(), "src", "penstock", "worker", "executor.py")
    assert place_of(frames(worker, here, library)) == "shop/jobs.py:2"
    assert place_of(frames("/elsewhere/jobs.py", package)) == "jobs.py:1"
    assert place_of(frames(worker, package)) == "api.py:2"
    assert place_of(frames(worker)) == ""
    assert place_of("") == ""
    assert [is_library(path) for path in (here, library, package, worker, "<frozen x>")] == [False] + [True] * 4
