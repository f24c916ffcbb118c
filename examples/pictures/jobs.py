"""A pipeline for pictures: make them small, sign them, put all of an album on one sheet.

The queues are of one family (`pictures/…`), so that a step and the next one's job are one transition everywhere,
on a Redis Cluster, too.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from PIL import Image, ImageDraw

from penstock import Failure, Job, Penstock

DATA = Path(os.environ.get("DATA", "."))
SIZE = 160

#: All of the 100 units that a process has.
WHOLE_PROCESS = 100

app = Penstock()


@dataclass
class Picture:
    album: str
    name: str

    def path(self, step: str) -> Path:
        """Return the path of the picture after a step."""
        return DATA / self.album / step / f"{self.name}.png"


@contextmanager
def written(path: Path) -> Generator[Path]:
    """Write a file under a draft name, so that a step killed halfway leaves no partial file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{os.getpid()}-{path.name}")
    yield draft
    draft.replace(path)


def log(line: str) -> None:
    """Print a line in one piece, since several processes print at once."""
    print(f"{line}\n", end="", flush=True)


def report(failure: Failure) -> None:
    log(f"{failure.payload.name}: given up ({failure.error.type}: {failure.error.message})")


# Plain functions that need a core each. A picture that makes its decoder hang or crash costs a process, which is
# replaced. Because a run has its process for itself, no other run is lost with it.
@app.handler("pictures/shrink", size=WHOLE_PROCESS, timeout=4, max_timeouts=1, max_stalls=2, on_failure=report)
def shrink(picture: Picture, job: Job) -> None:
    source = picture.path("original")
    misbehave(source)
    with Image.open(source) as image, written(picture.path("small")) as draft:
        image.thumbnail((SIZE, SIZE))
        image.save(draft)
    job.then("pictures/sign", picture, id=job.id)


@app.handler("pictures/sign", size=WHOLE_PROCESS, timeout=10)
def sign(picture: Picture, job: Job) -> None:
    with Image.open(picture.path("small")) as image, written(picture.path("signed")) as draft:
        ImageDraw.Draw(image).text((6, 6), f"© {picture.album}/{picture.name}", fill="white")
        image.save(draft)
    log(f"{picture.name}: signed")
    # One sheet per album: if its job is waiting, this only changes its time; if it is running, one more runs after it.
    # So the last sheet always has all pictures, and few are made in between.
    job.then("pictures/sheet", picture.album, id=picture.album, on_conflict="update", delay=0.3)


@app.handler("pictures/sheet", size=WHOLE_PROCESS, timeout=30)
def sheet(album: str) -> int:
    """Put all finished pictures side by side; returns their number."""
    paths = sorted(path for path in (DATA / album / "signed").iterdir() if not path.name.startswith("."))
    with Image.new("RGB", (SIZE * len(paths), SIZE)) as result, written(DATA / album / "sheet.png") as draft:
        for at, path in enumerate(paths):
            with Image.open(path) as image:
                result.paste(image, (at * SIZE, 0))
        result.save(draft)
    log(f"sheet with {len(paths)} pictures")
    return len(paths)


def misbehave(source: Path) -> None:
    """Crash or hang for certain pictures, as a decoder might."""
    match source.stem:
        case "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        case "hang":
            while True:
                time.sleep(1)
        case _:
            pass
