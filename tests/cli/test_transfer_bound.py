"""Export and import of signed and encrypted jobs, which are bound to their namespace and queue."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest

from penstock import Encrypted, Failure, Penstock, Signed, Worker
from penstock.ops.export import LeftOut, export_jobs, import_jobs
from tests.cli.conftest import Cli, on_sqlite

KEY = Encrypted.new_key()
Bind = Literal["queue", "job"]


class Seen:
    """The payloads that handlers and fail handlers got, by queue."""

    def __init__(self) -> None:
        self.payloads: list[tuple[str, Any]] = []

    def handler(self, queue: str) -> Callable[[Any], Any]:
        def handle(payload: Any) -> Any:
            self.payloads.append((queue, payload))
            if payload == "bad":
                raise ValueError("no")
            return payload

        return handle

    def failed(self, failure: Failure) -> None:
        self.payloads.append(("failed", failure.payload))


def app_in(namespace: str, kind: type[Any], bind: Bind, seen: Seen, key: str = KEY) -> Penstock:
    """Return an app in memory with two queues, of which the first has a fail handler."""
    app = Penstock("memory:", namespace=namespace, serde=kind("json", key, bind=bind))
    app.listen("first", seen.handler("first"), on_failure=seen.failed, max_retries=0)
    app.listen("second", seen.handler("second"))
    return app


async def exported(app: Penstock) -> list[bytes]:
    return [line async for line in export_jobs(app, await app.queues(), LeftOut())]


async def imported(app: Penstock, lines: list[bytes], queue: str | None = None) -> int:
    reports = [report async for report in import_jobs(app, lines, queue)]
    return reports[-1].stored.total()


async def filled(app: Penstock) -> list[bytes]:
    """Complete a job, fail one, leave its fail job and another job waiting; returns the export."""
    await app.queue("first").enqueue("done", id="done")
    await app.queue("first").enqueue("bad", id="bad")
    await app.queue("first/failures").pause()
    await Worker(app).drain()
    await app.queue("first").enqueue("waiting", id="waiting")
    return await exported(app)


@pytest.mark.parametrize("kind", [Signed, Encrypted])
@pytest.mark.parametrize("bind", ["queue", "job"])
@pytest.mark.parametrize("namespace", ["here", "elsewhere"])
async def test_protected_jobs_are_imported_into_any_namespace_by_an_app_with_their_keys(
    kind: type[Any], bind: Bind, namespace: str
) -> None:
    """Payloads, results and fail jobs are opened in the namespace of the import."""
    before, after = Seen(), Seen()
    async with app_in("here", kind, bind, before) as source:
        lines = await filled(source)
    async with app_in(namespace, kind, bind, after) as target:
        assert await imported(target, lines) == 4
        assert await target.queue("first").result("done") == "done"
        assert {job.payload for job in await target.queue("first").find()} == {"done", "bad", "waiting"}
        await Worker(target).drain()
        assert sorted(after.payloads) == [("failed", "bad"), ("first", "waiting")]


@pytest.mark.parametrize("kind", [Signed, Encrypted])
async def test_protected_jobs_are_imported_into_another_queue_by_an_app_with_their_keys(kind: type[Any]) -> None:
    """With another queue each payload and result is bound to that queue."""
    seen = Seen()
    async with app_in("here", kind, "queue", seen) as app:
        await app.queue("first").enqueue("done", id="done")
        await Worker(app).drain()
        await app.queue("first").enqueue("waiting", id="waiting")
        assert await imported(app, await exported(app), "second") == 2
        await app.queue("first").delete()
        await Worker(app).drain()
        assert await app.queue("second").result("done") == "done"
        assert seen.payloads == [("first", "done"), ("second", "waiting")]


@pytest.mark.parametrize("kind", [Signed, Encrypted])
async def test_an_import_without_the_keys_stores_no_protected_job(kind: type[Any]) -> None:
    """An app without keys imports jobs into their own namespace as they are; elsewhere it and other keys refuse."""
    async with app_in("here", kind, "queue", Seen()) as source:
        await source.queue("first").enqueue("waiting", id="a")
        waiting = await exported(source)
        fails = await filled(source)
    async with Penstock("memory:", namespace="here") as keyless:
        assert await imported(keyless, fails) == 5
    for lines, queue in ((waiting, None), (waiting, "second")):
        async with Penstock("memory:", namespace="elsewhere") as keyless:
            with pytest.raises(ValueError, match="the payload of job 'a' is signed or encrypted for queue 'first'"):
                await imported(keyless, lines, queue)
            assert await keyless.queues() == []
    fail_jobs = [line for line in fails if b'"first/failures"' in line]
    assert len(fail_jobs) == 2  # the header names the queue too
    async with Penstock("memory:", namespace="elsewhere") as keyless:
        with pytest.raises(ValueError, match="is signed or encrypted for queue 'first/failures'"):
            await imported(keyless, fail_jobs)
        assert await keyless.queues() == []
    async with app_in("elsewhere", kind, "queue", Seen(), Encrypted.new_key()) as other:
        with pytest.raises(ValueError, match="the payload of job 'a' in queue 'first' cannot be opened"):
            await imported(other, waiting)
        assert await other.queues() == []


async def test_encrypted_jobs_are_not_imported_in_clear() -> None:
    """A queue without encryption refuses jobs of an encrypted one, though the app has their key."""
    async with app_in("here", Encrypted, "queue", Seen()) as app:
        app.queue("plain", serde="json")
        await app.queue("first").enqueue("secret", id="a")
        with pytest.raises(ValueError, match="an app that has keys for both queues"):
            await imported(app, await exported(app), "plain")


@pytest.mark.parametrize("kind", [Signed, Encrypted])
async def test_a_line_changed_to_another_queue_is_refused(kind: type[Any]) -> None:
    """A line of `first` that was changed to `second` cannot be opened there, in the same namespace or another."""
    seen = Seen()
    async with app_in("here", kind, "queue", seen) as app:
        await app.queue("first").enqueue("small", id="a")
        changed = [line.replace(b'"first"', b'"second"') for line in await exported(app)]
        await app.queue("first").delete()
        assert await imported(app, changed) == 1
        await Worker(app).drain()
        assert seen.payloads == []
    async with app_in("elsewhere", kind, "queue", seen) as app:
        with pytest.raises(ValueError, match="cannot be opened"):
            await imported(app, changed)


async def test_plain_jobs_move_between_namespaces_and_queues_as_before() -> None:
    """Jobs that are not protected need no keys, and their bytes stay as they are."""
    seen = Seen()
    async with Penstock("memory:", namespace="here") as source:
        source.listen("first", seen.handler("first"), on_failure=seen.failed, max_retries=0)
        lines = await filled(source)
    async with Penstock("memory:", namespace="elsewhere") as target:
        assert await imported(target, lines) == 4
        waiting = [line for line in lines if b'"waiting"' in line or b"penstock_export" in line]
        assert await imported(target, waiting, "new") == 1
        assert await target.queue("first").result("done") == "done"
        [job] = await target.queue("new").find()
        assert job.payload == "waiting"


@on_sqlite
def test_the_command_names_the_way_out(cli: Cli, tmp_path: Path) -> None:
    """`penstock import` with a URL refuses encrypted jobs of another namespace, and takes them with the app."""
    other = f"sqlite:{tmp_path / 'other.db'}"
    (cli.directory / "bound_jobs.py").write_text(
        f"from penstock import Encrypted, Penstock\n"
        f"app = Penstock({other!r}, namespace='elsewhere', serde=Encrypted('json', {KEY!r}))\n"
    )

    async def fill(app: Penstock) -> None:
        await app.queue("q", serde=Encrypted("json", KEY)).enqueue("secret", id="a")

    cli.do(fill)
    data = cli.run("export").stdout_bytes
    assert json.loads(data.splitlines()[0])["namespace"] == cli.namespace
    assert cli.fails("import", "--url", other, "--namespace", "elsewhere", stdin=data, code=2) == (
        "Error: stdin: the payload of job 'a' is signed or encrypted for queue 'q' in namespace "
        f"{cli.namespace!r}; import it there, or with --app and an app that has keys for both queues"
    )
    assert "imported 1 job" in cli.ok("import", "--app", "bound_jobs:app", stdin=data, PENSTOCK_URL=None)
    assert cli.json("job", "show", "q", "a", "--app", "bound_jobs:app")["payload"] == "secret"
