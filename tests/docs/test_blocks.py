"""Every Python block of the documentation runs as it stands."""

from __future__ import annotations

import pytest

from tests.docs.blocks import MADE_OF_TESTS, WALKED, Block, blocks, files_before
from tests.docs.reader import Reader

PYTHON = [block for block in blocks("python") if block.page not in MADE_OF_TESTS | WALKED]
COMING_FROM = ("job-queue", "queasy", "queue-farm", "worqr")


@pytest.mark.parametrize("block", [pytest.param(block, id=block.id) for block in PYTHON])
def test_a_block_runs(block: Block, reader: Reader) -> None:
    """A block is a whole program: beside the files that its page has named so far, it runs and ends well."""
    for name, text in files_before(block).items():
        reader.save(name, text)
    reader.run(block)


@pytest.mark.parametrize("system", COMING_FROM)
def test_every_coming_from_page_has_examples(system: str) -> None:
    """Each system's page has at least two examples."""
    assert len([block for block in PYTHON if block.page == f"docs/coming-from/{system}.md"]) >= 2


def test_no_page_is_forgotten() -> None:
    """Every page that shows Python is run here or walked, but for those that are made of tests."""
    shown = {block.page for block in blocks("python")}
    assert shown - {block.page for block in PYTHON} == MADE_OF_TESTS | WALKED
