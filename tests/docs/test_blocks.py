"""Python blocks of the documentation, each run as a program."""

from __future__ import annotations

import pytest

from tests.docs.blocks import GENERATED_FROM_TESTS, WALKTHROUGHS, Block, blocks, files_before
from tests.docs.reader import Reader

PYTHON = [block for block in blocks("python") if block.page not in GENERATED_FROM_TESTS | WALKTHROUGHS]
COMING_FROM = ("job-queue", "queasy", "queue-farm", "worqr")


@pytest.mark.parametrize("block", [pytest.param(block, id=block.id) for block in PYTHON])
def test_a_block_runs(block: Block, reader: Reader) -> None:
    """A block runs without an error, with the files that its page has named before it."""
    for name, text in files_before(block).items():
        reader.save(name, text)
    reader.run(block)


@pytest.mark.parametrize("system", COMING_FROM)
def test_every_coming_from_page_has_examples(system: str) -> None:
    """Each coming-from page has at least two examples."""
    assert len([block for block in PYTHON if block.page == f"docs/coming-from/{system}.md"]) >= 2


def test_every_page_with_python_is_run() -> None:
    """Every page with Python is run here or as a walkthrough, except those generated from tests."""
    shown = {block.page for block in blocks("python")}
    assert shown - {block.page for block in PYTHON} == GENERATED_FROM_TESTS | WALKTHROUGHS
