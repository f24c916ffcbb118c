"""Walkthroughs: pages followed from top to bottom, with files saved, commands typed and output compared."""

from __future__ import annotations

import re

import pytest

from tests.docs.blocks import WALKTHROUGHS, Block, blocks
from tests.docs.reader import Reader


def same(shown: str, printed: str) -> bool:
    """Return whether a page's text was printed, line by line; `…` matches anything in a line."""
    pattern = r"[^\n]*\n(?:[^\n]*\n)*?\s*".join(
        ".*?".join(map(re.escape, line.strip().split("…"))) for line in shown.strip().splitlines()
    )
    return re.search(pattern, printed) is not None


@pytest.mark.timeout(400)  # some twenty processes, one after the other
@pytest.mark.parametrize("page", sorted(WALKTHROUGHS))
def test_a_walkthrough_prints_the_output_of_its_page(page: str, reader: Reader) -> None:
    """Following the page word for word prints the output that it shows."""
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
    """Lines must come in order and whole, except for `…`."""
    assert same("a …\nc", "a b\nx\nc\n")
    assert not same("c\na …", "a b\nx\nc\n")
    assert not same("a d", "a b\n")
