"""Fixtures of the browser scenarios: a seeded storage with its dashboard, and a page that must stay clean."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Request, sync_playwright

from penstock import Penstock
from tests.browser.seed import seed
from tests.servers import Servers, skip_or_fail
from tests.support import new_namespace

ADMIN, READER = "0123456789abcdef-admin", "0123456789abcdef-reader"
AXE = (Path(__file__).parent / "axe.min.js").read_text(encoding="utf-8")
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
NAMES = ("chromium", "chromium-browser", "google-chrome")


def find_browser() -> str:
    """Return the program of a browser; without one the scenarios are skipped, and fail in CI."""
    given = os.environ.get("PENSTOCK_CHROMIUM")
    found = given or next((path for name in NAMES if (path := shutil.which(name))), None)
    return found or skip_or_fail("no chromium: apt-get install chromium, or name it in PENSTOCK_CHROMIUM")


def run_apart(work: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """Run a coroutine in a thread: the driver of the browser has an event loop in this one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(lambda: asyncio.run(work())).result()


class Site:
    """A storage, and the process that serves its dashboard."""

    def __init__(self, url: str, **environment: str) -> None:
        self.url, self.namespace = url, new_namespace()
        self._environment = {**os.environ, "LOGNAME": "ann", "PENSTOCK_DASHBOARD_TOKEN": ADMIN, **environment}
        self._process: subprocess.Popen[str] | None = None
        self.base = ""

    def fill(self) -> None:
        """Store the data of the scenarios."""
        run_apart(lambda: seed(self.url, self.namespace))

    def start(self, *options: str) -> str:
        """Start the dashboard and return the link that it prints."""
        command = [sys.executable, "-m", "penstock", "dashboard", "--port", "0", *options]
        command += ["--url", self.url, "--namespace", self.namespace]
        environment = {name: value for name, value in self._environment.items() if value}
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if found := re.search(r"http://\S+", line):
                self.base = found[0].partition("?")[0].rstrip("/")
                return found[0]
        raise AssertionError("the dashboard ended without a link")

    def stop(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait(10)
            assert self._process.stdout is not None
            self._process.stdout.close()

    def do(self, act: Any) -> Any:
        """Run a coroutine function with an app on the storage, as another process would."""

        async def run() -> Any:
            async with Penstock(self.url, namespace=self.namespace) as app:
                return await act(app)

        return run_apart(run)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """One browser for all scenarios."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_browser(), args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="session", params=["sqlite", "redis"])
def site(request: pytest.FixtureRequest, servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A seeded storage with its dashboard; scenarios that change something use jobs of their own."""
    if request.param == "sqlite":
        url = f"sqlite:{tmp_path_factory.mktemp('site') / 'penstock.db'}"
    else:
        url = f"redis://{getattr(servers.get('redis'), 'address')}"  # noqa: B009 - not of a Cluster
    site = Site(url, PENSTOCK_DASHBOARD_READER_TOKEN=READER)
    site.fill()
    site.start()
    yield site
    site.stop()


class Visit:
    """A page of a viewer, and everything that must not happen on it."""

    def __init__(self, context: BrowserContext, site: Site) -> None:
        self.page: Page = context.new_page()
        self.site = site
        self.messages: list[str] = []
        self.expected: list[str] = []
        self.page.on("console", self._on_console)
        self.page.on("pageerror", lambda error: self.messages.append(str(error)))
        self.page.on("request", self._on_request)
        self.page.on("dialog", lambda dialog: self.messages.append(f"dialog: {dialog.message}"))

    def open(self, path: str = "/") -> Page:
        """Open a page of the dashboard."""
        self.page.goto(self.site.base + path)
        return self.page

    def log_in(self, token: str = ADMIN) -> None:
        """Begin a session."""
        self.page.goto(f"{self.site.base}/?token={token}")

    def axe(self) -> list[str]:
        """Return the findings of axe on the page."""
        self.page.evaluate(AXE)
        found = self.page.evaluate("rules => axe.run(document, {runOnly: rules})", RULES)
        return [
            f"{self.page.url}: {each['id']}: {node['html'][:160]} {node['failureSummary']}"
            for each in found["violations"]
            for node in each["nodes"]
        ]

    def check(self) -> None:
        """Check that nothing was logged and no other host was asked."""
        unexpected = [text for text in self.messages if not any(part in text for part in self.expected)]
        assert unexpected == []

    def _on_console(self, message: ConsoleMessage) -> None:
        self.messages.append(message.text)

    def _on_request(self, request: Request) -> None:
        if not request.url.startswith((self.site.base, "data:")):
            self.messages.append(f"request to {request.url}")


@pytest.fixture
def visit(browser: Browser, site: Site) -> Iterator[Visit]:
    """A page of an admin at a wide screen; it is checked, and axe runs on it, after the scenario."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.set_default_timeout(8_000)
    visit = Visit(context, site)
    visit.log_in()
    yield visit
    visit.check()
    assert visit.axe() == []
    context.close()
