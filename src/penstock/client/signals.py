"""Signals: values that are sent to jobs, whose handlers wait for them."""

from __future__ import annotations

from typing import Any

from penstock.host import AppHost
from penstock.model.flow import SignalStatus
from penstock.model.ids import check_name
from penstock.model.serde import encode
from penstock.storage.flowing import need_flowing

__all__ = ["SignalSender"]


class SignalSender:
    """The part of a queue that sends signals to its jobs."""

    name: str
    _host: AppHost

    async def signal(self, id: str, name: str, value: Any = None) -> SignalStatus:
        """Send a signal to a job, which its handler reads by `job.signal(name)`; returns what became of it.

        "delivered": the job waited for it. "kept": it is there for a later wait, also before the first run. "full":
        there are 1,000 unread ones. "finished" and "not_found": there is no such job any more.
        """
        check_name(id, "id")
        check_name(name, "name")
        data = encode(self._host.codec(self.name).result_for(id), value, "value of a signal")
        return await need_flowing(await self._host.opened()).signal(self.name, id, name, data)
