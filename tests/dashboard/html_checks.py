"""Checks of a page's HTML: unique ids, labelled inputs, and nothing inline that the content policy would refuse."""

from __future__ import annotations

from html.parser import HTMLParser

FIELDS = frozenset({"input", "select", "textarea"})


class PageParser(HTMLParser):
    """The ids, labels, inputs and faults of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.labels: set[str] = set()
        self.fields: list[dict[str, str | None]] = []
        self.faults: list[str] = []
        self._in_label = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what a tag has."""
        given = dict(attrs)
        if identifier := given.get("id"):
            self.ids.append(identifier)
        if tag == "label":
            self._in_label += 1
            if target := given.get("for"):
                self.labels.add(target)
        if tag in FIELDS and given.get("type") != "hidden":
            self.fields.append({**given, "labelled": "1" if self._in_label or "aria-label" in given else None})
        if tag == "script" and not given.get("src"):
            self.faults.append("inline script")
        self.faults += [f"{name} of {tag}" for name in given if name == "style" or name.startswith("on")]
        if tag == "img" and "alt" not in given:
            self.faults.append("img without alt")

    def handle_endtag(self, tag: str) -> None:
        """Note the end of a label."""
        if tag == "label":
            self._in_label -= 1


def faults_of(html: str) -> list[str]:
    """Return everything that is wrong with a page."""
    parser = PageParser()
    parser.feed(html)
    faults = list(parser.faults)
    faults += [f"id {each} is used twice" for each in set(parser.ids) if parser.ids.count(each) > 1]
    for field in parser.fields:
        if not field["labelled"] and field.get("id") not in parser.labels:
            faults.append(f"field without a label: {field.get('name')}")
    return faults
