"""Pages of the dashboard: HTML and view model of each, parts, and the numbers that they show."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from penstock import Entry
from penstock.dashboard import reader as reader_module
from penstock.dashboard.live import changed_topics
from penstock.dashboard.rendering import prose
from penstock.dashboard.routes import PAGES
from penstock.ops.doctor import Finding, Level
from tests.dashboard.conftest import HOSTILE_ID, HOSTILE_QUEUE, SECRET, Site
from tests.dashboard.html_checks import faults_of

#: Every page with a query that shows something.
PATHS = {
    "": "/", "queues": "/queues?order=failed", "queue": "/queue?name=mail", "jobs": "/jobs?filter=state:failed",
    "job": "/job?queue=mail&id=bad", "groups": "/groups?queue=orders", "group": "/group?queue=orders&name=customer-0",
    "workers": "/workers", "worker": "/worker?id=w1", "failures": "/failures", "error-group": "/error-group",
    "schedules": "/schedules?queue=mail&edit=nightly", "limits": "/limits?scope=queue&name=mail", "doctor": "/doctor",
    "activity": "/activity", "new": "/new?queue=mail&id=waits",
}  # fmt: skip


async def error_group_path(site: Site) -> str:
    """Return the path of the first error group."""
    group = (await site.json("/failures"))["groups"][0]
    return f"/error-group?queue={group['queue']}&key={group['key']}"


async def test_every_page_is_html_with_a_view_model_and_without_secrets(site: Site) -> None:
    """Each page answers with valid HTML and with JSON; hidden values are in neither."""
    await site.app.storage.beat("w1", 60_000, b"")
    assert PATHS.keys() == PAGES.keys()
    paths = {**PATHS, "error-group": await error_group_path(site)}
    for tab in ("jobs", "groups", "failures", "limits", "schedules"):
        paths[f"tab {tab}"] = f"/queue?name=mail&tab={tab}"
    for name, path in paths.items():
        page = await site.get(path)
        assert page.status_code == 200, (name, page.text)
        assert faults_of(page.text) == [], name
        model = await site.get(path, accept="application/json")
        assert model.status_code == 200, name
        for text in (page.text, model.text):
            assert SECRET not in text, name
            assert "letmein" not in text, name


async def test_the_overview_counts_jobs_and_names_what_needs_attention(site: Site) -> None:
    """Waiting jobs are counted over all queues; a paused queue and one without a worker have a line each."""
    await site.app.queue("orders").pause(by="ann")
    await site.reading()
    view = await site.json("/")
    assert view["numbers"]["waiting"] == 1 + 4 + 1
    lines = {(line["kind"], line["queue"]): line["text"] for line in view["attention"]}
    assert "by ann; 4 jobs wait" in lines["paused", "orders"]
    assert ("no_worker", "mail") in lines
    assert [row["failed"] for row in view["queues"] if row["name"] == "mail"] == [4]


@pytest.mark.only("memory")
async def test_warnings_of_the_doctor_need_attention(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that may drop jobs has a line on the overview, with a link to the doctor; code in it is marked there."""
    finding = Finding(Level.WARNING, "memory", "the server may drop jobs", "set `maxmemory-policy noeviction`")

    async def warnings(storage: object) -> list[Finding]:
        return [finding]

    monkeypatch.setattr(reader_module, "storage_warnings", warnings)
    view = await site.json("/")
    line = next(line for line in view["attention"] if line["kind"] == "doctor")
    assert (line["about"], line["text"], line["href"]) == ("memory", "the server may drop jobs", "/doctor")
    assert "<b>memory</b>" in (await site.get("/")).text
    assert prose("a `b<` c") == "a <code>b&lt;</code> c"
    assert prose("a ` <b>") == "a ` &lt;b&gt;"


async def test_jobs_are_found_by_filter_state_and_id(site: Site) -> None:
    """A filter selects jobs by state, error type, payload, header, group and id; the counts are those of the queue."""
    for text, ids in {
        "queue:mail state:failed": {"bad", "bad-0", "bad-1", "bad-2"},
        "type:PermanentError id:bad-1": {"bad-1"},
        "queue:mail payload.to:bob": {"waits"},
        "queue:mail payload.to:b*": {"waits"},
        "header.tenant:t1": {"waits"},
        "group:customer-1": {"o1", "o3"},
        "id:o2": {"o2"},
        'error:"no such host"': {"bad", "bad-0", "bad-1", "bad-2"},
        "after:1h state:completed": {"done"},
        "before:1h": set(),
        f'queue:"{HOSTILE_QUEUE}"': {HOSTILE_ID},
    }.items():
        view = await site.json(f"/jobs?filter={quote(text)}")
        assert not view["problem"], text
        assert {job["id"] for job in view["jobs"]} == ids, text
    assert (await site.json("/jobs?filter=queue:mail"))["counts"]["failed"] == 4


async def test_a_filter_that_cannot_be_is_explained_and_hidden_fields_are_refused(site: Site) -> None:
    """An unknown key, a wrong state and a redacted path give a sentence and no rows."""
    for text, problem in {
        "colour:red": "unknown key 'colour'",
        "state:sleeping": "state must be one of",
        f"payload.password:{SECRET}": "redacted",
        "header.authorization:x": "redacted",
        'queue:"open': "quote",
        "before:soon": "time",
    }.items():
        view = await site.json(f"/jobs?filter={quote(text)}")
        assert problem in view["problem"], text
        assert view["jobs"] == []


async def test_the_table_stays_as_it_was_when_a_filter_cannot_be(site: Site) -> None:
    """The form names the filter before, whose jobs are shown below the sentence; one that cannot be shows none."""
    before = await site.json("/jobs?filter=queue:mail+state:failed")
    assert before["jobs"]
    view = await site.json("/jobs?filter=colour:red&last=queue:mail+state:failed")
    assert "unknown key 'colour'" in view["problem"]
    assert (view["filter"], view["applied"]) == ("colour:red", "queue:mail state:failed")
    assert [job["id"] for job in view["jobs"]] == [job["id"] for job in before["jobs"]]
    assert (await site.json("/jobs?filter=colour:red&last="))["jobs"]
    assert (await site.json("/jobs?filter=colour:red&last=shape:round"))["jobs"] == []
    page = await site.get("/jobs?filter=queue:mail+state:failed")
    assert '<input type="hidden" name="last" value="queue:mail state:failed">' in page.text


async def test_no_search_finds_a_hidden_value(site: Site) -> None:
    """Free words and paths above a hidden field see what the page shows, and so does the message of an error."""
    for text in (SECRET, f"payload.to:ann {SECRET}", "error:letmein", "result.token:h*", "letmein"):
        view = await site.json(f"/jobs?filter={quote(text)}")
        assert view["jobs"] == [], text
    assert [job["id"] for job in (await site.json("/jobs?filter=queue:mail+bob"))["jobs"]] == ["waits"]


async def test_a_walk_ends_after_2000_records_and_goes_on(site: Site) -> None:
    """A search that no index answers goes in steps of 2 000 records, with a link that goes on where it ended."""
    await site.app.queue("big").enqueue_many([{"n": n} for n in range(2_200)])
    await site.reading()
    first = await site.json("/jobs?filter=queue:big+payload.n:2150")
    assert (first["walked"], first["jobs"]) == (2_000, [])
    second = await site.json(first["after_link"])
    assert [job["payload"] for job in second["jobs"]] == ['{"n": 2150}']
    paged = await site.json("/jobs?filter=queue:big")
    again = await site.json(paged["after_link"])
    seen = [job["id"] for job in paged["jobs"] + again["jobs"]]
    assert len(set(seen)) == 100


async def test_the_newest_jobs_of_all_queues_are_listed_unless_a_queue_is_named(site: Site) -> None:
    """Jobs that were enqueued last come first over all queues; the link turns the order round, and pages keep it."""
    before = await site.app.storage.time()
    while await site.app.storage.time() == before:  # a millisecond is the unit of time
        pass
    await site.app.queue("zebra").enqueue_many([Entry(n, id=f"z{n:02}") for n in range(60)])
    await site.reading()
    view = await site.json("/jobs?filter=state:queued")
    assert {job["queue"] for job in view["jobs"]} == {"zebra"}
    assert view["newest"]
    rest = await site.json(view["after_link"])
    assert {job["queue"] for job in rest["jobs"]} == {"zebra", "mail", "orders", HOSTILE_QUEUE}
    oldest = await site.json(view["order_link"])
    assert not oldest["newest"]
    assert oldest["jobs"][0]["queue"] != "zebra"
    assert not (await site.json("/jobs?filter=queue:zebra"))["newest"]
    assert (await site.json("/jobs?filter=queue:zebra&newest=1"))["jobs"][0]["id"] == "z59"


async def test_the_job_page_shows_error_payload_and_possible_actions(site: Site) -> None:
    """A failed job has its sentence, its error and hidden values; actions fit the state and the role."""
    view = await site.json("/job?queue=mail&id=bad")
    assert view["why"].startswith("It failed for good")
    assert "PermanentError" in view["why"]
    assert view["error"]["message"] == "no such host at https://•••@mail.example.org"
    assert (view["can"]["retry"], view["can"]["cancel"], view["can"]["edit"]) == (True, False, False)
    waits = await site.json("/job?queue=mail&id=waits")
    assert waits["headers"] == {"authorization": "•••", "tenant": "t1"}
    assert '"password": "•••"' in waits["payload"]["text"]
    assert waits["can"]["edit"]
    assert waits["can"]["cancel"]
    done = await site.json("/job?queue=mail&id=done")
    assert '"token": "•••"' in done["result"]["text"]
    missing = await site.get("/job?queue=mail&id=nothing")
    assert missing.status_code == 404


async def test_a_raw_payload_is_for_admins(site: Site) -> None:
    """The bytes of a payload are sent to admins alone, as a download."""
    raw = await site.get("/payload?queue=mail&id=waits")
    assert SECRET in raw.text
    assert raw.headers["content-disposition"].startswith("attachment")
    assert (await site.get("/payload?queue=mail&id=waits", "operator")).status_code == 403


async def test_parts_of_a_page_are_sent_alone(site: Site) -> None:
    """A request that names parts gets these, and nothing of the rest."""
    answer = await site.get("/", x_penstock_part="numbers,status,nothing")
    assert answer.text.count("data-part=") == 2
    assert "<html" not in answer.text


async def test_history_gives_series_and_refuses_nothing(site: Site) -> None:
    """The series of a chart are columns of one length for each span; an unknown span is the shortest."""
    for span in ("2h", "2d", "14d", "nonsense"):
        answer = await site.json(f"/history?queue=mail&span={span}")
        assert len({len(column) for column in answer["series"].values()}) == 1
    assert (await site.json("/history?span=14d"))["step"] == 60


async def test_only_topics_whose_counters_changed_are_named(site: Site) -> None:
    """A new job changes the queues, and nothing else."""
    before = await site.reading()
    await site.app.queue("orders").enqueue({"n": 9})
    after = await site.reading()
    assert "queues" in changed_topics(before, after)
    assert "workers" not in changed_topics(before, after)
