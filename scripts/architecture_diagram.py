"""Draw docs/explanation/architecture.svg, the layers of the package from top to bottom; `--check` compares."""

from __future__ import annotations

import sys
from html import escape
from pathlib import Path

PICTURE = Path(__file__).resolve().parent.parent / "docs" / "explanation" / "architecture.svg"
WIDTH, HEIGHT = 1000, 700
#: Colours in a light and in a dark scheme. The background is part of the picture, so that both are readable anywhere.
COLOURS = {
    "paper": ("#ffffff", "#1b2327"),
    "ink": ("#263238", "#eceff1"),
    "soft": ("#607d8b", "#90a4ae"),
    "top": ("#eceff1", "#37474f"),
    "use": ("#e0f2f1", "#1f4a45"),
    "work": ("#fff3e0", "#5a4320"),
    "store": ("#e3f2fd", "#1f3f5c"),
    "base": ("#f3e5f5", "#46304d"),
}

#: A box: the module or package, its line of explanation, its left edge, top, width, height and colour.
BOXES = [
    ("penstock.cli", "commands", 40, 40, 220, 60, "top"),
    ("penstock.dashboard", "pages for a browser", 270, 40, 220, 60, "top"),
    ("penstock.testing", "clock, memory apps, faults, conformance", 510, 40, 450, 60, "top"),
    ("penstock.ops", "overview, export, doctor", 40, 140, 220, 60, "use"),
    ("penstock.sync", "the API without await", 270, 140, 220, 60, "use"),
    ("penstock.telemetry", "metrics, traces, logs, health", 580, 140, 380, 60, "use"),
    ("penstock.client", "enqueue, results, reservations, tasks, the app", 40, 240, 450, 84, "use"),
    ("penstock.worker", "claim, run, settle", 510, 240, 225, 84, "work"),
    ("penstock.worker.supervisor", "child processes", 735, 240, 225, 84, "work"),
    ("penstock.storage", "connect by URL", 40, 374, 150, 60, "store"),
    ("penstock.storage.sqlite", "file and memory", 200, 374, 140, 60, "store"),
    ("penstock.storage.redis", "Redis and Valkey", 350, 374, 140, 60, "store"),
    ("penstock.host", "the app", 510, 374, 100, 60, "base"),
    ("penstock.limit_changes", "limits", 620, 374, 115, 60, "base"),
    ("penstock.claims", "renew and reap", 745, 374, 102, 60, "base"),
    ("penstock.ticking", "schedules", 857, 374, 103, 60, "base"),
    ("penstock.aio", "asyncio helpers", 510, 444, 225, 46, "base"),
    ("penstock.app_loader", "module:app", 745, 444, 102, 46, "base"),
    ("penstock.log_config", "logging", 857, 444, 103, 46, "base"),
    ("penstock.storage.base", "one method per transition", 40, 524, 170, 46, "store"),
    ("penstock.storage.observing", "statistics", 216, 524, 144, 46, "store"),
    ("penstock.storage.scheduling", "schedules", 366, 524, 144, 46, "store"),
    ("penstock.storage.limiting", "limits", 516, 524, 144, 46, "store"),
    ("penstock.storage.recording", "histories", 666, 524, 144, 46, "store"),
    ("penstock.storage.auditing", "operators", 816, 524, 144, 46, "store"),
    (
        "penstock.model",
        "values and rules: jobs, options, retries, outcomes, serdes, events",
        40,
        580,
        920,
        46,
        "base",
    ),
    ("penstock.errors", "the exceptions", 40, 636, 920, 46, "base"),
]
#: Arrows go from a layer to one that it imports: a path, and a label with the position of its middle.
ARROWS = [
    ("M 150 100 L 150 134", None),
    ("M 380 100 L 380 134", None),
    ("M 560 100 L 560 234", None),
    ("M 150 200 L 150 234", None),
    ("M 380 200 L 380 234", None),
    ("M 930 200 L 930 234", None),
    ("M 115 324 L 115 368", None),
    ("M 440 324 C 440 350 560 345 580 368", None),
    ("M 622 324 L 622 368", None),
    ("M 850 324 L 850 368", None),
    ("M 115 434 L 115 518", None),
    ("M 270 434 L 270 518", ("implement", 345, 482)),
    ("M 420 434 L 420 518", None),
    ("M 796 490 L 796 518", None),
    ("M 622 490 L 622 518", None),
]
APART = ("M 491 282 L 509 282", "client and worker do not import each other", 770, 226)
DEMAND = ("M 190 404 L 198 404", "imported on demand", 265, 366)


def text(words: str, x: float, y: float, size: int = 13, colour: str = "ink", weight: str = "normal") -> str:
    """Return words with their middle at a position."""
    return (
        f'<text x="{x:g}" y="{y:g}" font-size="{size}" class="{colour}" font-weight="{weight}" '
        f'text-anchor="middle">{escape(words)}</text>'
    )


def box(name: str, line: str, left: int, top: int, width: int, height: int, colour: str) -> str:
    """Return the box of one module or package."""
    title = name.removeprefix("penstock.").replace(".", "/")
    middle, centre = left + width / 2, top + height / 2
    return (
        f'<rect x="{left}" y="{top}" width="{width}" height="{height}" rx="8" class="{colour} edge"/>'
        + text(title, middle, centre - 3, 15, weight="bold")
        + text(line, middle, centre + 15, 12)
    )


def style() -> str:
    """Return the colours as style rules, for both schemes."""

    def rules(scheme: int) -> str:
        fills = "".join(f".{name}{{fill:{colours[scheme]}}}" for name, colours in COLOURS.items())
        ink, soft = COLOURS["ink"][scheme], COLOURS["soft"][scheme]
        return f"{fills}.edge{{stroke:{ink}}}.arrow{{stroke:{soft};fill:none}}.tip{{fill:{soft}}}"

    return f"<style>{rules(0)}@media (prefers-color-scheme: dark){{{rules(1)}}}</style>"


def picture() -> str:
    """Return the whole drawing."""
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        'aria-label="The layers of the package; each imports those below it" font-family="system-ui, sans-serif">',
        "<!-- Drawn by scripts/architecture_diagram.py. -->",
        style(),
        '<defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" '
        'orient="auto-start-reverse"><path d="M 0 0 L 10 5 L 0 10 z" class="tip"/></marker></defs>',
        f'<rect width="{WIDTH}" height="{HEIGHT}" class="paper"/>',
        text("A layer imports those below it, never those above.", WIDTH / 2, 26, 13, "soft"),
    ]
    for path, label in ARROWS:
        lines.append(f'<path d="{path}" class="arrow" stroke-width="1.5" marker-end="url(#tip)"/>')
        if label:
            lines.append(text(*label, 12, "soft"))
    for path, words, x, y in (APART, DEMAND):
        lines.append(f'<path d="{path}" class="arrow" stroke-width="1.5" stroke-dasharray="3 3"/>')
        lines.append(text(words, x, y, 12, "soft"))
    lines += [box(*each) for each in BOXES]
    return "\n".join([*lines, "</svg>"]) + "\n"


def main(arguments: list[str]) -> int:
    """Write the drawing, or compare it."""
    wanted = picture()
    if "--check" in arguments:
        same = PICTURE.exists() and PICTURE.read_text("utf-8") == wanted
        print(
            "docs/explanation/architecture.svg is up to date" if same else "run: python scripts/architecture_diagram.py"
        )
        return 0 if same else 1
    PICTURE.write_text(wanted, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
