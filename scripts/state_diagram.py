"""Draw docs/explanation/lifecycle.svg: the eight states and their transitions; with --check, only compare."""

from __future__ import annotations

import sys
from html import escape
from pathlib import Path

from penstock import State

PICTURE = Path(__file__).resolve().parent.parent / "docs" / "explanation" / "lifecycle.svg"
WIDTH, HEIGHT = 1000, 500
BOX, TALL = 140, 44
INK, SOFT, PAPER = "#263238", "#78909c", "#ffffff"
WAITING, RUNNING, FINISHED = "#e0f2f1", "#fff3e0", "#eceff1"

#: The middle of each state's box, and its colour.
BOXES = {
    State.RETRYING: (230, 100, WAITING),
    State.QUEUED: (230, 220, WAITING),
    State.SCHEDULED: (230, 340, WAITING),
    State.BLOCKED: (520, 420, WAITING),
    State.RUNNING: (520, 220, RUNNING),
    State.CANCELLED: (800, 100, FINISHED),
    State.COMPLETED: (800, 220, FINISHED),
    State.FAILED: (800, 340, FINISHED),
    State.SUSPENDED: (520, 62, WAITING),
}
#: The path of an arrow, and its labels with the position of their middle.
ARROWS = [
    ("M 52 220 L 154 220", [("put", 98, 212)]),
    ("M 46 229 C 60 300 100 340 154 340", [("put,", 92, 280), ("later", 94, 295)]),
    ("M 40 232 C 40 380 60 420 120 420 L 444 420", [("put, while a job of its id runs", 280, 411)]),
    ("M 230 124 L 230 192", [("when due", 270, 163)]),
    ("M 230 316 L 230 248", [("when due", 270, 287)]),
    ("M 302 210 L 444 210", [("claim", 373, 203)]),
    ("M 448 232 L 306 232", [("release, stall,", 373, 248), ("reap", 373, 263)]),
    ("M 476 196 C 440 130 380 104 306 100", [("settle:", 437, 112), ("once more", 446, 128)]),
    ("M 476 396 C 420 330 360 280 296 246", [("the run of its id", 488, 330), ("has ended", 484, 346)]),
    ("M 592 214 L 724 218", [("settle", 658, 210)]),
    ("M 578 244 L 724 330", [("settle,", 620, 300), ("for good", 632, 316)]),
    ("M 578 196 L 724 112", [("settle or reap,", 612, 138), ("after a cancel", 596, 153)]),
    ("M 492 196 C 480 156 560 156 548 194", [("renew", 520, 158)]),
    ("M 566 194 L 566 92", [("suspend", 596, 106)]),
    ("M 446 60 L 326 68", [("notice, signal, clock", 384, 50)]),
    ("M 230 50 C 240 8 780 8 798 72", [("cancel or expiry (also of a blocked job)", 515, 13)]),
    ("M 800 364 L 800 440 C 800 480 780 480 740 480 L 140 480 C 100 480 100 300 154 232",
     [("revive (failed or cancelled; completed if asked)", 600, 472)]),
    ("M 888 220 L 948 220", [("purge,", 920, 196), ("discard", 920, 212)]),
]  # fmt: skip
#: The dashed frames: left, top, width, height, name.
FRAMES = [(140, 56, 180, 324, "waiting"), (712, 56, 176, 324, "finished")]


def text(label: str, x: float, y: float, size: int = 13, colour: str = INK, weight: str = "normal") -> str:
    """Return a text element, centered at a point."""
    return (
        f'<text x="{x:g}" y="{y:g}" font-size="{size}" fill="{colour}" font-weight="{weight}" '
        f'text-anchor="middle">{escape(label)}</text>'
    )


def box(state: State, x: int, y: int, colour: str) -> str:
    """Return the box of a state."""
    return (
        f'<rect x="{x - BOX / 2:g}" y="{y - TALL / 2:g}" width="{BOX}" height="{TALL}" rx="10" fill="{colour}" '
        f'stroke="{INK}" stroke-width="1.5"/>' + text(state.value, x, y + 5, 16, weight="bold")
    )


def picture() -> str:
    """Return the whole drawing."""
    assert set(BOXES) == set(State), "a state is not drawn"
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        'aria-label="The eight states of a job and the transitions between them" '
        'font-family="system-ui, sans-serif">',
        "<!-- Drawn by scripts/state_diagram.py. -->",
        f'<defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8" '
        f'orient="auto-start-reverse"><path d="M 0 0 L 10 5 L 0 10 z" fill="{INK}"/></marker></defs>',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="{PAPER}"/>',
    ]
    for left, top, width, height, name in FRAMES:
        lines.append(
            f'<rect x="{left}" y="{top}" width="{width}" height="{height}" rx="14" fill="none" stroke="{SOFT}" '
            'stroke-dasharray="5 5"/>' + text(name, left + 36, top + height - 4, 12, SOFT)
        )
    for path, _ in ARROWS:
        lines.append(f'<path d="{path}" fill="none" stroke="{INK}" stroke-width="1.4" marker-end="url(#tip)"/>')
    for _, labels in ARROWS:
        for label, x, y in labels:
            lines.append(text(label, x, y))
    lines.append(f'<circle cx="40" cy="220" r="9" fill="{INK}"/>')
    lines.append(f'<circle cx="960" cy="220" r="9" fill="{PAPER}" stroke="{INK}" stroke-width="1.5"/>')
    lines.append(f'<circle cx="960" cy="220" r="5" fill="{INK}"/>')
    lines += [box(state, *position) for state, position in BOXES.items()]
    return "\n".join([*lines, "</svg>"]) + "\n"


def main(arguments: list[str]) -> int:
    """Write the drawing; with --check, return 1 if that would change it."""
    wanted = picture()
    if "--check" in arguments:
        same = PICTURE.exists() and PICTURE.read_text("utf-8") == wanted
        print("docs/explanation/lifecycle.svg is up to date" if same else "run: python scripts/state_diagram.py")
        return 0 if same else 1
    PICTURE.write_text(wanted, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
