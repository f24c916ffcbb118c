"""Calling handlers: the jobs of a run in, one outcome for each of them out. It uses no storage."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, cast

import msgspec

from penstock.errors import ErrorKind, InvalidPayload, PermanentError
from penstock.model.bindings import fill, is_filled
from penstock.model.context import CURRENT
from penstock.model.durable import DurableServices, Suspension
from penstock.model.fingerprint import error_of
from penstock.model.formats import JSON_SAFE_TYPES, fast_decoder, fast_encoder
from penstock.model.handler import Handler
from penstock.model.hooks import RunHook, Running, Within
from penstock.model.job import Claim
from penstock.model.outcome import (
    Failed,
    Outcome,
    Raised,
    Released,
    Returned,
    Stopped,
    Suspended,
    Value,
    raised,
    stalled_out,
    timed_out,
)
from penstock.model.retry_policy import GiveUp, decide
from penstock.model.serde import Codec, check_result, decode, encode
from penstock.worker.run import Interruption, Run, RunJob
from penstock.worker.thread_pool import ThreadPool, Thrown

__all__ = ["Executor"]


class Routine:
    """How a handler is called, worked out once: its function, its serdes and its signature."""

    __slots__ = (
        "_encode", "_max_result", "_result", "batch", "codec", "fast_decode", "function", "is_async", "takes_job",
        "type",
    )  # fmt: skip

    def __init__(self, handler: Handler, codec: Codec, max_result: int) -> None:
        self.function = handler.function
        self.batch = handler.batch
        self.type, self.takes_job, self.is_async = handler.signature
        self.codec = codec
        self._max_result = max_result
        #: Decodes a payload as `payload` does, but with vague exceptions: then `payload` gives the precise one.
        #: None if the serde is bound to each job.
        self.fast_decode = fast_decoder(codec.payload, self.type) if codec.payload_of_job is None else None
        self._result = codec.result if codec.result_of_job is None else None
        self._encode = fast_encoder(codec.result) if codec.result_of_job is None else None

    def payload(self, claim: Claim) -> Any:
        """Decode a payload to the type that the handler wants; raises `InvalidPayload`."""
        return decode(self.codec.payload_for(claim.id), claim.payload, self.type)

    def result(self, value: Any, id: str) -> bytes:
        """Encode the value that the handler of a job returned; raises `InvalidPayload`, also if it is too large."""
        try:
            if self._encode is not None and type(value) in JSON_SAFE_TYPES:
                data = self._encode(value)
            else:
                data = encode(self.codec.result_for(id) if self._result is None else self._result, value, "result")
        except InvalidPayload:
            raise
        except Exception:  # the fast encoder's error is vague: encode again for a precise one
            data = encode(self.codec.result_for(id), value, "result")
        return data if len(data) <= self._max_result else check_result(data, self._max_result)


class Executor:
    """Decodes payloads, calls handlers and encodes results; async handlers run on the loop, sync ones in threads."""

    def __init__(
        self,
        codec: Callable[[str], Codec],
        max_result: int,
        threads: ThreadPool,
        stop_as_by_ctrl_c: Callable[[], None],
        hooks: Sequence[RunHook] = (),
    ) -> None:
        self._codec = codec
        self._max_result = max_result
        self._threads = threads
        self._stop_as_by_ctrl_c = stop_as_by_ctrl_c
        self._hooks = hooks
        self._routines: dict[Handler, Routine] = {}

    async def execute(self, run: Run) -> list[Outcome]:
        """Call the handler; returns an outcome for each job. A returned value counts even after an interruption.

        It never raises: a run without an outcome would be held for ever.
        """
        token = CURRENT.set(run.jobs[0])
        try:
            routine = self._routines.get(run.handler) or self._routine(run.handler)
            if routine.batch:
                return await self._execute_batch(run, routine)
            job = run.jobs[0]
            if job.claim.flow is not None and job.claim.flow.binds and is_filled(job.claim.flow.binds):
                await self._fill(job)
            payload = self._payload(routine, job)
            if self._hooks:
                value = await self._within_hooks(run, routine, payload, job.job if routine.takes_job else None, [job])
                if isinstance(value, Thrown):
                    await self._save_cursors(job)
                    return self._failed(run, value.error)
            elif routine.is_async:
                value = await (routine.function(payload, job.job) if routine.takes_job else routine.function(payload))
            else:
                value = await self._in_thread(routine, payload, job.job if routine.takes_job else None)
                if isinstance(value, Thrown):
                    await self._save_cursors(job)
                    return self._failed(run, value.error)
            if isinstance(value, Outcome):
                return [self._ended(run, job, value, routine)]
            return [self._returned(job, value, routine)]
        except _RefusedError as refusal:
            return [refusal.outcome]
        except BaseException as error:
            await self._save_cursors(run.jobs[0])
            return self._failed(run, error)
        finally:
            CURRENT.reset(token)  # not set(None): the context must be as before, or the task would not be used again

    async def _fill(self, job: RunJob) -> None:
        """Fill the values of dependencies into the arguments of a job."""
        claim = job.claim
        assert claim.flow is not None
        try:
            _, entries = await cast("DurableServices", job.services).journal(claim)
            needed = [entry for entry in entries if entry.number < claim.flow.needs]
            filled = fill(claim.payload, claim.flow.binds, self._codec, claim.queue, claim.id, needed)
        except InvalidPayload as error:
            raise _invalid_payload(error) from None
        job.claim = msgspec.structs.replace(claim, payload=filled)

    async def _save_cursors(self, job: RunJob) -> None:
        """Save the cursors of a run that ends without success; one that cannot be saved is found in the next run."""
        if job.durable is not None:
            with suppress(Exception):
                await job.durable.flush()

    def _routine(self, handler: Handler) -> Routine:
        routine = self._routines[handler] = Routine(handler, self._codec(handler.queue), self._max_result)
        return routine

    async def _execute_batch(self, run: Run, routine: Routine) -> list[Outcome]:
        payloads: list[Any] = []
        called: list[RunJob] = []
        refused: dict[RunJob, Outcome] = {}
        for job in run.jobs:
            try:
                payloads.append(self._payload(routine, job))
                called.append(job)
            except _RefusedError as refusal:
                refused[job] = refusal.outcome
        ended: dict[RunJob, Outcome] = {}
        if called:
            outcomes = await self._outcomes(run, routine, payloads, called)
            ended = {
                job: self._ended(run, job, outcome, routine) for job, outcome in zip(called, outcomes, strict=True)
            }
        return [refused.get(job) or ended[job] for job in run.jobs]

    def give_up(self, run: Run) -> list[Outcome]:
        """Return the outcomes of an interrupted run that does not end."""
        return [interrupted(run, job) for job in run.jobs]

    def _payload(self, routine: Routine, job: RunJob) -> Any:
        claim, rules = job.claim, job.rules
        if claim.stalls or rules.max_attempts is not None:  # nothing else can forbid a run
            decision = decide(claim, rules, None)
            if isinstance(decision, GiveUp):
                raise _RefusedError(stalled_out(decision.reason))
        try:
            return routine.payload(claim) if routine.fast_decode is None else routine.fast_decode(claim.payload)
        except InvalidPayload as error:
            raise _invalid_payload(error) from None
        except Exception:  # the fast decoder's error is vague: decode again for a precise one
            return self._decode_again(routine, claim)

    def _decode_again(self, routine: Routine, claim: Claim) -> Any:
        try:
            return routine.payload(claim)
        except InvalidPayload as error:
            raise _invalid_payload(error) from None

    async def _outcomes(self, run: Run, routine: Routine, payloads: list[Any], jobs: Sequence[RunJob]) -> list[Outcome]:
        """Call a batch handler; returns an outcome for each payload, with values that are not encoded yet."""
        contexts = [job.job for job in jobs] if routine.takes_job else None
        try:
            if self._hooks:
                value = await self._within_hooks(run, routine, payloads, contexts, jobs)
                if isinstance(value, Thrown):
                    return self._raised(run, value.error, len(payloads))
            elif routine.is_async:
                value = await (
                    routine.function(payloads, contexts) if routine.takes_job else routine.function(payloads)
                )
            else:
                value = await self._in_thread(routine, payloads, contexts)
                if isinstance(value, Thrown):
                    return self._raised(run, value.error, len(payloads))
            return per_payload(value, len(payloads))
        except BaseException as error:
            return self._raised(run, error, len(payloads))

    async def _in_thread(self, routine: Routine, payload: Any, job: Any) -> Any:
        """Call a plain handler in a thread; returns its value, awaited if it is awaitable, or `Thrown`."""
        args = (payload, job) if routine.takes_job else (payload,)
        value = await self._threads.run(routine.function, *args)
        return await value if inspect.isawaitable(value) else value

    async def _within_hooks(self, run: Run, routine: Routine, payload: Any, job: Any, held: Sequence[RunJob]) -> Any:
        """Call a handler as without hooks, inside of the hooks; they are entered where it runs, which may be a thread.

        A batch without one value for each job fails inside of them. An awaitable that a plain handler returns is
        awaited outside of them.
        """

        def returned(value: Any) -> Any:
            if routine.batch and not inspect.isawaitable(value):
                per_payload(value, len(held))
            return value

        running = Running(run.handler.queue, held, run, routine.batch)
        args = (payload, job) if routine.takes_job else (payload,)
        if routine.is_async:
            with Within(self._hooks, running):
                running.returned = returned(await routine.function(*args))
            return running.returned

        def call() -> Any:
            with Within(self._hooks, running):
                running.returned = returned(routine.function(*args))
            return running.returned

        value = await self._threads.run(call)
        return await value if inspect.isawaitable(value) else value

    def _raised(self, run: Run, error: BaseException, count: int) -> list[Outcome]:
        """Return the outcomes of a run of `count` jobs whose handler raised, whatever it raised."""
        if issubclass(type(error), KeyboardInterrupt):
            self._stop_as_by_ctrl_c()
        if type(error) is Suspension:
            if not run.handler.batch:
                return [Suspended(error.suspend)]
            error = PermanentError(f"a batch handler cannot wait for {error.name!r}")
        outcome: Outcome = raised(error, run.handler.options.permanent)
        if run.handler.batch:
            outcome = msgspec.structs.replace(outcome, solo=True, shared=count > 1)
        return [outcome] * count

    def _failed(self, run: Run, error: BaseException) -> list[Outcome]:
        outcomes = self._raised(run, error, len(run.jobs))
        return [self._unfinished(run, job, outcome) for job, outcome in zip(run.jobs, outcomes, strict=True)]

    def _returned(self, job: RunJob, value: Any, routine: Routine) -> Outcome:
        if (suspension := job.suspension) is not None:
            text = f"the handler caught the suspension of {suspension.name!r} and went on: do not catch BaseException"
            return Raised(error_of(PermanentError(text)))
        try:
            return Returned(routine.result(value, job.claim.id), job.follow_ups)
        except InvalidPayload as error:
            return Raised(error_of(error, ErrorKind.PERMANENT))

    def _ended(self, run: Run, job: RunJob, outcome: Outcome, routine: Routine) -> Outcome:
        if isinstance(outcome, Value):
            return self._returned(job, outcome.value, routine)
        if isinstance(outcome, Failed):
            outcome = raised(outcome.error, job.rules.permanent)
        return self._unfinished(run, job, outcome)

    def _unfinished(self, run: Run, job: RunJob, outcome: Outcome) -> Outcome:
        """Return the outcome of a job without a value: that of an interruption or a cancel counts before its own."""
        if run.interruption is not None:
            where = outcome.error.traceback if isinstance(outcome, Raised) else ""
            return interrupted(run, job, where)
        return Stopped() if job.cancelled else outcome


class _RefusedError(Exception):
    """Raised when the handler is not called for a job; it carries the outcome."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__()
        self.outcome = outcome


def _invalid_payload(error: InvalidPayload) -> _RefusedError:
    """Return the refusal of a job whose payload cannot be decoded."""
    return _RefusedError(Raised(error_of(error, ErrorKind.PERMANENT), invalid=True))


def interrupted(run: Run, job: RunJob, where: str = "") -> Outcome:
    """Return the outcome of one job of an interrupted run; a job that a kill did not name is released.

    `where` is the traceback of the cancellation, for the record of a timeout.
    """
    if run.interruption is Interruption.TIMEOUT:
        if job.cancelled:
            return Stopped()
        return timed_out(run.timeout or 0.0, run.handler.batch, len(run.jobs) > 1, where)
    if run.interruption is Interruption.KILL and job.kill_requested:
        return Stopped(ran=run.began > 0)
    return Released()


def as_outcome(value: Any) -> Outcome:
    """Return a value of a batch handler as an outcome."""
    return value if isinstance(value, Outcome) else Value(value)


def per_payload(value: Any, count: int) -> list[Outcome]:
    """Return one outcome for each payload from a batch handler's value; None completes them all."""
    if value is None:
        return [Value(None)] * count
    if not isinstance(value, list | tuple):
        raise TypeError(f"a batch handler must return a list of results or None, not {type(value).__name__}")
    values = cast("Sequence[Any]", value)
    if len(values) != count:
        raise TypeError(f"a batch handler must return one result for each payload: {len(values)} for {count}")
    return [as_outcome(each) for each in values]
