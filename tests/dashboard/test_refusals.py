"""Refused requests, logins and logouts in the activity: who is named, and how many entries a stranger can cause."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from penstock.dashboard import Dashboard, anyone, basic, hash_password, refusals, token
from penstock.dashboard.refusals import BURST, REFILL, SPAN, Refusals
from penstock.model.activity import ACTIVITY_MS, MAX_ACTIVITY, Activity
from tests.dashboard.conftest import SAME_ORIGIN, Site

TOKEN = "0123456789abcdef-admin"


@asynccontextmanager
async def client_of(site: Site, address: str = "192.0.2.7", **options: Any) -> AsyncGenerator[httpx.AsyncClient]:
    """Yield a client, with this address, of another dashboard on the storage of a site."""
    dashboard = Dashboard(site.app, **options)
    transport = httpx.ASGITransport(app=dashboard, client=(address, 1234))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=SAME_ORIGIN) as client:
        yield client
    await dashboard.close()


async def entries(site: Site) -> list[tuple[str, str, str]]:
    """Return who, verb and outcome of the entries, oldest first."""
    return [(entry.who, entry.verb, entry.outcome) for entry in reversed(list(await site.app.activity()))]


async def test_logins_failed_ones_and_logouts_are_in_the_activity(site: Site) -> None:
    """By the form, by a link and by a header; equal failures are one further entry with their number."""
    async with client_of(site, auth=token(TOKEN, name="bob")) as client:
        for _ in range(3):
            assert (await client.post("/login", data={"token": "wrong"})).status_code == 401
        assert (await client.post("/login", data={"token": TOKEN})).status_code == 303
        assert (await client.post("/logout")).status_code == 303
        assert (await client.get(f"/?token={TOKEN}")).status_code == 303
        await client.post("/logout")
        for _ in range(2):
            await client.get("/", headers={"authorization": "Bearer wrong"})
        assert (await client.post("/login", data={"token": TOKEN})).status_code == 429
        found = list(await site.app.activity())
        assert {(entry.via, entry.address) for entry in found} == {("dashboard", "192.0.2.7")}
    session = [("bob", "login", "done"), ("bob", "logout", "done")]
    failed = ("", "login", "refused: wrong token or password")
    assert await entries(site) == [
        failed, *session, *session, ("", "login", "refused: too many tries"),
        (*failed[:2], f"{failed[2]}, 4 more within a minute"),
    ]  # fmt: skip
    assert TOKEN not in str(found)


async def test_requests_without_a_viewer_or_from_another_site_are_in_the_activity(site: Site) -> None:
    """Each sort is one entry; a path that does not exist is not quoted, and GET leaves none."""
    users = {"ann": hash_password("correct horse")}
    async with client_of(site, auth=basic(users)) as client:
        await client.get("/")
        await client.post("/act?verb=retry&queue=mail&id=bad")
        await client.post("/act?verb=retry&queue=mail&id=bad", headers={"sec-fetch-site": "cross-site"})
        await client.post("/<script>", headers={"sec-fetch-site": "cross-site"})
        await client.post("/act", auth=("ann", "wrong"))
    async with client_of(site, auth=anyone("admin")) as client:
        await client.post("/act?verb=pause&queue=mail", headers={"host": "evil.example"})
    assert await entries(site) == [
        ("", "act", "refused: not logged in"), ("", "act", "refused: from another site"),
        ("", "request", "refused: from another site"), ("", "login", "refused: wrong token or password"),
        ("", "act", "refused: unknown host"),
    ]  # fmt: skip


async def test_a_theme_and_an_allowed_preview_leave_no_entry_and_a_refused_preview_does(site: Site) -> None:
    """Neither changes anything in the storage; asking for what the role may not do is recorded."""
    assert (await site.post("/theme?theme=dark")).status_code == 303
    assert (await site.post("/preview?verb=delete&queue=mail&id=bad")).status_code == 200
    assert await entries(site) == []
    await site.post("/preview?verb=delete&queue=mail&id=bad", "reader")
    assert await entries(site) == [("ann", "delete", "refused")]


async def test_strangers_with_many_addresses_do_not_push_out_other_entries(site: Site) -> None:
    """Beyond the burst they are counted: few entries, and a viewer's refused request is still one of its own."""
    await site.act("verb=pause&queue=mail")
    dashboard = Dashboard(site.app, auth=token(TOKEN))
    for n in range(2 * BURST):
        transport = httpx.ASGITransport(app=dashboard, client=(f"2001:db8::{n:x}", 1))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            assert (await client.post("/act", headers={"sec-fetch-site": "cross-site"})).status_code == 403
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=dashboard), base_url="http://localhost") as client:
        await client.post("/login", data={"token": TOKEN}, headers=SAME_ORIGIN)
    await dashboard.close()
    found = list(await site.app.activity(limit=1000))
    assert len(found) == BURST + 2
    assert {entry.verb for entry in found if entry.who} == {"pause", "login"}


def entry(address: str = "a", verb: str = "login") -> Activity:
    return Activity(who="", verb=verb, via="dashboard", outcome="refused", address=address)


class Log:
    """The entries that were written, and a clock."""

    def __init__(self) -> None:
        self.entries: list[Activity] = []
        self.now = 0.0

    async def write(self, entry: Activity) -> None:
        self.entries.append(entry)

    def clock(self) -> float:
        return self.now


async def test_refusals_without_an_entry_left_are_counted_and_written_when_there_is_one() -> None:
    """No refusal is lost: the number is in the entry that comes later, by verb and without addresses."""
    log = Log()
    bounded = Refusals(log.write, clock=log.clock)
    for n in range(BURST + 7):
        await bounded.add(entry(str(n)))
    await bounded.add(entry("0"))
    await bounded.flush()
    assert len(log.entries) == BURST
    log.now += REFILL
    await bounded.flush()
    assert [(each.address, each.outcome) for each in log.entries[BURST:]] == [
        ("", "refused, 8 times, not listed singly"),
    ]  # fmt: skip
    await bounded.close()


async def test_the_entries_of_90_days_of_refusals_leave_room_for_all_others() -> None:
    """With a new address every minute of 90 days, the entries are at most a tenth of those that the activity holds."""
    log = Log()
    bounded = Refusals(log.write, clock=log.clock)
    for n in range(ACTIVITY_MS // 60_000):
        log.now = n * SPAN
        await bounded.add(entry(str(n)))
        await bounded.flush()
    assert len(log.entries) <= MAX_ACTIVITY // 10
    await bounded.close()


async def test_sorts_of_refusals_are_bounded_too() -> None:
    """Very many verbs and viewers share one count."""
    log = Log()
    bounded = Refusals(log.write, clock=log.clock)
    for n in range(1000):
        await bounded.add(entry(verb=str(n)))
    log.now += BURST * REFILL
    await bounded.flush()
    assert len(log.entries) == BURST + refusals.MAX_SORTS + 1
    assert log.entries[-1].outcome == f"refused, {900 - refusals.MAX_SORTS} times, not listed singly"
    await bounded.close()


async def test_repeated_refusals_are_written_when_their_minute_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task writes them, and ends when nothing is counted any more."""
    monkeypatch.setattr(refusals, "SPAN", 0.001)
    log = Log()
    bounded = Refusals(log.write, clock=log.clock)
    await bounded.add(entry())
    await bounded.add(entry())
    while tasks := asyncio.all_tasks() - {asyncio.current_task()}:
        await asyncio.wait(tasks)
    assert log.entries[1].outcome == "refused, 1 more within a minute"
    await bounded.close()


async def test_a_storage_that_is_away_does_not_hold_a_login_back(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer comes without the entry."""

    async def hang(entry: Activity) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(site.app.storage, "log_activity", hang)
    monkeypatch.setattr("penstock.dashboard.app.RECORD_TIMEOUT", 0.001)
    async with client_of(site, auth=token(TOKEN)) as client:
        assert (await client.post("/login", data={"token": TOKEN})).status_code == 303
