"""Check that every relative link of the documentation leads to a file, and every anchor to a heading."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from urllib.parse import unquote

ROOT = Path(__file__).resolve().parent.parent
FENCE = re.compile(r"^(```|~~~).*?^\1\s*$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`[^`\n]+`")
LINK = re.compile(r"\[[^\]]*\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)")
DEFINITION = re.compile(r"^\[[^\]]+\]:\s*(\S+)", re.MULTILINE)
HEADING = re.compile(r"^#{1,6}\s+(.+?)\s*#*$", re.MULTILINE)
ELSEWHERE = re.compile(r"^[a-z][a-z0-9+.-]*:", re.IGNORECASE)


def pages() -> list[Path]:
    """Return the pages to check: those at the top, and all of docs and examples."""
    return sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")])


def prose(page: Path) -> str:
    """Return the text of a page with its code blanked, so that lines keep their numbers."""
    text = page.read_text(encoding="utf-8")
    text = FENCE.sub(lambda found: "\n" * found.group().count("\n"), text)
    return CODE.sub(lambda found: " " * len(found.group()), text)


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub writes them."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    found: set[str] = set()
    for heading in HEADING.findall(text):
        slug = re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")
        count = 1
        unique = slug
        while unique in found:
            unique = f"{slug}-{count}"
            count += 1
        found.add(unique)
    return found


def fault(page: Path, link: str) -> str | None:
    """Return the fault of a link, or None."""
    if ELSEWHERE.match(link):
        return None
    path, _, anchor = link.partition("#")
    target = (page.parent / unquote(path)).resolve() if path else page
    if not target.exists():
        return "no such file"
    if ROOT not in target.parents and target != ROOT:
        return "leads out of the repository"
    if anchor and target.suffix == ".md" and anchor not in anchors(target):
        return "no such heading"
    return None


def main() -> int:
    """Print every broken link; returns 1 if there is one."""
    checked = broken = 0
    for page in pages():
        text = prose(page)
        for found in [*LINK.finditer(text), *DEFINITION.finditer(text)]:
            checked += 1
            problem = fault(page, found.group(1))
            if problem:
                broken += 1
                line = text.count("\n", 0, found.start()) + 1
                print(f"{page.relative_to(ROOT)}:{line}: {found.group(1)}: {problem}", file=sys.stderr)
    print(f"docs: {checked} links in {len(pages())} pages, {broken} broken")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
