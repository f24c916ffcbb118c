"""The producer's side of one queue: enqueue, wait, reserve, cancel, retry, pause."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Unpack

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from penstock.aio import refused_in_plain_handlers
from penstock.client.answers import Cancelled, Discarded, DiscardStatus, Enqueued
from penstock.client.entry import CommonOptions, Entry, JobOptions, OnConflict, entry_fields, job_fields, options_of
from penstock.client.queue_reader import QueueReader, as_state
from penstock.client.reservation import Reservation
from penstock.client.reservations import ReservationManager
from penstock.client.results import ResultWaiter
from penstock.errors import (
    CallTimeout,
    DuplicateJob,
    InvalidPayload,
    JobNotFound,
    NotDurable,
    QueueFull,
    StorageUnavailable,
)
from penstock.model.clock import Span, span_ms
from penstock.model.formats import RawSerde
from penstock.model.ids import check_name, new_id, new_ids, new_token
from penstock.model.job import FINISHED, NewJob, Snapshot, State, StateName
from penstock.model.presets import NO_PRESET
from penstock.model.serde import Codec, Serde, decode, encode, innermost, with_innermost
from penstock.storage.base import CANCEL_MODES, MAX_BATCH, CancelMode, DiscardAnswer, Put, PutStatus

__all__ = ["Queue"]

#: How many jobs `enqueue_many` sends in one round trip.
CHUNK = 500
#: How many bytes of payload it sends in one round trip to a queue with `max_queued`.
CHUNK_BYTES = 4_000_000

QUEUED = PutStatus.QUEUED

#: The states that `cancel_matching` searches, in this order: successors go before the runs they wait for.
CANCELLABLE = (State.BLOCKED, State.QUEUED, State.RETRYING, State.SCHEDULED, State.RUNNING)


GONE = DiscardStatus.DISCARDED
_DISCARDS: dict[DiscardAnswer, DiscardStatus] = {
    "cancelled": GONE,
    "discarded": GONE,
    "running": DiscardStatus.RUNNING,
    "kept": DiscardStatus.NOT_FOUND,
    "not_found": DiscardStatus.NOT_FOUND,
}


@refused_in_plain_handlers(lambda queue: queue._host.driven)
class Queue(QueueReader):
    """A named queue of jobs, for producers. Get one from `app.queue(name)`."""

    # enqueue and wait -----------------------------------------------------------------------------

    async def enqueue(self, payload: Any, **options: Unpack[JobOptions]) -> Enqueued:
        """Add a job, with the options of `Entry`: if its id is taken, `on_conflict` decides, by default "reject"."""
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
                jobs = self._build_jobs(entries)
                for at, end in self._parts(jobs):
                    answers += await self._put_many(jobs[at:end], entries[at:end])
            else:
                async for chunk in _chunks(entries):
                    jobs = self._build_jobs(chunk)
                    for at, end in self._parts(jobs):
                        answers += await self._put_many(jobs[at:end], chunk[at:end])
        except QueueFull as full:
            raise QueueFull(full.queue, full.waiting, full.max_queued, full.count, answers) from None
        return answers

    def build_job(self, payload: Any, fresh_id: str = "", /, **options: Unpack[JobOptions]) -> NewJob:
        """Check a job's options and encode its payload, without storing it.

        A job without an id gets `fresh_id`, or a new id. Raises `TypeError` or `ValueError` for an
        option, and `InvalidPayload` for a payload that cannot be encoded or is too large.
        """
        preset = self._host.defaults
        given = options if preset is NO_PRESET else preset.job_options(options, self.name)
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
        kept is returned at once. A job that fails or is cancelled raises `JobFailed` or `JobCancelled`.
        """
        seconds = _seconds(timeout)
        if run_timeout is UNSET:
            job = self.build_job(payload, **options)
        else:
            if run_timeout is not None:
                span_ms(run_timeout, "run_timeout", zero=False)
            job = self.build_job(payload, timeout=run_timeout, **options)
        answer = await self._put(replace(job, waiter=new_token()), options.get("on_conflict"))
        if answer.status is PutStatus.COMPLETED:
            return answer.result
        return await self._wait_result(job.id, seconds, read_first=False)

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

    async def retry(self, ids: str | Iterable[str], *, completed: bool = False) -> int:
        """Enqueue failed or cancelled jobs again with all counts zero; returns the number of jobs revived.

        With `completed=True` completed jobs too: they run once more, and their results are dropped.
        """
        if not isinstance(completed, bool):
            raise TypeError(f"completed must be True or False, not {type(completed).__name__}")
        wanted = [check_name(id, "ids") for id in ([ids] if isinstance(ids, str) else ids)]
        storage = await self._host.opened()
        revived = 0
        for at in range(0, len(wanted), MAX_BATCH):
            chunk = wanted[at : at + MAX_BATCH]
            for id, done in zip(chunk, await storage.revive(self.name, chunk, completed), strict=True):
                if done:
                    revived += 1
                    self._host.emit("enqueued", queue=self.name, id=id)
        return revived

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

    async def pause(self) -> bool:
        """Stop claims of this queue by all workers until `resume`; False if it was paused already."""
        return await (await self._host.opened()).set_paused(self.name, True)

    async def resume(self) -> bool:
        """Allow claims again; False if the queue was not paused."""
        return await (await self._host.opened()).set_paused(self.name, False)

    async def delete(self) -> int:
        """Delete the queue and every job in it in one step; outcomes of running jobs are lost. Returns their number."""
        count = await (await self._host.opened()).delete_queue(self.name)
        self._host.emit("queue_deleted", queue=self.name)
        return count

    # helpers --------------------------------------------------------------------------------------

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
        if put.status in (PutStatus.DUPLICATE, PutStatus.COMPLETED):
            if (self._host.defaults.on_conflict if on_conflict is None else on_conflict) == "raise":
                raise DuplicateJob(f"there is a job {job.id!r} in queue {self.name!r} already; it is {put.state}")
        else:
            self._host.emit("updated" if put.status is PutStatus.UPDATED else "enqueued", queue=self.name, id=job.id)
        result = None if put.result is None else decode(self._host.codec(self.name).result_for(job.id), put.result)
        return Enqueued(id=job.id, status=put.status, state=put.state, result=result, durability=put.durability)

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
        return [Cancelled.of(*each) for each in zip(ids, answers, strict=True)]

    async def _discard(
        self, ids: Sequence[str], state: State | None = None, before: int | None = None
    ) -> list[DiscardAnswer]:
        answers = await (await self._host.opened()).discard(self.name, ids, state, before)
        for id, answer in zip(ids, answers, strict=True):
            if answer == "cancelled":
                self._host.emit("cancelled", queue=self.name, id=id)
        return answers

    async def _wait_result(self, id: str, timeout: float | None, *, read_first: bool = True) -> Any:
        """Return the result of a job once it has finished; raises the reason if it has none."""
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
        return self._result(snapshot)


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


def payload_matcher(codec: Codec, payload: Any) -> Callable[[Snapshot], bool]:
    """Return a function that returns whether a job has this payload.

    Wrappers may give different bytes for the same value, and bytes that are valid for one job only, so the bytes
    inside them are compared.
    """
    inner = innermost(codec.payload)
    data = encode(inner, payload, "payload") if inner is codec.payload else _encode_inner(codec.payload, payload)

    def matches(job: Snapshot) -> bool:
        if job.format is not None:
            return False
        if inner is codec.payload:
            return job.payload == data
        try:
            return decode(with_innermost(codec.payload_for(job.id), RawSerde()), job.payload) == data
        except InvalidPayload:
            return False

    return matches


def _encode_inner(serde: Serde, payload: Any) -> bytes:
    """Return the bytes of a payload inside the wrappers; an error has no part of the value."""
    return decode(with_innermost(serde, RawSerde()), encode(serde, payload, "payload"))


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
    iterator = iter(entries)
    while chunk := list(islice(iterator, CHUNK)):
        yield chunk
