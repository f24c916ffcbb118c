"""Contents of single pages: options and who set them, places in groups, fail jobs, last ticks, and the history."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import msgspec
import pytest

from penstock import Entry, Every, Job, Limit, PermanentError
from penstock.model.ids import new_token
from penstock.model.limit import EVERY
from penstock.model.worker_info import Heartbeat, RunSummary
from penstock.storage.base import Report, Request
from penstock.storage.observing import RINGS
from penstock.worker import Worker
from tests.dashboard.conftest import SECRET, Site
from tests.dashboard.html_checks import faults_of
from tests.support import STORAGES


def by_name(rows: list[dict[str, Any]]) -> dict[str, tuple[str, str, str]]:
    """Return value, source and handler's value of options."""
    return {row["name"]: (row["value"], row["source"], row["handler"]) for row in rows}


async def test_a_job_shows_its_own_bounds_beside_the_options_of_its_handler(site: Site) -> None:
    """A bound of the job wins, and names the option that it replaces; without a handler only bounds are known."""
    await site.app.queue("mail").enqueue({}, id="bound", timeout=5, max_attempts=2, max_retries=None)
    assert by_name((await site.json("/job?queue=mail&id=bound"))["options"]) == {
        "timeout": ("5.0 s", "job", "1 min"),
        "max_attempts": ("2", "job", "none"),
        "max_retries": ("none", "job", "0"),
        "result_ttl": ("1 h", "default", ""),
    }
    await site.app.queue("orders").enqueue({}, id="bound", result_ttl=90)
    assert by_name((await site.json("/job?queue=orders&id=bound"))["options"]) == {
        "result_ttl": ("1 min 30 s", "job", "")
    }
    page = await site.get("/job?queue=mail&id=bound")
    assert faults_of(page.text) == []
    assert "of this job; handler: 1 min" in page.text


async def test_a_job_shows_its_place_in_its_group(site: Site) -> None:
    """The first job of a group is named so, another names the one before it; a paused queue hides the place."""
    assert (await site.json("/job?queue=orders&id=o0"))["place"] == {"behind": None}
    assert (await site.json("/job?queue=orders&id=o2"))["place"] == {"behind": "o0"}
    assert (await site.json("/job?queue=mail&id=waits"))["place"] is None
    page = await site.get("/job?queue=orders&id=o2")
    assert faults_of(page.text) == []
    assert 'href="/group?queue=orders&amp;name=customer-0"' in page.text
    await site.app.queue("orders").pause(group="customer-0")
    assert (await site.json("/job?queue=orders&id=o0"))["place"] == {"behind": None}
    await site.app.queue("orders").pause()
    assert (await site.json("/job?queue=orders&id=o2"))["place"] is None


@pytest.mark.only(*STORAGES)
async def test_a_failed_job_leads_to_its_fail_job_and_back(site: Site) -> None:
    """The fail job is among those that the link finds, and has a link to the failed one; other jobs have neither."""

    async def on_failure(failure: Any, job: Job) -> None:
        del failure, job

    @site.app.handler("bills", on_failure=on_failure)
    async def pay(payload: Any) -> None:
        raise PermanentError("no money")

    del pay
    await site.app.queue("bills").enqueue({}, id="unpaid")
    await Worker(site.app).drain()
    await site.reading()
    [link] = [each for each in (await site.json("/job?queue=bills&id=unpaid"))["links"] if "fail jobs" in each["text"]]
    [found] = (await site.json(link["href"]))["jobs"]
    assert found["queue"] == "bills/failures"
    back = (await site.json(f"/job?queue=bills/failures&id={found['id']}"))["links"]
    assert [each for each in back if each["text"] == "the failed job"] == [
        {"text": "the failed job", "href": "/job?queue=bills&id=unpaid"}
    ]
    links = (await site.json("/job?queue=mail&id=bad"))["links"]  # its handler has no fail handler
    assert not [each for each in links if "fail jobs" in each["text"]]


@pytest.mark.only(*STORAGES)
async def test_a_secret_of_a_failed_job_cannot_be_searched_for_in_its_fail_queue(site: Site) -> None:
    """The payload of a fail job holds that of the failed one, whose secrets no search finds."""

    async def on_failure(failure: Any, job: Job) -> None:
        del failure, job

    @site.app.handler("bills", on_failure=on_failure)
    async def pay(payload: Any) -> None:
        raise PermanentError("no money")

    del pay
    await site.app.queue("bills").enqueue({"password": SECRET, "customer": "ann"}, id="unpaid")
    await Worker(site.app).drain()
    await site.reading()
    assert len((await site.json("/jobs?filter=queue:bills/failures"))["jobs"]) == 1
    assert (await site.json(f"/jobs?filter=queue:bills/failures%20{SECRET}"))["jobs"] == []


async def test_a_queue_shows_options_and_limits_in_force_and_who_set_them(site: Site) -> None:
    """Options are of the handler or defaults; a limit that was changed at run time names the declared one."""

    @site.app.handler("bills", timeout=30, limit=Limit(concurrency=2), group_limit=Limit(rate="3/s"))
    async def pay(payload: Any) -> None:
        del payload

    del pay
    bills = site.app.queue("bills")
    await bills.enqueue({})
    await Worker(site.app).drain()  # declares the limits
    await bills.set_limit(Limit(concurrency=7))
    await site.reading()
    view = await site.json("/queue?name=bills")
    assert by_name(view["options"]) == {
        "max_retries": ("10", "default", ""),
        "timeout": ("30 s", "handler", ""),
        "size": ("10", "default", ""),
        "result_ttl": ("1 h", "default", ""),
    }
    limits = [(row["scope"], row["words"], row["declared"], row["changed"]) for row in view["in_force"]]
    assert limits == [("queue", "7 at once", "2 at once", "7 at once"), ("groups", "3/s", "3/s", "")]
    page = await site.get("/queue?name=bills")
    assert faults_of(page.text) == []
    assert "changed at run time; code: 2 at once" in page.text
    await bills.reset_limit()
    await bills.reset_limit(EVERY)
    assert (await site.json("/queue?name=orders"))["options"] == []


async def test_a_run_of_a_worker_has_the_progress_of_its_job(site: Site) -> None:
    """The page of a worker shows how far each of its runs is; a run without a report has none."""
    storage = site.app.storage
    claims = (await storage.claim([Request("orders", 2)], "w7", 60_000, new_token())).claims
    progress = msgspec.msgpack.encode([0.4, "page 2"])
    await storage.report([Report(queue="orders", id=claims[0].id, token=claims[0].token, progress=progress)])
    runs = [RunSummary("orders", claim.id, 1, 5_000) for claim in claims]
    await storage.beat("w7", 60_000, Heartbeat(host="web-1", queues=["orders"], running=2, runs=runs).encode())
    await site.reading()
    assert [run["percent"] for run in (await site.json("/worker?id=w7"))["runs"]] == [40.0, None]
    page = await site.get("/worker?id=w7")
    assert faults_of(page.text) == []
    assert "40.0 %" in page.text
    await storage.beat("w7", 0)


async def test_groups_show_since_when_their_head_waits(site: Site) -> None:
    """A queued head waits since it was due; a group that a run holds has no head that waits, and no turn."""
    due = (await site.json("/job?queue=orders&id=o1"))["run_at"]
    [claim] = (await site.app.storage.claim([Request("orders", 1)], "w1", 60_000, new_token())).claims
    assert claim.id == "o0"
    groups = (await site.json("/groups?queue=orders"))["groups"]
    assert [(group["head"], group["since"], group["rotates"]) for group in groups] == [
        ("o1", due, True),
        (None, None, False),
    ]
    page = await site.get("/groups?queue=orders")
    assert faults_of(page.text) == []
    assert '<td data-label="head due"><time' in page.text
    found = (await site.json("/groups?queue=orders&find=customer-0"))["groups"]
    assert [group["name"] for group in found] == ["customer-0"]
    nothing = await site.get("/groups?queue=orders&find=<b>")
    assert "begins with “&lt;b&gt;”" in nothing.text
    assert (await site.get("/groups?queue=orders&after=x")).status_code == 400


@pytest.mark.only(*STORAGES)
async def test_a_schedule_shows_the_outcome_of_its_last_tick(site: Site) -> None:
    """The state of the job of the last tick is beside its time, until the job is gone."""
    mail = site.app.queue("mail")
    await mail.schedules.put("hourly", Every(hours=1), payload={"to": "all"})
    id = (await mail.schedules.trigger("hourly")).id

    async def last() -> tuple[str | None, str | None]:
        rows = {row["name"]: row for row in (await site.json("/schedules"))["schedules"]}
        assert rows["nightly"]["last_state"] is None
        return rows["hourly"]["last_id"], rows["hourly"]["last_state"]

    assert await last() == (id, "queued")
    await Worker(site.app).drain()
    assert await last() == (id, "completed")
    page = await site.get("/schedules")
    assert faults_of(page.text) == []
    assert f"id={quote(id)}" in page.text
    rows = (await site.json("/queue?name=mail&tab=schedules"))["schedules"]
    assert {row["name"]: row["last_state"] for row in rows} == {"hourly": "completed", "nightly": None}
    await site.act(f"verb=delete&queue=mail&id={quote(id)}")
    assert await last() == (id, None)
    assert "not kept any more" in (await site.get("/schedules")).text
    assert "not kept any more" in (await site.get("/queue?name=mail&tab=schedules")).text
    await mail.schedules.remove("hourly")


async def test_the_doctor_shows_the_size_of_the_history(site: Site) -> None:
    """Samples of all queues are counted, with the time of the oldest; the bytes are those of single queues too."""
    await site.reading()
    history = (await site.json("/doctor"))["history"]
    assert history["most"] == sum(RINGS.values())
    assert 1 <= history["samples"] <= history["most"]
    assert history["since"] is not None
    assert history["bytes"] > 50 * history["samples"]
    assert "of all queues together" in (await site.get("/doctor")).text


async def test_a_group_behind_many_others_shows_its_jobs(site: Site) -> None:
    """Queued jobs are found by their group, on its page and by a filter, however many others are queued before them."""
    crowd = [Entry({"n": n}, group=f"a{n % 7}") for n in range(2_500)]
    await site.app.queue("crowd").enqueue_many([*crowd, *(Entry({"n": n}, group="z 1") for n in range(3))])
    await site.reading()
    view = await site.json("/group?queue=crowd&name=z%201")
    assert [job["payload"] for job in view["jobs"]] == ['{"n": 0}', '{"n": 1}', '{"n": 2}']
    assert view["complete"]
    found = await site.json(view["all_link"])
    assert {job["payload"] for job in found["jobs"]} == {'{"n": 0}', '{"n": 1}', '{"n": 2}'}
    assert (found["walked"], found["problem"]) == (3, "")
    many = await site.json("/group?queue=crowd&name=a1")
    assert (len(many["jobs"]), many["complete"]) == (100, False)
    assert faults_of((await site.get("/group?queue=crowd&name=a1")).text) == []
    await site.app.queue("crowd").delete()
