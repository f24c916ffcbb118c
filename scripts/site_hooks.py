"""What the documentation site needs beyond docs/: the pages at the top of the repository, and links that fit."""

from __future__ import annotations

import importlib
import posixpath
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent

#: Pages of the repository that are shown in the site, and where.
SHOWN = {
    "README.md": "overview.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
}
#: A page of the repository that another page stands for.
INSTEAD = {"docs/index.md": "index.md"}

FENCE = re.compile(r"^(```|~~~).*?^\1\s*$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(?P<image>!?)\[(?P<text>[^\]]*)\]\((?P<to>[^)\s]+)\)")
ELSEWHERE = re.compile(r"^([a-z][a-z0-9+.-]*:|#)", re.IGNORECASE)


def on_files(files: Any, config: Any) -> Any:
    """Add the pages of the top directory that are there."""
    file = importlib.import_module("mkdocs.structure.files").File  # is in the environment that builds the site
    for source, page in SHOWN.items():
        if (ROOT / source).exists():
            text = (ROOT / source).read_text(encoding="utf-8")
            files.append(file.generated(config, page, content=text))
    return files


def on_config(config: Any) -> Any:
    """Leave out of the navigation what is not written."""
    config["nav"] = [kept for entry in config["nav"] if (kept := there(entry)) is not None]
    return config


def there(entry: Any) -> Any:
    """An entry of the navigation without pages that do not exist; None if nothing is left."""
    if isinstance(entry, str):
        source = {page: path for path, page in SHOWN.items()}.get(entry, f"docs/{entry}")
        return entry if (ROOT / source).exists() else None
    if isinstance(entry, list):
        return [kept for each in entry if (kept := there(each)) is not None] or None
    [(title, inner)] = entry.items()
    kept = there(inner)
    return None if kept is None else {title: kept}


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Lead links to where the site has what they mean; what it has not is named and not linked."""
    found = {shown: source for source, shown in SHOWN.items()}.get(page.file.src_uri)
    here = found or f"docs/{page.file.src_uri}"
    parts: list[str] = []
    last = 0
    for fence in FENCE.finditer(markdown):
        parts += [relinked(markdown[last : fence.start()], here, page.file.src_uri), fence.group()]
        last = fence.end()
    return "".join([*parts, relinked(markdown[last:], here, page.file.src_uri)])


def relinked(text: str, here: str, page: str) -> str:
    """A piece of a page, `here` in the repository, with its links as the site's page wants them."""

    def replace(found: re.Match[str]) -> str:
        link = found["to"]
        if ELSEWHERE.match(link):
            return found.group()
        path, mark, anchor = link.partition("#")
        target = posixpath.normpath(posixpath.join(posixpath.dirname(here), path))
        shown = SHOWN.get(target) or INSTEAD.get(target)
        if shown is None and target.startswith("docs/"):
            shown = target.removeprefix("docs/")
        if shown is None:
            return found["text"] if "`" in found["text"] else f"{found['text']} (`{target}`)"
        to = posixpath.relpath(shown, posixpath.dirname(page) or ".")
        return f"{found['image']}[{found['text']}]({to}{mark}{anchor})"

    return LINK.sub(replace, text)
