"""A storage that stops answering: the last data stays, greyed, under a banner, and everything recovers by itself."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.conftest import Site, Visit
from tests.servers import Server, redis_program, start_or_skip


@pytest.fixture
def server() -> Iterator[Server]:
    """A server that the scenario may stop."""
    server = start_or_skip(lambda: Server(redis_program()).start())
    yield server
    server.remove()


def test_an_outage_is_a_banner_over_the_last_data(browser: Browser, server: Server) -> None:
    """While Redis is down for 10 s, the numbers stay and actions are disabled; after it is back, the banner goes."""
    site = Site(f"redis://{server.address}")
    site.do(lambda app: app.queue("mail").enqueue({"a": 1}))
    site.start()
    context = browser.new_context()
    context.set_default_timeout(20_000)
    visit = Visit(context, site)
    visit.log_in()
    page = visit.open("/queue?name=mail")
    try:
        expect(page.locator(".numbers b").first).to_have_text("1")
        visit.expected = ["503", "ERR_", "Failed to load"]
        server.kill()
        down_since = time.monotonic()
        expect(page.locator("#banner .banner")).to_contain_text("does not answer", timeout=20_000)
        expect(page.locator("#banner .banner")).to_contain_text(re.compile(r"The data is as of \d\d:\d\d:\d\d"))
        expect(page.locator("main")).to_have_class(re.compile("stale"))
        expect(page.locator(".numbers b").first).to_have_text("1")
        expect(page.get_by_role("button", name="Pause")).to_be_disabled()
        # The outage lasts for 10 s by the clock, and longer if the banner came late.
        page.wait_for_timeout(max(0.0, 10_000 - (time.monotonic() - down_since) * 1000))
        assert time.monotonic() - down_since >= 10
        expect(page.locator("#banner .banner")).to_contain_text("does not answer")
        expect(page.locator(".numbers b").first).to_have_text("1")
        expect(page.get_by_role("button", name="Pause")).to_be_disabled()
        server.restart()
        site.do(lambda app: app.queue("mail").enqueue_many([{"a": 2}, {"a": 3}]))
        expect(page.locator("#banner .banner")).to_have_count(0, timeout=20_000)
        expect(page.get_by_role("button", name="Pause")).to_be_enabled()
        expect(page.locator("main")).not_to_have_class(re.compile("stale"))
        expect(page.locator(".numbers b").first).to_have_text("2", timeout=20_000)
    finally:
        context.close()
        site.stop()
