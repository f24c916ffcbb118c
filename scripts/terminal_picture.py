"""Record `penstock demo` and `penstock top` on a terminal and draw docs/pictures/terminal.svg from that."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import textwrap
import threading
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

ROOT = Path(__file__).resolve().parent.parent
PICTURE = ROOT / "docs" / "pictures" / "terminal.svg"
COLUMNS, LINES = 96, 24

#: Drawn with the reader's own font: a picture must not load one from another host.
FONT = "ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace"
APP = """
import asyncio
import random
from penstock import Penstock, PermanentError

app = Penstock()


@app.handler("thumbnails", concurrency=8)
async def thumbnail(name: str) -> str:
    await asyncio.sleep(random.uniform(0.02, 0.08))
    return name + ".thumb"


@app.handler("mail", concurrency=4)
async def mail(number: int) -> None:
    await asyncio.sleep(0.03)
    if number % 300 == 5:
        raise PermanentError("no such address")


@app.handler("reports", size=50)
async def report(name: str) -> None:
    await asyncio.sleep(20)


async def fill() -> None:
    async with app:
        await app.queue("thumbnails").enqueue_many(f"{number}.png" for number in range(4000))
        await app.queue("mail").enqueue_many(range(3000))
        await app.queue("reports").enqueue_many(["may", "june", "july"])


if __name__ == "__main__":
    asyncio.run(fill())
"""


def record(command: list[str], directory: Path, environment: dict[str, str], seconds: float = 0) -> str:
    """Return the output of a command on a terminal until it ends, or until Ctrl-C after `seconds`."""
    parent, child = pty.openpty()
    fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    process = subprocess.Popen(
        command, cwd=directory, env=environment, stdin=child, stdout=child, stderr=child, close_fds=True
    )
    os.close(child)
    printed = b""
    interrupt = threading.Timer(seconds, process.send_signal, [signal.SIGINT])
    if seconds:
        interrupt.start()
    while True:
        try:
            data = os.read(parent, 65_536)
        except OSError:  # the other side is closed
            break
        if not data:
            break
        printed += data
    os.close(parent)
    if process.wait() != 0:
        raise SystemExit(f"{command} failed:\n{printed.decode()}")
    return printed.decode()


def final_screen(printed: str) -> Text:
    """Return the final screen: a line that was rewritten appears once, in its last form."""
    kept = [re.split(r"\r|\x1b\[2K", line)[-1] for line in printed.replace("\r\n", "\n").split("\n")]
    text = re.sub(r"\x1b\[\?\d+[hl]|\x1b\[\d*[AJKG]", "", "\n".join(kept)).rstrip()
    return Text.from_ansi(text)


def session() -> list[tuple[str, Text]]:
    """Return the commands of the picture with their output."""
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")},
        "PYTHONPATH": str(ROOT / "src"), "COLUMNS": str(COLUMNS), "LINES": str(LINES), "TERM": "xterm-256color",
        "COLORTERM": "truecolor",
    }  # fmt: skip
    penstock = [sys.executable, "-m", "penstock"]
    with tempfile.TemporaryDirectory(prefix="penstock-picture-") as name:
        directory = Path(name)
        (directory / "jobs.py").write_text(textwrap.dedent(APP))
        demo = final_screen(record([*penstock, "demo"], directory, environment))
        record([sys.executable, "jobs.py"], directory, environment)
        worker = subprocess.Popen(
            [*penstock, "worker", "jobs:app", "--id", "worker-1", "--processes", "2"], cwd=directory,
            env=environment, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            frames = record([*penstock, "top", "--interval", "2"], directory, environment, seconds=9).split("\x1b[H")
            top = final_screen(frames[-1].split("\x1b[?1049l")[0])
        finally:
            worker.send_signal(signal.SIGTERM)
            worker.send_signal(signal.SIGTERM)
            worker.wait()
    return [("penstock demo", demo), ("penstock top", top)]


def picture() -> str:
    """Return the recording as SVG that loads nothing from other hosts."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    for number, (command, printed) in enumerate(session()):
        if number:
            console.print()
        console.print(Text.assemble(("$ ", "bold green"), (command, "bold")))
        console.print(printed)
    svg = console.export_svg(title="penstock", theme=MONOKAI, unique_id="penstock")
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)
    svg = re.sub(r"font-family: Fira Code[^;]*;", f"font-family: {FONT};", svg)
    return re.sub(r"[ \t]+$", "", svg, flags=re.MULTILINE)


if __name__ == "__main__":
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    PICTURE.write_text(picture(), "utf-8")
