"""Actions that workers, supervisors and reservations share, so that they cannot differ: renew, reap, purge, emit."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from msgspec import MsgspecError
from msgspec.structs import replace

from penstock.errors import (
    AccessDenied,
    ErrorKind,
    InvalidPayload,
    JobError,
    StorageError,
    StorageUnavailable,
    StorageUnusable,
    VersionMismatch,
)
from penstock.host import AppHost
from penstock.model.hooks import Exchange, ExchangeHook, Within
from penstock.model.ids import new_id, new_token
from penstock.model.job import Claim, State
from penstock.model.options import HandlerOptions
from penstock.model.outcome import (
    Cancel,
    Complete,
    Fail,
    Outcome,
    Raised,
    Release,
    Resolution,
    Retried,
    Stall,
    Suspend,
    attempts_after,
    resolve,
    unrecordable,
)
from penstock.model.printing import escape_controls
from penstock.model.serde import decode
from penstock.storage.base import MAX_BATCH, ClaimRef, Reaped, Renewal, Settled, Settlement, Storage

__all__ = [
    "EndedClaim",
    "Ending",
    "HeldClaim",
    "Purger",
    "emit_settled",
    "reap_all",
    "renew_all",
    "set_outcome",
    "settle_all",
]

log = logging.getLogger("penstock.worker")

#: The errors of encoding a value, in any storage.
REFUSALS = (TypeError, ValueError, ArithmeticError, LookupError, AttributeError, RecursionError, MsgspecError)
#: The errors of a storage that cannot be used now or at all, whatever it is asked.
OUTAGES = (StorageUnavailable, StorageUnusable, AccessDenied, VersionMismatch)
#: How often one settlement is sent, while the storage answers others, until it counts as refused.
TRIES = 3
#: How often (seconds) the expired records of a queue are purged.
PURGE_INTERVAL = 30.0

#: Events that are published to every process, so that they are emitted without local listeners too.
PUBLISHED = ("lease_lost", "invalid_data")


class HeldClaim(Protocol):
    """A claim that this process holds."""

    @property
    def ref(self) -> ClaimRef: ...


C = TypeVar("C", bound=HeldClaim)


async def renew_all(
    storage: Storage,
    worker: str,
    claims: Sequence[C],
    lease_ms: int,
    renewed: Callable[[Sequence[C], Sequence[Renewal], float], None],
    clock: Callable[[], float],
) -> None:
    """Renew the leases of claims, up to `MAX_BATCH` in one call.

    `renewed` gets the claims of each call, the answers, and the time at which the call was made: a
    lease is certain from then on, not from when the answer came.
    """
    for start in range(0, len(claims), MAX_BATCH):
        batch = claims[start : start + MAX_BATCH]
        asked = clock()
        renewed(batch, await storage.renew(worker, [claim.ref for claim in batch], lease_ms), asked)


class EndedClaim(Protocol):
    """A claim whose run has ended, with the settlement that records the outcome."""

    claim: Claim
    rules: HandlerOptions
    outcome: Outcome
    settlement: Settlement


E = TypeVar("E", bound=EndedClaim)


class Ending:
    """The end of a claim, for claims that are no runs of a worker."""

    __slots__ = ("claim", "outcome", "rules", "settlement")

    outcome: Outcome
    settlement: Settlement

    def __init__(self, claim: Claim, rules: HandlerOptions, outcome: Outcome) -> None:
        self.claim = claim
        self.rules = rules
        set_outcome(self, outcome)


def set_outcome(ended: EndedClaim, outcome: Outcome) -> None:
    """Set the outcome of a claim and the settlement for it; an outcome that cannot be resolved fails the job."""
    claim = ended.claim
    try:
        resolution = resolve(claim, ended.rules, outcome)
    except Exception as error:
        outcome, resolution = unrecordable(claim, ended.rules, error)
    ended.outcome = outcome
    ended.settlement = Settlement(claim.queue, claim.id, claim.token, resolution)


async def settle_all(
    storage: Storage, ended: Sequence[E], *, wait: bool = False, hooks: Sequence[ExchangeHook] = ()
) -> tuple[Sequence[E], list[Settled], StorageError | None]:
    """Record outcomes in one call, inside of the hooks; returns the claims that are settled, and the answers.

    Errors of the storage as a whole are raised, to be tried again; with `wait` all errors of it. If the storage
    refuses these outcomes and answers another settle, each is sent by itself. A job whose own outcome is refused
    fails for good, so that it holds up no other. The third value is the error of a queue in which nothing can be
    settled now: its claims are not settled.
    """
    if hooks:
        with Within(hooks, Exchange("settle", [each.claim for each in ended])):
            return await settle_all(storage, ended, wait=wait)
    try:
        return ended, await storage.settle([each.settlement for each in ended]), None
    except OUTAGES as error:
        if wait:
            raise
        await _raise_outage(storage, ended[0].claim.queue, error)
    except StorageError:
        if wait:
            raise
    except REFUSALS:
        pass
    settled: list[E] = []
    answers: list[Settled] = []
    failing: dict[str, StorageError] = {}
    for each in ended:
        if each.claim.queue in failing:
            continue
        answer = await _settle_alone(storage, each)
        if isinstance(answer, StorageError):
            failing[each.claim.queue] = answer
        else:
            settled.append(each)
            answers.append(answer)
    return settled, answers, next(iter(failing.values()), None)


async def _settle_alone(storage: Storage, ended: EndedClaim) -> Settled | StorageError:
    """Settle one claim; a refused outcome becomes a failure, and a refused failure is given up: its lease expires.

    Returns the error of its queue if nothing can be settled there now.
    """
    try:
        answer = await _try_alone(storage, ended)
        if isinstance(answer, Settled):
            return answer
        ended.outcome, failed = unrecordable(ended.claim, ended.rules, answer, ended.settlement.resolution)
        for resolution in (failed, replace(failed, then=())):
            ended.settlement = replace(ended.settlement, resolution=resolution)
            answer = await _try_alone(storage, ended)
            if isinstance(answer, Settled):
                return answer
    except OUTAGES:
        raise
    except StorageError as error:
        return error
    text = "the storage refused the outcome of job %r and also its failure, so its lease expires: %s"
    log.error(text, ended.claim.id, escape_controls(str(answer)))
    return Settled(None, lost=True)


async def _try_alone(storage: Storage, ended: EndedClaim) -> Settled | Exception:
    """Send one settlement; returns the answer, or the error if the storage refuses this one and answers another.

    All other errors are raised. An error of the storage counts as a refusal after `TRIES` times.
    """
    for tries in range(1, TRIES + 1):
        try:
            return (await storage.settle([ended.settlement]))[0]
        except REFUSALS as error:
            return error
        except StorageError as error:
            await _raise_outage(storage, ended.claim.queue, error)
            if tries == TRIES:
                return error
    raise AssertionError("the last time returns")


async def _raise_outage(storage: Storage, queue: str, error: StorageError) -> None:
    """Raise the error of a settle if it may concern others too; return if the storage answers another one.

    A settlement that breaks the connection, such as one that is too long for the server, got no answer
    (`uncertain`). A storage that answered that it takes nothing now is not asked.
    """
    try:
        if isinstance(error, OUTAGES) and not (isinstance(error, StorageUnavailable) and error.uncertain):
            raise error
        try:
            await storage.settle([Settlement(queue, new_id(), new_token(), Release())])
        except OUTAGES as outage:
            raise outage from error
        except StorageError:
            raise error from None
    finally:
        del error  # or its traceback and this frame would keep each other alive, and the claims with them


async def reap_all(
    host: AppHost, queues: Sequence[str], taken_back: Callable[[Sequence[Reaped]], None] | None = None
) -> None:
    """Take back every job of the queues whose lease expired, and emit `stalled` and `cancelled` for them.

    `taken_back` gets the jobs of each call to the storage, as soon as that has answered.
    """
    while queues:
        reaped = await host.storage.reap(queues)
        if taken_back is not None:
            taken_back(reaped)
        for job in reaped:
            host.emit("stalled", queue=job.queue, id=job.id, attempt=job.attempt, worker=job.worker)
            if job.state is State.CANCELLED:
                host.emit("cancelled", queue=job.queue, id=job.id, attempt=job.attempt, worker=job.worker)
        if not reaped:
            break


class Purger:
    """Purges the finished jobs of queues whose time is over: at the first call, then every `PURGE_INTERVAL`."""

    def __init__(self, host: AppHost) -> None:
        self._host = host
        #: When each queue is due again, on the clock of the event loop.
        self._due: dict[str, float] = {}

    async def purge_due(self, queues: Sequence[str], calls: int = sys.maxsize) -> None:
        """Purge those of the queues that are due, in at most this many calls; if that is too few, they stay due."""
        now = asyncio.get_running_loop().time()
        due = [queue for queue in queues if self._due.get(queue, now) <= now]
        if not due:
            return
        for _ in range(calls):
            if await self._host.storage.purge(due) < MAX_BATCH:
                self._due.update(dict.fromkeys(due, now + PURGE_INTERVAL))
                return


def emit_settled(
    host: AppHost, worker: str, claim: Claim, outcome: Outcome, resolution: Resolution, answer: Settled
) -> None:
    """Emit the events of one settled claim, named after the state that the storage answered."""
    invalid = isinstance(outcome, Raised) and outcome.invalid
    if not (host.listeners or answer.lost or invalid):
        return
    error = outcome.error if isinstance(outcome, Raised) else None
    if answer.lost:
        return _emit(host, worker, "lease_lost", claim)
    if (attempts := attempts_after(claim, resolution)) != claim.attempts:
        claim = replace(claim, attempts=attempts)
    if answer.state is State.CANCELLED:
        return _emit(host, worker, "cancelled", claim)
    if invalid:
        _emit(host, worker, "invalid_data", claim, error=error)
    if error is not None and error.kind is ErrorKind.TIMEOUT:
        _emit(host, worker, "timed_out", claim, error=error)
    match resolution:
        case Complete(result):
            _emit(host, worker, "completed", claim, result=result)
        case Retried():
            _emit(host, worker, "retrying", claim, error=error)
        case Fail():
            _emit(host, worker, "failed", claim, error=error)
        case Release():
            _emit(host, worker, "released", claim)
        case Stall():
            _emit(host, worker, "stalled", claim)
        case Suspend():
            _emit(host, worker, "suspended", replace(claim, attempts=claim.attempts - 1))
        case Cancel():
            pass
    if isinstance(resolution, Complete | Fail):
        for new in resolution.then:
            host.emit("enqueued", queue=new.queue, id=new.id)


def _emit(
    host: AppHost, worker: str, name: str, claim: Claim, *, result: bytes | None = None, error: JobError | None = None
) -> None:
    if not host.listeners.wants(name) and name not in PUBLISHED:
        return
    value: Any = None
    if result is not None:
        try:
            value = decode(host.codec(claim.queue).result_for(claim.id), result)
        except InvalidPayload:
            value = result
    host.emit(
        name, queue=claim.queue, id=claim.id, attempt=claim.attempts, result=value, error=error, worker=worker
    )  # fmt: skip
