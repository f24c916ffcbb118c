"""One run: its claims in, one outcome for each of them out. It knows no storage."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Sequence
from typing import Any, cast

from penstock.errors import ErrorKind, InvalidPayload, JobError
from penstock.outcome import Outcome, Raised, Released, Returned, Stopped, Value, raised, stalled_out, timed_out
from penstock.policy import GiveUp, decide
from penstock.serde import Codec, decode, encode
from penstock.task import Handler
from penstock.worker.pool import Interruption, Member, Run
from penstock.worker.threads import Threads

__all__ = ["Executor"]


class Executor:
    """Decodes, calls and encodes; async handlers run here, sync ones in threads."""

    def __init__(self, codec: Callable[[str], Codec], threads: Threads) -> None:
        self._codec = codec
        self._threads = threads

    async def execute(self, run: Run) -> list[Outcome]:
        """Run the handler and say what happened. A returned value counts even after an interruption."""
        codec = self._codec(run.handler.queue)
        if run.handler.batch:
            return await self._execute_batch(run, codec)
        member = run.members[0]
        try:
            payload = self._payload(run.handler, member, codec)
        except _RefusedError as refusal:
            return [refusal.outcome]
        try:
            outcome = as_outcome(await self._call(run.handler, payload, member))
        except (Exception, SystemExit, asyncio.CancelledError) as error:
            outcome = self._raised(run, error)
        return [self._ended(run, member, outcome, codec)]

    async def _execute_batch(self, run: Run, codec: Codec) -> list[Outcome]:
        payloads: list[Any] = []
        called: list[Member] = []
        refused: dict[Member, Outcome] = {}
        for member in run.members:
            try:
                payloads.append(self._payload(run.handler, member, codec))
                called.append(member)
            except _RefusedError as refusal:
                refused[member] = refusal.outcome
        ended: dict[Member, Outcome] = {}
        if called:
            outcomes = await self._outcomes(run, payloads, called)
            ended = {m: self._ended(run, m, o, codec) for m, o in zip(called, outcomes, strict=True)}
        return [refused.get(member) or ended[member] for member in run.members]

    def give_up(self, run: Run) -> list[Outcome]:
        """The outcomes of an interrupted run that does not end."""
        return [interrupted(run, member) for member in run.members]

    def _payload(self, handler: Handler, member: Member, codec: Codec) -> Any:
        claim, rules = member.claim, member.rules
        if claim.stalls or rules.max_attempts is not None:  # nothing else can forbid a run
            verdict = decide(claim, rules, None)
            if isinstance(verdict, GiveUp):
                raise _RefusedError(stalled_out(verdict.reason))
        try:
            return decode(codec.payload, claim.payload, handler.signature.payload)
        except InvalidPayload as error:
            raise _RefusedError(Raised(JobError.from_exception(error, ErrorKind.PERMANENT), invalid=True)) from None

    async def _outcomes(self, run: Run, payloads: list[Any], members: Sequence[Member]) -> list[Outcome]:
        """What a batch handler said about each payload, values not encoded yet."""
        try:
            function, signature = run.handler.function, run.handler.signature
            args = (payloads, [member.job for member in members]) if signature.takes_job else (payloads,)
            value = function(*args) if signature.is_async else self._threads.run(function, *args)
            value = await value
            return per_payload(await value if inspect.isawaitable(value) else value, len(payloads))
        except (Exception, SystemExit, asyncio.CancelledError) as error:
            outcome = self._raised(run, error)
        return [Raised(outcome.error, outcome.wish, solo=True)] * len(payloads)

    async def _call(self, handler: Handler, payload: Any, member: Member) -> Any:
        function, signature = handler.function, handler.signature
        if signature.is_async:
            return await (function(payload, member.job) if signature.takes_job else function(payload))
        args = (payload, member.job) if signature.takes_job else (payload,)
        value = await self._threads.run(function, *args)
        return await value if inspect.isawaitable(value) else value

    def _raised(self, run: Run, error: BaseException) -> Raised:
        """What a handler's exception means; a cancellation that is not its own goes on."""
        if isinstance(error, asyncio.CancelledError):
            task = asyncio.current_task()
            if run.interruption is None and task is not None and task.cancelling():
                raise error  # the event loop is being shut down around us
        return raised(error)

    def _ended(self, run: Run, member: Member, outcome: Outcome, codec: Codec) -> Outcome:
        if isinstance(outcome, Value):
            try:
                return Returned(encode(codec.result, outcome.value, "result"), member.follow_ups)
            except InvalidPayload as error:
                return Raised(JobError.from_exception(error, ErrorKind.PERMANENT))
        if run.interruption is not None:
            return interrupted(run, member)
        return Stopped() if member.cancelled else outcome


class _RefusedError(Exception):
    """The handler is not called for this job, and this is its outcome."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__()
        self.outcome = outcome


def interrupted(run: Run, member: Member) -> Outcome:
    """How a run without a value ends for one of its jobs; those that a kill did not mean are given back."""
    if run.interruption is Interruption.TIMEOUT:
        return Stopped() if member.cancelled else timed_out(run.timeout or 0.0, solo=run.handler.batch)
    if run.interruption is Interruption.KILL and member.wanted_dead:
        return Stopped()
    return Released()


def as_outcome(value: Any) -> Outcome:
    return value if isinstance(value, Outcome) else Value(value)


def per_payload(value: Any, count: int) -> list[Outcome]:
    """A batch handler's answer, one outcome for each payload; returning nothing completes them all."""
    if value is None:
        return [Value(None)] * count
    if not isinstance(value, list | tuple):
        raise TypeError(f"a batch handler must return a list of results or None, not {type(value).__name__}")
    values = cast("Sequence[Any]", value)
    if len(values) != count:
        raise TypeError(f"a batch handler must return one result for each payload: {len(values)} for {count}")
    return [as_outcome(each) for each in values]
