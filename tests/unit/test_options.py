"""Options of handlers and bounds of jobs: their checks, their defaults, and which of them holds."""

from __future__ import annotations

import ast
import inspect
import itertools
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from penstock import HandlerOptions
from penstock.model.options import FAILURE_DEFAULTS, HandlerArguments, JobBounds, handler_options, rules_for

ROOT = Path(__file__).resolve().parents[2]


def test_durations_may_be_timedeltas() -> None:
    """Options take a timedelta wherever they take seconds."""
    options = handler_options({"timeout": timedelta(minutes=2), "result_ttl": timedelta(days=1), "min_backoff": 1})
    assert (options.timeout, options.result_ttl, options.min_backoff) == (120.0, 86_400.0, 1.0)


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        ("timeout", 0, ValueError),
        ("timeout", "60", TypeError),
        ("max_attempts", 0, ValueError),
        ("max_retries", -1, ValueError),
        ("max_retries", 1.5, TypeError),
        ("max_stalls", True, TypeError),
        ("size", 0, ValueError),
        ("concurrency", 0, ValueError),
        ("batch_size", 0, ValueError),
        ("batch_size", 1001, ValueError),
        ("jitter", 2, ValueError),
        ("jitter", "much", TypeError),
        ("min_backoff", -1, ValueError),
        ("retry_position", "front", ValueError),
        ("retain", "never", ValueError),
        ("at_most_once", 1, TypeError),
        ("on_failure", 7, TypeError),
        ("priority", None, TypeError),
    ],
)
def test_a_bad_option_is_refused_by_name(name: str, value: Any, error: type[Exception]) -> None:
    """The exception for a bad value names the option."""
    with pytest.raises(error, match=name):
        handler_options({name: value})


def test_an_unknown_option_suggests_the_nearest() -> None:
    """A misspelt option is answered with the one that was probably meant."""
    with pytest.raises(TypeError, match="did you mean max_retries"):
        handler_options({"max_retry": 1})


def test_options_that_contradict_each_other_are_refused() -> None:
    """size with concurrency, a minimum above the maximum, and failure_options without on_failure are refused."""
    with pytest.raises(ValueError, match="size or concurrency"):
        handler_options({"size": 5, "concurrency": 2})
    with pytest.raises(ValueError, match="min_backoff"):
        handler_options({"min_backoff": 10, "max_backoff": 5})
    with pytest.raises(ValueError, match="on_failure is not given"):
        handler_options({"failure_options": {"size": 1}})
    with pytest.raises(TypeError, match="failure_options: unknown handler option"):
        handler_options({"on_failure": print, "failure_options": {"sise": 1}})


def test_fail_handlers_have_their_own_defaults() -> None:
    """Fail jobs retry a hundred times, ten seconds to fifteen minutes apart, and take little room."""
    assert (FAILURE_DEFAULTS.max_retries, FAILURE_DEFAULTS.size) == (100, 2)
    assert (FAILURE_DEFAULTS.min_backoff, FAILURE_DEFAULTS.max_backoff) == (10, 900)


def test_limits_survive_the_trip() -> None:
    """A job's bounds come back as they went, and none at all take no bytes."""
    bounds = JobBounds.of(timeout=None, max_attempts=3, result_ttl=timedelta(minutes=1))
    assert JobBounds.decode(bounds.encode()) == bounds
    assert JobBounds().encode() == b""
    assert JobBounds.decode(b"") == JobBounds()


def test_unreadable_limits_are_none() -> None:
    """Bytes that are no bounds leave the handler's options in force."""
    assert JobBounds.decode(b"\xff\xff") == JobBounds()


def test_a_jobs_own_limits_win() -> None:
    """A limit given at enqueue replaces the handler's option, None included; the others stay."""
    options = HandlerOptions(retain="none", max_retries=4)
    rules = rules_for(options, JobBounds.of(timeout=None, max_attempts=7, result_ttl=5))
    assert (rules.timeout, rules.max_attempts, rules.max_retries) == (None, 7, 4)
    assert rules.keep_ms == 5000
    assert rules_for(options, JobBounds()) is options or rules_for(options, JobBounds()) == options


def test_how_long_finished_jobs_are_kept() -> None:
    """retain decides whether a job is kept for the result TTL, not at all, or for ever."""
    assert HandlerOptions(result_ttl=2).keep_ms == 2000
    assert HandlerOptions(retain="none").keep_ms == 0
    assert HandlerOptions(retain="forever").keep_ms is None
    assert HandlerOptions().keep_failed_ms == 7 * 86_400_000


def test_every_option_is_explained_where_editors_and_help_look() -> None:
    """`HandlerOptions.__doc__` and `HandlerArguments` explain every option that docs/reference/options.md lists."""
    page = (ROOT / "docs" / "reference" / "options.md").read_text("utf-8")
    table = page[page.index("## Of a handler") : page.index("## Of a job")]
    listed = re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)
    assert re.findall(r"^- `(\w+)`: \S", inspect.getdoc(HandlerOptions) or "", re.MULTILINE) == listed
    [kind] = ast.parse(inspect.getsource(HandlerArguments)).body
    assert isinstance(kind, ast.ClassDef)
    fields = [
        (field.target, text.value)
        for field, text in itertools.pairwise(kind.body)
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr)
    ]
    assert [name.id for name, _ in fields if isinstance(name, ast.Name)] == listed
    assert all(isinstance(text, ast.Constant) and text.value for _, text in fields)
