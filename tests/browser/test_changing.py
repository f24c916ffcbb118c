"""Scenarios that change something: live updates, single actions, bulk actions, and what readers may not do."""

from __future__ import annotations

import re
from urllib.parse import quote

from playwright.sync_api import Browser, Locator, expect

from penstock import Entry, Penstock
from penstock.dashboard.auth import VERBS
from penstock.model.job import State
from tests.browser.conftest import READER, Site, Visit
from tests.browser.seed import HOSTILE_ID, HOSTILE_QUEUE, SECRET
from tests.browser.test_browsing import PAGES


def count_of(site: Site, queue: str, state: State) -> int:
    """Return a count of a queue."""

    async def read(app: Penstock) -> int:
        return (await app.queue(queue).counts())[state]

    return site.do(read)


def test_a_reader_sees_no_buttons_and_changes_nothing(browser: Browser, site: Site) -> None:
    """No page has a form for an action, and every POST is a 403."""
    context = browser.new_context()
    context.set_default_timeout(8_000)
    visit = Visit(context, site)
    visit.log_in(READER)
    before = [count_of(site, "mail", state) for state in State]
    for name, path in PAGES.items():
        if name == "new":  # for those who may enqueue
            continue
        visit.open(path)
        expect(visit.page.locator("main form[method=post]")).to_have_count(0)
    visit.expected = ["403"]
    verbs = [verb for verb in VERBS if verb != "raw"]
    statuses = visit.page.evaluate(
        "async verbs => Promise.all(verbs.map(async v => (await fetch(`act?verb=${v}&queue=mail&id=x`, "
        "{method: 'POST'})).status))",
        verbs,
    )
    assert set(statuses) == {403}
    others = [*(f"preview?verb={verb}&queue=mail&id=x" for verb in verbs), "stop?id=x", "check"]
    statuses = visit.page.evaluate(
        "async paths => Promise.all(paths.map(async p => (await fetch(p, {method: 'POST'})).status))", others
    )
    assert set(statuses) == {403}
    assert [count_of(site, "mail", state) for state in State] == before
    visit.check()
    context.close()


def test_new_jobs_appear_without_a_reload(visit: Visit) -> None:
    """Ten jobs of another process are counted on the page within seconds."""
    page = visit.open()
    row = page.locator("tr", has=page.get_by_role("link", name="mail", exact=True))
    expect(row.locator("td").first).to_have_text("120")
    visit.site.do(lambda app: app.queue("mail").enqueue_many([{"n": n} for n in range(10)]))
    expect(row.locator("td").first).to_have_text("130", timeout=20_000)  # two seconds on a machine that is not busy


def count_in_row(visit: Visit, queue: str) -> Locator:
    """Return the number of waiting jobs of a queue on the overview."""
    page = visit.page
    return page.locator("tr", has=page.get_by_role("link", name=queue, exact=True)).locator("td").first


def test_a_page_without_a_stream_polls(visit: Visit) -> None:
    """A refused stream, as for the viewer beyond `max_streams`: new jobs appear all the same."""
    visit.site.do(lambda app: app.queue("polled").enqueue({"n": 1}))
    visit.expected = ["503"]
    visit.page.route("**/live", lambda route: route.fulfill(status=503, body="No stream is free: poll."))
    visit.open()
    expect(count_in_row(visit, "polled")).to_have_text("1", timeout=20_000)
    visit.site.do(lambda app: app.queue("polled").enqueue({"n": 2}))
    expect(count_in_row(visit, "polled")).to_have_text("2", timeout=20_000)


def test_a_hidden_tab_asks_for_nothing_and_catches_up(visit: Visit) -> None:
    """While the tab is hidden the stream is closed and nothing is fetched; then the page is read again."""
    page = visit.open("/queue?name=mail")
    expect(page.locator("[data-live-text]")).to_have_text("live")
    hide = "value => { Object.defineProperty(document, 'hidden', {value, configurable: true}); "
    hide += "document.dispatchEvent(new Event('visibilitychange')) }"
    page.evaluate(hide, True)
    expect(page.locator("[data-live-text]")).to_have_text("paused")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    visit.site.do(lambda app: app.queue("seen").enqueue({"n": 1}))
    other = page.context.new_page()
    other.goto(f"{visit.site.base}/queue?name=seen")
    for count in ("1", "2"):  # an update of a tab that is not hidden
        expect(other.locator(".numbers b").first).to_have_text(count, timeout=20_000)
        visit.site.do(lambda app: app.queue("seen").enqueue({"n": 1}))
    other.close()
    assert asked == []
    with page.expect_response(lambda answer: "/queue?name=mail" in answer.url):
        page.evaluate(hide, False)
    expect(page.locator("[data-live-text]")).to_have_text("live")
    assert any("/live" in url for url in asked)


def test_a_list_with_a_selection_keeps_its_rows(visit: Visit) -> None:
    """New jobs are counted above a list with a selected row, and are in it after a click."""
    site = visit.site
    site.do(lambda app: app.queue("rows").enqueue_many([{"n": n} for n in range(3)]))
    page = visit.open("/jobs?filter=queue:rows")
    rows = page.locator("#job-list tbody tr")
    expect(rows).to_have_count(3)
    page.locator("[data-select]").first.check()
    site.do(lambda app: app.queue("rows").enqueue_many([{"n": n} for n in range(2)]))
    expect(page.locator(".fresh")).to_have_text("2 new", timeout=20_000)
    expect(rows).to_have_count(3)
    page.locator(".fresh").click()
    expect(rows).to_have_count(5)


def test_r_retries_a_failed_job_at_once(visit: Visit) -> None:
    """The job is queued without a question, a message confirms it, and the activity names the viewer."""
    page = visit.open("/jobs?filter=state:failed+type:ValueError")
    page.locator("tbody th a").first.click()
    expect(page.locator("h1 .state")).to_have_text("failed")
    page.keyboard.press("r")
    expect(page.locator(".toast")).to_contain_text("queued again")
    expect(page.locator("h1 .state")).to_have_text("queued")
    visit.open("/activity")
    expect(page.locator("#log tbody tr").first).to_contain_text("ann")


def test_a_pause_names_its_viewer_and_can_be_undone(visit: Visit) -> None:
    """Queue and job name the viewer who paused it; the button has the label of its action, and Undo resumes."""
    page = visit.open("/queue?name=mail")
    page.get_by_role("button", name="Pause").click()
    expect(page.locator(".note")).to_contain_text("by ann")
    expect(page.get_by_role("button", name="Resume")).to_be_visible()
    page.locator("tbody th a").first.click()
    expect(page.locator(".why")).to_contain_text("paused by 'ann'")
    page = visit.open("/queue?name=mail")
    page.get_by_role("button", name="Resume").click()
    expect(page.get_by_role("button", name="Pause")).to_be_visible()
    page.get_by_role("button", name="Pause").click()
    expect(page.locator(".note")).to_contain_text("by ann")
    page.locator(".toast").get_by_role("button", name="Undo").click()
    expect(page.get_by_role("button", name="Pause")).to_be_visible()
    expect(page.locator(".note")).to_have_count(0)


def test_a_queue_is_deleted_only_with_its_name(visit: Visit) -> None:
    """A wrong name does nothing; the right one deletes the queue."""
    visit.site.do(lambda app: app.queue("spare").enqueue({"a": 1}))
    page = visit.open("/queue?name=spare")
    visit.expected = ["400"]
    page.get_by_role("button", name="Delete queue").click()
    page.locator("#confirm").fill("wrong")
    page.locator("#dialog").get_by_role("button", name="Delete queue").click()
    expect(page.locator(".toast")).to_contain_text("Nothing was deleted")
    assert count_of(visit.site, "spare", State.QUEUED) == 1
    page.locator("#confirm").fill("spare")
    page.locator("#dialog").get_by_role("button", name="Delete queue").click()
    expect(page).to_have_url(re.compile("/queues"))
    assert count_of(visit.site, "spare", State.QUEUED) == 0


def test_selected_jobs_are_acted_on_together(visit: Visit) -> None:
    """Two selected jobs are retried after a question, and the others stay."""
    page = visit.open("/jobs?filter=state:failed+queue:reports")
    before = count_of(visit.site, "reports", State.FAILED)
    page.locator("[data-select]").nth(0).check()
    page.locator("[data-select]").nth(1).check()
    expect(page.locator("[data-selected]")).to_have_text("2")
    page.locator(".bulk").get_by_role("button", name="Retry").click()
    page.locator("#dialog").get_by_role("button", name="Retry 2 jobs").click()
    expect(page.locator(".toast")).to_contain_text("2 of 2 jobs changed")
    assert count_of(visit.site, "reports", State.FAILED) == before - 2


def test_a_hostile_job_is_changed_and_no_other(visit: Visit) -> None:
    """The job whose queue and id have markup and control characters is cancelled and retried by its buttons."""
    page = visit.open(f"/job?queue={quote(HOSTILE_QUEUE, safe='')}&id={quote(HOSTILE_ID, safe='')}")
    page.get_by_role("button", name="Cancel").click()
    expect(page.locator("h1 .state")).to_have_text("cancelled")
    assert count_of(visit.site, HOSTILE_QUEUE, State.CANCELLED) == 1
    page.keyboard.press("r")
    expect(page.locator("h1 .state")).to_have_text("queued")
    assert count_of(visit.site, HOSTILE_QUEUE, State.QUEUED) == 1


def test_a_bulk_action_works_without_scripts(browser: Browser, site: Site) -> None:
    """All that match are cancelled after a question page; the page of the progress reloads by itself."""
    site.do(lambda app: app.queue("plain").enqueue_many([Entry(n, delay=3600) for n in range(3)]))
    context = browser.new_context(java_script_enabled=False)
    context.set_default_timeout(20_000)
    visit = Visit(context, site)
    visit.log_in()
    page = visit.open("/jobs?filter=queue:plain")
    page.get_by_label("all that match").check()
    page.locator("#bulk").get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="Cancel 3 jobs").click()
    expect(page).to_have_url(re.compile("/activity"))
    expect(page.locator("#bulk-actions li").first).to_contain_text("3 of 3", timeout=30_000)
    assert count_of(site, "plain", State.CANCELLED) == 3
    visit.check()
    context.close()


def test_a_bulk_retry_is_undone_then_done(visit: Visit) -> None:
    """Retry 412: the preview has the number; Undo within 5 s changes nothing; the second time all are queued."""
    page = visit.open("/failures")
    group = page.locator(".errors li").filter(has_text="ConnectionError").first
    group.get_by_role("button", name="Retry 412").click()
    expect(page.locator("#dialog")).to_contain_text("Retry 412 jobs?")
    expect(page.locator("#dialog .samples li")).to_have_count(5)
    expect(page.locator("#dialog .samples li").first).to_contain_text("•••")
    assert SECRET not in page.content()
    page.locator("#dialog").get_by_role("button", name="Retry 412 jobs").click()
    expect(page).to_have_url(re.compile("/activity"))
    expect(page.locator("#bulk-actions li").first).to_contain_text("starts in")
    page.get_by_role("button", name="Undo").first.click()
    expect(page.locator("#bulk-actions")).to_contain_text("undone")
    expect(page.locator("#log")).to_contain_text("undone")
    assert SECRET not in page.content()
    assert count_of(visit.site, "mail", State.FAILED) >= 412
    queued = count_of(visit.site, "mail", State.QUEUED)
    visit.open("/failures")
    group.get_by_role("button", name="Retry 412").click()
    page.locator("#dialog").get_by_role("button", name="Retry 412 jobs").click()
    expect(page.locator("#bulk-actions li").first).to_contain_text("412 of 412", timeout=15_000)
    expect(page.locator("#bulk-actions li").first).to_contain_text("done")
    assert count_of(visit.site, "mail", State.QUEUED) == queued + 412
    visit.open("/failures")
    expect(page.locator(".errors li").filter(has_text="ConnectionError").first).to_contain_text("0 open")
