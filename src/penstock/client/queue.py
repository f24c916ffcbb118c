"""The producer's side of one queue: enqueue, wait, reserve, cancel, retry, pause."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice
from typing import Any, Unpack, cast

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from penstock.aio import refused_in_plain_handlers
from penstock.client.answers import Cancelled, Discarded, DiscardStatus, Enqueued
from penstock.client.entry import (
    CommonOptions,
    Entry,
    JobOptions,
    OnConflict,
    entry_fields,
    entry_from,
    job_fields,
    options_of,
)
from penstock.client.flow_calls import FlowCalls
from penstock.client.keys import with_keys
from penstock.client.limits import check_limit, queue_scope
from penstock.client.payload_match import payload_matcher
from penstock.client.queue_reader import QueueReader, as_state
from penstock.client.reservation import Reservation
from penstock.client.reservations import ReservationManager
from penstock.client.results import ResultWaiter
from penstock.client.schedules import Schedules
from penstock.client.sending import Sending, as_entry
from penstock.client.streams import Stream, StreamCalls
from penstock.errors import (
    CallTimeout,
    DuplicateJob,
    InvalidPayload,
    JobNotFound,
    NotDurable,
    QueueFull,
    StorageUnavailable,
)
from penstock.limit_changes import change_limit, limiting
from penstock.model.checks import check_flag, check_text
from penstock.model.clock import Moment, Span, as_datetime, milliseconds, span_ms
from penstock.model.hooks import Within
from penstock.model.ids import check_name, family_of, new_id, new_ids, new_token
from penstock.model.job import FINISHED, NewJob, Snapshot, State, StateName
from penstock.model.limit import EveryGroup, Limit
from penstock.model.presets import NO_PRESET
from penstock.model.serde import decode, encode
from penstock.storage.base import CANCEL_MODES, MAX_BATCH, CancelMode, DiscardAnswer, EndNotice, Put, PutStatus, Storage
from penstock.storage.flowing import relay_family
from penstock.storage.observing import need_observing

__all__ = ["Queue"]

#: How many jobs `enqueue_many` sends in one round trip.
CHUNK = 500
#: How many bytes of payload it sends in one round trip to a queue with `max_queued`.
CHUNK_BYTES = 4_000_000
#: The jobs of an error group that are revived in one step.
RETRY_STEP = 500

QUEUED = PutStatus.QUEUED

#: The states that `cancel_matching` searches, in this order: successors go before the runs they wait for.
CANCELLABLE = (State.BLOCKED, State.QUEUED, State.RETRYING, State.SCHEDULED, State.SUSPENDED, State.RUNNING)


GONE = DiscardStatus.DISCARDED
_DISCARDS: dict[DiscardAnswer, DiscardStatus] = {
    "cancelled": GONE,
    "discarded": GONE,
    "running": DiscardStatus.RUNNING,
    "kept": DiscardStatus.NOT_FOUND,
    "not_found": DiscardStatus.NOT_FOUND,
}


@refused_in_plain_handlers(lambda queue: queue._host.driven)
class Queue(QueueReader, FlowCalls, StreamCalls):
    """A named queue of jobs, for producers. Get one from `app.queue(name)`."""

    @property
    def schedules(self) -> Schedules:
        """The schedules of this queue."""
        return Schedules(self._host, self.name)

    # enqueue and wait -----------------------------------------------------------------------------

    async def enqueue(self, payload: Any, **options: Unpack[JobOptions]) -> Enqueued:
        """Add a job, with the options of `Entry`: if its id is taken, `on_conflict` decides, by default "reject"."""
        if self._host.hooks.enqueue:
            return await self._send(Sending(self.name, [entry_from(payload, options)]))
        job = self.build_job(payload, **options)
        return await self._put(job, options.get("on_conflict"))

    async def enqueue_many(self, entries: Iterable[Any] | AsyncIterable[Any]) -> list[Enqueued]:
        """Add many jobs, given as payloads or `Entry` objects, 500 in each round trip.

        A list is checked wholly before anything is stored; an iterator chunk by chunk. With
        `on_conflict="raise"`, the jobs before the duplicate in the same chunk are stored. A chunk that exceeds the
        `max_queued` of the queue raises `QueueFull`, and none of it is stored; `.enqueued` has the answers before.
        """
        if isinstance(entries, str | bytes | Mapping):
            raise TypeError("entries must be a list or an iterator of payloads, not one payload")
        answers: list[Enqueued] = []
        try:
            if isinstance(entries, Sequence):
                await self._send_many(entries, answers)
            else:
                async for chunk in _chunks(entries):
                    await self._send_many(chunk, answers)
        except QueueFull as full:
            raise QueueFull(full.queue, full.waiting, full.max_queued, full.count, answers) from None
        return answers

    def build_job(self, payload: Any, fresh_id: str = "", /, **options: Unpack[JobOptions]) -> NewJob:
        """Check a job's options and encode its payload, without storing it.

        A job without an id gets `fresh_id`, or a new id. Raises `TypeError` or `ValueError` for an
        option, and `InvalidPayload` for a payload that cannot be encoded or is too large.
        """
        preset, handler = self._host.defaults, self._host.handlers.get(self.name)
        given: Mapping[str, Any] = options
        if handler is not None and handler.options.reads_payload:
            given = with_keys(given, payload, handler.options)
        if preset is not NO_PRESET:
            given = preset.job_options(given, self.name)
        return self._new_job(payload, job_fields(given) if given else None, fresh_id)

    async def call(
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
        kept is returned at once. A job that fails or is cancelled raises `JobFailed` or `JobCancelled`. If the
        window of the id holds it, and there is no job to join, `DuplicateJob` is raised.
        """
        seconds = _seconds(timeout)
        given = cast("JobOptions", options)
        if run_timeout is not UNSET:
            if run_timeout is not None:
                span_ms(run_timeout, "run_timeout", zero=False)
            given["timeout"] = run_timeout
        answer = await self.enqueue_awaited(payload, given)
        if answer.status is PutStatus.COMPLETED:
            return answer.result
        if answer.status is PutStatus.DUPLICATE and answer.state is State.COMPLETED:
            raise self._duplicate(answer.id, answer.state, answer.until)
        return await self._wait_result(answer.id, seconds, read_first=False)

    async def enqueue_awaited(self, payload: Any, options: JobOptions) -> Enqueued:
        """Add a job whose end a caller waits for: if it is not to be kept, it stays for a minute after its end."""
        if self._host.hooks.enqueue:
            return await self._send(Sending(self.name, [entry_from(payload, options)], waits=True))
        job = replace(self.build_job(payload, **options), waiter=new_token())
        return await self._put(job, options.get("on_conflict"))

    def stream(self, payload: Any, **options: Unpack[JobOptions]) -> Stream:
        """Return the stream of a new job, which the first step of `async for part in queue.stream(...)` enqueues.

        A job that has the id already is joined. The iteration ends when the job has completed; if it fails or is
        cancelled it raises `JobFailed` or `JobCancelled` after the last part.
        """
        return Stream(self._host, self, None, 0, lambda: self.enqueue_awaited(payload, options))

    async def wait(self, id: str, timeout: Span | None = None) -> Any:
        """Wait for a job that was enqueued earlier and return its result; raises as `call` does."""
        check_name(id, "id")
        await self._host.opened()
        return await self._wait_result(id, _seconds(timeout))

    async def reserve(self, limit: int = 1, wait: Span | None = None, lease: Span | None = None) -> list[Reservation]:
        """Reserve up to `limit` jobs to work on here: as soon as there is one, none after `wait` seconds.

        They are held until each is settled, or the app is closed. Without `wait` it returns at once.
        The rules are those of the queue's handler, if it is registered here.
        """
        if isinstance(limit, bool) or not isinstance(limit, int):
            raise TypeError(f"limit must be an int, not {type(limit).__name__}")
        if not 1 <= limit <= MAX_BATCH:
            raise ValueError(f"limit must be between 1 and {MAX_BATCH}, not {limit}")
        seconds = 0.0 if wait is None else span_ms(wait, "wait") / 1000
        lease_ms = span_ms(self._host.lease if lease is None else lease, "lease", zero=False)
        reservations: ReservationManager = self._host.reservations
        return await reservations.reserve(self.name, limit, seconds, lease_ms)

    # changes --------------------------------------------------------------------------------------

    async def cancel(self, id: str, running: CancelMode | None = None) -> Cancelled:
        """Cancel a waiting job; for a running one `running` decides.

        If that is not given, the preset decides; without a preset it is "refuse".
        """
        check_name(id, "id")
        return (await self._cancel([id], self._cancel_mode(running)))[0]

    async def cancel_matching(self, payload: Any, running: CancelMode | None = None) -> list[str]:
        """Cancel every job with this payload; returns the ids of those cancelled or requested to end.

        Encoded bytes are compared, those of signed or encrypted jobs after they are opened, a page of jobs at a
        time. A matching run whose successor does not match is left alone: a cancel would take the successor.
        """
        running = self._cancel_mode(running)
        matches = payload_matcher(self._host.codec(self.name), payload)
        others: set[str] = set()
        cancelled: list[str] = []
        for state in CANCELLABLE:
            if state is State.RUNNING and running == "refuse":
                continue
            cursor: str | None = None
            while True:
                page = await (await self._host.opened()).find(self.name, state, cursor, CHUNK)
                if state is State.BLOCKED:
                    others.update(job.id for job in page.jobs if not matches(job))
                ids = [job.id for job in page.jobs if job.id not in others and matches(job)]
                cancelled += [each.id for each in await self._cancel(ids, running) if each or each.requested]
                cursor = page.cursor
                if cursor is None:
                    break
        return cancelled

    async def discard(self, ids: str | Iterable[str]) -> list[Discarded]:
        """Delete jobs for good, whether they wait or have finished; a running one is refused.

        Of a running job with a successor the successor goes. A caller that waits for an unfinished job gets
        `JobCancelled`.
        """
        wanted = [check_name(id, "ids") for id in ([ids] if isinstance(ids, str) else ids)]
        discarded: list[Discarded] = []
        for at in range(0, len(wanted), MAX_BATCH):
            chunk = wanted[at : at + MAX_BATCH]
            pairs = zip(chunk, await self._discard(chunk), strict=True)
            discarded += [Discarded(id=id, status=_DISCARDS[answer]) for id, answer in pairs]
        return discarded

    async def clear(
        self, state: State | StateName | Iterable[State | StateName] | None = None, *, older_than: Span | None = None
    ) -> int:
        """Delete the jobs in a state, or in one of several, and return their number; by default all finished ones.

        With `older_than` only those that ended, or if unfinished were enqueued, at least this long ago. Jobs that
        end or arrive during the call are kept. Running jobs cannot be cleared.
        """
        states = _clearable(state)
        age = 0 if older_than is None else span_ms(older_than, "older_than")
        storage = await self._host.opened()
        before = await storage.time() - age
        count = 0
        for each in states:
            cursor: str | None = None
            while True:
                page = await storage.find(self.name, each, cursor, CHUNK)
                ids = [job.id for job in page.jobs]
                if ids:
                    count += sum(_DISCARDS[a] is GONE for a in await self._discard(ids, each, before))
                cursor = page.cursor
                if cursor is None:
                    break
        return count

    async def update_result_ttl(self, id: str, ttl: Span | None) -> bool:
        """Keep a finished job for this long from now, None for ever; False if it does not exist or is not finished."""
        check_name(id, "id")
        ms = None if ttl is None else span_ms(ttl, "ttl")
        return await (await self._host.opened()).set_ttl(self.name, id, ms)

    async def pause(self, group: str | None = None, until: Moment | None = None, by: str = "") -> bool:
        """Stop claims of this queue, or of one group of it, by all workers; False if that changed nothing.

        It ends at `until`, or else with `resume`. `by` names who paused it. Running jobs go on.
        """
        end = None if until is None else milliseconds(until, "until")
        check_text(by, "by")
        return await (await self._pausable(group)).set_pause(self.name, True, end, by, group)

    async def resume(self, group: str | None = None) -> bool:
        """Allow claims of the queue, or of the group, again; False if it was not paused."""
        return await (await self._pausable(group)).set_pause(self.name, False, group=group)

    async def set_limit(self, limit: Limit, *, group: str | EveryGroup | None = None) -> bool:
        """Limit the queue, one group of it, or (`EVERY`) each of its groups, until `reset_limit`.

        It wins over the limit that code declares, and holds from the next claim on; no run is touched. False if that
        changed nothing.
        """
        scope = queue_scope(self.name, group)
        check_limit(limit, scope)
        return await change_limit(self._host, await self._host.opened(), scope, lambda old: old.change(limit))

    async def reset_limit(self, group: str | EveryGroup | None = None) -> bool:
        """Forget what `set_limit` changed, so that the declared limit holds again; False if that changed nothing."""
        scope = queue_scope(self.name, group)
        return await change_limit(self._host, await self._host.opened(), scope, lambda old: old.change(None))

    async def _pausable(self, group: str | None) -> Storage:
        """Return the storage for a pause; that of a group needs one with limits."""
        if group is not None:
            check_name(group, "group")
        storage = await self._host.opened()
        if group is not None:
            limiting(storage)
        return storage

    async def retry_failures(self, key: str, *, on_step: Callable[[int], object] | None = None) -> int:
        """Enqueue all jobs of an error group again that have failed by now; returns the number of jobs revived.

        They are found by an index and revived in steps; `on_step` is called with the number so far after each.
        """
        check_name(key, "key")
        storage = await self._host.opened()
        until, after, revived = await storage.time(), None, 0
        while True:
            page = await need_observing(storage).group_jobs(self.name, key, after, RETRY_STEP)
            ids = [job.id for job in page.jobs if job.finished is not None and job.finished <= until]
            revived += await self.retry(ids) if ids else 0
            if on_step is not None:
                on_step(revived)
            after = page.cursor
            if after is None:
                return revived

    async def delete(self, *, settings: bool = False) -> int:
        """Delete the queue and every job in it in one step; outcomes of running jobs are lost. Returns their number.

        Its schedules and limits stay, unless with `settings`.
        """
        check_flag(settings, "settings")
        storage = await self._host.opened()
        count = await storage.delete_queue(self.name, settings)
        self._host.emit("queue_deleted", queue=self.name)
        await relay_family(storage, family_of(self.name))
        return count

    # helpers --------------------------------------------------------------------------------------

    async def _send(self, sending: Sending) -> Enqueued:
        """Store the one job of an enqueue inside of the hooks."""
        with Within(self._host.hooks.enqueue, sending):
            [entry] = sending.with_headers()
            job = self.build_job(entry.payload, **options_of(entry))
            if sending.waits:
                job = replace(job, waiter=new_token())
            sending.answers.append(await self._put(job, entry.on_conflict))
        return sending.answers[0]

    async def _send_many(self, entries: Sequence[Any], answers: list[Enqueued]) -> None:
        """Store the jobs of an `enqueue_many` inside of the hooks, if there are any, and add the answers."""
        if not self._host.hooks.enqueue or not entries:
            await self._store(entries, answers)
            return
        sending = Sending(self.name, [as_entry(each) for each in entries])
        try:
            with Within(self._host.hooks.enqueue, sending):
                await self._store(sending.with_headers(), sending.answers)
        finally:
            answers += sending.answers

    async def _store(self, entries: Sequence[Any], answers: list[Enqueued]) -> None:
        """Store jobs, part by part, and add their answers."""
        jobs = self._build_jobs(entries)
        for at, end in self._parts(jobs):
            answers += await self._put_many(jobs[at:end], entries[at:end])

    async def _put(self, job: NewJob, on_conflict: OnConflict | None) -> Enqueued:
        """Store one job and return its answer; `on_conflict` None means that of the preset."""
        host = self._host
        try:
            storage, most = host.ready_storage or await host.opened(), host.max_queued.get(self.name)
            [put] = await (storage.put((job,)) if most is None else storage.put((job,), most))
        except StorageUnavailable as error:
            raise about_storing(error, [job]) from error
        if put.status is QUEUED and put.durability is None and not host.listeners.by_name:
            return Enqueued(id=job.id, status=QUEUED, state=put.state)  # as `_answer` does, without an event to emit
        answer = self._answer(job, put, on_conflict)
        self._check_durability([answer])
        return answer

    async def _put_many(self, jobs: Sequence[NewJob], items: Sequence[Any]) -> list[Enqueued]:
        """Store jobs in one call and return their answers; `items` are the payloads and entries they came from."""
        if not jobs:
            return []
        try:
            storage, most = await self._host.opened(), self._host.max_queued.get(self.name)
            puts = await (storage.put(jobs) if most is None else storage.put(jobs, most))
        except StorageUnavailable as error:
            raise about_storing(error, jobs) from error
        if self._host.listeners or puts[0].durability is not None:
            answers = [
                self._answer(job, put, _conflict(item)) for job, put, item in zip(jobs, puts, items, strict=True)
            ]
            self._check_durability(answers)
            return answers
        return [
            Enqueued(id=job.id, status=QUEUED, state=put.state)
            if put.status is QUEUED
            else self._answer(job, put, _conflict(item))
            for job, put, item in zip(jobs, puts, items, strict=True)
        ]

    def _answer(self, job: NewJob, put: Put, on_conflict: OnConflict | None) -> Enqueued:
        """Return the answer for one job, and emit its event; raises `DuplicateJob` if that was asked for."""
        if put.refused:
            raise ValueError(
                f"job {job.id!r} in queue {self.name!r} would have a group and a priority, so it was not changed: "
                "give priority=0 together with group, or leave priority out"
            )
        until = None if put.until is None else as_datetime(put.until)
        if put.status in (PutStatus.DUPLICATE, PutStatus.COMPLETED):
            if (self._host.defaults.on_conflict if on_conflict is None else on_conflict) == "raise":
                raise self._duplicate(job.id, put.state, until)
        else:
            self._host.emit("updated" if put.status is PutStatus.UPDATED else "enqueued", queue=self.name, id=job.id)
        result = None if put.result is None else decode(self._host.codec(self.name).result_for(job.id), put.result)
        return Enqueued(
            id=job.id, status=put.status, state=put.state, result=result, durability=put.durability, until=until
        )

    def _duplicate(self, id: str, state: State, until: datetime | None) -> DuplicateJob:
        """Return the error for an id that is taken: by a job, or by the window of one that has completed."""
        if state is State.COMPLETED and until is not None:
            return DuplicateJob(
                f"the id {id!r} in queue {self.name!r} is taken until {until:%Y-%m-%d %H:%M:%S} UTC: "
                "its job has completed, and its window has not ended"
            )
        return DuplicateJob(f"there is a job {id!r} in queue {self.name!r} already; it is {state}")

    def _check_durability(self, answers: Sequence[Enqueued]) -> None:
        """Raise `NotDurable` if a job is not stored as safely as `durability` asks."""
        short = [each for each in answers if each.durability is not None and not each.durability]
        if short:
            jobs = f"job {short[0].id!r} is" if len(short) == 1 else f"{len(short)} jobs are"
            raise NotDurable(
                f"{jobs} stored in queue {self.name!r}, but only {short[0].durability}, and may be lost with "
                "the server; enqueue the same ids again to have them confirmed",
                short,
            )

    def _parts(self, jobs: Sequence[NewJob]) -> Iterator[tuple[int, int]]:
        """Yield the begin and end of each part that is stored in one call.

        A storage stores all jobs of a queue with a bound or none, so such a part has few bytes, too.
        """
        if self.name not in self._host.max_queued:
            for at in range(0, len(jobs), CHUNK):
                yield at, at + CHUNK
            return
        start = size = 0
        for at, job in enumerate(jobs):
            if at > start and (at - start == CHUNK or size + len(job.payload) > CHUNK_BYTES):
                yield start, at
                start, size = at, 0
            size += len(job.payload)
        yield start, len(jobs)

    def _build_jobs(self, items: Sequence[Any]) -> list[NewJob]:
        """Check and encode payloads and entries as `build_job` does, without storing them."""
        defaults, name = self._host.defaults, self.name
        handler = self._host.handlers.get(name)
        if handler is not None and handler.options.reads_payload:
            return [
                self.build_job(item.payload, id, **options_of(item))
                if isinstance(item, Entry)
                else self.build_job(item, id)
                for item, id in zip(items, new_ids(len(items)), strict=True)
            ]
        preset = defaults.job_options({}, name)
        bare = job_fields(preset) if preset else None

        def fields(item: Entry) -> dict[str, Any]:
            return job_fields(defaults.job_options(options_of(item), name)) if preset else entry_fields(item)

        return [
            self._new_job(item.payload, fields(item), id) if isinstance(item, Entry) else self._new_job(item, bare, id)
            for item, id in zip(items, new_ids(len(items)), strict=True)
        ]

    def _new_job(self, payload: Any, fields: Mapping[str, Any] | None, fresh_id: str) -> NewJob:
        """Encode a payload and return its job; `fields` None is a job without options."""
        host, name = self._host, self.name
        given: str | None = None if fields is None else fields.get("id")
        id = given or fresh_id or new_id()
        codec = host.codec(name)
        serde = codec.payload if codec.payload_of_job is None else codec.payload_for(id)
        data = encode(serde, payload, "payload")
        if len(data) > host.max_payload:
            raise InvalidPayload(f"payload is {len(data)} bytes, more than max_payload ({host.max_payload})")
        if fields is None:
            return NewJob(queue=name, id=id, payload=data, fresh=True)
        if given is not None:
            return NewJob(queue=name, payload=data, **fields)
        return NewJob(queue=name, id=id, payload=data, fresh=True, **fields)

    def _cancel_mode(self, running: CancelMode | None) -> CancelMode:
        mode = self._host.defaults.cancel if running is None else running
        if mode not in CANCEL_MODES:
            raise ValueError(f"running must be one of {', '.join(map(repr, CANCEL_MODES))}, not {mode!r}")
        return mode

    async def _cancel(self, ids: Sequence[str], running: CancelMode) -> list[Cancelled]:
        if not ids:
            return []
        storage = await self._host.opened()
        answers = await storage.cancel(self.name, ids, running, self._host.options(self.name).keep_ms)
        for id, answer in zip(ids, answers, strict=True):
            if answer.status in ("cancelled", "cancel_requested") and not answer.already:
                self._host.emit(answer.status, queue=self.name, id=id)
        await relay_family(storage, family_of(self.name))
        return [Cancelled.of(*each) for each in zip(ids, answers, strict=True)]

    async def _discard(
        self, ids: Sequence[str], state: State | None = None, before: int | None = None
    ) -> list[DiscardAnswer]:
        answers = await (await self._host.opened()).discard(self.name, ids, state, before)
        for id, answer in zip(ids, answers, strict=True):
            if answer == "cancelled":
                self._host.emit("cancelled", queue=self.name, id=id)
        return answers

    async def wait_end(self, id: str, timeout: Span | None = None) -> None:
        """Wait for the end of a job, and raise as `wait` does; the result itself is not decoded."""
        await self._host.opened()
        self._check_completed(await self._wait_snapshot(id, _seconds(timeout)))

    async def _wait_result(self, id: str, timeout: float | None, *, read_first: bool = True) -> Any:
        """Return the result of a job once it has finished; raises the reason if it has none."""
        return self._result(await self._wait_snapshot(id, timeout, read_first=read_first))

    async def _wait_snapshot(self, id: str, timeout: float | None, *, read_first: bool = True) -> Snapshot | EndNotice:
        """Return the end of a job once it has finished; raises `JobNotFound` or `CallTimeout`."""
        results: ResultWaiter = self._host.results
        snapshot = await results.wait(self.name, id, timeout, read_first=read_first)
        if snapshot is None:
            raise JobNotFound(
                f"there is no job {id!r} in queue {self.name!r}: it was never enqueued, it was deleted, "
                "or it ended and was not kept (see result_ttl and retain)"
            )
        if snapshot.state not in FINISHED:
            raise CallTimeout(
                f"job {id!r} in queue {self.name!r} has not ended within {timeout:g} s: it is {snapshot.state} "
                "and goes on; wait() for it again, or cancel() it",
                id,
            )
        return snapshot


def about_storing(error: StorageUnavailable, jobs: Sequence[NewJob]) -> StorageUnavailable:
    """Return the error of a put, with the answer to whether its jobs may have been stored."""
    if error.uncertain is None:
        return error
    if not error.uncertain:
        text = "nothing was stored"
    elif len(jobs) == 1:
        text = f"the job may have been stored: enqueue it again with the same id, {jobs[0].id!r}"
    else:
        text = f"some of the {len(jobs)} jobs may have been stored: enqueue them again with the same ids"
    more = StorageUnavailable(f"{error}; {text}")
    more.uncertain = error.uncertain
    return more


def _clearable(state: State | StateName | Iterable[State | StateName] | None) -> list[State]:
    """Return the states that `clear` walks through; raises `ValueError` for a wrong one."""
    if state is None:
        return [each for each in State if each in FINISHED]
    given = [as_state(state)] if isinstance(state, str) else map(as_state, state)
    states = list(dict.fromkeys(given))
    if State.RUNNING in states:
        raise ValueError("state must not be running: cancel running jobs instead")
    return states


def _conflict(item: Any) -> OnConflict | None:
    return item.on_conflict if isinstance(item, Entry) else None


def _seconds(timeout: Span | None) -> float | None:
    return None if timeout is None else span_ms(timeout, "timeout") / 1000


async def _chunks(entries: Iterable[Any] | AsyncIterable[Any]) -> AsyncIterator[list[Any]]:
    """Yield the items of any iterable in lists of `CHUNK`."""
    if isinstance(entries, AsyncIterable):
        chunk: list[Any] = []
        async for item in entries:
            chunk.append(item)
            if len(chunk) == CHUNK:
                yield chunk
                chunk = []
        if chunk:
            yield chunk
        return
    left = iter(entries)
    while chunk := list(islice(left, CHUNK)):
        yield chunk
