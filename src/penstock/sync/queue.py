"""Queues without `await`: every method is that of `penstock.Queue`, finished when it returns."""

from __future__ import annotations

from collections.abc import AsyncIterable, Callable, Iterable
from typing import Any, Unpack

from msgspec import UNSET, UnsetType

from penstock.client.answers import Cancelled, Discarded, Enqueued, JobStatus, Page
from penstock.client.entry import CommonOptions, JobOptions
from penstock.client.flow_answers import Checkpoint, Child, Signalled
from penstock.client.history import FailureGroup, HistoryPoint, HistorySpan, QueueInfo
from penstock.client.limits import LimitInfo
from penstock.client.queue import Queue as AsyncQueue
from penstock.model.clock import Moment, Span
from penstock.model.history import Attempt, Line
from penstock.model.job import NewJob, State, StateName
from penstock.model.limit import EveryGroup, Limit
from penstock.model.why import Why
from penstock.storage.base import CancelMode
from penstock.sync.backends import SyncBackends
from penstock.sync.reservation import Reservation
from penstock.sync.schedules import Schedules
from penstock.sync.streams import Stream

__all__ = ["Queue"]


class Queue:
    """A named queue of jobs, for producers without an event loop. Get one from `app.queue(name)`."""

    def __init__(self, backends: SyncBackends, name: str) -> None:
        self._backends = backends
        self._run = backends.run
        self.name = name

    def __repr__(self) -> str:
        return f"<Queue {self.name!r}>"

    def _queue(self) -> AsyncQueue:
        return self._backends.queue(self.name)

    def _loop_queue(self) -> AsyncQueue:
        return self._backends.loop_app.queue(self.name)

    @property
    def schedules(self) -> Schedules:
        """The schedules of this queue."""
        return Schedules(self._backends, self.name)

    # enqueue and wait -----------------------------------------------------------------------------

    def enqueue(self, payload: Any, **options: Unpack[JobOptions]) -> Enqueued:
        """Add a job, with the options of `Entry`: if its id is taken, `on_conflict` decides, by default "reject"."""
        return self._run(self._backends.queue(self.name).enqueue(payload, **options))

    def enqueue_many(self, entries: Iterable[Any]) -> list[Enqueued]:
        """Add many jobs, given as payloads or `Entry` objects, 500 in each round trip.

        A list is checked wholly before anything is stored; an iterator chunk by chunk. With
        `on_conflict="raise"`, the jobs before the duplicate in the same chunk are stored.
        """
        if isinstance(entries, AsyncIterable):
            raise TypeError("entries must be a list or an iterator; an async iterator is for the async penstock.Queue")
        return self._run(self._queue().enqueue_many(entries))

    def call(
        self,
        payload: Any,
        *,
        timeout: Span | None = 30,
        run_timeout: Span | UnsetType | None = UNSET,
        **options: Unpack[CommonOptions],
    ) -> Any:
        """Add a job, as `enqueue` does, and return its result; joins a job that has the id already.

        `timeout` is how long the caller waits (None: for ever, 0: one read), after which `CallTimeout`
        is raised and the job goes on; `run_timeout` is the `timeout` of `enqueue`. A result that is
        kept is returned at once. A job that fails or is cancelled raises `JobFailed` or `JobCancelled`.
        """
        calling = self._loop_queue().call(payload, timeout=timeout, run_timeout=run_timeout, **options)
        return self._backends.run_blocking("call()", calling)

    def stream(self, payload: Any, **options: Unpack[JobOptions]) -> Stream:
        """Return the stream of a new job, which the first step of `for part in queue.stream(...)` enqueues.

        A job that has the id already is joined. The iteration ends when the job has completed; if it fails or is
        cancelled it raises `JobFailed` or `JobCancelled` after the last part.
        """
        return Stream(self._backends, self._loop_queue().stream(payload, **options))

    def follow(self, id: str, after: int | None = None) -> Stream:
        """Return the stream of a job that was enqueued earlier; with `after` the parts after that number.

        It has the parts that are kept, the last 1,000 or 1 MiB, and then those that come.
        """
        return Stream(self._backends, self._loop_queue().follow(id, after))

    def wait(self, id: str, timeout: Span | None = None) -> Any:
        """Wait for a job that was enqueued earlier and return its result; raises as `call` does."""
        return self._backends.run_blocking("wait()", self._loop_queue().wait(id, timeout))

    def wait_end(self, id: str, timeout: Span | None = None) -> None:
        """Wait for the end of a job, and raise as `wait` does; the result itself is not decoded."""
        self._backends.run_blocking("wait()", self._loop_queue().wait_end(id, timeout))

    def reserve(self, limit: int = 1, wait: Span | None = None, lease: Span | None = None) -> list[Reservation]:
        """Reserve up to `limit` jobs to work on here: as soon as there is one, none after `wait` seconds.

        They are held until each is settled, or the app is closed. Without `wait` it returns at once.
        The rules are those of the queue's handler, if it is registered here.
        """
        pulling = self._loop_queue().reserve(limit, wait, lease)
        held = (
            self._backends.run_on_loop(pulling)
            if wait is None
            else self._backends.run_blocking("reserve(wait=...)", pulling)
        )
        return [Reservation(self._backends, each) for each in held]

    def build_job(self, payload: Any, fresh_id: str = "", /, **options: Unpack[JobOptions]) -> NewJob:
        """Check a job's options and encode its payload, without storing it.

        A job without an id gets `fresh_id`, or a new id. Raises `TypeError` or `ValueError` for an
        option, and `InvalidPayload` for a payload that cannot be encoded or is too large.
        """
        return self._queue().build_job(payload, fresh_id, **options)

    # reads ----------------------------------------------------------------------------------------

    def status(self, id: str) -> JobStatus | None:
        """Return the status of a job, or None when there is none with this id."""
        return self._run(self._queue().status(id))

    def result(self, id: str, default: Any = UNSET) -> Any:
        """Return the result of a job; `default` is returned instead if there is none for any reason."""
        return self._run(self._queue().result(id, default))

    def counts(self) -> dict[State, int]:
        """Return the number of jobs in each of the eight states."""
        return self._run(self._queue().counts())

    def stats(self) -> QueueInfo:
        """Return the queue now: counts by state, pause, and totals and latencies since it was created."""
        return self._run(self._queue().stats())

    def history(self, span: HistorySpan = "2h") -> list[HistoryPoint]:
        """Return the events of the last two hours by minutes, two days ("2d") by ten, or two weeks ("14d") by hours.

        Workers take the samples, oldest first; a queue begins with none.
        """
        return self._run(self._queue().history(span))

    def failures(self, after: str | None = None, limit: int = 100) -> Page[FailureGroup]:
        """Return a page of the error groups of the queue: its jobs that failed alike, those seen last first."""
        return self._run(self._queue().failures(after, limit))

    def failed_jobs(self, key: str, after: str | None = None, limit: int = 100) -> Page[JobStatus]:
        """Return a page of the failed jobs of an error group, the one that failed last first."""
        return self._run(self._queue().failed_jobs(key, after, limit))

    def find(
        self, state: State | StateName | None = None, after: str | None = None, limit: int = 100
    ) -> Page[JobStatus]:
        """Return a page of jobs, of one state or of all, in queue order; `after` is the cursor of the page before."""
        return self._run(self._queue().find(state, after, limit))

    def why(self, id: str) -> Why | None:
        """Return the reason why a job is not running, or None when there is none with this id.

        `str()` of it is a sentence. Of several reasons it is the one to remove first: see `Reason`.
        """
        return self._run(self._queue().why(id))

    def attempts(self, id: str) -> list[Attempt]:
        """Return the attempts of a job that did not complete, oldest first: the first and the last 19.

        They are kept as long as the job; none if there is no such job.
        """
        return self._run(self._queue().attempts(id))

    def log(self, id: str, after: int | None = None) -> list[Line]:
        """Return the lines that the runs of a job have logged, oldest first; with `after` those after that number.

        The last 1,000 lines or 256 KiB are kept, as long as the job; none if there is no such job.
        """
        return self._run(self._queue().log(id, after))

    def peek(self) -> JobStatus | None:
        """Return the job that would be run next, or None."""
        return self._run(self._queue().peek())

    def limit(self, group: str | EveryGroup | None = None) -> LimitInfo:
        """Return the limit of the queue, of one group, or (`EVERY`) of each group, and the state of its gate."""
        return self._run(self._queue().limit(group))

    def limits(self, after: str | None = None, limit: int = 100) -> Page[LimitInfo]:
        """Return a page of the limits that hold here: of the family, the queue, each group, and single groups.

        Groups are listed that have a limit of their own or are paused.
        """
        return self._run(self._queue().limits(after, limit))

    # changes --------------------------------------------------------------------------------------

    def cancel(self, id: str, running: CancelMode | None = None) -> Cancelled:
        """Cancel a waiting job; for a running one `running` decides.

        If that is not given, the preset decides; without a preset it is "refuse".
        """
        queue = self._queue()
        return self._run(queue.cancel(id) if running is None else queue.cancel(id, running))

    def cancel_matching(self, payload: Any, running: CancelMode | None = None) -> list[str]:
        """Cancel every job with this payload; returns the ids of those cancelled or requested to end.

        Encoded bytes are compared, a page of jobs at a time. A matching run whose successor does not
        match is left alone: a cancel would take the successor.
        """
        queue = self._queue()
        return self._run(queue.cancel_matching(payload) if running is None else queue.cancel_matching(payload, running))

    def retry(self, ids: str | Iterable[str], *, completed: bool = False, fresh: bool = False) -> int:
        """Enqueue failed or cancelled jobs again with all counts zero; returns the number of jobs revived.

        With `completed=True` completed jobs too: they run once more, and their results are dropped. With `fresh=True`
        what their runs have recorded is forgotten. A flow runs its failed and cancelled children again.
        """
        return self._run(self._queue().retry(ids, completed=completed, fresh=fresh))

    def signal(self, id: str, name: str, value: Any = None) -> Signalled:
        """Send a signal to a job, which its handler reads by `job.signal(name)`; true if the job got or will get it."""
        return self._run(self._queue().signal(id, name, value))

    def journal(self, id: str) -> list[Checkpoint]:
        """Return what the runs of a job have recorded, oldest first; none if there is no such job."""
        return self._run(self._queue().journal(id))

    def children(
        self, id: str, state: State | StateName | None = None, after: str | None = None, limit: int = 100
    ) -> Page[Child]:
        """Return a page of the children of a job, of one state or of all; `after` is the cursor of the page before."""
        return self._run(self._queue().children(id, state, after, limit))

    def discard(self, ids: str | Iterable[str]) -> list[Discarded]:
        """Delete jobs for good, whether they wait or have finished; a running one is refused.

        Of a running job with a successor the successor goes. A caller that waits for an unfinished job gets
        `JobCancelled`.
        """
        return self._run(self._queue().discard(ids))

    def clear(
        self, state: State | StateName | Iterable[State | StateName] | None = None, *, older_than: Span | None = None
    ) -> int:
        """Delete the jobs in a state, or in one of several, and return their number; by default all finished ones.

        With `older_than` only those that ended, or if unfinished were enqueued, at least this long ago. Jobs that
        end or arrive during the call are kept. Running jobs cannot be cleared.
        """
        return self._run(self._queue().clear(state, older_than=older_than))

    def update_result_ttl(self, id: str, ttl: Span | None) -> bool:
        """Keep a finished job for this long from now, None for ever; False if it does not exist or is not finished."""
        return self._run(self._queue().update_result_ttl(id, ttl))

    def pause(self, group: str | None = None, until: Moment | None = None, by: str = "") -> bool:
        """Stop claims of this queue, or of one group of it, by all workers; False if that changed nothing.

        It ends at `until`, or else with `resume`. `by` names who paused it. Running jobs go on.
        """
        return self._run(self._queue().pause(group, until, by))

    def resume(self, group: str | None = None) -> bool:
        """Allow claims of the queue, or of the group, again; False if it was not paused."""
        return self._run(self._queue().resume(group))

    def set_limit(self, limit: Limit, *, group: str | EveryGroup | None = None) -> bool:
        """Limit the queue, one group of it, or (`EVERY`) each of its groups, until `reset_limit`.

        It wins over the limit that code declares, and holds from the next claim on; no run is touched. False if that
        changed nothing.
        """
        return self._run(self._queue().set_limit(limit, group=group))

    def reset_limit(self, group: str | EveryGroup | None = None) -> bool:
        """Forget what `set_limit` changed, so that the declared limit holds again; False if that changed nothing."""
        return self._run(self._queue().reset_limit(group))

    def retry_failures(self, key: str, *, on_step: Callable[[int], object] | None = None) -> int:
        """Enqueue all jobs of an error group again that have failed by now; returns the number of jobs revived.

        They are found by an index and revived in steps; `on_step` is called with the number so far after each.
        """
        return self._run(self._queue().retry_failures(key, on_step=on_step))

    def delete(self, *, settings: bool = False) -> int:
        """Delete the queue and every job in it in one step; outcomes of running jobs are lost. Returns their number.

        Its schedules and limits stay, unless with `settings`.
        """
        return self._run(self._queue().delete(settings=settings))
