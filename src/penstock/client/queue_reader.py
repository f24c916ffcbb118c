"""The reading half of a queue: the status and results of its jobs, and why they wait."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from penstock.aio import refused_in_plain_handlers
from penstock.client.answers import JobStatus, Page, status_of
from penstock.client.history import (
    FailureGroup,
    HistoryPoint,
    HistorySpan,
    QueueInfo,
    failure_group,
    queue_info,
    read_points,
)
from penstock.client.limits import LimitInfo, limit_info, limit_page, queue_scope
from penstock.errors import JobCancelled, JobError, JobFailed, JobNotFound, NotFinished
from penstock.host import AppHost
from penstock.limit_changes import limiting, limiting_of
from penstock.model.checks import LARGEST, check_page
from penstock.model.explain import explain
from penstock.model.history import Attempt, Line, read_attempt, read_line
from penstock.model.ids import check_name
from penstock.model.job import FINISHED, Snapshot, State, StateName
from penstock.model.limit import EveryGroup, Limit
from penstock.model.limit_settings import LimitSettings
from penstock.model.serde import decode
from penstock.model.why import GatePosition, Why
from penstock.model.worker_info import WorkerInfo, worker_info
from penstock.storage.base import MAX_BATCH, EndNotice
from penstock.storage.limiting import Limiting, Scope
from penstock.storage.observing import need_observing
from penstock.storage.recording import need_recording

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

    async def stats(self) -> QueueInfo:
        """Return the queue now: counts by state, pause, and totals and latencies since it was created."""
        [found] = await need_observing(await self._host.opened()).stats([self.name])
        return queue_info(found)

    async def history(self, span: HistorySpan = "2h") -> list[HistoryPoint]:
        """Return the events of the last two hours by minutes, two days ("2d") by ten, or two weeks ("14d") by hours.

        Workers take the samples, oldest first; a queue begins with none.
        """
        storage = await self._host.opened()
        return await read_points(need_observing(storage), self.name, span, await storage.time())

    async def failures(self, after: str | None = None, limit: int = 100) -> Page[FailureGroup]:
        """Return a page of the error groups of the queue: its jobs that failed alike, those seen last first."""
        check_page(after, limit)
        page = await need_observing(await self._host.opened()).error_groups(self.name, after, limit)
        return Page((failure_group(self.name, group) for group in page.groups), page.cursor)

    async def failed_jobs(self, key: str, after: str | None = None, limit: int = 100) -> Page[JobStatus]:
        """Return a page of the failed jobs of an error group, the one that failed last first."""
        check_name(key, "key")
        check_page(after, limit)
        page = await need_observing(await self._host.opened()).group_jobs(self.name, key, after, min(limit, MAX_BATCH))
        return Page((self._status(snapshot) for snapshot in page.jobs), page.cursor)

    async def find(
        self, state: State | StateName | None = None, after: str | None = None, limit: int = 100
    ) -> Page[JobStatus]:
        """Return a page of jobs, of one state or of all, in queue order; `after` is the cursor of the page before."""
        wanted = None if state is None else as_state(state)
        check_page(after, limit, most=MAX_BATCH)
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
        known = None if options is self._host.defaults.options else options
        gate = position.gate or (position.head and position.head.gate)
        if gate is None or (limits := limiting_of(storage)) is None:
            return explain(self.name, position, workers, known)
        answer = explain(self.name, position, workers, known, await self._limit_of(limits, gate))
        if answer.scope == "family":
            return replace(answer, here=(await storage.counts(self.name))[State.RUNNING])
        return answer

    async def attempts(self, id: str) -> list[Attempt]:
        """Return the attempts of a job that did not complete, oldest first: the first and the last 19.

        They are kept as long as the job; none if there is no such job.
        """
        check_name(id, "id")
        page = await need_recording(await self._host.opened()).read(self.name, id, "attempts")
        entries = [] if page is None else page.entries
        return [attempt for attempt in map(read_attempt, entries) if attempt is not None]

    async def log(self, id: str, after: int | None = None) -> list[Line]:
        """Return the lines that the runs of a job have logged, oldest first; with `after` those after that number.

        The last 1,000 lines or 256 KiB are kept, as long as the job; none if there is no such job.
        """
        check_name(id, "id")
        if after is not None and (isinstance(after, bool) or not isinstance(after, int)):
            raise TypeError(f"after must be the number of a line, not {type(after).__name__}")
        page = await need_recording(await self._host.opened()).read(
            self.name, id, "log", min(max(after or 0, 0), LARGEST)
        )
        entries = [] if page is None else page.entries
        return [line for line in map(read_line, entries) if line is not None]

    async def limit(self, group: str | EveryGroup | None = None) -> LimitInfo:
        """Return the limit of the queue, of one group, or (`EVERY`) of each group, and the state of its gate."""
        scope = queue_scope(self.name, group)
        return limit_info(await limiting(await self._host.opened()).get_limit(scope))

    async def limits(self, after: str | None = None, limit: int = 100) -> Page[LimitInfo]:
        """Return a page of the limits that hold here: of the family, the queue, each group, and single groups.

        Groups are listed that have a limit of their own or are paused.
        """
        check_page(after, limit, most=MAX_BATCH)
        return limit_page(await limiting(await self._host.opened()).limits(self.name, after, limit))

    # helpers --------------------------------------------------------------------------------------

    async def _limit_of(self, storage: Limiting, gate: GatePosition) -> Limit | None:
        """Return the limit of a gate as it was given; None if it is gone meanwhile, or is that of any group."""
        scopes = [Scope(gate.kind, gate.name, gate.group)]
        if gate.kind == "group":
            scopes.append(Scope("groups", gate.name))
        for scope in scopes:
            limit = LimitSettings.decode((await storage.get_limit(scope)).settings).limit
            if limit is not None:
                return limit
        return None

    async def _get(self, id: str) -> Snapshot | None:
        check_name(id, "id")
        return (await (await self._host.opened()).get(self.name, [id]))[0]

    def _status(self, snapshot: Snapshot) -> JobStatus:
        return status_of(snapshot, self._host.codec(self.name))

    async def check_end(self, id: str) -> None:
        """Raise as `result` does if a job has no result; the result itself is not decoded."""
        snapshot = await self._get(id)
        if snapshot is None:
            raise JobNotFound(f"there is no job {id!r} in queue {self.name!r}")
        self._check_completed(snapshot)

    def _result(self, snapshot: Snapshot | EndNotice) -> Any:
        """Return the result of a completed job; raises `NotFinished`, `JobCancelled` or `JobFailed` in other states."""
        self._check_completed(snapshot)
        return decode(self._host.codec(self.name).result_for(snapshot.id), snapshot.result or b"")

    def _check_completed(self, snapshot: Snapshot | EndNotice) -> None:
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


def as_state(value: State | StateName) -> State:
    """Return a state by its name; raises `ValueError` for an unknown one."""
    try:
        return State(value)
    except ValueError:
        raise ValueError(f"state must be one of {', '.join(State)}, not {value!r}") from None
