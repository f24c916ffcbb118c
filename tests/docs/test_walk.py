"""Some pages are walked from top to bottom, as a newcomer does: files saved, commands typed, output compared."""

from __future__ import annotations

import re

import pytest

from tests.docs.blocks import WALKED, Block, blocks
from tests.docs.reader import Reader


def same(shown: str, printed: str) -> bool:
    """Whether what a page shows was printed, line by line; `…` stands for anything in a line."""
    pattern = r"[^\n]*\n(?:[^\n]*\n)*?\s*".join(
        ".*?".join(map(re.escape, line.strip().split("…"))) for line in shown.strip().splitlines()
    )
    return re.search(pattern, printed) is not None


@pytest.mark.parametrize("page", sorted(WALKED))
def test_a_page_can_be_walked(page: str, reader: Reader) -> None:
    """Doing what the page says, word for word, gives what the page shows."""
    printed = ""
    before: Block | None = None
    for block in blocks():
        if block.page != page:
            continue
        match block.language:
            case "python" | "toml" if block.file is not None:
                reader.save(block.file, block.text)
            case "python":
                reader.run(block)
            case "sh":
                printed = "".join(reader.type(line) for line in block.text.splitlines())
            case "text" if before is not None and before.language == "sh":
                assert same(block.text, printed), f"{block.id}: not shown so, but:\n{printed}"
            case _:
                pass
        before = block


def test_the_comparison_notices_what_differs() -> None:
    """Lines must come in order and whole, but for what `…` leaves open."""
    assert same("a …\nc", "a b\nx\nc\n")
    assert not same("c\na …", "a b\nx\nc\n")
    assert not same("a d", "a b\n")
