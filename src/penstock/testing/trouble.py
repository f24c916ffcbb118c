"""A storage that fails where it is told to."""

from __future__ import annotations

import contextlib
import inspect
from collections import Counter
from collections.abc import Generator
from typing import Any

from penstock.errors import StorageUnavailable
from penstock.storage.base import Storage
from penstock.testing.faces import AnyApp, storages_of

__all__ = ["VERBS", "Trouble", "trouble"]

#: The calls that can be made to fail: all but opening and closing.
VERBS = tuple(
    name
    for name, value in vars(Storage).items()
    if inspect.iscoroutinefunction(value) and name not in ("open", "close")
)


class Trouble:
    """Counts the calls of a storage, and fails chosen ones, before or after they are carried out."""

    def __init__(self, *storages: Storage) -> None:
        #: How often each verb was called.
        self.calls: Counter[str] = Counter()
        #: While this is True, every call fails.
        self.down = False
        self._plans: dict[str, list[tuple[Exception, bool] | None]] = {}
        self._storages = storages
        for storage in storages:
            for verb in VERBS:
                setattr(storage, verb, self._troubled(verb, getattr(storage, verb)))

    def fail(
        self, verb: str, times: int = 1, error: Exception | None = None, *, after: bool = False, skip: int = 0
    ) -> None:
        """The next calls of a verb (`put`, `claim`, `settle`, …) fail, but for the first `skip` of them.

        With `after` they are carried out and only their answer is lost. The error is `StorageUnavailable`
        unless another is given.
        """
        if verb not in VERBS:
            raise ValueError(f"verb: a storage has no {verb!r}; known: {', '.join(VERBS)}")
        plan = (error or StorageUnavailable(f"{verb} is made to fail"), after)
        self._plans.setdefault(verb, []).extend([*[None] * skip, *[plan] * times])

    def end(self) -> None:
        """No more trouble."""
        for storage in self._storages:
            for verb in VERBS:
                vars(storage).pop(verb, None)

    def _troubled(self, verb: str, real: Any) -> Any:
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
def trouble(app: AnyApp) -> Generator[Trouble]:
    """Make calls of an app's storage fail: `with trouble(app) as storage: storage.fail("put")`."""
    trouble = Trouble(*storages_of(app))
    try:
        yield trouble
    finally:
        trouble.end()
