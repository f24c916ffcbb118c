"""The clock that tests move."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from penstock.testing import Clock


def test_a_clock_stands_still_until_it_is_moved() -> None:
    """advance() adds up whatever units it is given."""
    clock = Clock(datetime(2030, 1, 1, tzinfo=UTC))
    start = clock.time()
    assert clock.time() == start
    clock.advance(1.5, minutes=1, hours=1, days=1)
    assert clock.time() == start + 1.5 + 60 + 3600 + 86_400


def test_time_only_goes_on() -> None:
    """A clock cannot be moved back."""
    with pytest.raises(ValueError, match="only moves forward"):
        Clock().advance(-1)
