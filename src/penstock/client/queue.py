"""The producer's side of one queue: enqueue, look, cancel, repair."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from penstock.client.answers import Cancelled, Enqueued
from penstock.client.entry import Entry, OnConflict, job_from, plain_job
from penstock.client.presets import Preset
from penstock.client.queue_reader import QueueReader
from penstock.client.reservation import Reservation
from penstock.client.reservations import ReservationManager
from penstock.client.results import ResultWaiter
from penstock.errors import CallTimeout, DuplicateJob, JobNotFound, NotDurable
from penstock.model.clock import Moment, Span, span_ms
from penstock.model.ids import check_name, new_id, new_ids, new_token
from penstock.model.job import FINISHED, NewJob, Snapshot, State
from penstock.model.serde import decode, encode
from penstock.storage.base import CANCEL_MODES, MAX_BATCH, CancelMode, Put, PutStatus

__all__ = ["Queue"]

#: How many jobs `enqueue_many` sends in one round trip.
CHUNK = 500

QUEUED = PutStatus.QUEUED

#: The states that `cancel_matching` looks through, in this order: successors go before the runs they follow.
CANCELLABLE = (State.BLOCKED, State.QUEUED, State.RETRYING, State.SCHEDULED, State.RUNNING)

#: The options of a job that has none but its priority, in the order in which `enqueue` and `call` give them.
USUAL = (*[None] * 6, *[UNSET] * 4)


class Queue(QueueReader):
    """A named line of jobs, as a producer sees it. Get one from `app.queue(name)`."""

    # asking ---------------------------------------------------------------------------------------

    async def enqueue(
        self,
        payload: Any,
        *,
        id: str | None = None,
        run_at: Moment | None = None,
        delay: Span | None = None,
        priority: int = 0,
        group: str | None = None,
        on_conflict: OnConflict | None = None,
        timeout: Span | UnsetType | None = UNSET,
        max_attempts: int | UnsetType | None = UNSET,
        max_retries: int | UnsetType | None = UNSET,
        result_ttl: Span | UnsetType = UNSET,
        headers: Mapping[str, str] | None = None,
    ) -> Enqueued:
        """Add a job. With an id that is taken, `on_conflict` says what happens; by default nothing does."""
        host = self._host
        options = (id, run_at, delay, group, on_conflict, headers, timeout, max_attempts, max_retries, result_ttl)
        if _usual(options, priority, payload) and host.defaults.plain:  # on a way of its own
            job = plain_job(payload, self.name, host.codec(self.name).payload, host.max_payload, new_id())
            [put] = await (host.storage if host.is_open else await host.opened()).put([job])
            if put.status is QUEUED and put.durability is None and not host.listeners:
                return Enqueued(id=job.id, status=QUEUED, state=put.state)
            return self._confirmed([self._enqueued(payload, job, put)])[0]
        entry = Entry(
            payload, id=id, run_at=run_at, delay=delay, priority=priority, group=group, on_conflict=on_conflict,
            timeout=timeout, max_attempts=max_attempts, max_retries=max_retries, result_ttl=result_ttl,
            headers=headers,
        )  # fmt: skip
        return (await self._put([entry], [self.new_job(entry)]))[0]

    async def enqueue_many(self, entries: Iterable[Any] | AsyncIterable[Any]) -> list[Enqueued]:
        """Add many jobs, given as payloads or `Entry` objects, a few hundred in each round trip.

        A list is checked wholly before anything is stored; an iterator chunk by chunk. With
        `on_conflict="raise"`, what stood before the duplicate in the same chunk is stored.
        """
        if isinstance(entries, str | bytes | Mapping):
            raise TypeError("entries must be a list or an iterator of payloads, not one payload")
        answers: list[Enqueued] = []
        if isinstance(entries, Sequence):
            jobs = self._new_jobs(entries)
            for at in range(0, len(jobs), CHUNK):
                answers += await self._put(entries[at : at + CHUNK], jobs[at : at + CHUNK])
        else:
            async for chunk in _chunks(entries):
                answers += await self._put(chunk, self._new_jobs(chunk))
        return answers

    def new_job(self, entry: Entry) -> NewJob:
        """Check an entry and encode it, without storing it."""
        return job_from(self._meant(entry), self.name, self._host.codec(self.name).payload, self._host.max_payload)

    async def call(
        self,
        payload: Any,
        *,
        timeout: Span | None = 30,
        id: str | None = None,
        run_at: Moment | None = None,
        delay: Span | None = None,
        priority: int = 0,
        group: str | None = None,
        on_conflict: OnConflict | None = None,
        run_timeout: Span | UnsetType | None = UNSET,
        max_attempts: int | UnsetType | None = UNSET,
        max_retries: int | UnsetType | None = UNSET,
        result_ttl: Span | UnsetType = UNSET,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """Add a job, as `enqueue` does, and give its result; joins a job that has the id already.

        `timeout` is the caller's patience (None: for ever, 0: one look), after which `CallTimeout` is
        raised and the job goes on; `run_timeout` is what `timeout` is for `enqueue`. A result that is
        kept is given at once. A job that fails or is cancelled raises `JobFailed` or `JobCancelled`.
        """
        patience = _seconds(timeout)
        options = (id, run_at, delay, group, on_conflict, headers, run_timeout, max_attempts, max_retries, result_ttl)
        if _usual(options, priority, payload):
            item, [job] = payload, self._new_jobs([payload])
        else:
            if run_timeout is not UNSET and run_timeout is not None:
                span_ms(run_timeout, "run_timeout", zero=False)
            item = Entry(
                payload, id=id, run_at=run_at, delay=delay, priority=priority, group=group, on_conflict=on_conflict,
                timeout=run_timeout, max_attempts=max_attempts, max_retries=max_retries, result_ttl=result_ttl,
                headers=headers,
            )  # fmt: skip
            job = self.new_job(item)
        [answer] = await self._put([item], [replace(job, waiter=new_token())])
        if answer.status is PutStatus.COMPLETED:
            return answer.result
        return await self._outcome(job.id, patience, look=False)

    async def wait(self, id: str, timeout: Span | None = None) -> Any:
        """The result of a job enqueued earlier, when it has one; raises what `call` raises."""
        check_name(id, "id")
        await self._host.opened()
        return await self._outcome(id, _seconds(timeout))

    async def reserve(self, limit: int = 1, wait: Span | None = None, lease: Span | None = None) -> list[Reservation]:
        """Take up to `limit` jobs to work on here: as soon as there is one, none after `wait` seconds.

        They are held until each is settled, or the app is closed. Without `wait` the answer comes at
        once. The rules are those of the queue's handler, if it is registered here.
        """
        if isinstance(limit, bool) or not isinstance(limit, int):
            raise TypeError(f"limit must be an int, not {type(limit).__name__}")
        if not 1 <= limit <= MAX_BATCH:
            raise ValueError(f"limit must be between 1 and {MAX_BATCH}, not {limit}")
        seconds = 0.0 if wait is None else span_ms(wait, "wait") / 1000
        lease_ms = span_ms(self._host.lease if lease is None else lease, "lease", zero=False)
        reservations: ReservationManager = self._host.reservations
        return await reservations.reserve(self.name, limit, seconds, lease_ms)

    # changing -------------------------------------------------------------------------------------

    async def cancel(self, id: str, running: CancelMode | None = None) -> Cancelled:
        """Take a waiting job back; a running one is treated as `running` says.

        If that is not given, the preset says it; without one it is "refuse".
        """
        check_name(id, "id")
        return (await self._cancel([id], self._mode(running)))[0]

    async def cancel_matching(self, payload: Any, running: CancelMode | None = None) -> list[str]:
        """Cancel every job with this payload; gives the ids of those cancelled or asked to end.

        Encoded bytes are compared, a page of jobs at a time. A matching run whose successor does not
        match is left alone: a cancel would take the successor.
        """
        running = self._mode(running)
        data = encode(self._host.codec(self.name).payload, payload, "payload")
        others: set[str] = set()
        cancelled: list[str] = []
        for state in CANCELLABLE:
            if state is State.RUNNING and running == "refuse":
                continue
            cursor: str | None = None
            while True:
                page = await (await self._host.opened()).find(self.name, state, cursor, CHUNK)
                if state is State.BLOCKED:
                    others.update(job.id for job in page.jobs if not _matches(job, data))
                ids = [job.id for job in page.jobs if _matches(job, data) and job.id not in others]
                cancelled += [each.id for each in await self._cancel(ids, running) if each or each.requested]
                cursor = page.cursor
                if cursor is None:
                    break
        return cancelled

    async def retry(self, ids: str | Iterable[str]) -> int:
        """Put failed or cancelled jobs back in line with all counts zero; gives how many there were."""
        wanted = [check_name(id, "ids") for id in ([ids] if isinstance(ids, str) else ids)]
        storage = await self._host.opened()
        revived = 0
        for at in range(0, len(wanted), MAX_BATCH):
            chunk = wanted[at : at + MAX_BATCH]
            for id, done in zip(chunk, await storage.revive(self.name, chunk), strict=True):
                if done:
                    revived += 1
                    self._host.emit("enqueued", queue=self.name, id=id)
        return revived

    async def update_result_ttl(self, id: str, ttl: Span | None) -> bool:
        """Keep a finished job for this long from now, None for ever; False when it is not there or not finished."""
        check_name(id, "id")
        ms = None if ttl is None else span_ms(ttl, "ttl")
        return await (await self._host.opened()).set_ttl(self.name, id, ms)

    async def pause(self) -> bool:
        """Hand out no more jobs, anywhere, until `resume`; False when it was paused already."""
        return await (await self._host.opened()).set_paused(self.name, True)

    async def resume(self) -> bool:
        """Hand out jobs again; False when it was not paused."""
        return await (await self._host.opened()).set_paused(self.name, False)

    async def delete(self) -> int:
        """Remove the queue and every job in it at once; running ones go unheard. Gives how many there were."""
        count = await (await self._host.opened()).delete_queue(self.name)
        self._host.emit("queue_deleted", queue=self.name)
        return count

    # helpers --------------------------------------------------------------------------------------

    async def _put(self, items: Sequence[Any], jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Store jobs; the items are what they were made of, payloads or entries."""
        if not jobs:
            return []
        puts = await (await self._host.opened()).put(jobs)
        if self._host.listeners or puts[0].durability is not None:
            answers = [self._enqueued(*each) for each in zip(items, jobs, puts, strict=True)]
            return self._confirmed(answers)
        return [
            Enqueued(id=job.id, status=QUEUED, state=put.state)
            if put.status is QUEUED
            else self._enqueued(item, job, put)
            for item, job, put in zip(items, jobs, puts, strict=True)
        ]

    def _enqueued(self, item: Any, job: NewJob, put: Put) -> Enqueued:
        if put.status in (PutStatus.DUPLICATE, PutStatus.COMPLETED):
            if self._meant(_entry(item)).on_conflict == "raise":
                raise DuplicateJob(f"there is a job {job.id!r} in queue {self.name!r} already; it is {put.state}")
        else:
            self._host.emit("updated" if put.status is PutStatus.UPDATED else "enqueued", queue=self.name, id=job.id)
        result = None if put.result is None else decode(self._host.codec(self.name).result, put.result)
        return Enqueued(id=job.id, status=put.status, state=put.state, result=result, durability=put.durability)

    def _confirmed(self, answers: list[Enqueued]) -> list[Enqueued]:
        """The answers, if all of them came as far as they should."""
        short = [each for each in answers if each.durability is not None and not each.durability]
        if short:
            jobs = f"job {short[0].id!r} is" if len(short) == 1 else f"{len(short)} jobs are"
            raise NotDurable(
                f"{jobs} stored in queue {self.name!r}, but only {short[0].durability}, and may be lost with "
                "the server; enqueue the same ids again to have them confirmed",
                short,
            )
        return answers

    def _new_jobs(self, items: Sequence[Any]) -> list[NewJob]:
        """Check and encode payloads and entries, without storing them."""
        name, serde, most = self.name, self._host.codec(self.name).payload, self._host.max_payload
        defaults: Preset = self._host.defaults
        plain = defaults.plain
        return [
            plain_job(item, name, serde, most, id)
            if plain and not isinstance(item, Entry)
            else job_from(self._meant(_entry(item)), name, serde, most, id)
            for item, id in zip(items, new_ids(len(items)), strict=True)
        ]

    def _meant(self, entry: Entry) -> Entry:
        """An entry with what its producer left to the app's preset."""
        defaults: Preset = self._host.defaults
        return defaults.entry(entry, self.name)

    def _mode(self, running: CancelMode | None) -> CancelMode:
        defaults: Preset = self._host.defaults
        mode = defaults.cancel if running is None else running
        if mode not in CANCEL_MODES:
            raise ValueError(f"running must be one of {', '.join(map(repr, CANCEL_MODES))}, not {mode!r}")
        return mode

    async def _cancel(self, ids: Sequence[str], running: CancelMode) -> list[Cancelled]:
        if not ids:
            return []
        storage = await self._host.opened()
        answers = await storage.cancel(self.name, ids, running, self._host.options(self.name).keep_ms)
        for id, answer in zip(ids, answers, strict=True):
            if answer.status in ("cancelled", "cancel_requested"):
                self._host.emit(answer.status, queue=self.name, id=id)
        return [Cancelled.of(*each) for each in zip(ids, answers, strict=True)]

    async def _outcome(self, id: str, patience: float | None, *, look: bool = True) -> Any:
        """The result of a job once it has ended, or the exception that says why there is none."""
        results: ResultWaiter = self._host.results
        snapshot = await results.wait(self.name, id, patience, look=look)
        if snapshot is None:
            raise JobNotFound(
                f"there is no job {id!r} in queue {self.name!r}: it was never enqueued, it was deleted, "
                "or it ended and was not kept (see result_ttl and retain)"
            )
        if snapshot.state not in FINISHED:
            raise CallTimeout(
                f"job {id!r} in queue {self.name!r} has not ended within {patience:g} s: it is {snapshot.state} "
                "and goes on; wait() for it again, or cancel() it"
            )
        return self._result(snapshot)


def _matches(job: Snapshot, data: bytes) -> bool:
    return job.payload == data and job.format is None


def _entry(item: Any) -> Entry:
    return item if isinstance(item, Entry) else Entry(item)


def _usual(options: tuple[Any, ...], priority: int, payload: Any) -> bool:
    """Whether a job is nothing but a payload, as most are."""
    return options == USUAL and type(priority) is int and priority == 0 and not isinstance(payload, Entry)


def _seconds(timeout: Span | None) -> float | None:
    return None if timeout is None else span_ms(timeout, "timeout") / 1000


async def _chunks(entries: Iterable[Any] | AsyncIterable[Any]) -> AsyncIterator[list[Any]]:
    """What any iterator gives, a round trip's worth at a time."""
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
