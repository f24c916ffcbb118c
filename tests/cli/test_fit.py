"""Tables that fit a terminal, and the keys of its screen."""

from __future__ import annotations

import pytest

from penstock.cli.controls import SORTS, Controls
from penstock.cli.fit import cut, fit_table, text_width
from penstock.cli.output import Column, Styled, plain_text


@pytest.mark.parametrize(
    ("text", "width", "where", "expected"),
    [
        ("mail", 4, "middle", "mail"),
        ("invoices", 5, "middle", "in…es"),
        ("invoices", 6, "middle", "inv…es"),
        ("invoices", 5, "end", "invo…"),
        ("▁▂▃▄▅", 3, "start", "▃▄▅"),
        ("日本語のキュー", 7, "middle", "日本…ー"),
        ("invoices", 1, "middle", "…"),
    ],
)
def test_a_text_is_cut_to_a_width(text: str, width: int, where: str, expected: str) -> None:
    """A text that is too wide is cut where its column asks for it; wide characters count as two."""
    assert cut(text, width, where) == expected
    assert text_width(expected) <= width


@pytest.mark.parametrize("width", [20, 40, 80, 200])
def test_every_row_fits_the_width(width: int) -> None:
    """Whatever the width, each row has at most that many cells, and styles are kept."""
    columns = [
        Column("name", elastic=True, cut="middle", least=8), Column("jobs", True),
        Column("load", optional=True), Column("error", elastic=True, least=20),
    ]  # fmt: skip
    rows = [[Styled("n" * 90, "bold"), "1", "██████████", "e" * 300], ["mail", "12", "", "\x1b[2J"]]
    kept, cells = fit_table(columns, rows, width)
    assert ("load" in [column.name for column in kept]) == (width >= 80)
    for row in cells:
        widths = [text_width(plain_text(cell)) for cell in row]
        assert sum(widths) + 2 * (len(row) - 1) <= width
    assert isinstance(cells[0][0], Styled)
    assert cells[0][0].style == "bold"


def test_keys_change_sort_and_filter() -> None:
    """Keys step through the orders and edit the filter; an arrow key, which sends a sequence, changes nothing."""
    controls = Controls()
    controls.press("\x1b[A")
    assert (controls.sort, controls.filter, controls.typing) == ("open jobs", "", False)
    controls.press("s" * len(SORTS))
    assert controls.sort == SORTS[0]
    controls.press("/")
    controls.press("quit\x08\x00")
    assert (controls.filter, controls.typing, controls.quit) == ("qui", True, False)
    controls.press("\r")
    assert (controls.matches("a QUIet queue"), controls.matches("mail")) == (True, False)
    controls.press("\x1b")
    assert (controls.filter, controls.quit) == ("", False)
    controls.press("q")
    assert controls.quit
