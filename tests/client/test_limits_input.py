"""Wrong limits, scopes and pauses: each is refused at the call, by its argument's name, and nothing is stored."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock import EVERY, Limit, Penstock, Retry

ONE = Limit(concurrency=1)


@pytest.mark.parametrize(
    ("build", "named"),
    [
        (lambda: Limit(concurrency=0), "concurrency"),
        (lambda: Limit(rate="0/s"), "rate"),
        (lambda: Limit(rate="10/fortnight"), "rate"),
        (lambda: Limit(concurrency=2, ordered=True), "ordered"),
        (lambda: Limit(weight=0), "weight"),
        (lambda: Limit(rate="1/s", burst=0), "burst"),
        (lambda: Limit(burst=5), "burst"),
        (lambda: Limit(rate="1/s", by="money"), "by"),  # type: ignore[arg-type]
        (lambda: Retry(pause="all"), "pause"),  # type: ignore[arg-type]
    ],
)
def test_wrong_values_are_refused(build: Callable[[], object], named: str) -> None:
    """A `Limit` or a `Retry` that cannot be meant is a `ValueError` that names the argument."""
    with pytest.raises(ValueError, match=f"^{named}"):
        build()


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda app, q: q.set_limit(Limit(weight=2)), "weight"),
        (lambda app, q: q.set_limit(Limit(concurrency=1, ordered=False)), "ordered"),
        (lambda app, q: q.set_limit(ONE, group=""), "group"),
        (lambda app, q: q.set_limit(5), "limit"),
        (lambda app, q: q.set_limit(ONE, group=5), "group"),
        (lambda app, q: q.limit(""), "group"),
        (lambda app, q: q.limits(limit=0), "limit"),
        (lambda app, q: q.reset_limit(7), "group"),
        (lambda app, q: q.pause(EVERY), "group"),
        (lambda app, q: q.pause("a", until="soon"), "until"),
        (lambda app, q: q.pause("a", by=None), "by"),
        (lambda app, q: app.set_limit("fam/q", ONE), "family"),
        (lambda app, q: app.set_limit("fam", Limit(weight=2)), "weight"),
        (lambda app, q: app.reset_limit(""), "family"),
        (lambda app, q: q.delete(settings=1), "settings"),
    ],
)
async def test_wrong_calls_are_refused(app: Penstock, call: Callable[[Penstock, Any], Any], named: str) -> None:
    """A wrong argument is a `ValueError` or `TypeError` that names it, and nothing is stored."""
    queue = app.queue("q")
    with pytest.raises((ValueError, TypeError), match=f"^{named}"):
        await call(app, queue)
    assert await queue.limits() == []
    assert await app.queues() == []


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"limit": 5}, "limit must be a Limit or None, not int"),
        ({"group_limit": "10/s"}, "group_limit must be a Limit or None, not str"),
        ({"limit": Limit(weight=2)}, "limit: weight is for groups"),
        ({"limit": Limit(concurrency=1, ordered=False)}, "limit: ordered is for groups"),
        ({"on_failure": print, "failure_options": {"limit": 5}}, "failure_options: limit must be"),
    ],
)
def test_wrong_options_of_handlers_are_refused(options: dict[str, Any], error: str) -> None:
    """A wrong limit of a handler is refused where it is declared, by `handler`, `listen` and `task`."""
    app = Penstock("memory:")

    def task() -> None: ...

    for declare in (
        lambda: app.handler("q", **options)(lambda payload: None),
        lambda: app.listen("q", lambda payload: None, **options),
        lambda: app.task(queue="q", **options)(task),
    ):
        with pytest.raises((TypeError, ValueError), match=error):
            declare()
    assert app.handlers == {}


def test_the_limit_of_a_family_is_declared_once() -> None:
    """`app.limit` refuses queue names, other limits for the same family, and weights."""
    app = Penstock("memory:")
    app.limit("llm", ONE)
    app.limit("llm", ONE)
    for family, limit, error in (
        ("llm", Limit(concurrency=2), "family 'llm' has a limit already"),
        ("llm/ask", ONE, "family must be the part of the queues' names before the first /, not 'llm/ask'"),
        ("x", Limit(weight=2), "weight is for groups, not for a family"),
    ):
        with pytest.raises(ValueError, match=error):
            app.limit(family, limit)
    assert app.family_limits == {"llm": ONE}
