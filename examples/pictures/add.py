"""Draw an album with two bad pictures, enqueue its jobs, and print the result."""

from __future__ import annotations

import asyncio
import uuid

from PIL import Image

from jobs import DATA, Picture, app
from penstock import Entry, JobFailed

GOOD = ("ant", "bee", "cat", "dog", "elk", "fox")
BAD = ("crash", "hang")


def draw(picture: Picture, hue: int) -> None:
    path = picture.path("original")
    path.parent.mkdir(parents=True, exist_ok=True)
    circles = Image.radial_gradient("L").resize((1280, 960))
    Image.merge("HSV", (Image.new("L", circles.size, hue), circles, circles)).convert("RGB").save(path)


async def main() -> None:
    album = f"album-{uuid.uuid4().hex[:6]}"
    pictures = [Picture(album, name) for name in sorted(GOOD + BAD)]
    for number, picture in enumerate(pictures):
        draw(picture, 32 * number)
    async with app:
        shrinking, signing, sheets = (app.queue(f"pictures/{step}") for step in ("shrink", "sign", "sheet"))
        jobs = await shrinking.enqueue_many([Entry(picture, id=f"{album}/{picture.name}") for picture in pictures])
        failed: list[str] = []
        for job in jobs:
            try:
                await shrinking.wait(job.id)
                await signing.wait(job.id)  # enqueued in the same transition that completed the step before
            except JobFailed as error:
                failed.append(f"{job.id.rpartition('/')[2]} ({error.error.kind})")
        shown = 0
        while shown < len(jobs) - len(failed):  # a sheet made before the last picture is followed by another
            await asyncio.sleep(0.1)
            shown = await sheets.wait(album)
    with Image.open(DATA / album / "sheet.png") as sheet:
        print(f"the sheet is {sheet.width} x {sheet.height}, without {' and '.join(failed)}")


if __name__ == "__main__":
    asyncio.run(main())
