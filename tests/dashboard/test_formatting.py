"""Numbers and durations as the pages show them."""

from __future__ import annotations

import pytest

from penstock.dashboard.formatting import duration, number

SPACE = "\N{NARROW NO-BREAK SPACE}"


def test_numbers_of_any_size_are_exact() -> None:
    """No digit of a whole number is rounded, and a number without one is a dash."""
    assert number(12_345_678_901_234_567_890) == "12 345 678 901 234 567 890".replace(" ", SPACE)
    assert number(10**400).startswith("10")
    assert number(1234.5) == f"1{SPACE}234"
    assert number(None) == "–"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 ms"), (0.000_041, "0.04 ms"), (0.0042, "4.2 ms"), (0.082, "82 ms"), (0.49, "0.49 s"), (4.2, "4.2 s"),
     (59.96, "1 min"), (720, "12 min"), (7500, "2 h 5 min"), (3 * 86_400, "3 d"), (None, "–")],
)  # fmt: skip
def test_durations_are_in_their_largest_unit(seconds: float | None, text: str) -> None:
    """A short time that is not zero is not shown as zero."""
    assert duration(seconds) == text
