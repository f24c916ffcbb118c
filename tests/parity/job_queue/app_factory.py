"""A factory of apps that share the jobs of one storage, as processes would."""

from __future__ import annotations

from typing import Any

from penstock import Penstock
from penstock.model.job import Claim
from penstock.storage.base import Request
from penstock.testing import Clock
from tests.support import Backend, RedisBackend, SqliteBackend


class AppFactory:
    """Apps of one fresh storage. Each stands for a process; in memory they share one storage object."""

    def __init__(self, backend: Backend, preset: str, clock: Clock) -> None:
        self.clock = clock
        self._backend = backend
        self._preset = preset
        self._apps: list[Penstock] = []

    async def app(self, **options: Any) -> Penstock:
        """Return a new, open app with the preset under test."""
        options.setdefault("preset", self._preset)
        if self._apps and not self._backend.shared:
            app = Penstock(storage=self._apps[0].storage, clock=self.clock, **options)
        else:
            app = Penstock(self.url, namespace=self._backend.namespace, clock=self.clock, **options)
        self._apps.append(app)
        await app.open()
        return app

    @property
    def url(self) -> str:
        if isinstance(self._backend, RedisBackend):
            return self._backend.url
        assert isinstance(self._backend, SqliteBackend)
        return f"sqlite:{self._backend.path}" if self._backend.shared else "memory:"

    async def close(self) -> None:
        for app in reversed(self._apps):
            await app.close()


async def vanish(app: Penstock, queue: str = "q", lease: float = 10, limit: int = 1) -> list[Claim]:
    """Claim jobs as a worker that never settles them."""
    return (await app.storage.claim([Request(queue, limit)], "gone", round(lease * 1000), f"gone-{queue}")).claims


async def status_of(app: Penstock, id: str = "a", queue: str = "q") -> Any:
    """Return the status of a job; an error if there is none."""
    status = await app.queue(queue).status(id)
    assert status is not None, f"no job {id!r} in {queue!r}"
    return status
