"""The limits that the code of a worker declares: of the queues it serves, their groups and their families."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from penstock.host import AppHost
from penstock.limit_changes import change_limit, limiting, limiting_of
from penstock.model.handler import Handler
from penstock.model.ids import family_of, is_fail_queue
from penstock.model.limit import Limit
from penstock.model.limit_settings import LimitSettings
from penstock.model.settings import Declarer, holder
from penstock.storage.limiting import Scope

__all__ = ["DeclaredLimits", "check_limits"]


def check_limits(host: AppHost, handlers: Mapping[str, Handler]) -> None:
    """Raise `NotSupported` if limits are declared for these handlers, and the storage has none."""
    if any(limit is not None for _, limit in declarations(host, handlers)):
        limiting(host.storage)


def declarations(host: AppHost, queues: Collection[str]) -> Iterator[tuple[Scope, Limit | None]]:
    """Yield the scopes of these queues with the limit that the app declares, None if it declares none."""
    for queue in queues:
        options = host.options(queue)
        yield Scope("queue", queue), options.limit
        yield Scope("groups", queue), options.group_limit
    for family in dict.fromkeys(family_of(queue) for queue in queues if not is_fail_queue(queue)):
        yield Scope("family", family), host.family_limits.get(family)


class DeclaredLimits:
    """Writes the declared limits of a worker, and removes those that no live worker declares."""

    def __init__(self, host: AppHost, queues: Sequence[str]) -> None:
        self._host = host
        #: The queues with a declaration, of their own or of their family.
        self._declaring = [queue for queue in queues if any(limit for _, limit in declarations(host, [queue]))]
        #: The queues that have limits, by the answers to claims: those of other code are removed if it is gone.
        self.limited: set[str] = set()

    @property
    def active(self) -> bool:
        """Whether there is a limit to declare or to look after."""
        return bool(self._declaring or self.limited)

    async def look(self, me: Declarer, live: Mapping[str, int]) -> None:
        """Write the declarations that `holder` gives to this worker, and remove those without a live declarer."""
        storage = self._host.storage
        if limiting_of(storage) is None:
            return
        queues = list(dict.fromkeys([*self._declaring, *sorted(self.limited)]))
        for scope, limit in declarations(self._host, queues):

            def change(old: LimitSettings, limit: Limit | None = limit) -> LimitSettings:
                return declared(old, limit, me, live)

            await change_limit(self._host, storage, scope, change)


def declared(old: LimitSettings, limit: Limit | None, me: Declarer, live: Mapping[str, int]) -> LimitSettings:
    """Return the settings after a worker has looked at them that declares this limit, or None for none."""
    if limit is None:
        gone = old.declarer is None or old.declarer.worker == me.worker or old.declarer.worker not in live
        return old.declare(None, None) if gone else old
    return old.declare(limit, me) if holder(old.declarer, me, live) == me else old
