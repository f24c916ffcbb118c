"""Tables that fit a terminal: each row is one line, and longer texts are cut with "…"."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.cli.output import Cell, Column, Styled, plain_text

__all__ = ["cut", "fit_table"]

#: Blanks between two columns of a drawn table.
GAP = 2

#: The width to which a column is narrowed only if the terminal has no room for its `least`.
MIN_WIDTH = 4


def fit_table(
    columns: Sequence[Column], rows: Sequence[Sequence[Cell]], width: int
) -> tuple[list[Column], list[list[Cell]]]:
    """Return the columns for which there is room, and the rows with their cells cut to the width of each.

    Optional columns are left out first, the last one first. Elastic columns then share the width that
    the others leave.
    """
    natural = [
        max([text_width(column.name), *(text_width(plain_text(row[i])) for row in rows)])
        for i, column in enumerate(columns)
    ]
    widths = {
        i: min(natural[i], max(column.least, text_width(column.name))) if column.elastic else natural[i]
        for i, column in enumerate(columns)
    }
    optional = [i for i in widths if columns[i].optional]
    while room_left(widths, width) < 0 and optional:
        del widths[optional.pop()]
    elastic = [i for i in widths if columns[i].elastic]
    while room_left(widths, width) < 0 and (wide := [i for i in elastic if widths[i] > MIN_WIDTH]):
        widths[max(wide, key=lambda i: widths[i])] -= 1
    while room_left(widths, width) > 0 and (narrow := [i for i in elastic if widths[i] < natural[i]]):
        widths[min(narrow, key=lambda i: widths[i])] += 1
    kept = [columns[i]._replace(elastic=False) for i in widths]
    return kept, [[cut_cell(row[i], widths[i], columns[i].cut) for i in widths] for row in rows]


def room_left(widths: dict[int, int], width: int) -> int:
    """Return the number of cells that these columns leave of the terminal's width; below 0 they are too wide."""
    return width - sum(widths.values()) - GAP * max(len(widths) - 1, 0)


def cut_cell(cell: Cell, width: int, where: str) -> Cell:
    """Return a cell whose text is at most `width` wide, in its style."""
    return Styled(cut(plain_text(cell), width, where), cell.style if isinstance(cell, Styled) else "")


def cut(text: str, width: int, where: str = "end") -> str:
    """Return a text that is at most `width` cells wide: shortened at its start, in its middle or at its end."""
    if text_width(text) <= width:
        return text
    if where == "start":
        return take(text[::-1], width)[::-1]
    tail = take(text[::-1], (width - 1) // 2)[::-1] if where == "middle" else ""
    return f"{take(text, max(width - 1 - text_width(tail), 0))}…{tail}"


def take(text: str, width: int) -> str:
    """Return the beginning of a text that is at most `width` cells wide."""
    used = 0
    for i, character in enumerate(text):
        used += text_width(character)
        if used > width:
            return text[:i]
    return text


def text_width(text: str) -> int:
    """Return the cells that a text takes on a terminal: a Chinese character takes two."""
    from rich.cells import cell_len

    return cell_len(text)
