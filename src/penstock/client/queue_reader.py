"""The reading half of a queue: the status and results of its jobs, and why they wait."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET

from penstock.aio import refused_in_plain_handlers
from penstock.client.answers import JobStatus, Page, status_of
from penstock.errors import JobCancelled, JobError, JobFailed, JobNotFound, NotFinished
from penstock.host import AppHost
from penstock.model.ids import check_name
from penstock.model.job import FINISHED, Snapshot, State, StateName
from penstock.model.serde import decode
from penstock.model.why import Why, explain
from penstock.model.worker_info import WorkerInfo, worker_info
from penstock.storage.base import MAX_BATCH, EndNotice

__all__ = ["QueueReader", "as_state"]


@refused_in_plain_handlers(lambda queue: queue._host.driven)
class QueueReader:
    """The methods of a queue that change nothing."""

    def __init__(self, host: AppHost, name: str) -> None:
        self._host = host
        self.name = check_name(name, "queue")

    def __repr__(self) -> str:
        return f"<Queue {self.name!r}>"

    async def status(self, id: str) -> JobStatus | None:
        """Return the status of a job, or None when there is none with this id."""
        snapshot = await self._get(id)
        return None if snapshot is None else self._status(snapshot)

    async def result(self, id: str, default: Any = UNSET) -> Any:
        """Return the result of a job; `default` is returned instead if there is none for any reason."""
        snapshot = await self._get(id)
        if default is not UNSET and (snapshot is None or snapshot.state is not State.COMPLETED):
            return default
        if snapshot is None:
            raise JobNotFound(f"there is no job {id!r} in queue {self.name!r}")
        return self._result(snapshot)

    async def counts(self) -> dict[State, int]:
        """Return the number of jobs in each of the eight states."""
        return await (await self._host.opened()).counts(self.name)

    async def find(self, state: State | StateName | None = None, after: str | None = None, limit: int = 100) -> Page:
        """Return a page of jobs, of one state or of all, in queue order; `after` is the cursor of the page before."""
        wanted = None if state is None else as_state(state)
        if isinstance(limit, bool) or not isinstance(limit, int):
            raise TypeError(f"limit must be an int, not {type(limit).__name__}")
        if not 1 <= limit <= MAX_BATCH:
            raise ValueError(f"limit must be between 1 and {MAX_BATCH}, not {limit}")
        page = await (await self._host.opened()).find(self.name, wanted, after, limit)
        return Page(map(self._status, page.jobs), page.cursor)

    async def peek(self) -> JobStatus | None:
        """Return the job that would be run next, or None."""
        snapshot = await (await self._host.opened()).peek(self.name)
        return None if snapshot is None else self._status(snapshot)

    async def why(self, id: str) -> Why | None:
        """Return the reason why a job is not running, or None when there is none with this id.

        `str()` of it is a sentence. Of several reasons it is the one to remove first: see `Reason`.
        """
        check_name(id, "id")
        storage = await self._host.opened()
        position = await storage.why(self.name, id)
        if position is None:
            return None
        workers: list[WorkerInfo] = []
        if position.state in (State.RUNNING, State.QUEUED):
            workers = [worker_info(w.id, w.seen, w.until, w.info) for w in await storage.workers()]
        options = self._host.options(self.name)
        return explain(self.name, position, workers, None if options is self._host.defaults.options else options)

    # helpers --------------------------------------------------------------------------------------

    async def _get(self, id: str) -> Snapshot | None:
        check_name(id, "id")
        return (await (await self._host.opened()).get(self.name, [id]))[0]

    def _status(self, snapshot: Snapshot) -> JobStatus:
        return status_of(snapshot, self._host.codec(self.name))

    def _result(self, snapshot: Snapshot | EndNotice) -> Any:
        """Return the result of a completed job; raises `NotFinished`, `JobCancelled` or `JobFailed` in other states."""
        about = f"job {snapshot.id!r} in queue {self.name!r}"
        if snapshot.state not in FINISHED:
            raise NotFinished(f"{about} is {snapshot.state}")
        if snapshot.state is State.CANCELLED:
            reason = None if snapshot.error is None else JobError.decode(snapshot.error)
            because = "" if reason is None else f": {reason.type}: {reason.message}"
            raise JobCancelled(f"{about} was cancelled{because}", reason)
        if snapshot.state is State.FAILED:
            error = JobError.decode(snapshot.error or b"")
            raise JobFailed(f"{about} failed: {error.type}: {error.message}", error)
        return decode(self._host.codec(self.name).result_for(snapshot.id), snapshot.result or b"")


def as_state(value: State | StateName) -> State:
    """Return a state by its name; raises `ValueError` for an unknown one."""
    try:
        return State(value)
    except ValueError:
        raise ValueError(f"state must be one of {', '.join(State)}, not {value!r}") from None
