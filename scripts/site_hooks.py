"""Hooks of the documentation site: add the pages at the top of the repository, and rewrite links."""

from __future__ import annotations

import importlib
import posixpath
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent

#: Pages at the top of the repository, and their names in the site.
SHOWN = {
    "README.md": "overview.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
}
#: Pages of the repository that have another name in the site.
REPLACED = {"docs/index.md": "index.md"}

FENCE = re.compile(r"^(```|~~~).*?^\1\s*$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(?P<image>!?)\[(?P<text>[^\]]*)\]\((?P<to>[^)\s]+)\)")
ELSEWHERE = re.compile(r"^([a-z][a-z0-9+.-]*:|#)", re.IGNORECASE)


def on_files(files: Any, config: Any) -> Any:
    """Add the pages of the top directory that exist."""
    file = importlib.import_module("mkdocs.structure.files").File  # installed only where the site is built
    for source, page in SHOWN.items():
        if (ROOT / source).exists():
            text = (ROOT / source).read_text(encoding="utf-8")
            files.append(file.generated(config, page, content=text))
    return files


def on_config(config: Any) -> Any:
    """Remove pages that do not exist from the navigation."""
    config["nav"] = [kept for entry in config["nav"] if (kept := existing(entry)) is not None]
    return config


def existing(entry: Any) -> Any:
    """Return an entry of the navigation without pages that do not exist; None if nothing is left."""
    if isinstance(entry, str):
        source = {page: path for path, page in SHOWN.items()}.get(entry, f"docs/{entry}")
        return entry if (ROOT / source).exists() else None
    if isinstance(entry, list):
        return [kept for each in entry if (kept := existing(each)) is not None] or None
    [(title, inner)] = entry.items()
    kept = existing(inner)
    return None if kept is None else {title: kept}


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Rewrite links for the site; a link to a file outside of the site becomes text."""
    found = {shown: source for source, shown in SHOWN.items()}.get(page.file.src_uri)
    here = found or f"docs/{page.file.src_uri}"
    parts: list[str] = []
    last = 0
    for fence in FENCE.finditer(markdown):
        parts += [relink(markdown[last : fence.start()], here, page.file.src_uri), fence.group()]
        last = fence.end()
    return "".join([*parts, relink(markdown[last:], here, page.file.src_uri)])


def relink(text: str, here: str, page: str) -> str:
    """Return a part of a page, `here` in the repository, with its links rewritten for the site."""

    def replace(found: re.Match[str]) -> str:
        link = found["to"]
        if ELSEWHERE.match(link):
            return found.group()
        path, mark, anchor = link.partition("#")
        target = posixpath.normpath(posixpath.join(posixpath.dirname(here), path))
        shown = SHOWN.get(target) or REPLACED.get(target)
        if shown is None and target.startswith("docs/"):
            shown = target.removeprefix("docs/")
        if shown is None:
            return found["text"] if "`" in found["text"] else f"{found['text']} (`{target}`)"
        to = posixpath.relpath(shown, posixpath.dirname(page) or ".")
        return f"{found['image']}[{found['text']}]({to}{mark}{anchor})"

    return LINK.sub(replace, text)
