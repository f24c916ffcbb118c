"""The calls of a queue that concern flows most: signals to jobs, and retries, which revive children too."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from penstock.aio import refused_in_plain_handlers
from penstock.host import AppHost
from penstock.model.flow import SignalStatus
from penstock.model.ids import check_name, family_of
from penstock.model.serde import encode
from penstock.storage.base import MAX_BATCH
from penstock.storage.flowing import need_flowing, relay_family

__all__ = ["FlowCalls"]


@refused_in_plain_handlers(lambda queue: queue._host.driven)
class FlowCalls:
    """The part of a queue that retries its jobs and sends signals to them."""

    name: str
    _host: AppHost

    async def retry(self, ids: str | Iterable[str], *, completed: bool = False, fresh: bool = False) -> int:
        """Enqueue failed or cancelled jobs again with all counts zero; returns the number of jobs revived.

        With `completed=True` completed jobs too: they run once more, and their results are dropped. With `fresh=True`
        what their runs have recorded is forgotten. A flow runs its failed and cancelled children again.
        """
        if not isinstance(completed, bool):
            raise TypeError(f"completed must be True or False, not {type(completed).__name__}")
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

    async def signal(self, id: str, name: str, value: Any = None) -> SignalStatus:
        """Send a signal to a job, which its handler reads by `job.signal(name)`; returns what became of it.

        "delivered": the job waited for it. "kept": it is there for a later wait, also before the first run. "full":
        there are 1,000 unread ones. "finished" and "not_found": there is no such job any more.
        """
        check_name(id, "id")
        check_name(name, "name")
        data = encode(self._host.codec(self.name).result_for(id), value, "value of a signal")
        return await need_flowing(await self._host.opened()).signal(self.name, id, name, data)
