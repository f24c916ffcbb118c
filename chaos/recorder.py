"""Recorder of a process's calls to its storage and of their answers: claim, settle, renew, reap.

It replaces the methods of the storage object one by one; a wrapper object would not be an instance of the storage's
class. `settle` is recorded before it is sent, because it may take effect without an answer; the others with their
answers.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

from chaos.log import Log, now
from chaos.settings_recorder import record_settings
from penstock import Penstock
from penstock.model.job import Claim
from penstock.storage.base import (
    BlockingStorage,
    Cancel,
    Claimed,
    Complete,
    Fail,
    OpenClaim,
    Release,
    Retried,
    Settlement,
    Stall,
    Suspend,
)

__all__ = ["NOT_RECORDED", "RECORDED", "record"]

#: The recorded methods, and the others, which the producers record themselves or which the checker does not need.
RECORDED = frozenset({"claim", "settle", "renew", "reap"})
NOT_RECORDED = frozenset({
    "open", "close", "put", "cancel", "discard", "revive", "purge", "set_pause", "delete_queue", "set_ttl", "report",
    "get", "find", "peek", "why", "counts", "paused", "queues", "beat", "workers", "wait_work", "wait_done",
    "wait_cancel", "events", "announce", "time",
})  # fmt: skip

#: Numbers of the requests of this process, which has several storages.
_numbers = itertools.count(1)

#: One letter for each resolution.
KINDS = {Complete: "c", Fail: "f", Retried: "r", Cancel: "x", Release: "l", Stall: "s", Suspend: "p"}


def record(app: Penstock, log: Log) -> None:
    """Record the calls of this app and of its worker, also those of its lease thread."""
    for each in {id(each): each for each in (app.storage, app.producer_storage)}.values():
        _record(each, log)
    build = app.blocking_storage

    def recorded() -> BlockingStorage | None:
        storage = build()
        if storage is not None and storage is not app.storage:
            _record(storage, log)
        return storage

    app.blocking_storage = recorded


def _record(storage: Any, log: Log) -> None:
    recorder = Recorder(storage, log)
    for verb in RECORDED:
        setattr(storage, verb, getattr(recorder, verb))
    if hasattr(storage, "open_claim"):
        storage.open_claim = recorder.open_claim
    record_settings(storage, log)


class Recorder:
    """Methods that call those of a storage and record the calls."""

    def __init__(self, storage: Any, log: Log) -> None:
        self._claim, self._settle = storage.claim, storage.settle
        self._open_claim = getattr(storage, "open_claim", None)
        self._renew, self._reap = storage.renew, storage.reap
        self._log = log

    async def claim(self, requests: Any, worker: str, lease: int, token: str) -> Claimed:
        asked = now()
        answer = await self._claim(requests, worker, lease, token)
        self.claimed(asked, answer, worker, lease, token)
        return answer

    def open_claim(
        self, queues: Any, requests: Any, worker: str, lease: int, token: str, seconds: float
    ) -> _RecordedOpenClaim:
        assert self._open_claim is not None
        return _RecordedOpenClaim(
            self, self._open_claim(queues, requests, worker, lease, token, seconds), worker, lease, token
        )

    def claimed(self, asked: float, answer: Claimed, worker: str, lease: int, token: str) -> None:
        """Record an answered claim; `asked` is the earliest moment at which it may have been granted."""
        if answer.claims:
            claims = [encode_claim(claim) for claim in answer.claims]
            self._log.write("claim", a=asked, w=worker, lease=lease, tok=token, claims=claims)
        elif answer.skipped or answer.corrupt:
            self._log.write("claim", a=asked, w=worker, lease=lease, tok=token, claims=[], skipped=answer.skipped)

    async def settle(self, settlements: Sequence[Settlement]) -> Any:
        number = next(_numbers)
        self._log.write("settle", s=number, settlements=[encode_settlement(each) for each in settlements])
        try:
            answers = await self._settle(settlements)
        except BaseException as error:
            self._log.write("settle_answer", s=number, error=type(error).__name__)
            raise
        self._log.write("settle_answer", s=number, states=["lost" if each.lost else each.state for each in answers])
        return answers

    async def renew(self, worker: str, held: Any, lease: int) -> Any:
        asked = now()
        answers = await self._renew(worker, held, lease)
        named = [[each.queue, each.id, each.token] for each in held]
        kept = [name for name, answer in zip(named, answers, strict=True) if answer.kept]
        lost = [name for name, answer in zip(named, answers, strict=True) if not answer.kept]
        self._log.write("renew", a=asked, w=worker, lease=lease, kept=kept, lost=lost)
        return answers

    async def reap(self, *args: Any, **options: Any) -> Any:
        asked = now()
        answers = await self._reap(*args, **options)
        if answers:
            self._log.write("reap", a=asked, jobs=[[each.queue, each.id, each.state, each.worker] for each in answers])
        return answers


class _RecordedOpenClaim:
    """Claim that waits for work, recorded when it is answered."""

    def __init__(self, recorder: Recorder, claim: OpenClaim, worker: str, lease: int, token: str) -> None:
        self._recorder = recorder
        self._claim = claim
        self._request = worker, lease, token
        self.hurry = claim.hurry

    async def answer(self, callback: Callable[[bool, Claimed], object]) -> None:
        asked = now()

        def record_and_call(hinted: bool, claimed: Claimed) -> None:
            self._recorder.claimed(asked, claimed, *self._request)
            callback(hinted, claimed)

        await self._claim.answer(record_and_call)


def encode_claim(claim: Claim) -> list[Any]:
    """Return queue, id, batch, group, attempts, retries, stalls, timeouts and the number of the payload."""
    return [
        claim.queue, claim.id, claim.batch, claim.group, claim.attempts, claim.retries, claim.stalls, claim.timeouts,
        number_of(claim.payload),
    ]  # fmt: skip


def encode_settlement(settlement: Settlement) -> list[Any]:
    """Return queue, id, token, kind of the resolution, follow-up jobs, and delay (ms) before the next run."""
    resolution = settlement.resolution
    then = [[new.queue, new.id] for new in getattr(resolution, "then", ())]
    delay = resolution.delay if isinstance(resolution, Retried) and resolution.at is None else 0
    return [settlement.queue, settlement.id, settlement.token, KINDS[type(resolution)], then, delay]


def number_of(payload: bytes | None) -> int | None:
    """Return the number with which every payload of a producer begins, or None for any other payload."""
    if not payload or not payload.startswith(b'{"n":'):
        return None
    digits = payload[5 : min(i for i in (payload.find(b","), payload.find(b"}")) if i > 0)]
    return int(digits) if digits.isdigit() else None
