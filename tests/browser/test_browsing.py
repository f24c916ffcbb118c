"""Scenarios that only look: pages, filters, charts, themes, keys, and everything without scripts."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.conftest import ADMIN, READER, Site, Visit
from tests.browser.seed import HOSTILE_ID, HOSTILE_QUEUE, SECRET

PAGES = {
    "overview": "/", "queues": "/queues", "queue": "/queue?name=mail", "jobs": "/jobs?filter=queue:mail+state:failed",
    "groups": "/groups?queue=orders", "group": "/group?queue=orders&name=customer-1", "workers": "/workers",
    "worker": "/worker?id=w1", "failures": "/failures", "schedules": "/schedules", "limits": "/limits",
    "doctor": "/doctor", "activity": "/activity", "new": "/new?queue=mail", "running": "/job?queue=long&id=encode-1",
}  # fmt: skip
SHOTS = Path("build/screenshots")


def all_pages(visit: Visit) -> dict[str, str]:
    """Return the paths of all pages, those of a failed job, of one behind another and of an error group too."""
    visit.open("/failures")
    group = visit.page.locator("a.error-title").first.get_attribute("href") or ""
    visit.open("/jobs?filter=queue:mail+state:failed")
    job = visit.page.locator("tbody th a").first.get_attribute("href") or ""
    visit.open("/group?queue=orders&name=customer-2")
    behind = visit.page.locator("tbody th a").nth(1).get_attribute("href") or ""
    return {**PAGES, "error-group": group, "job": job, "grouped": behind}


def test_a_printed_link_opens_the_overview_and_leaves_the_address(browser: Browser, tmp_path: Path) -> None:
    """The token of the link becomes a session; a browser without it gets the form."""
    site = Site(f"sqlite:{tmp_path / 'penstock.db'}", PENSTOCK_DASHBOARD_TOKEN="")
    site.do(lambda app: app.queue("mail").enqueue({"a": 1}))
    link = site.start()
    try:
        context = browser.new_context()
        page = context.new_page()
        page.goto(link)
        expect(page.get_by_role("heading", name="Needs attention")).to_be_visible()
        assert "token" not in page.url
        stranger = browser.new_context().new_page()
        stranger.goto(site.base)
        expect(stranger.get_by_role("button", name="Log in")).to_be_visible()
        stranger.context.close()
        context.close()
    finally:
        site.stop()


def test_an_open_address_needs_a_token() -> None:
    """Without a token the command ends with one line and exit code 2."""
    command = [sys.executable, "-m", "penstock", "dashboard", "--host", "0.0.0.0", "--url", "memory:"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert len(done.stderr.strip().splitlines()) == 1
    assert "PENSTOCK_DASHBOARD_TOKEN" in done.stderr


def test_the_overview_has_the_numbers_of_top_and_lines_in_order(visit: Visit) -> None:
    """Waiting, running and workers are those of `penstock top`; paused comes before failures and missing workers."""
    page = visit.open()
    command = [sys.executable, "-m", "penstock", "top", "--once", "--json", "--url", visit.site.url]
    command += ["--namespace", visit.site.namespace]
    top = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    numbers = [re.sub(r"\D", "", text) for text in page.locator(".numbers b").all_inner_texts()]
    assert int(numbers[0]) == sum(queue["counts"]["queued"] for queue in top["queues"])
    assert int(numbers[1]) == sum(queue["counts"]["running"] for queue in top["queues"])
    assert int(numbers[5]) == len(top["workers"])
    expect(page.locator(".numbers > *")).to_have_count(6)
    found = [each.get_attribute("class") or "" for each in page.locator(".attention li").all()]
    order = ["k-paused", "k-failures", "k-no_worker"]  # the doctor may warn, and a slow run has a queue that grows
    assert list(dict.fromkeys(kind for kind in found if kind in order)) == order
    expect(page.locator(".k-failures").first).to_contain_text("ConnectionError: 412 jobs, new since v1.4.2")


def test_charts_are_drawn_for_each_span_and_the_address_has_it(visit: Visit) -> None:
    """A click on a span draws both charts again, with the releases of the span, without a reload."""
    page = visit.open()
    charts = page.locator("[data-charts]")
    points: list[int] = []
    for span, releases in (("2 h", "1"), ("2 d", "2"), ("14 d", "2")):
        name = span.replace(" ", "")
        page.get_by_role("link", name=span, exact=True).click()
        expect(charts).to_have_attribute("data-drawn", re.compile(f"span={name}"))
        expect(page.locator(".chart canvas")).to_have_count(2)
        expect(charts).to_have_attribute("data-releases", releases)
        points.append(int(charts.get_attribute("data-points") or 0))
        assert f"span={name}" in page.url
        expect(page.locator("[data-chart=throughput]")).to_have_attribute("data-dashed", "2")  # the newest points
    assert min(points) > 50
    page.go_back()
    expect(charts).to_have_attribute("data-drawn", re.compile("span=2d"))
    expect(page.get_by_role("link", name="2 d", exact=True)).to_have_attribute("aria-current", "true")


def test_themes_change_page_and_charts_and_stay(visit: Visit) -> None:
    """Light and dark differ in ground and axes, pass the contrast rules, and are kept after a reload."""
    page = visit.open()
    grounds: set[str] = set()
    axes: set[str] = set()
    for theme in ("light", "dark"):
        with page.expect_response(re.compile("/theme")):
            page.get_by_label("Theme").select_option(theme)
        expect(page.locator("html")).to_have_attribute("data-theme", theme)
        page.reload()
        expect(page.locator("html")).to_have_attribute("data-theme", theme)
        expect(page.locator("[data-charts]")).to_have_attribute("data-axis", re.compile("#"))
        axes.add(page.locator("[data-charts]").get_attribute("data-axis") or "")
        grounds.add(page.evaluate("() => getComputedStyle(document.documentElement).backgroundColor"))
        assert visit.axe() == []
    assert len(grounds) == len(axes) == 2
    with page.expect_response(re.compile("/theme")):
        page.get_by_label("Theme").select_option("system")
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        assert page.evaluate("() => getComputedStyle(document.documentElement).backgroundColor") in grounds
        expect(page.locator("[data-charts]")).to_have_attribute("data-drawn", re.compile("span"))
    page.reload()
    expect(page.locator("html")).to_have_attribute("data-theme", "system")


def test_a_filter_is_in_the_address_and_back_and_reload_keep_it(visit: Visit) -> None:
    """`/` focuses the filter; the rows are those that match, also after back, forward and reload."""
    page = visit.open("/jobs")
    page.keyboard.press("/")
    expect(page.locator("#filter")).to_be_focused()
    page.keyboard.type("state:failed type:ValueError")
    page.keyboard.press("Enter")
    rows = page.locator("tbody tr")
    expect(rows).to_have_count(5)
    assert "ValueError" in page.url
    page.go_back()
    expect(page.locator("#filter")).to_have_value("")
    page.go_forward()
    expect(rows).to_have_count(5)
    page.reload()
    expect(rows).to_have_count(5)


def test_wrong_filters_are_explained_under_the_bar(visit: Visit) -> None:
    """A redacted field is refused, and an unknown key is named with the known ones."""
    page = visit.open(f"/jobs?filter={quote('payload.password:' + SECRET)}")
    expect(page.locator("#problem")).to_contain_text("redacted")
    page = visit.open("/jobs?filter=state:failed+type:ValueError")
    expect(page.locator("tbody tr")).to_have_count(5)
    page.locator("#filter").fill("colour:red")
    page.locator("#filter").press("Enter")
    expect(page.locator("#problem")).to_contain_text("unknown key 'colour'")
    expect(page.locator("tbody tr")).to_have_count(5)
    expect(page.locator("#problem")).to_contain_text("payload.")


def test_a_failed_job_has_its_reason_traceback_and_hidden_values(visit: Visit) -> None:
    """Own frames are open and library frames folded; the password is nowhere, raw bytes are for admins."""
    path = all_pages(visit)["job"]
    page = visit.page
    page.goto(visit.site.base + path)
    expect(page.locator(".why")).to_contain_text("It failed for good")
    expect(page.locator(".why")).to_contain_text("after 11 attempts")
    expect(page.get_by_role("link", name="411 other jobs fail alike")).to_be_visible()
    expect(page.locator("[aria-labelledby=attempts-title] tbody tr")).to_have_count(11)
    expect(page.locator(".timeline .nr")).to_have_text([f"#{number}" for number in range(1, 12)])
    expect(page.locator(".frames li").first).to_contain_text("jobs.py:41")
    expect(page.locator("details .frames li").first).to_be_hidden()
    expect(page.locator("pre.value").first).to_contain_text('"password": "•••"')
    expect(page.locator("pre.value").first).to_contain_text("12345678901234567890")
    expect(page.get_by_role("link", name="Raw")).to_be_visible()
    face = page.request.get(page.url, headers={"accept": "application/json"}).text()
    assert SECRET not in page.content() + face
    assert "letmein" not in page.content() + face


def test_a_reader_sees_hidden_values_and_no_raw_bytes(browser: Browser, site: Site) -> None:
    """The payload of a job is redacted for a reader too, who has no link to its bytes."""
    context = browser.new_context()
    context.set_default_timeout(8_000)
    visit = Visit(context, site)
    visit.log_in(READER)
    page = visit.open("/jobs?filter=queue:mail+state:failed+type:ConnectionError")
    page.locator("tbody th a").first.click()
    expect(page.locator("pre.value").first).to_contain_text('"password": "•••"')
    expect(page.get_by_role("link", name="Raw")).to_have_count(0)
    assert SECRET not in page.content()
    assert page.request.get(page.url.replace("/job?", "/payload?")).status == 403
    visit.check()
    context.close()


def test_a_running_job_has_its_progress_and_its_log_without_secrets(visit: Visit) -> None:
    """Lines are text with their level; a login in an address is hidden."""
    page = visit.open("/job?queue=long&id=encode-1")
    lines = page.locator(".log li")
    expect(lines).to_have_count(2)
    expect(lines.first).to_contain_text("reads https://•••@media.example.org/a.mp4")
    expect(lines.last).to_contain_text("warning <b>frame</b> 12 is damaged")
    assert "letmein" not in page.content()


def test_hostile_names_are_text(visit: Visit) -> None:
    """A queue and an id with markup, slashes and control characters are shown, filtered and opened; nothing runs."""
    page = visit.open(f"/queue?name={quote(HOSTILE_QUEUE, safe='')}")
    expect(page.locator("h1")).to_contain_text("<img src=x onerror=alert(1)>/a:b")
    page.locator("tbody th a").first.click()
    expect(page.locator("h1")).to_contain_text(r"x/../%2F\n\x00é")
    page.get_by_role("link", name="<b>g</b>").click()
    expect(page.locator("tbody tr")).to_have_count(1)
    visit.open(f"/jobs?filter={quote(f'id:{chr(34)}{HOSTILE_ID}{chr(34)}', safe='')}")
    expect(page.locator("tbody tr")).to_have_count(1)


def test_groups_name_their_head_and_what_holds_them(visit: Visit) -> None:
    """The group whose head is in backoff is held; the others are in rotation, by their turns; the head is a link."""
    page = visit.open("/groups?queue=orders")
    rows = page.locator("tbody tr")
    expect(rows).to_have_count(5)
    expect(rows.locator("th")).to_have_text([f"customer-{i}" for i in (2, 3, 4, 5, 1)])
    held = rows.filter(has_text="customer-1")
    expect(held).to_contain_text("held: in backoff, due in")
    expect(rows.filter(has_text="customer-2")).to_contain_text("in rotation")
    held.locator("a.id").click()
    expect(page.locator(".why")).to_contain_text("waits for its next try")


def test_the_keyboard_reaches_everything(visit: Visit) -> None:
    """`g f` goes to the failures, `j` moves, Enter opens, `?` helps, Shift+d asks and d does not; focus returns."""
    page = visit.open()
    page.keyboard.press("g")
    page.keyboard.press("f")
    expect(page).to_have_url(re.compile("/failures"))
    page.keyboard.press("j")
    page.keyboard.press("j")
    expect(page.locator(".current")).to_have_count(1)
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("/error-group"))
    page.keyboard.press("?")
    expect(page.locator("#help")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#help")).to_be_hidden()
    visit.open("/jobs?filter=state:failed+type:ValueError")
    page.keyboard.press("j")
    expect(page.locator(".current a").first).to_be_focused()
    outline = page.evaluate("() => getComputedStyle(document.activeElement).outlineStyle")
    assert outline != "none"
    visit.open("/queue?name=mail")
    page.keyboard.press("d")
    expect(page.locator("#dialog")).to_be_hidden()
    page.keyboard.press("Shift+D")
    expect(page.locator("#dialog")).to_contain_text("Delete queue mail?")
    expect(page.locator("#confirm")).to_be_focused()
    for _ in range(8):  # the focus stays in the dialog, or in the bars of the browser
        page.keyboard.press("Tab")
        assert page.evaluate(
            "() => document.activeElement === document.body || !!document.activeElement.closest('#dialog')"
        )
    page.keyboard.press("Escape")
    expect(page.locator("#dialog")).to_be_hidden()
    page.get_by_role("button", name="Delete queue").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("button", name="Delete queue")).to_be_focused()


def test_pages_and_actions_work_without_scripts(browser: Browser, site: Site) -> None:
    """Links, filters, a pause with Undo, and a question answer without any script."""
    context = browser.new_context(java_script_enabled=False)
    context.set_default_timeout(8_000)
    visit = Visit(context, site)
    visit.log_in()
    page = visit.page
    for path in PAGES.values():
        visit.open(path)
        expect(page.locator("h1")).to_have_count(1)
    visit.open("/jobs")
    page.locator("#filter").fill("state:failed type:ValueError")
    page.get_by_role("button", name="Find").click()
    expect(page.locator("tbody tr")).to_have_count(5)
    visit.open("/queue?name=long")
    page.get_by_role("button", name="Pause").click()
    expect(page.locator(".toast")).to_contain_text("is paused")
    page.locator(".toast").get_by_role("button", name="Undo").click()
    visit.open("/queue?name=long")
    expect(page.get_by_role("button", name="Pause")).to_be_visible()
    visit.check()
    context.close()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_page_is_accessible_and_fits(visit: Visit, theme: str) -> None:
    """Axe finds nothing on any page; at 360 px nothing scrolls sideways and the menu folds."""
    page = visit.page
    SHOTS.mkdir(parents=True, exist_ok=True)
    page.emulate_media(color_scheme="dark" if theme == "dark" else "light")
    findings: list[str] = []
    for name, path in all_pages(visit).items():
        page.set_viewport_size({"width": 1280, "height": 860})
        page.goto(visit.site.base + path if path.startswith("/") else path)
        if page.locator("[data-charts]").count():
            expect(page.locator("[data-charts]")).to_have_attribute("data-drawn", re.compile("span"))
        if visit.site.url.startswith("sqlite"):  # the pages of both storages have the same elements
            findings += visit.axe()
            page.screenshot(path=SHOTS / f"{name}-{theme}.png")
        page.set_viewport_size({"width": 360, "height": 740})
        width = page.evaluate("() => document.documentElement.scrollWidth")
        assert width <= 360, (name, width)
        expect(page.locator("nav.main")).to_be_hidden()
        for kind in page.evaluate(
            "() => [...document.querySelectorAll('table.list tbody tr')].map(r => getComputedStyle(r).display)"
        ):
            assert kind != "table-row", name  # rows are cards
        for box in page.locator(".chart").all():
            expect(box.locator(".uplot")).to_have_js_property("clientWidth", box.evaluate("each => each.clientWidth"))
        if visit.site.url.startswith("sqlite"):
            page.screenshot(path=SHOTS / f"{name}-{theme}-360.png")
    assert findings == []


def test_a_token_is_not_in_any_page(visit: Visit) -> None:
    """The secret of the session is in the cookie's seal only."""
    assert ADMIN not in visit.open().content()
