"""View models of all pages, as JSON, on every kind of storage: the same facts wherever the jobs are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock.dashboard.routes import PAGES
from penstock.model.worker_info import Heartbeat, RunSummary
from tests.dashboard.conftest import HOSTILE_QUEUE, Site
from tests.support import STORAGES

KEY = "{key}"

#: The path of each page, and facts of its view model.
MODELS: dict[str, tuple[str, Callable[[Any], Any], Any]] = {
    "": ("/", lambda view: (view["numbers"]["waiting"], view["numbers"]["workers"], view["charts"]), (6, 1, True)),
    "queues": (
        "/queues",
        lambda view: [(row["name"], row["waiting"], row["failed"], row["workers"]) for row in view["queues"]],
        [(HOSTILE_QUEUE, 1, 0, []), ("mail", 1, 4, ["w1"]), ("orders", 4, 0, [])],
    ),
    "queue": (
        "/queue?name=mail",
        lambda view: (view["row"]["counts"]["completed"], view["next"]["id"], view["workers"][0]["id"]),
        (1, "waits", "w1"),
    ),
    "jobs": (
        "/jobs?filter=queue:mail+state:failed",
        lambda view: (sorted(job["id"] for job in view["jobs"]), view["counts"]["failed"], view["total"]),
        (["bad", "bad-0", "bad-1", "bad-2"], 4, 4),
    ),
    "job": (
        "/job?queue=mail&id=bad",
        lambda view: (view["state"], view["error"]["type"], len(view["history"]), view["can"]["retry"]),
        ("failed", "PermanentError", 1, True),
    ),
    "groups": (
        "/groups?queue=orders",
        lambda view: [(group["name"], group["head"], group["waiting"]) for group in view["groups"]],
        [("customer-0", "o0", 2), ("customer-1", "o1", 2)],
    ),
    "group": (
        "/group?queue=orders&name=customer-1",
        lambda view: ([job["id"] for job in view["jobs"]], view["complete"]),
        (["o1", "o3"], True),
    ),
    "workers": (
        "/workers",
        lambda view: [(worker["id"], worker["host"], worker["busy"], worker["release"]) for worker in view["workers"]],
        [("w1", "web-1", 3, "v7")],
    ),
    "worker": (
        "/worker?id=w1",
        lambda view: [(run["queue"], run["id"], run["attempt"]) for run in view["runs"]],
        [("mail", "r1", 2)],
    ),
    "failures": (
        "/failures",
        lambda view: [(group["type"], group["queue"], group["open"], group["count"]) for group in view["groups"]],
        [("PermanentError", "mail", 4, 4)],
    ),
    "error-group": (
        f"/error-group?queue=mail&key={KEY}",
        lambda view: (len(view["jobs"]), view["group"]["open"], view["sample"]["type"]),
        (4, 4, "PermanentError"),
    ),
    "schedules": (
        "/schedules",
        lambda view: [(row["queue"], row["name"], row["given"], row["source"]) for row in view["schedules"]],
        [("mail", "nightly", "0 3 * * *", "api")],
    ),
    "limits": (
        "/limits",
        lambda view: [(row["scope"], row["name"], row["words"], row["running"]) for row in view["limits"]],
        [("queue", "mail", "5 at once, 100/s, burst 50", 0)],
    ),
    "doctor": (
        "/doctor",
        lambda view: (view["checked"], {"workers", "queues"} <= {each["about"] for each in view["findings"]}),
        (False, True),
    ),
    "activity": (
        "/activity",
        lambda view: [(entry["verb"], entry["queue"], entry["outcome"]) for entry in view["entries"]],
        [("pause", "orders", "done")],
    ),
    "new": (
        "/new?queue=mail&id=waits",
        lambda view: (view["handler"][-4:], "object" in view["schema"], "•••" in view["payload"], view["copy_of"]),
        ("send", True, True, "waits"),
    ),
}  # fmt: skip


def test_every_page_is_in_the_table() -> None:
    """A new page needs a row here."""
    assert MODELS.keys() == PAGES.keys()


@pytest.mark.only(*STORAGES)
async def test_the_view_models_are_the_same_on_every_storage(site: Site) -> None:
    """Each page answers with JSON that has the facts of the seeded jobs."""
    runs = [RunSummary("mail", "r1", 2, 500)]
    beat = Heartbeat(host="web-1", pid=7, queues=["mail"], capacity=10, busy=3, running=1, runs=runs, release="v7")
    await site.app.storage.beat("w1", 60_000, beat.encode())
    await site.act("verb=pause&queue=orders")
    await site.reading()
    key = (await site.json("/failures"))["groups"][0]["key"]
    for name, (path, facts, expected) in MODELS.items():
        assert facts(await site.json(path.replace(KEY, key))) == expected, name
    await site.app.storage.beat("w1", 0)
