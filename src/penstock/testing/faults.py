"""`trouble`: make chosen calls of an app's storage fail."""

from __future__ import annotations

import contextlib
import inspect
from collections import Counter
from collections.abc import Awaitable, Callable, Generator
from typing import Any

from penstock.errors import StorageUnavailable
from penstock.storage.base import Storage
from penstock.storage.limiting import Limiting
from penstock.storage.observing import Observing
from penstock.storage.scheduling import Scheduling
from penstock.testing.apps import AnyApp, patched_verbs, storages_of

__all__ = ["VERBS", "FaultyStorage", "trouble"]

#: The calls that can be made to fail: all but opening and closing. Those of `Scheduling` and `Limiting` are optional.
VERBS = tuple(
    name
    for protocol in (Storage, Scheduling, Limiting, Observing)
    for name, value in vars(protocol).items()
    if inspect.iscoroutinefunction(value) and name not in ("open", "close")
)


class FaultyStorage:
    """A storage wrapper that counts calls and lets chosen ones fail, before or after they are carried out."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._plans: dict[str, list[tuple[Exception, bool] | None]] = {}
        #: Number of calls by verb.
        self.calls: Counter[str] = Counter()
        #: While this is True, every call fails.
        self.down = False
        #: Workers must call `claim` for each claim, so that all of them are counted.
        self.opens_claims = False

    def fail(
        self, verb: str, times: int = 1, error: Exception | None = None, after: bool = False, skip: int = 0
    ) -> None:
        """Let the next `times` calls of a verb (`put`, `claim`, `settle`, …) fail, after `skip` that succeed.

        With `after` they are carried out, and only their answer is lost. The error is a `StorageUnavailable`
        unless another is given.
        """
        if verb not in VERBS:
            raise ValueError(f"verb: a storage has no {verb!r} that can fail; known: {', '.join(VERBS)}")
        plan = (error or StorageUnavailable(f"{verb} is made to fail"), after)
        self._plans.setdefault(verb, []).extend([*[None] * skip, *[plan] * times])

    def __getattr__(self, verb: str) -> Any:
        real = getattr(self._storage, verb)
        return self.failing_call(verb, real) if inspect.iscoroutinefunction(real) else real

    def failing_call(self, verb: str, real: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        """Return a function that calls the verb, and fails as planned by `fail` and `down`."""

        async def call(*args: Any, **options: Any) -> Any:
            self.calls[verb] += 1
            if self.down:
                raise StorageUnavailable("the storage is made to be down")
            plans = self._plans.get(verb)
            plan = plans.pop(0) if plans else None
            if plan is None:
                return await real(*args, **options)
            error, after = plan
            if after:
                await real(*args, **options)
            raise error

        return call


@contextlib.contextmanager
def trouble(app: AnyApp) -> Generator[FaultyStorage]:
    """Make calls of an app's storage fail: `with trouble(app) as storage: storage.fail("put")`."""
    storages = storages_of(app)
    front = FaultyStorage(storages[0])
    with contextlib.ExitStack() as stack:
        for storage in storages:
            known = (verb for verb in VERBS if hasattr(storage, verb))
            verbs: dict[str, Any] = {verb: front.failing_call(verb, getattr(storage, verb)) for verb in known}
            stack.enter_context(patched_verbs(storage, verbs | {"opens_claims": False}))
        yield front
