"""Check that the built site loads nothing from other hosts, has every page, and can be searched without a server."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

#: Attributes whose addresses a browser fetches without a click.
LOADING = {
    "audio": ("src",),
    "embed": ("src",),
    "form": ("action",),
    "iframe": ("src",),
    "image": ("href", "xlink:href"),
    "img": ("src", "srcset"),
    "input": ("src",),
    "link": ("href",),
    "object": ("data",),
    "script": ("src",),
    "source": ("src", "srcset"),
    "track": ("src",),
    "use": ("href", "xlink:href"),
    "video": ("src", "poster"),
}
FOREIGN = re.compile(r"(?:^|[\s,])(?:[a-z][a-z0-9+.-]*:)?//[^\s,]+", re.IGNORECASE)
IN_STYLE = re.compile(r"(?:url\(\s*['\"]?|@import\s+['\"])((?:https?:)?//[^'\")\s]+)", re.IGNORECASE)
CANONICAL = "canonical"  # names the public address of a page; nothing is loaded from there


class Loads(HTMLParser):
    """Collects the addresses on other hosts that a page loads."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self._style = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self._style = tag == "style"
        self.found += IN_STYLE.findall(given.get("style", ""))
        if tag == "link" and given.get("rel") == CANONICAL:
            return
        for name in LOADING.get(tag, ()):
            self.found += [each.strip(" ,") for each in FOREIGN.findall(given.get(name, ""))]

    def handle_endtag(self, tag: str) -> None:
        self._style = False

    def handle_data(self, data: str) -> None:
        if self._style:
            self.found += IN_STYLE.findall(data)


def loads(path: Path) -> list[str]:
    """Return the addresses on other hosts that a page, picture or style sheet loads."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".css":
        return IN_STYLE.findall(text)
    page = Loads()
    page.feed(text)
    page.close()
    return page.found


def faults(site: Path) -> Iterator[str]:
    """Yield every address on another host that the site loads without a click."""
    for path in sorted(site.rglob("*")):
        if path.suffix in {".css", ".html", ".svg"}:
            for address in loads(path):
                yield f"{path.relative_to(site)}: loads {address}"


def missing(site: Path, docs: Path) -> Iterator[str]:
    """Yield every page of the documentation that is not in the site."""
    for page in sorted(docs.rglob("*.md")):
        built = page.relative_to(docs).with_suffix(".html")
        if not (site / built).exists():
            yield f"docs/{page.relative_to(docs)}: not in the site"


def without_search(site: Path) -> Iterator[str]:
    """Yield a fault if the search needs a server: the index as a script is for pages that are opened from a disk."""
    if not (site / "search" / "search_index.js").exists():
        yield "search/search_index.js: not in the site, so there is no search on pages that are opened from a disk"


def main(site: Path) -> int:
    """Print every fault; returns 1 if there is one."""
    pages = sorted(site.rglob("*.html"))
    found = [*faults(site), *missing(site, ROOT / "docs"), *without_search(site)]
    for fault in found:
        print(fault, file=sys.stderr)
    print(f"docs: {len(pages)} pages in {site}, {len(found)} faults")
    return 1 if found or not pages else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
