"""Redis storage: one script call per verb, on Redis, Valkey, Sentinel and Cluster."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator, Awaitable, Collection, Iterable, Sequence
from itertools import chain, repeat
from typing import Any, Self

from msgspec.structs import replace

from penstock.model.activity import WorkerRequest
from penstock.model.clock import Clock
from penstock.model.durability import Durability
from penstock.model.ids import family_of
from penstock.model.job import NewJob, Snapshot, State
from penstock.model.limit import Rule
from penstock.model.pause import Pause
from penstock.model.storage_info import QueueMeter, ServerInfo
from penstock.storage.base import (
    CANCEL_MODES,
    FIND_ORDER,
    MAX_BATCH,
    MAX_BYTES,
    CancelAnswer,
    CancelMode,
    Claimed,
    ClaimRef,
    DiscardAnswer,
    EndNotice,
    EventRecord,
    JobPosition,
    OpenClaim,
    Page,
    Put,
    PutStatus,
    Reaped,
    Renewal,
    Request,
    Settled,
    Settlement,
    WorkerRecord,
)
from penstock.storage.limiting import LimitPage, LimitRecord, Scope
from penstock.storage.observing import check_find
from penstock.storage.redis.auditing import RedisAuditing
from penstock.storage.redis.chunks import by_queue, chunks
from penstock.storage.redis.claim import Claimer
from penstock.storage.redis.cluster_families import ClusterFamilies
from penstock.storage.redis.confirm import Confirmer
from penstock.storage.redis.connection import Connection
from penstock.storage.redis.cursors import Cursor, read_cursor
from penstock.storage.redis.encoding import (
    encode_settlements,
    fence,
    pack,
    read_snapshot,
    read_worker,
    text,
)
from penstock.storage.redis.end_notices import Joined
from penstock.storage.redis.event_codec import encode_announcement
from penstock.storage.redis.fast_path import encode_completions, settlement_slices
from penstock.storage.redis.inspection import Inspector
from penstock.storage.redis.keys import Keys
from penstock.storage.redis.limits import Limiter
from penstock.storage.redis.notifier import Notifier
from penstock.storage.redis.observing import RedisObserving
from penstock.storage.redis.position import Explainer
from penstock.storage.redis.put import PutBatcher, PutCalls
from penstock.storage.redis.recording import RedisRecording
from penstock.storage.redis.restore import Restorer
from penstock.storage.redis.scheduling import RedisScheduling
from penstock.storage.redis.schema import Schema
from penstock.storage.redis.script_calls import ScriptCall, ScriptCalls

__all__ = ["RedisStorage"]

_RENEWALS = [Renewal(False), Renewal(True), *(Renewal(True, mode) for mode in CANCEL_MODES[1:])]
#: The statuses of `cancel.lua`, by their numbers.
_CANCELS = ("not_found", "completed", "failed", "cancelled", "running", "cancel_requested")
_COMPLETED = Settled(State.COMPLETED)
_LOST = Settled(None, lost=True)
#: One script purges at most this many records of a queue: each one may have an error, histories and a window too.
_PURGED = 500


class RedisStorage(RedisScheduling, RedisObserving, RedisRecording, RedisAuditing):
    """A `Storage` on a Redis or Valkey server.

    `clock` replaces the server's time, and `fast` turns the fast paths off; both are for tests.
    """

    def __init__(
        self, url: str, *, clock: Clock | None = None, namespace: str = "penstock",
        durability: Durability | None = None, fast: bool = True,
    ) -> None:  # fmt: skip
        self._clock = clock
        self._durability = durability
        self._fast = fast
        connection = self._connect(url)
        self._keys = Keys(namespace, cluster=connection.cluster, database=connection.database)
        self._schema = Schema(self._keys)
        self._notifier = Notifier(connection, self._keys, self._join_waiters, self._leave_waiters, self._wake)
        #: Whether claims can be left open (`OpensClaims`). They cannot on a Cluster, nor if the server does not allow
        #: CLIENT UNBLOCK. They are not with a test clock, because a call carries the time at which it was sent.
        self.opens_claims = clock is None and fast and not connection.cluster
        self._build(connection)

    def _build(self, connection: Connection) -> None:
        """Make the parts that send calls over this connection."""
        keys, durability = self._keys, self._durability
        self._connection = connection
        calls = self._calls = ScriptCalls(connection, keys, self._schema, self._clock, fast=self._fast)
        self._confirmer = None if durability is None else Confirmer(connection, durability)
        families = self._families = ClusterFamilies(connection, keys)
        self._put_calls = PutCalls(connection, keys, calls, families, self._schema, self._confirmer)
        # On a Cluster, and where puts are confirmed, each call has a connection of its own: two would have no order.
        self._batcher = PutBatcher(self._put_calls, 1 if connection.cluster or durability else 2)
        self._claimer = Claimer(connection, keys, calls, self.settle, self._disable_open_claims)
        self._inspector = Inspector(connection, keys, calls)
        self._restorer = Restorer(connection, calls, families, self._schema)
        self._limiter = Limiter(connection, keys, calls, families, self._schema)
        self._explainer = Explainer(connection, keys, calls)

    def bounded(self, timeout: float) -> Self:
        """Return this storage for producers: each request ends within these seconds; see `bound_requests`."""
        bounded = copy.copy(self)
        bounded._build(self._connection.bounded(timeout))
        return bounded

    def __repr__(self) -> str:
        return f"RedisStorage({self._connection.where!r}, namespace={self._keys.namespace!r})"

    @staticmethod
    def _connect(url: str) -> Connection:
        return Connection(url)

    @property
    def format(self) -> int:
        """The newest record format that this storage reads, and the one it writes."""
        return self._calls.format

    @format.setter
    def format(self, format: int) -> None:
        self._schema.format = format

    # opening ---------------------------------------------------------------------------------------

    async def open(self) -> None:
        await self._connection.open()
        try:
            await self._check()
        except BaseException:
            await self.close()
            raise

    async def _check(self) -> None:
        await self._schema.check(self._connection)
        if self._confirmer is not None:
            await self._confirmer.check(self._keys.schema)

    async def close(self) -> None:
        await self._notifier.close()
        await self._connection.close()

    # transitions -----------------------------------------------------------------------------------

    async def put(self, jobs: Sequence[NewJob], max_queued: int | None = None) -> list[Put]:
        if (len(jobs) == 1 and jobs[0].waiter is None) or not (awaited := [j for j in jobs if j.waiter is not None]):
            return await self._put(jobs, max_queued)
        ends = self._notifier.ends
        if (waiter := await ends.expect(awaited)) is not None:
            jobs = [job if job.waiter is None else replace(job, waiter=waiter) for job in jobs]
        try:
            answers = await self._put(jobs, max_queued)
        except BaseException:
            ends.forget([(job.queue, job.id) for job in awaited])
            raise
        over = [a.status is PutStatus.COMPLETED or a.refused for a in answers]
        ends.forget([(job.queue, job.id) for job, done in zip(jobs, over, strict=True) if done], joined=False)
        return answers

    def _put(self, jobs: Sequence[NewJob], max_queued: int | None) -> Awaitable[list[Put]]:
        if max_queued is None or not jobs:
            return self._batcher.put(jobs)
        return self._put_calls.send_bounded(jobs, max_queued)

    async def claim(self, requests: Sequence[Request], worker: str, lease: int, token: str) -> Claimed:
        return await self._claimer.claim(requests, worker, lease, token)

    def _disable_open_claims(self) -> None:
        self.opens_claims = False

    def open_claim(
        self, queues: Sequence[str], requests: Sequence[Request], worker: str, lease: int, token: str, seconds: float
    ) -> OpenClaim:
        """Prepare a claim that is left open; see `OpensClaims`."""
        return self._claimer.open_claim(queues, requests, worker, lease, token, seconds)

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        answers: list[Settled] = [_LOST] * len(settlements)
        calls: list[ScriptCall] = []
        settled: list[Sequence[int]] = []  # of each call the indexes of its settlements
        ordered = False
        for queue, indexes in chunks(settlements):
            chosen = settlements if len(indexes) == len(settlements) else [settlements[i] for i in indexes]
            encoded = self._encode_settlements(chosen)
            ordered |= self._keys.cluster and len(encoded) > 1
            for start, end, args, also in encoded:
                if also:
                    self._check_families(queue, also)
                    ordered |= self._keys.cluster
                calls.append(self._calls.build("settle", queue, args, also))
                settled.append(indexes[start:end])
        if len(calls) == 1 or ordered:  # the nodes of a Cluster do not wait for each other
            given = [await self._connection.run(*call, repeat=True) for call in calls]
        else:
            given = await self._connection.run_many(calls, repeat=True) if calls else []
        rest: list[int] = []
        for indexes, codes in zip(settled, given, strict=True):
            each: Iterable[Any] = repeat(1, len(indexes)) if codes == 1 else codes
            for i, answer in zip(indexes, each, strict=False):
                answers[i] = _COMPLETED if answer == 1 else _LOST if answer == 0 else Settled(State(answer.decode()))
            if codes != 1:
                rest += indexes[len(codes) :]
        if rest:  # their records were too long for one call
            for i, answer in zip(rest, await self.settle([settlements[i] for i in rest]), strict=True):
                answers[i] = answer
        return answers

    def _encode_settlements(self, settlements: Sequence[Settlement]) -> list[tuple[int, int, list[Any], set[str]]]:
        """Encode settlements of one queue for one or more calls: start, end, arguments, queues of follow-up jobs."""
        count = len(settlements)
        slices = settlement_slices(settlements) if self._calls.fast else [(0, count, False)]
        if len(slices) > 1 and self._keys.cluster:  # calls of one packet have no order there
            slices = [(0, count, False)]
        encoded: list[tuple[int, int, list[Any], set[str]]] = []
        slices.reverse()
        while slices:
            start, end, plain = slices.pop()
            chosen = settlements if end - start == count else settlements[start:end]
            args = encode_completions(chosen) if plain else encode_settlements(chosen, self._keys.prefix)
            if sum(map(len, args)) > MAX_BYTES and end - start > 1:
                half = start + (end - start) // 2
                slices += [(half, end, plain), (start, half, plain)]
                continue
            also = set[str]() if plain else {new.queue for s in chosen for new in getattr(s.resolution, "then", ())}
            encoded.append((start, end, args, also))
        return encoded

    def _check_families(self, queue: str, also: set[str]) -> None:
        if self._keys.cluster:
            for other in also:
                if family_of(other) != family_of(queue):
                    raise ValueError(
                        f"on Redis Cluster a follow-up stays in its family: {other!r} is not in {family_of(queue)!r}"
                    )

    async def renew(self, worker: str, held: Sequence[ClaimRef], lease: int) -> list[Renewal]:
        answers = [Renewal(False)] * len(held)
        calls: list[tuple[list[int], Any]] = []
        for queue, indexes in by_queue(held):
            named = pack([[held[i].id, fence(held[i].token)] for i in indexes])
            calls.append((indexes, self._calls.build("renew", queue, (lease, named))))
        if calls:
            given = await self._connection.run_many([call for _, call in calls], repeat=True)
            for (indexes, _), codes in zip(calls, given, strict=True):
                for i, code in zip(indexes, codes, strict=True):
                    answers[i] = _RENEWALS[code]
        return answers

    async def reap(self, queues: Sequence[str], limit: int = MAX_BATCH) -> list[Reaped]:
        names = list(dict.fromkeys(queues))
        if not names:
            return []
        reaped: list[Reaped] = []
        left = dict.fromkeys(names, min(limit, MAX_BATCH))
        while left:
            calls = [self._calls.build("reap", name, (count,)) for name, count in left.items()]
            for name, (again, *flat) in zip([*left], await self._connection.run_many(calls, repeat=True), strict=True):
                for at in range(0, len(flat), 4):
                    id, state, worker, attempt = (text(part) for part in flat[at : at + 4])
                    reaped.append(Reaped(name, id, State(state), worker, int(attempt)))
                left[name] -= len(flat) // 4
                if not again or left[name] <= 0:
                    del left[name]
        return reaped

    async def cancel(
        self, queue: str, ids: Sequence[str], running: CancelMode = "refuse", ttl: int | None = 0
    ) -> list[CancelAnswer]:
        answers: list[CancelAnswer] = []
        while len(answers) < len(ids):
            chosen = ids[len(answers) : len(answers) + MAX_BATCH]
            args = running, -1 if ttl is None else ttl, self._keys.cancel(""), *chosen
            codes: list[int] = await self._calls.run_once("cancel", queue, *args)
            answers += [CancelAnswer(_CANCELS[code % 8], bool(code & 8), bool(code & 16)) for code in codes]
        return answers

    async def discard(
        self, queue: str, ids: Sequence[str], state: State | None = None, before: int | None = None
    ) -> list[DiscardAnswer]:
        answers: list[DiscardAnswer] = []
        fixed = "" if state is None else state.value, -1 if before is None else before
        while len(answers) < len(ids):
            chosen = ids[len(answers) : len(answers) + MAX_BATCH]
            answers += [a.decode() for a in await self._calls.run_once("discard", queue, *fixed, *chosen)]
        return answers

    async def revive(self, queue: str, ids: Sequence[str], completed: bool = False) -> list[bool]:
        answers: list[bool] = []
        while len(answers) < len(ids):
            chosen = ids[len(answers) : len(answers) + MAX_BATCH]
            codes = await self._calls.run_once("revive", queue, int(completed), *chosen)
            answers += [code == 1 for code in codes]
        return answers

    async def purge(self, queues: Sequence[str], limit: int = MAX_BATCH) -> int:
        names = list(dict.fromkeys(queues))
        count, left = 0, dict.fromkeys(names, min(limit, MAX_BATCH))
        while left:
            calls = [self._calls.build("purge", name, (min(most, _PURGED),)) for name, most in left.items()]
            counts: list[int] = await self._connection.run_many(calls, repeat=True)
            count += sum(counts)
            purged = zip(left.items(), counts, strict=True)
            left = {name: most - got for (name, most), got in purged if got >= _PURGED and most > got}
        await self._families.drop_empty(names)
        return count

    async def set_pause(
        self, queue: str, paused: bool, until: int | None = None, by: str = "", group: str | None = None
    ) -> bool:
        return await self._limiter.set_pause(queue, paused, until, by, group)

    async def delete_queue(self, queue: str, settings: bool = False) -> int:
        count = int(await self._calls.run_once("delete_queue", queue, int(settings)))
        await self._families.drop_empty([queue])
        return count

    async def set_ttl(self, queue: str, id: str, ttl: int | None) -> bool:
        return await self._calls.run_once("set_ttl", queue, id, -1 if ttl is None else ttl) == 1

    # reads -----------------------------------------------------------------------------------------

    async def _read(self, name: str, queue: str, *args: Any) -> Any:
        """Run a script that only reads and return its answer; if that is 0, `expire` must end expired jobs first."""
        while (answer := await self._calls.run(name, queue, *args)) == 0:
            await self._calls.run("expire", queue)
        return answer

    async def get(self, queue: str, ids: Sequence[str]) -> list[Snapshot | None]:
        found: list[Snapshot | None] = []
        while len(found) < len(ids):
            chosen = ids[len(found) : len(found) + MAX_BATCH]
            now, *rows = await self._read("get", queue, *chosen)
            for id, row in zip(chosen, rows, strict=False):  # long records come in several answers
                found.append(None if row == 0 else read_snapshot(queue, id, int(now), *row, format=self.format))
        return found

    async def find(
        self, queue: str, state: State | None = None, after: str | None = None, limit: int = 100, newest: bool = False,
        group: str | None = None,
    ) -> Page:  # fmt: skip
        check_find(state, limit, group)
        states = FIND_ORDER if state is None else (state,)
        cursor: Cursor | None = read_cursor(after, states)
        found: list[tuple[Snapshot, Cursor]] = []
        size = 0
        while cursor is not None and len(found) <= limit and size < MAX_BYTES:
            want = min(limit + 1 - len(found), MAX_BATCH)  # one more, to know whether this is the end
            again, following, rows = await self._calls.run(
                "find", queue, cursor.state.value, cursor.position, want, int(newest), MAX_BYTES - size, group or ""
            )
            if again:
                continue
            found += self._read_rows(queue, cursor.state, rows)
            size += sum(len(part) for row in rows[1:] for part in row if part is not None)
            cursor = Cursor(cursor.state, following) if following else cursor.next_state(states)
        if len(found) > limit:
            cursor = found[limit - 1][1]
        return Page([snapshot for snapshot, _ in found[:limit]], None if cursor is None else cursor.encode())

    def _read_rows(self, queue: str, state: State, rows: list[Any]) -> list[tuple[Snapshot, Cursor]]:
        now, *rest = rows
        read: list[tuple[Snapshot, Cursor]] = []
        for position, id, *parts in rest:
            snapshot = read_snapshot(queue, text(id), int(now), *parts, format=self.format)
            if snapshot:
                read.append((snapshot, Cursor(state, position)))
        return read

    async def peek(self, queue: str) -> Snapshot | None:
        while True:
            again, id = await self._calls.run("peek", queue)
            if not again:
                return (await self.get(queue, [text(id)]))[0] if id else None

    async def why(self, queue: str, id: str) -> JobPosition | None:
        return await self._explainer.why(queue, id)

    async def counts(self, queue: str) -> dict[State, int]:
        numbers = await self._read("counts", queue)
        return dict(zip(State, (int(n) for n in numbers[:8]), strict=True))

    async def paused(self, queue: str, group: str | None = None) -> Pause | None:
        return await self._limiter.paused(queue, group)

    async def queues(self) -> list[str]:
        found: list[str] = []
        for family in await self._families.all():
            names = [text(name) for name in await self._connection.command("SMEMBERS", self._keys.names(family))]
            calls = [self._calls.build("counts", name, ()) for name in names]
            counted = await self._connection.run_many(calls, repeat=True) if calls else []
            for name, numbers in zip(names, counted, strict=True):
                if numbers == 0:  # jobs must be expired first
                    numbers = await self._read("counts", name)
                if any(numbers) or (await self.schedules(name, limit=1)).schedules:
                    found.append(name)
        return sorted(found)

    async def beat(self, worker: str, ttl: int, info: bytes = b"") -> WorkerRequest | None:
        if ttl:
            await self._schema.write(self._connection)
        else:
            await self._notifier.forget_worker(worker)
        asked = text(await self._calls.run_for_workers("beat", worker, ttl, info, self._keys.requests))
        return asked if asked in ("quiet", "stop") else None

    async def workers(self) -> list[WorkerRecord]:
        found: dict[str, WorkerRecord] = {}
        cursor = b"0"
        while True:
            cursor, flat = await self._calls.run_for_workers("workers", cursor)
            read = (read_worker(flat[i], flat[i + 1]) for i in range(0, len(flat), 2))
            found |= {worker.id: worker for worker in read if worker is not None}
            if cursor == b"0":
                return sorted(found.values(), key=lambda worker: worker.id)

    # waits and events ------------------------------------------------------------------------------

    async def wait_work(self, queues: Sequence[str], timeout: float) -> bool:
        return await self._notifier.wait_work(queues, timeout)

    async def wait_done(self, queue: str, id: str, timeout: float) -> bool | EndNotice:
        return await self._notifier.ends.wait_done(queue, id, timeout)

    async def _join_waiters(self, queue: str, ids: list[str], waiter: str) -> list[Joined]:
        """Ask for notices of the ends of jobs."""
        return [Joined(code) for code in await self._calls.run("wait_done", queue, "join", waiter, *ids)]

    async def _leave_waiters(self, queue: str, ids: Sequence[str], waiter: str) -> None:
        """Take requests for notices back."""
        await self._calls.run("wait_done", queue, "leave", waiter, *ids)

    async def _wake(self, queues: Sequence[str]) -> None:
        """Wake an idle worker for each of these queues that has jobs."""
        await self._connection.run_many([self._calls.build("wake", queue, ()) for queue in queues], repeat=True)

    async def wait_cancel(self, worker: str, timeout: float) -> bool:
        return await self._notifier.wait_cancel(worker, timeout)

    def events(self, queue: str | None = None, names: Collection[str] | None = None) -> AsyncIterator[EventRecord]:
        return self._notifier.events(queue, names)

    async def announce(self, notes: Sequence[EventRecord]) -> None:
        await self._calls.run_for_workers("announce", *chain.from_iterable(map(encode_announcement, notes)))

    async def time(self) -> int:
        if self._clock is not None:
            return int(self._calls.now())
        seconds, micros = await self._connection.command("TIME")
        return int(seconds) * 1000 + int(micros) // 1000

    # limits ----------------------------------------------------------------------------------------

    async def set_limit(self, scope: Scope, rule: Rule | None, settings: bytes, version: int) -> int | None:
        return await self._limiter.set_limit(scope, rule, settings, version)

    async def get_limit(self, scope: Scope) -> LimitRecord:
        return await self._limiter.get_limit(scope)

    async def limits(self, queue: str, after: str | None = None, limit: int = 100) -> LimitPage:
        return await self._limiter.limits(queue, after, limit)

    # inspection and restore ------------------------------------------------------------------------

    @property
    def where(self) -> str:
        """The URL without credentials."""
        return self._connection.where

    async def inspect(self, check: bool = True) -> ServerInfo:
        """Read the state of the servers; `check` makes no difference here."""
        return await self._inspector.inspect()

    async def meters(self, queues: Sequence[str]) -> list[QueueMeter]:
        return await self._inspector.meters(queues)

    async def latest(self, queue: str, state: State, limit: int = 10) -> list[Snapshot]:
        return await self._inspector.latest(queue, state, limit)

    async def forget_namespace(self) -> None:
        await self._inspector.forget_namespace()

    async def restore(self, jobs: Sequence[Snapshot]) -> list[bool]:
        return await self._restorer.restore(jobs)
