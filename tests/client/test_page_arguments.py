"""Wrong arguments of lists, histories and texts: each is refused at the call, by its name, on every storage alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock import Every, Penstock

KEY = "0" * 16

Call = Callable[[Penstock, Any], Any]

LISTS: dict[str, Call] = {
    "activity": lambda app, given: app.activity(**given),
    "failed_jobs": lambda app, given: app.queue("q").failed_jobs(KEY, **given),
    "failures": lambda app, given: app.queue("q").failures(**given),
    "find": lambda app, given: app.queue("q").find(**given),
    "limits": lambda app, given: app.queue("q").limits(**given),
    "schedules": lambda app, given: app.queue("q").schedules.list(**given),
}

OTHERS: list[tuple[Call, Any, str]] = [
    (lambda app, value: app.bulk_actions(limit=value), 1.5, "limit"),
    (lambda app, value: app.bulk_actions(limit=value), 0, "limit"),
    (lambda app, value: app.history(queue=value), "", "queue"),
    (lambda app, value: app.history(queue=value), 5, "queue"),
    (lambda app, value: app.queue("q").failed_jobs(value), None, "key"),
    (lambda app, value: app.queue("q").retry_failures(value), "\ud800", "key"),
    (lambda app, value: app.queue("q").pause(by=value), "\ud800", "by"),
    (lambda app, value: app.queue("q").pause(by=value), "x" * 513, "by"),
    (lambda app, value: app.queue("q").schedules.pause("s", value), "\ud800", "note"),
    (lambda app, value: app.bulk("cancel", "state:queued", who=value).run(), "\ud800", "who"),
]


@pytest.mark.parametrize("name", LISTS)
@pytest.mark.parametrize("limit", [0, -1, 1.5, float("nan"), True, "2", None, 2**63])
async def test_wrong_size_of_a_page(app: Penstock, name: str, limit: Any) -> None:
    """A limit that is no whole number from 1 on is refused, and names `limit`; it never makes a list endless."""
    with pytest.raises((TypeError, ValueError), match=r"^limit must"):
        await LISTS[name](app, {"limit": limit})


@pytest.mark.parametrize("name", LISTS)
@pytest.mark.parametrize("after", [5, b"x", True])
async def test_cursor_that_is_no_text(app: Penstock, name: str, after: Any) -> None:
    """A cursor of another type is a `TypeError` that names `after`."""
    with pytest.raises(TypeError, match=r"^after must"):
        await LISTS[name](app, {"after": after})


@pytest.mark.parametrize("name", sorted(LISTS.keys() - {"schedules"}))
@pytest.mark.parametrize("after", ["", "\0", "no cursor", "-1", "9" * 5001, "\ud800"])
async def test_cursor_of_no_page(app: Penstock, name: str, after: str) -> None:
    """A text that is no cursor is a `ValueError` that names `after`; that of schedules is a name, and may be any."""
    with pytest.raises(ValueError, match=r"^after must"):
        await LISTS[name](app, {"after": after})


@pytest.mark.parametrize(("call", "value", "named"), OTHERS)
async def test_wrong_names_and_texts(app: Penstock, call: Call, value: Any, named: str) -> None:
    """A value of another type, too long, or with a lone surrogate is refused, by the name of its argument."""
    await app.queue("q").schedules.put("s", Every(60))
    with pytest.raises((TypeError, ValueError), match=f"^{named} must"):
        await call(app, value)
    assert await app.bulk_actions() == []


async def test_log_after_a_number_beyond_all(app: Penstock) -> None:
    """A number larger than a storage holds has no lines after it."""
    await app.queue("q").enqueue(1, id="a")
    assert await app.queue("q").log("a", after=2**70) == []


def test_span_of_days_beyond_the_calendar() -> None:
    """An interval that no clock can show is a `ValueError` that names the unit."""
    with pytest.raises(ValueError, match=r"^days must"):
        Every(days=2**31)
