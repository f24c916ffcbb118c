"""Static files: those of other projects are unchanged, those of ours stay small and ask no other host."""

from __future__ import annotations

import hashlib
import re

import pytest

from penstock.dashboard.rendering import STATIC, static_file, static_link, static_names

VENDOR = STATIC / "vendor"


def test_files_of_other_projects_have_the_digests_of_their_table() -> None:
    """Every script and style sheet below `vendor` is in its table, with a licence file that exists."""
    text = (VENDOR / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\S+)` \| .*`(\S+\.LICENSE)` \| ([0-9a-f]{64}) \|$", text, re.MULTILINE)
    assert {name for name, _, _ in rows} == {path.name for path in VENDOR.iterdir() if path.suffix in (".js", ".css")}
    for name, licence, digest in rows:
        assert hashlib.sha256((VENDOR / name).read_bytes()).hexdigest() == digest
        assert (VENDOR / licence).stat().st_size > 300


def test_our_scripts_are_short_and_name_no_other_host() -> None:
    """Our page behaviour stays readable: 320 lines in all; no file loads anything from elsewhere."""
    ours = [path for path in STATIC.iterdir() if path.suffix in (".js", ".css")]
    lines = [len(path.read_text(encoding="utf-8").splitlines()) for path in ours if path.suffix == ".js"]
    assert sum(lines) <= 320
    for path in ours:
        assert not re.search(r"https?://|//[a-z]+\.|eval\(|innerHTML", path.read_text(encoding="utf-8")), path.name


def test_an_address_changes_with_the_content_and_only_known_files_are_sent() -> None:
    """The address has a digest; paths that leave the folder find nothing."""
    link = static_link("/jobs", "dashboard.css")
    assert re.fullmatch(r"/jobs/static/[0-9a-f]{16}/dashboard\.css", link)
    assert static_file(link.removeprefix("/jobs/static/")) is not None
    assert "vendor/idiomorph.min.js" in static_names()


@pytest.mark.parametrize("path", ["x/../app.py", "x//etc/passwd", "x/vendor/README.md", "", "x/dashboard.css/"])
def test_other_paths_find_nothing(path: str) -> None:
    """Only the files of the folder that a browser needs are sent."""
    assert static_file(path) is None
