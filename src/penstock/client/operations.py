"""The methods of an app for its operators: activity, bulk actions, releases, requests to workers, captured logs."""

from __future__ import annotations

import logging
from typing import cast

from msgspec.structs import replace

from penstock.client.answers import Page
from penstock.client.bulk import Bulk, stop_bulk
from penstock.host import AppHost
from penstock.model.activity import MAX_RELEASE_NAME, Activity, BulkAction, BulkVerb, Release, WorkerRequest
from penstock.model.checks import check_page, check_whole
from penstock.model.ids import check_name
from penstock.model.log_capture import capture
from penstock.storage.auditing import need_auditing
from penstock.storage.base import Storage

__all__ = ["Operations"]


class Operations:
    """The part of an app that operators use."""

    async def opened(self) -> Storage:
        """Return the storage for producers, opened."""
        raise NotImplementedError

    async def activity(
        self, queue: str | None = None, id: str | None = None, after: str | None = None, limit: int = 100
    ) -> Page[Activity]:
        """Return a page of the audit log, newest first: of all, of one queue, or of one job of it.

        The command line and the dashboard write it. It keeps 10,000 entries for 90 days; payloads are in none.
        """
        if id is not None and queue is None:
            raise ValueError("id needs queue: ids are unique within their queue")
        check_page(after, limit)
        page = await need_auditing(await self.opened()).activity(queue, id, after, limit)
        return Page(page.entries, page.cursor)

    def bulk(self, verb: BulkVerb, filter: str, *, who: str | None = None) -> Bulk:
        """Return an action on all jobs that fit a filter: "retry", "cancel", "run_now" or "delete".

        Nothing changes before it is run.
        `await bulk.preview()` counts the jobs, `await bulk.run()` changes them. A filter has words `key:value` such as
        `queue:mail state:failed type:ConnectionError payload.to:"ann"`, all of which must fit; `ValueError` if it is
        wrong. `who` is the name in the activity, by default that of the user of this process.
        """
        return Bulk(cast("AppHost", self), verb, filter, who=who)

    async def bulk_actions(self, limit: int = 100) -> list[BulkAction]:
        """Return the bulk actions of all processes that were changed in the last day, those that start last first.

        One whose process has not changed the record for a minute has the state "stopped".
        """
        check_whole(limit, "limit", least=1)
        storage = await self.opened()
        found, now = await need_auditing(storage).bulk_actions(limit), await storage.time()
        return [replace(action, state=action.state_at(now)) for action in found]

    async def stop_bulk(self, id: str) -> BulkAction | None:
        """Stop a bulk action of any process before its next step; returns its record, None if there is none.

        One that has not begun is "undone", and changes nothing. One that has ended stays as it is.
        """
        check_name(id, "id")
        return await stop_bulk(cast("AppHost", self), id)

    async def add_release(self, name: str) -> bool:
        """Note that a release begins now, for charts and failures; False if one of this name is noted already.

        Workers note the value of `PENSTOCK_RELEASE` when they start.
        """
        check_name(name, "name")
        if len(name) > MAX_RELEASE_NAME:
            raise ValueError(f"name must have at most {MAX_RELEASE_NAME} characters, not {len(name)}")
        return await need_auditing(await self.opened()).add_release(name)

    async def releases(self) -> list[Release]:
        """Return the last 50 releases, newest first."""
        return await need_auditing(await self.opened()).releases()

    async def ask_worker(self, id: str, request: WorkerRequest) -> bool:
        """Ask a worker to claim no more jobs ("quiet"), or to stop as after SIGTERM; False if there is no such worker.

        A worker with runs gets the request at once, an idle one with its next heartbeat, within 10 seconds.
        """
        check_name(id, "id")
        if request not in ("quiet", "stop"):
            raise ValueError(f"request must be 'quiet' or 'stop', not {request!r}")
        return await need_auditing(await self.opened()).ask_worker(id, request)

    def capture_logs(self, logger: logging.Logger | str | None = None, level: int | str = "INFO") -> None:
        """Keep what the code of a handler logs with its job: see `Queue.log`.

        `logger` is the logger whose records are kept, with those of its children; None for all. A logger that would
        drop records of this level gets this level. Call it where handlers are declared, so that every process of a
        worker does.
        """
        capture(logger, level)
