"""Draw the pictures of the dashboard in docs/pictures: seed a storage, run a worker for a while, open pages.

Run by hand after a change of the pages: `make browser` installs what it needs. It takes two minutes.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import expect, sync_playwright

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from penstock import Penstock, Worker  # noqa: E402
from tests.browser.conftest import ADMIN, Site, find_browser, run_apart  # noqa: E402
from tests.browser.seed import seed  # noqa: E402

PICTURES = ROOT / "docs" / "pictures"

#: How long (seconds) jobs are worked while the dashboard reads, so that it knows rates.
SECONDS = 80.0

#: The pages by the name of their picture, each with its theme and the height of the picture.
PAGES = {
    "overview": ("/", "light", 860),
    "job": ("/jobs?filter=state:failed+type:ConnectionError", "light", 860),
    "failures": ("/failures", "dark", 400),
}


async def work(url: str, namespace: str) -> None:
    """Run jobs at the rate of the seeded history."""
    async with Penstock(url, namespace=namespace) as app:

        @app.handler("mail")
        async def mail(payload: object) -> None:
            await asyncio.sleep(0.1)

        async with Worker(app, id="web-2"):
            for _ in range(int(SECONDS)):
                await app.queue("mail").enqueue({"to": "ann@example.org"})
                await asyncio.sleep(1)


def draw(site: Site) -> None:
    """Write a picture of each page."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_browser(), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 860})
        page.goto(f"{site.base}/?token={ADMIN}")
        run_apart(lambda: work(site.url, site.namespace))
        for name, (path, theme, height) in PAGES.items():
            page.set_viewport_size({"width": 1280, "height": height})
            page.emulate_media(color_scheme="dark" if theme == "dark" else "light")
            page.goto(site.base + path)
            if name == "job":
                page.locator("tbody a.id").first.click()
                expect(page.locator(".why")).to_be_visible()
            if page.locator("[data-charts]").count():
                expect(page.locator("[data-charts][data-drawn]")).to_be_visible()
            page.screenshot(path=PICTURES / f"dashboard-{name}.png")
        browser.close()


def main() -> None:
    """Draw all pictures."""
    os.environ["PENSTOCK_RELEASE"] = "v1.4.2"
    with tempfile.TemporaryDirectory() as folder:
        site = Site(f"sqlite:{folder}/penstock.db")
        run_apart(lambda: seed(site.url, site.namespace, hostile=False))
        site.start()
        try:
            draw(site)
        finally:
            site.stop()


if __name__ == "__main__":
    main()
