"""The glossary stays small enough to be learnt."""

from __future__ import annotations

import re

from tests.docs.blocks import ROOT

MOST = 30
PAGE = ROOT / "docs" / "explanation" / "lifecycle.md"


def glossary() -> list[tuple[str, str]]:
    """Return the terms of the glossary with their meanings."""
    text = PAGE.read_text(encoding="utf-8").partition("## Glossary")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (.+?) \| (.+?) \|$", text, re.MULTILINE)
    return [row for row in rows if row[0] != "term"]


def test_the_glossary_has_at_most_30_terms() -> None:
    """One word per concept: a term that comes replaces another one."""
    terms = [term for term, _ in glossary()]
    assert 0 < len(terms) <= MOST
    assert len(set(terms)) == len(terms)


def test_every_term_has_one_sentence() -> None:
    """The meaning of a term is one sentence."""
    assert [term for term, meaning in glossary() if re.search(r"[.!?] ", meaning) or not meaning.endswith(".")] == []
