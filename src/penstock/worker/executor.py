"""One run: its claims in, one outcome for each of them out. It knows no storage."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Sequence
from typing import Any, cast

from penstock.errors import ErrorKind, InvalidPayload, JobError
from penstock.model.formats import JSON_SAFE_TYPES, fast_decoder, fast_encoder
from penstock.model.handler import Handler
from penstock.model.outcome import Outcome, Raised, Released, Returned, Stopped, Value, raised, stalled_out, timed_out
from penstock.model.retry_policy import GiveUp, decide
from penstock.model.serde import Codec, decode, encode
from penstock.worker.run import Interruption, Run, RunJob
from penstock.worker.thread_pool import ThreadPool

__all__ = ["Executor"]


class Routine:
    """How the jobs of a handler are called, worked out once."""

    __slots__ = ("_encode", "_result", "batch", "codec", "function", "is_async", "quickly", "takes_job", "type")

    def __init__(self, handler: Handler, codec: Codec) -> None:
        self.function = handler.function
        self.batch = handler.batch
        self.type, self.takes_job, self.is_async = handler.signature
        self.codec = codec
        #: Decodes a payload, or raises anything: then `payload` says what is wrong.
        self.quickly = fast_decoder(codec.payload, self.type)
        self._result = codec.result
        self._encode = fast_encoder(codec.result)

    def payload(self, data: bytes) -> Any:
        """A payload as the handler wants it, or an `InvalidPayload`."""
        return decode(self.codec.payload, data, self.type)

    def result(self, value: Any) -> bytes:
        """What a handler returned, in bytes, or an `InvalidPayload`."""
        try:
            return self._encode(value) if type(value) in JSON_SAFE_TYPES else encode(self._result, value, "result")
        except InvalidPayload:
            raise
        except Exception:  # what it raised says less than a second look
            return encode(self._result, value, "result")


class Executor:
    """Decodes, calls and encodes; async handlers run here, sync ones in threads."""

    def __init__(self, codec: Callable[[str], Codec], threads: ThreadPool) -> None:
        self._codec = codec
        self._threads = threads
        self._routines: dict[Handler, Routine] = {}

    async def execute(self, run: Run) -> list[Outcome]:
        """Run the handler and say what happened. A returned value counts even after an interruption."""
        handler = run.handler
        how = self._routines.get(handler)
        if how is None:
            how = self._routines[handler] = Routine(handler, self._codec(handler.queue))
        if how.batch:
            return await self._execute_batch(run, how)
        member = run.jobs[0]
        try:
            payload = self._payload(how, member)
        except _RefusedError as refusal:
            return [refusal.outcome]
        try:
            if how.is_async:
                value = await (how.function(payload, member.job) if how.takes_job else how.function(payload))
            else:
                value = await self._in_thread(how, payload, member.job if how.takes_job else None)
        except (Exception, SystemExit, asyncio.CancelledError) as error:
            return [self._ended(run, member, self._raised(run, error), how)]
        if isinstance(value, Outcome):
            return [self._ended(run, member, value, how)]
        return [self._returned(member, value, how)]

    async def _execute_batch(self, run: Run, how: Routine) -> list[Outcome]:
        payloads: list[Any] = []
        called: list[RunJob] = []
        refused: dict[RunJob, Outcome] = {}
        for member in run.jobs:
            try:
                payloads.append(self._payload(how, member))
                called.append(member)
            except _RefusedError as refusal:
                refused[member] = refusal.outcome
        ended: dict[RunJob, Outcome] = {}
        if called:
            outcomes = await self._outcomes(run, how, payloads, called)
            ended = {m: self._ended(run, m, o, how) for m, o in zip(called, outcomes, strict=True)}
        return [refused.get(member) or ended[member] for member in run.jobs]

    def give_up(self, run: Run) -> list[Outcome]:
        """The outcomes of an interrupted run that does not end."""
        return [interrupted(run, member) for member in run.jobs]

    def _payload(self, how: Routine, member: RunJob) -> Any:
        claim, rules = member.claim, member.rules
        if claim.stalls or rules.max_attempts is not None:  # nothing else can forbid a run
            verdict = decide(claim, rules, None)
            if isinstance(verdict, GiveUp):
                raise _RefusedError(stalled_out(verdict.reason))
        try:
            return how.quickly(claim.payload)
        except Exception:  # what it raised says less than a second look
            return self._look_again(how, claim.payload)

    def _look_again(self, how: Routine, data: bytes) -> Any:
        try:
            return how.payload(data)
        except InvalidPayload as error:
            raise _RefusedError(Raised(JobError.from_exception(error, ErrorKind.PERMANENT), invalid=True)) from None

    async def _outcomes(self, run: Run, how: Routine, payloads: list[Any], members: Sequence[RunJob]) -> list[Outcome]:
        """What a batch handler said about each payload, values not encoded yet."""
        jobs = [member.job for member in members] if how.takes_job else None
        try:
            if how.is_async:
                value = await (how.function(payloads, jobs) if how.takes_job else how.function(payloads))
            else:
                value = await self._in_thread(how, payloads, jobs)
            return per_payload(value, len(payloads))
        except (Exception, SystemExit, asyncio.CancelledError) as error:
            outcome = self._raised(run, error)
        return [Raised(outcome.error, outcome.retry_request, solo=True, shared=len(payloads) > 1)] * len(payloads)

    async def _in_thread(self, how: Routine, payload: Any, job: Any) -> Any:
        args = (payload, job) if how.takes_job else (payload,)
        value = await self._threads.run(how.function, *args)
        return await value if inspect.isawaitable(value) else value

    def _raised(self, run: Run, error: BaseException) -> Raised:
        """What a handler's exception means; a cancellation that is not its own goes on."""
        if isinstance(error, asyncio.CancelledError):
            task = asyncio.current_task()
            if run.interruption is None and task is not None and task.cancelling():
                raise error  # the event loop is being shut down around us
        return raised(error)

    def _returned(self, member: RunJob, value: Any, how: Routine) -> Outcome:
        try:
            return Returned(how.result(value), member.follow_ups if how.takes_job else ())
        except InvalidPayload as error:
            return Raised(JobError.from_exception(error, ErrorKind.PERMANENT))

    def _ended(self, run: Run, member: RunJob, outcome: Outcome, how: Routine) -> Outcome:
        if isinstance(outcome, Value):
            return self._returned(member, outcome.value, how)
        if run.interruption is not None:
            return interrupted(run, member)
        return Stopped() if member.cancelled else outcome


class _RefusedError(Exception):
    """The handler is not called for this job, and this is its outcome."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__()
        self.outcome = outcome


def interrupted(run: Run, member: RunJob) -> Outcome:
    """How a run without a value ends for one of its jobs; those that a kill did not mean are given back."""
    if run.interruption is Interruption.TIMEOUT:
        if member.cancelled:
            return Stopped()
        return timed_out(run.timeout or 0.0, solo=run.handler.batch, shared=len(run.jobs) > 1)
    if run.interruption is Interruption.KILL and member.kill_requested:
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
