"""Write the measured figures into README.md, from docs/explanation/performance/figures.md; `--check` compares."""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
FIGURES = ROOT / "docs" / "explanation" / "performance" / "figures.md"
BEGIN, END = "<!-- figures: begin, written by scripts/readme_figures.py -->", "<!-- figures: end -->"

#: The charts from which figures are taken, and the columns of the table.
COLUMNS = {
    "Draining a full queue, one worker process": "drained a second",
    "Enqueueing one job at a time": "enqueued a second, one by one",
    "Enqueueing many jobs in one call": "enqueued a second, in bulk",
    "Request and response through an idle worker, median": "request and response, median",
}
NONE_YET = "No figures have been recorded yet: `make bench-peers` measures all of them in one run on your machine."


def tables(text: str) -> dict[str, list[list[str]]]:
    """Return the rows of the table under each heading."""
    found: dict[str, list[list[str]]] = {}
    for section in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        title, _, body = section.partition("\n")
        lines = [line for line in body.splitlines() if line.startswith("|")]
        found[title.strip()] = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]
    return found


def best(rows: list[list[str]], systems: dict[str, str]) -> dict[str, str]:
    """Return the first, and so best, figure of each system; adds names and promises to `systems`."""
    figures: dict[str, str] = {}
    for label, median, _, unit, promise, *_ in rows:
        name = label.split()[0]
        systems.setdefault(name, promise)
        figures.setdefault(name, f"{median} {unit}" if unit.startswith(("ms", "µs", "us")) else median)
    return figures


def block(text: str | None) -> str:
    """Return the text between the two marks."""
    if text is None:
        return f"{BEGIN}\n{NONE_YET}\n{END}"
    found = tables(text)
    systems: dict[str, str] = {}
    columns = {name: best(found[title], systems) for title, name in COLUMNS.items() if title in found}
    order = sorted(systems, key=lambda name: name != "penstock")
    lines = [f"| | promise | {' | '.join(columns)} |", "|---|---|" + "---|" * len(columns)]
    for name in order:
        cells = [figures.get(name, "–") for figures in columns.values()]
        lines.append(f"| {name} | {systems[name]} | {' | '.join(cells)} |")
    about = next((line for line in text.splitlines() if line.startswith("Taken on ")), "")
    more = "[All figures, with spread, versions and settings](docs/explanation/performance/figures.md)."
    return "\n".join([BEGIN, *lines, "", f"{about} {more}".strip(), END])


def written() -> str:
    """Return README.md with the current figures."""
    text = README.read_text("utf-8")
    figures = FIGURES.read_text("utf-8") if FIGURES.exists() else None
    return re.sub(f"{re.escape(BEGIN)}.*?{re.escape(END)}", lambda _: block(figures), text, flags=re.DOTALL)


def main(arguments: list[str]) -> int:
    """Write README.md; with --check, return 1 if that would change it."""
    if "--check" in arguments:
        same = README.read_text("utf-8") == written()
        print("the figures in README.md are up to date" if same else "run: python scripts/readme_figures.py")
        return 0 if same else 1
    README.write_text(written(), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
