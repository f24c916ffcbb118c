"""Roles: the table of roles and routes, cell by cell, and the changes that a reader cannot make."""

from __future__ import annotations

from penstock.dashboard.auth import ROLES, VERBS, Role, Viewer
from tests.dashboard.conftest import Site
from tests.dashboard.test_pages import PATHS

#: The query of each verb, on things that exist.
TARGETS = {
    "retry": "queue=mail&id=bad", "run_now": "queue=mail&id=later", "cancel": "queue=mail&id=waits",
    "pause": "queue=mail", "resume": "queue=mail", "trigger": "queue=mail&name=nightly",
    "pause_schedule": "queue=mail&name=nightly", "resume_schedule": "queue=mail&name=nightly",
    "quiet_worker": "id=w1", "kill": "queue=mail&id=waits", "delete": "queue=mail&id=bad",
    "edit": "queue=mail&id=later", "copy": "queue=mail&id=waits", "enqueue": "queue=mail",
    "delete_queue": "queue=mail", "stop_worker": "id=w1", "edit_schedule": "queue=mail&name=nightly",
    "remove_schedule": "queue=mail&name=nightly", "set_limit": "scope=queue&name=mail",
    "reset_limit": "scope=queue&name=mail",
}  # fmt: skip

#: Verbs that have a route of their own.
OTHER_ROUTES = {"stop_bulk": "/stop?id=x", "check": "/check"}

#: Pages that are not for every viewer.
PAGE_ROLES: dict[str, Role] = {"new": "admin"}


def test_every_verb_is_in_the_table() -> None:
    """A new verb needs a row here."""
    assert {*TARGETS, *OTHER_ROUTES, "raw"} == set(VERBS)


async def test_a_role_sees_the_pages_and_buttons_that_it_may_use(site: Site) -> None:
    """Each page answers each role, strangers with 401; it has no form for a verb that the role may not ask for."""
    await site.app.storage.beat("w1", 60_000, b"")
    for name, path in PATHS.items():
        if name == "error-group":
            continue
        assert (await site.get(path, None)).status_code == 401, name
        for role in ROLES:
            allowed = ROLES.index(role) >= ROLES.index(PAGE_ROLES.get(name, "reader"))
            page = await site.get(path, role)
            assert page.status_code == (200 if allowed else 403), (name, role)
            for verb in VERBS:
                if f"verb={verb}&" in page.text:
                    assert Viewer("x", role).may(verb), (name, role, verb)


async def test_a_role_may_ask_for_its_verbs_and_no_others(site: Site) -> None:
    """Each POST below the role of its verb is a 403, recorded, and changes nothing; with the role it is carried out."""
    queue = site.app.queue("mail")
    before = await queue.counts(), await queue.status("waits"), await queue.schedules.get("nightly")
    for verb in [*TARGETS, *OTHER_ROUTES]:
        path = OTHER_ROUTES.get(verb) or f"/act?verb={verb}&{TARGETS[verb]}"
        assert (await site.post(path, None)).status_code == 401, verb
        for role in ROLES:
            if not Viewer("x", role).may(verb):  # type: ignore[arg-type]
                assert (await site.post(path, role)).status_code == 403, (verb, role)
                asked = await site.post(path.replace("/act", "/preview"), role)
                assert asked.status_code == 403, (verb, role)
    assert (await queue.counts(), await queue.status("waits"), await queue.schedules.get("nightly")) == before
    entries = (await site.json("/activity"))["entries"]
    assert {entry["outcome"] for entry in entries if entry["who"]} == {"refused"}
    assert {entry["outcome"] for entry in entries if not entry["who"]} == {"refused: not logged in"}
    for verb, target in TARGETS.items():
        role = VERBS[verb]  # type: ignore[index]
        answer = await site.post(f"/act?verb={verb}&{target}", role)
        assert answer.status_code in (303, 400, 404), (verb, answer.text)


async def test_a_single_verb_can_be_allowed_beyond_the_role(site: Site) -> None:
    """`allow` adds verbs to a role."""
    viewer = Viewer("bob", "reader", allow=("retry",))
    assert viewer.may("retry")
    assert not viewer.may("cancel")
