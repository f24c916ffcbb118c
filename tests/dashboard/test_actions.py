"""Actions: each verb changes what it names, leaves an entry in the activity, and answers with a message."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from penstock.client import bulk
from penstock.dashboard.bulk_tasks import end_all, wait_all
from penstock.model.job import State
from tests.dashboard.conftest import HOSTILE_ID, HOSTILE_QUEUE, SECRET, Site


async def test_jobs_are_retried_run_now_cancelled_and_deleted(site: Site) -> None:
    """Single actions take effect at once, and the activity names the viewer."""
    await site.act("verb=retry&queue=mail&id=bad")
    assert await site.state("mail", "bad") is State.QUEUED
    await site.act("verb=run_now&queue=mail&id=later")
    assert await site.state("mail", "later") is State.QUEUED
    await site.act("verb=cancel&queue=mail&id=waits")
    assert await site.state("mail", "waits") is State.CANCELLED
    await site.act("verb=delete&queue=mail&id=bad-0")
    assert await site.state("mail", "bad-0") is None
    entries = (await site.json("/activity"))["entries"]
    assert [entry["verb"] for entry in entries] == ["delete", "cancel", "run_now", "retry"]
    assert {entry["who"] for entry in entries} == {"ann"}
    assert [each["verb"] for each in (await site.json("/job?queue=mail&id=bad"))["activity"]] == ["retry"]


async def test_hostile_names_are_targets_like_any_other(site: Site) -> None:
    """A job whose queue and id have slashes, quotes, newlines and NUL is cancelled, and no other."""
    target = f"queue={quote(HOSTILE_QUEUE, safe='')}&id={quote(HOSTILE_ID, safe='')}"
    await site.act(f"verb=cancel&{target}")
    assert await site.state(HOSTILE_QUEUE, HOSTILE_ID) is State.CANCELLED
    assert await site.state("mail", "waits") is State.QUEUED
    data = {"ids": f"{quote(HOSTILE_QUEUE, safe='')}/{quote(HOSTILE_ID, safe='')}"}
    asked = (await site.post("/preview?bulk=1&verb=retry", data=data, accept="application/json")).json()
    await site.act(asked["action"].partition("?")[2], asked["fields"])
    assert await site.state(HOSTILE_QUEUE, HOSTILE_ID) is State.QUEUED


async def test_pause_and_resume_offer_undo(site: Site) -> None:
    """A pause names its viewer, and its message has the address that takes it back."""
    message = (await site.act("verb=pause&queue=mail"))["message"]
    assert (await site.json("/queue?name=mail"))["pause"]["by"] == "ann"
    await site.act(message["undo"].partition("?")[2])
    assert (await site.json("/queue?name=mail"))["pause"] is None
    await site.act("verb=pause&queue=orders&group=customer-1")
    assert (await site.json("/group?queue=orders&name=customer-1"))["paused_by"] == "ann"


async def test_a_job_is_edited_and_copied_with_its_hidden_values(site: Site) -> None:
    """A hidden value that is left as it is stays the same; the handler's annotation is checked."""
    form = {"payload": '{"to": "carl", "password": "•••"}', "run_at": ""}
    await site.act("verb=edit&queue=mail&id=waits", form)
    status = await site.app.queue("mail").status("waits")
    assert status is not None
    assert status.payload == {"to": "carl", "password": SECRET}
    assert status.headers == {"authorization": SECRET, "tenant": "t1"}
    goto = (await site.act("verb=copy&queue=mail&id=waits", form))["goto"]
    copied = await site.app.queue("mail").status(goto.rpartition("id=")[2])
    assert copied is not None
    assert copied.payload["password"] == SECRET
    for payload, problem in {"[1]": "would not accept", "{": "no JSON"}.items():
        answer = await site.post("/act?verb=enqueue&queue=mail", data={"payload": payload}, accept="application/json")
        assert answer.status_code == 400, payload
        assert problem in answer.json()["error"], payload


async def test_a_queue_is_deleted_only_if_its_name_is_typed(site: Site) -> None:
    """A wrong name does nothing."""
    wrong = await site.post("/act?verb=delete_queue&queue=orders", data={"confirm": "order"})
    assert wrong.status_code == 400
    assert (await site.app.queue("orders").counts())[State.QUEUED] == 4
    asked = (await site.post("/preview?verb=delete_queue&queue=orders", accept="application/json")).json()
    assert asked["confirm"] == "orders"
    assert "4 jobs" in asked["text"]
    await site.act("verb=delete_queue&queue=orders", {"confirm": "orders"})
    assert (await site.app.queue("orders").counts())[State.QUEUED] == 0


async def test_schedules_and_limits_are_changed(site: Site) -> None:
    """A schedule is paused, changed and triggered; a limit is changed and reset."""
    schedules = site.app.queue("mail").schedules
    await site.act("verb=pause_schedule&queue=mail&name=nightly")
    await site.act("verb=edit_schedule&queue=mail&name=nightly", {"when": "0 4 * * *", "zone": "Europe/Berlin"})
    await site.act("verb=trigger&queue=mail&name=nightly")
    info = await schedules.get("nightly")
    assert info is not None
    assert info.paused_since is not None
    assert "0 4" in str(info.when)
    await site.act("verb=set_limit&scope=queue&name=mail", {"concurrency": "7", "rate": "", "burst": ""})
    limit = (await site.app.queue("mail").limit()).limit
    assert limit is not None
    assert (limit.concurrency, limit.rate) == (7, None)
    await site.act("verb=reset_limit&scope=queue&name=mail")
    bad = await site.post("/act?verb=set_limit&scope=queue&name=mail", data={"rate": "fast"})
    assert bad.status_code == 400


async def test_a_bulk_action_is_previewed_delayed_and_leaves_out_newer_jobs(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All failed jobs of a queue are retried after the delay; a job that failed after the preview is not."""
    monkeypatch.setattr(bulk, "DELAY", 0.05)
    asked = (await site.post("/preview?bulk=1&verb=retry&queue=mail&state=failed", accept="application/json")).json()
    assert asked["title"] == "Retry 4 jobs?"
    assert len(asked["samples"]) == 4
    assert SECRET not in str(asked)
    fields = {**asked["fields"]}
    await site.act(asked["action"].partition("?")[2], fields)
    await wait_all()
    view = await site.json("/activity")
    [row] = view["bulk"]
    assert (row["state"], row["done"], row["total"]) == ("done", 4, 4)
    assert (await site.app.queue("mail").counts())[State.FAILED] == 0


async def test_too_many_selected_jobs_are_refused_and_none_is_left_out(site: Site) -> None:
    """One request names at most 1 000 jobs: with one more nothing is changed, and the answer has the reason."""
    selected = " ".join(["mail/bad", *(f"mail/none-{n}" for n in range(1_000))])
    answer = await site.post("/act?verb=retry&bulk=1", data={"selected": selected}, accept="application/json")
    assert answer.status_code == 400
    assert "jobs are selected" in answer.json()["error"]
    assert await site.state("mail", "bad") is State.FAILED


async def test_an_action_on_a_job_that_is_gone_is_in_the_activity(site: Site) -> None:
    """The answer is a 404, and the entry has the reason."""
    answer = await site.post("/act?verb=edit&queue=mail&id=gone", data={"payload": "{}"})
    assert answer.status_code == 404
    entry = (await site.json("/activity"))["entries"][0]
    assert entry["verb"] == "edit"
    assert "no job" in entry["outcome"]


async def test_a_bulk_action_is_undone_before_its_start(site: Site) -> None:
    """Undo within the delay changes nothing, and the activity has both."""
    asked = (await site.post("/preview?bulk=1&verb=delete&queue=mail&state=failed", accept="application/json")).json()
    message = (await site.act(asked["action"].partition("?")[2], asked["fields"]))["message"]
    undone = await site.post(message["undo"], accept="application/json")
    assert "Undone" in undone.json()["message"]["text"]
    view = await site.json("/activity")
    assert [row["state"] for row in view["bulk"]] == ["undone"]
    assert next(entry["outcome"] for entry in view["entries"]) == "undone"
    assert (await site.app.queue("mail").counts())[State.FAILED] == 4
    await end_all()
