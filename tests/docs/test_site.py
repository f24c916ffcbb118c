"""Generated pages are up to date, and the checks of the site find faults."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from penstock import HandlerOptions
from tests.docs.blocks import ROOT


def script(name: str) -> ModuleType:
    """Import a script of the repository as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("name", "make"), [("api_reference", "page"), ("state_diagram", "picture"), ("architecture_diagram", "picture")]
)
def test_generated_files_are_up_to_date(name: str, make: str) -> None:
    """The committed page or picture equals what its script writes."""
    module = script(name)
    written: Callable[[], str] = getattr(module, make)
    path: Path = module.PAGE if hasattr(module, "PAGE") else module.PICTURE
    assert path.read_text("utf-8") == written(), f"run: python scripts/{name}.py"


def test_the_figures_of_the_readme_are_those_that_were_recorded() -> None:
    """README.md shows the figures of the recorded comparison."""
    figures = script("readme_figures")
    assert figures.README.read_text("utf-8") == figures.written(), "run: python scripts/readme_figures.py"


def test_figures_are_taken_from_their_page() -> None:
    """The best figure of each system is in its column; a missing figure is a dash."""
    head = "| system | median | spread | unit | promise | a | b |\n|---|---|---|---|---|---|---|\n"
    text = (
        "# Figures\n\nTaken on a day.\n\n## Draining a full queue, one worker process\n\n![x](drain.png)\n\n" + head
        + "| penstock 1.0 | 90,000 | 1 – 2 | jobs/s | at least once | 1 | 2 |\n"
        "| huey 3 (at most once) | 3,500 | 1 – 2 | jobs/s | at most once | 1 | 2 |\n"
        "| penstock 1.0 (default options) | 50,000 | 1 – 2 | jobs/s | at least once | 1 | 2 |\n\n"
        "## Request and response through an idle worker, median\n\n" + head
        + "| penstock 1.0 | 0.4 | 1 – 2 | ms | at least once | 1 | 2 |\n"
    )  # fmt: skip
    lines = script("readme_figures").block(text).splitlines()
    assert "| penstock | at least once | 90,000 | 0.4 ms |" in lines
    assert "| huey | at most once | 3,500 | – |" in lines


PAGES = {
    "script": '<script src="https://cdn.example.org/a.js"></script>',
    "script without a scheme": '<script src="//cdn.example.org/a.js"></script>',
    "style": '<link rel="stylesheet" href="https://fonts.example.org/css">',
    "picture": '<img src="http://example.org/a.png" alt="">',
    "picture set": '<img srcset="a.png 1x, https://example.org/b.png 2x" alt="">',
    "font in a style": "<style>@font-face { src: url('https://example.org/a.woff2') }</style>",
    "background": '<p style="background: url(https://example.org/a.png)">',
}


@pytest.mark.parametrize("kind", PAGES)
def test_files_loaded_from_other_hosts_are_faults(kind: str, tmp_path: Path) -> None:
    """Scripts, styles, fonts and pictures from other hosts are faults of the site."""
    (tmp_path / "index.html").write_text(f"<html><body>{PAGES[kind]}</body></html>")
    assert len(list(script("check_site").faults(tmp_path))) == 1


def test_links_and_own_files_are_no_faults(tmp_path: Path) -> None:
    """Links to other hosts, and files of the site itself, are no faults."""
    (tmp_path / "index.html").write_text(
        '<link rel="canonical" href="https://example.org/"><script src="assets/a.js"></script>'
        '<a href="https://example.org">there</a><img src="../a.svg" alt=""><use href="#b"></use>'
    )
    (tmp_path / "a.svg").write_text('<svg xmlns="http://www.w3.org/2000/svg"><rect/></svg>')
    assert list(script("check_site").faults(tmp_path)) == []


def test_a_site_that_cannot_be_searched_from_a_disk_is_a_fault(tmp_path: Path) -> None:
    """The index of the search must also be there as a script, which a page without a server can load."""
    check = script("check_site")
    assert len(list(check.without_search(tmp_path))) == 1
    (tmp_path / "search").mkdir()
    (tmp_path / "search" / "search_index.js").write_text("var __index = {}")
    assert list(check.without_search(tmp_path)) == []


def test_pictures_load_nothing() -> None:
    """The pictures of the documentation load nothing from other hosts."""
    assert list(script("check_site").faults(ROOT / "docs")) == []


def test_every_page_is_in_the_navigation() -> None:
    """Every page of docs is in the navigation."""
    navigation = (ROOT / "mkdocs.yml").read_text()
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    shown = set(re.findall(r"([\w/-]+\.md)\s*$", navigation, re.MULTILINE))
    assert pages - shown == set()


def test_every_handler_option_is_explained() -> None:
    """The table of options has each option of a handler with its default, and no other."""
    table = (ROOT / "docs" / "reference" / "options.md").read_text().partition("## Of a job")[0]
    rows = dict(re.findall(r"^\| `(\w+)` \| `(.*?)` \|", table, re.MULTILINE))
    assert rows == {field: repr(getattr(HandlerOptions(), field)) for field in HandlerOptions.__struct_fields__}
