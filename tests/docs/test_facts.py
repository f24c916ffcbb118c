"""Paths, modules and tests that a page names exist, and sentences that became wrong do not come back."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.blocks import FENCE, ROOT, pages

CODE = re.compile(r"`([^`\n]+)`")
#: A file or a folder of the repository: below its top, the package or the tests.
PATH = re.compile(
    r"(?:src|tests|scripts|docs|chaos|bench|fuzz|examples|\.ci)/[\w./-]*"
    r"|[\w-]+(?:/[\w-]+)*/[\w-]+\.(?:py|lua|sql|toml|md|sh)"
)
MODULE = re.compile(r"penstock(?:\.[A-Za-z_]\w*)+")
TEST = re.compile(r"test_\w+")
#: Dotted names of files.
FILES = {"penstock.db"}

#: Sentences that were true once, and what replaced them.
STALE = {
    "A result is read from the storage, never from a message": "on Redis an end notice may carry it",
    "A message wakes; a read decides": "on Redis an end notice may carry the result",
    "so a client of our own can wait": "storage/redis/pipeline.py is one",
    "scripts/again.py": "a test that fails is repaired",
    "No file past 400 lines": "a module with one class may have 600",
    "`penstock.vitals`": "it is penstock.model.storage_info",
}


def prose(page: Path) -> str:
    """Return the text of a page without its code blocks, in one line."""
    return " ".join(FENCE.sub("", page.read_text(encoding="utf-8")).split())


def named() -> Iterator[tuple[str, str]]:
    """Yield every piece of inline code with its page. The changelog may name the past."""
    for page in pages():
        if page.name != "CHANGELOG.md":
            for found in CODE.findall(FENCE.sub("", page.read_text(encoding="utf-8"))):
                yield page.relative_to(ROOT).as_posix(), found


def exists(path: str, page: str) -> bool:
    """Return whether a path is there: as seen from the top, the package, the tests, or the page's own folder."""
    folders = (ROOT, ROOT / "src" / "penstock", ROOT / "tests", (ROOT / page).parent)
    return any((folder / path).exists() for folder in folders)


def importable(name: str) -> bool:
    """Return whether a dotted name is a module, or an attribute of one."""
    parts = name.split(".")
    for size in range(len(parts), 0, -1):
        try:
            found: object = importlib.import_module(".".join(parts[:size]))
        except ModuleNotFoundError:
            continue
        for part in parts[size:]:
            if not hasattr(found, part):
                return False
            found = getattr(found, part)
        return True
    return False


@pytest.mark.parametrize("sentence", STALE)
def test_a_stale_sentence_does_not_come_back(sentence: str) -> None:
    """A sentence that became wrong is on no page."""
    assert [str(page.relative_to(ROOT)) for page in pages() if sentence in prose(page)] == [], STALE[sentence]


def test_paths_on_pages_exist() -> None:
    """Every path of the repository that a page names in code exists."""
    gone = {f"{page}: {code}" for page, code in named() if PATH.fullmatch(code) and not exists(code, page)}
    assert not gone, "\n".join(["named, and not there:", *sorted(gone)])


def test_modules_on_pages_exist() -> None:
    """Every dotted name below `penstock` that a page names in code can be imported."""
    gone = {
        f"{page}: {code}"
        for page, code in named()
        if MODULE.fullmatch(code) and code not in FILES and not importable(code)
    }
    assert not gone, "\n".join(["named, and not there:", *sorted(gone)])


def test_tests_on_pages_exist() -> None:
    """Every test function that a page names in code is defined in a test file."""
    defined: set[str] = set()
    for path in (ROOT / "tests").rglob("test_*.py"):
        defined.update(re.findall(r"^\s*(?:async )?def (test_\w+)", path.read_text(encoding="utf-8"), re.MULTILINE))
    gone = {f"{page}: {code}" for page, code in named() if TEST.fullmatch(code) and code not in defined}
    assert not gone, "\n".join(["named, and not there:", *sorted(gone)])


def test_what_is_not_there_is_noticed() -> None:
    """A path and a module that are gone are recognised as such."""
    assert PATH.fullmatch("src/penstock/vitals.py")
    assert not exists("src/penstock/vitals.py", "docs/index.md")
    assert PATH.fullmatch("conformance/test_put.py")
    assert exists("conformance/test_put.py", "docs/index.md")
    assert not importable("penstock.vitals")
    assert importable("penstock.storage.base.Storage.put")


def test_the_reference_has_what_a_handler_gets() -> None:
    """The Python reference has the cancellation of a run, and the lists that a batch handler gets."""
    page = " ".join((ROOT / "docs" / "reference" / "api.md").read_text("utf-8").split())
    assert "#### Job.cancelled" in page
    assert "with `batch_size` above 1 lists of both" in page
