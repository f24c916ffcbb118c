"""Records of the storage on pages: activity, bulk actions, releases, attempts, log lines, and requests to workers."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import Job, PermanentError
from penstock.client import bulk
from penstock.dashboard import Dashboard
from penstock.dashboard.bulk_tasks import wait_all
from penstock.model.job import State
from penstock.model.worker_info import Heartbeat
from penstock.ops import activity
from penstock.storage.auditing import need_auditing
from penstock.worker import Worker
from tests.dashboard.conftest import SECRET, Site, who


async def start_bulk(site: Site, verb: str = "retry") -> str:
    """Ask for a verb on all failed mails, and return the id of the stored action."""
    path = f"/preview?bulk=1&verb={verb}&queue=mail&state=failed"
    asked = (await site.post(path, accept="application/json")).json()
    message = (await site.act(asked["action"].partition("?")[2], asked["fields"]))["message"]
    return message["undo"].rpartition("id=")[2]


async def test_another_dashboard_stops_a_bulk_action_between_its_steps(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It reads its record before each step; what was done stays done, and both dashboards show the end."""
    monkeypatch.setattr(bulk, "DELAY", 0.01)
    monkeypatch.setattr(bulk, "STEP", 1)
    other = Site(site.app, Dashboard(site.app, auth=who))
    change, answers = bulk.change_jobs, list[str]()

    async def stopped_meanwhile(*args: Any, **options: Any) -> int:
        [running] = (await other.json("/activity"))["bulk"]
        answer = await other.post(f"/stop?id={running['id']}", accept="application/json")
        answers.append(answer.json()["message"]["text"])
        return await change(*args, **options)

    monkeypatch.setattr(bulk, "change_jobs", stopped_meanwhile)
    await start_bulk(site)
    await wait_all()
    assert answers == ["Stopped; what was done stays done."]
    for each in (site, other):
        [row] = (await each.json("/activity"))["bulk"]
        assert (row["state"], row["done"]) == ("stopped", 1)
    assert (await site.app.queue("mail").counts())[State.FAILED] == 3
    await other.client.aclose()
    await other.dashboard.close()


async def test_a_filter_of_another_program_is_shown_without_its_secrets(site: Site) -> None:
    """A bulk action by Python code may search for a secret; its filter on the page has none, the stored one stays."""
    secret = f'queue:mail payload.password:"{SECRET}" header.authorization:{SECRET}* payload.to:ann'
    await site.app.bulk("retry", secret).run()
    await activity.log_activity(site.app, "retry", via="cli", queue="mail", target=secret, ids=("bad",))
    for path in ("/activity", "/job?queue=mail&id=bad"):
        for accept in ("application/json", "text/html"):
            assert SECRET not in (await site.get(path, "reader", accept=accept)).text, path
    view = await site.json("/activity")
    wanted = "queue:mail payload.password:••• header.authorization:••• payload.to:ann"
    assert [row["filter"] for row in view["bulk"]] == [wanted]
    assert wanted in {entry["target"] for entry in view["entries"]}


async def test_activity_and_bulk_actions_are_in_the_storage(site: Site) -> None:
    """A refused change, an action and its undoing are there for every process, with role and address."""
    await site.post("/act?verb=delete&queue=mail&id=bad", "reader")
    id = await start_bulk(site, "delete")
    await site.post(f"/stop?id={id}")
    assert (await need_auditing(site.app.storage).get_bulk(id)).state == "undone"  # type: ignore[union-attr]
    entries = list(await site.app.activity())
    outcomes = [(entry.verb, entry.role, entry.outcome) for entry in entries if not entry.verb.startswith("bulk")]
    assert outcomes == [
        ("stop_bulk", "admin", "undone"), ("delete", "admin", f"bulk action {id}"), ("delete", "reader", "refused"),
    ]  # fmt: skip
    assert {entry.via for entry in entries} == {"dashboard"}
    again = (await site.post(f"/stop?id={'x' * 20}", accept="application/json")).json()
    assert not again["message"]["good"]


async def test_errors_since_the_last_release_need_attention_and_charts_have_its_line(site: Site) -> None:
    """A group that was there before the release has no line."""

    @site.app.handler("fresh", max_retries=0)
    async def fail(payload: Any) -> None:
        raise ValueError("a new mistake")

    await site.app.add_release("v2")
    await site.app.queue("fresh").enqueue(1)
    await Worker(site.app).drain()
    await site.reading()
    lines = [line for line in (await site.json("/"))["attention"] if line["kind"] == "failures"]
    assert [(line["queue"], line["text"]) for line in lines] == [("fresh", "ValueError: 1 job, new since v2")]
    group = (await site.json(lines[0]["href"]))["group"]
    assert group["new_since"] == "since v2"
    for span in ("2h", "14d"):
        assert [mark["name"] for mark in (await site.json(f"/history?span={span}"))["releases"]] == ["v2"]


async def test_a_job_has_its_attempts_a_timeline_and_its_log(site: Site) -> None:
    """Attempts stay after a retry; errors and lines are without secrets."""

    @site.app.handler("talks", max_retries=0)
    async def talk(payload: Any, job: Job) -> None:
        job.log("asks https://bob:letmein@api.example.org")
        job.log("<b>no</b> answer", "warning")
        raise PermanentError("no answer of https://bob:letmein@api.example.org")

    await site.app.queue("talks").enqueue(1, id="t")
    await Worker(site.app).drain()
    await site.act("verb=retry&queue=talks&id=t")
    await Worker(site.app).drain()
    view = await site.json("/job?queue=talks&id=t")
    assert [(row["outcome"], row["error"]) for row in view["history"]] == [
        ("failed", "PermanentError: no answer of https://•••@api.example.org")
    ] * 2
    assert [[bar["kind"] for bar in row["bars"]] for row in view["timeline"]["rows"]] == [
        ["wait", "run"], ["backoff", "run"],
    ]  # fmt: skip
    assert [(line["level"], line["text"]) for line in view["log"]] == [
        ("info", "asks https://•••@api.example.org"), ("warning", "<b>no</b> answer"),
    ] * 2  # fmt: skip
    assert "<b>no</b>" not in (await site.get("/job?queue=talks&id=t")).text
    done = await site.json("/job?queue=mail&id=done")
    assert [row["outcome"] for row in done["timeline"]["rows"]] == ["completed"]


async def test_a_worker_is_asked_to_claim_no_more_and_to_stop(site: Site) -> None:
    """Its next heartbeat gets the request; the page shows one that claims no more, and its release."""
    storage = site.app.storage
    beat = Heartbeat(host="web-1", queues=["mail"], quiet=True, release="v2").encode()
    await storage.beat("w9", 60_000, beat)
    for verb, request in (("quiet_worker", "quiet"), ("stop_worker", "stop")):
        await site.act(f"verb={verb}&id=w9")
        assert await storage.beat("w9", 60_000, beat) == request
    await site.reading()
    worker = (await site.json("/worker?id=w9"))["worker"]
    assert (worker["quiet"], worker["release"]) == (True, "v2")
    message = (await site.act("verb=quiet_worker&id=nobody"))["message"]
    assert not message["good"]
    await storage.beat("w9", 0)
