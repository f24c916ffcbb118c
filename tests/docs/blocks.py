"""Code blocks of the documentation."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
FENCE = re.compile(r"^(?P<fence>```+)(?P<language>[^\n`]*)\n(?P<text>.*?)^(?P=fence)[ \t]*$", re.MULTILINE | re.DOTALL)
NAMED = re.compile(r"^# ([\w./-]+\.(?:py|toml|sh))$")

#: Pages generated from tests, which run their Python.
GENERATED_FROM_TESTS = {"docs/tour.md"}
#: Pages that are followed from top to bottom, shell commands included.
WALKTHROUGHS = {"README.md", "docs/tutorial.md"}


@dataclass(frozen=True)
class Block:
    """A block of code on a page; one that begins with `# name.py` is the file of that name."""

    page: str
    line: int
    language: str
    text: str

    @property
    def id(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def file(self) -> str | None:
        found = NAMED.match(self.text.partition("\n")[0])
        return found[1] if found else None


def pages() -> list[Path]:
    """Return every page: those at the top, those of docs and those of the examples."""
    return sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")])


def blocks(*languages: str) -> Iterator[Block]:
    """Yield every block of these languages, page by page, in order."""
    for page in pages():
        text = page.read_text(encoding="utf-8")
        for found in FENCE.finditer(text):
            language = found["language"].strip()
            if not languages or language in languages:
                line = text.count("\n", 0, found.start()) + 2
                yield Block(page.relative_to(ROOT).as_posix(), line, language, found["text"])


def files_before(block: Block) -> dict[str, str]:
    """Return the named files on a block's page before it, by name."""
    mine = [each for each in blocks() if each.page == block.page and each.line < block.line]
    return {each.file: each.text for each in mine if each.file is not None}
