"""The calls of a queue that concern flows most: signals, retries, and what is recorded with durable jobs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from penstock.aio import refused_in_plain_handlers
from penstock.client.answers import Page
from penstock.client.flow_answers import Checkpoint, Child, Signalled, as_number, checkpoint_of, children_of
from penstock.client.queue_reader import as_state
from penstock.errors import InvalidPayload
from penstock.host import AppHost
from penstock.model.checks import check_flag, check_page
from penstock.model.ids import check_name, family_of
from penstock.model.job import State, StateName
from penstock.model.serde import encode
from penstock.storage.base import MAX_BATCH
from penstock.storage.flowing import need_flowing, relay_family

__all__ = ["FlowCalls"]


@refused_in_plain_handlers(lambda queue: queue._host.driven)
class FlowCalls:
    """The part of a queue that retries its jobs, sends signals to them, and shows journals and children."""

    name: str
    _host: AppHost

    async def retry(self, ids: str | Iterable[str], *, completed: bool = False, fresh: bool = False) -> int:
        """Enqueue failed or cancelled jobs again with all counts zero; returns the number of jobs revived.

        With `completed=True` completed jobs too: they run once more, and their results are dropped. With `fresh=True`
        what their runs have recorded is forgotten. A flow runs its failed and cancelled children again.
        """
        check_flag(completed, "completed")
        check_flag(fresh, "fresh")
        wanted = [check_name(id, "ids") for id in ([ids] if isinstance(ids, str) else ids)]
        storage = await self._host.opened()
        revived = 0
        for at in range(0, len(wanted), MAX_BATCH):
            chunk = wanted[at : at + MAX_BATCH]
            more = (True,) if fresh else ()
            for id, done in zip(chunk, await storage.revive(self.name, chunk, completed, *more), strict=True):
                if done:
                    revived += 1
                    self._host.emit("enqueued", queue=self.name, id=id)
        await relay_family(storage, family_of(self.name))
        return revived

    async def signal(self, id: str, name: str, value: Any = None) -> Signalled:
        """Send a signal to a job, which its handler reads by `job.signal(name)`; true if the job got or will get it."""
        check_name(id, "id")
        check_name(name, "name")
        data = encode(self._host.codec(self.name).result_for(id), value, "value of a signal")
        if len(data) > self._host.max_payload:
            raise InvalidPayload(
                f"the value of signal {name!r} is {len(data)} bytes, more than max_payload ({self._host.max_payload}): "
                "send a reference to it"
            )
        answer = Signalled(await need_flowing(await self._host.opened()).signal(self.name, id, name, data))
        if answer:
            self._host.emit("signalled", queue=self.name, id=id)
        if answer is Signalled.DELIVERED:
            self._host.emit("resumed", queue=self.name, id=id)
        return answer

    async def journal(self, id: str) -> list[Checkpoint]:
        """Return what the runs of a job have recorded, oldest first; none if there is no such job."""
        check_name(id, "id")
        flows = need_flowing(await self._host.opened())
        serde = self._host.codec(self.name).result_for(id)
        found: list[Checkpoint] = []
        after, more = 0, True
        while more:
            page = await flows.read_journal(self.name, id, after)
            for each in () if page is None else page.checkpoints:
                found.append(checkpoint_of(each, serde))
                after = each.n
            more = page is not None and page.more
        return found

    async def children(
        self, id: str, state: State | StateName | None = None, after: str | None = None, limit: int = 100
    ) -> Page[Child]:
        """Return a page of the children of a job, of one state or of all; `after` is the cursor of the page before."""
        check_name(id, "id")
        check_page(after, limit, most=MAX_BATCH)
        wanted = None if state is None else as_state(state)
        storage = await self._host.opened()
        [snapshot] = await storage.get(self.name, [id])
        part = None if snapshot is None else snapshot.flow
        if part is None:
            return Page()
        first = 0 if part.plan else part.needs
        at = first - 1 if after is None else max(as_number(after), first - 1)
        found: list[Child] = []
        while True:
            page = await need_flowing(storage).dependencies(self.name, id, at, limit)
            entries = [] if page is None else page.dependencies
            for entry, child in zip(entries, await children_of(self._host, storage, entries), strict=True):
                at = entry.number
                if wanted is None or child.state is wanted:
                    found.append(child)
                if len(found) == limit:
                    last = page is not None and not page.more and entry is entries[-1]
                    return Page(found, None if last else str(at))
            if page is None or not page.more:
                return Page(found)
