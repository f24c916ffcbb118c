"""Flows of the model: dependencies, notices, plans, journals, signals and the outbox. Storages must agree with it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from msgspec import structs

from penstock.model.flow import (
    ABANDONED,
    ABANDONED_MS,
    FOLLOW_UPS,
    JOURNAL_BYTES,
    JOURNAL_ENTRIES,
    MAX_EFFECTS,
    MAX_SIGNALS,
    UNMET_MS,
    Checkpoint,
    ClaimFlow,
    DependencyEntry,
    DependencyPage,
    End,
    Extended,
    FlowPart,
    FlowSnapshot,
    GenerationRef,
    JobRef,
    JournalPage,
    NewCheckpoint,
    Notice,
    Plan,
    Relayed,
    SignalStatus,
    SignalWait,
    dropped_error,
    end_of_unmet,
    fatal_end,
    flow_error,
    is_met,
    plain_generation,
    signal_value,
    unmet_error,
)
from penstock.model.ids import family_of
from penstock.model.job import NewJob, State
from penstock.storage.base import MAX_BATCH, CancelMode, Put, PutStatus, Suspend

if TYPE_CHECKING:
    from tests.model import Job, Queue

#: How a job ends by its state, unless another end is given.
ENDS = {State.COMPLETED: End.COMPLETED, State.FAILED: End.FAILED, State.CANCELLED: End.CANCELLED}

#: The answers to a put whose id was taken.
JOINED = (PutStatus.UPDATED, PutStatus.DUPLICATE, PutStatus.COMPLETED)

#: The children that the revival of a plan revives: those that ended so.
REVIVED = (End.FAILED, End.CANCELLED, End.DROPPED)


@dataclass
class Dependency:
    """A dependency of a job, and the last notice that closed it."""

    ref: JobRef
    end: End | None = None
    notice: Notice | None = None
    value: bytes | None = None
    fatal: Literal["failed", "cancelled"] | None = None
    order: int = 0
    culprit: bool = False

    def open(self) -> None:
        self.end = self.value = self.fatal = None

    @property
    def unmet(self) -> bool:
        return self.end is not None and self.notice is not None and not is_met(self.notice.on, self.end)


@dataclass
class Flow:
    """The part of a job that concerns flows. `stored`: it has a generation of its own in the storage."""

    stored: bool = False
    generation: str = ""
    parent: GenerationRef | None = None
    binds: bytes = b""
    plan: Plan | None = None
    final: bool = True
    extended_at: int = 0  # when the producer last called
    reviving: bool = False  # a message of the outbox revives its children
    begun: bool = False
    durable: bool = False  # it was suspended by a run or has a checkpoint: its payload stays until its end
    fresh: int = 0
    needs: int = 0
    total: int = 0
    adopted: int = 0  # follow-up jobs of children of a plan
    dependencies: dict[int, Dependency] = field(default_factory=dict[int, Dependency])
    closed: int = 0  # numbers the ends of dependencies
    opening: int = 0
    suspended: bool = False
    awaited: range = range(0)
    wake: int | None = None
    wait: SignalWait | None = None
    cancel: tuple[CancelMode, int | None] | None = None
    signals: list[tuple[str, bytes]] = field(default_factory=list[tuple[str, bytes]])
    journal: dict[str, Checkpoint] = field(default_factory=dict[str, Checkpoint])
    notices: dict[tuple[str, str, str, int], Notice] = field(default_factory=dict[tuple[str, str, str, int], Notice])
    end: End | None = None

    def open_among(self, numbers: range | None = None) -> list[int]:
        """Return the open dependencies, of all or of these numbers."""
        chosen = self.dependencies if numbers is None else [n for n in numbers if n in self.dependencies]
        return [number for number in sorted(chosen) if self.dependencies[number].end is None]

    @property
    def needed(self) -> range | None:
        """The dependencies that the first run waits for; None, for all, of a plan."""
        return None if self.plan else range(self.needs)

    def verdict(self) -> Dependency | None:
        """Return the dependency that ends a job without a run; None if it may still run.

        One that makes it fail ends it at once. One that makes it superfluous ends it when all others have ended, so
        that the end does not depend on their order.
        """
        unmet = [d for number, d in self.dependencies.items() if number < self.needs and d.unmet and not self.plan]
        unmet.sort(key=lambda dependency: dependency.order)
        harmful = [d for d in unmet if d.end and end_of_unmet(d.end) is End.UPSTREAM]
        if harmful or not self.final or self.open_among(self.needed):
            return harmful[0] if harmful else None
        return unmet[0] if unmet else None


@dataclass
class Effect:
    """A notice on its way: an end, or (None) that the dependency is open again."""

    notice: Notice
    source: JobRef
    end: End | None
    result: bytes | None = None
    error: bytes | None = None


@dataclass
class Cascade:
    """A message of the outbox that cancels or revives the children of a flow, from a number on."""

    flow: GenerationRef
    opening: int
    kind: Literal["cancel", "revive"]
    mode: CancelMode = "refuse"
    ends: tuple[End, ...] = REVIVED
    after: int = -1


class ModelFlows:
    """The part of the model that has flows. Effects are applied at the end of each transition of one job."""

    now: int
    all: dict[str, Queue]
    #: How many effects a transition applies.
    max_effects = MAX_EFFECTS

    def __init__(self) -> None:
        self.effects: list[Effect] = []
        self.outbox: list[tuple[str, Effect | Cascade]] = []
        #: The checkpoints that were seen, by queue, id, generation and name. For F15.
        self.seen: dict[tuple[str, str, str, int, str], Checkpoint] = {}

    if TYPE_CHECKING:

        def _finish(self, *args: Any, **more: Any) -> None: ...

        def _emit(self, *args: Any, **more: Any) -> None: ...

        def _promote(self, queue: Queue) -> None: ...

        def _expire(self, name: str) -> None: ...

        def _expired(self, finish: Any) -> bool: ...

        def _enter_if_due(self, queue: Queue, job: Job) -> None: ...

        def _update_turn(self, queue: Queue, group: str | None, turn: Any = None) -> None: ...

        def _cancel_one(self, *args: Any, **more: Any) -> Any: ...

        def _revive(self, name: str, id: str, completed: bool, fresh: bool) -> bool: ...

        def put(self, jobs: Sequence[NewJob], max_queued: int | None = None) -> list[Put]: ...

    # look-ups ------------------------------------------------------------------------------------

    def _job(self, queue: str, id: str) -> Job | None:
        """Return a job that is not expired, or None."""
        job = self.all[queue].jobs.get(id) if queue in self.all else None
        return None if job is None or (job.finish and self._expired(job.finish)) else job

    def _generation(self, job: Job) -> str:
        return job.flow.generation or plain_generation(job.created)

    def _living(self, ref: GenerationRef | Notice) -> Job | None:
        job = self._job(ref.queue, ref.id)
        return job if job is not None and self._generation(job) == ref.generation else None

    def _store_flow(self, job: Job) -> Flow:
        """Return the flow part of a job, which has a generation of its own from now on."""
        if not job.flow.stored:
            job.flow.stored, job.flow.generation = True, job.flow.generation or plain_generation(job.created)
        return job.flow

    # put -----------------------------------------------------------------------------------------

    def _check_flow(self, new: NewJob) -> None:
        part = new.flow
        if part and new.update is not None and (part.dependencies or part.plan or part.open):
            raise ValueError("a job with dependencies or a plan is put without update")

    def _refuse_child(self, new: NewJob) -> Put | None:
        """Return the answer to a put that its parent does not wait for, else None."""
        if new.flow is None or new.flow.parent is None:
            return None
        ref = new.flow.parent
        parent = self._living(ref)
        if parent is None or parent.finish:
            return Put(PutStatus.DUPLICATE, State.CANCELLED)
        mine = [n for n in new.flow.notices if (n.queue, n.id, n.generation) == (ref.queue, ref.id, ref.generation)]
        for notice in mine[:1]:
            dependency = parent.flow.dependencies.get(notice.number)
            if dependency is None or dependency.end is not None:
                return Put(PutStatus.DUPLICATE, state_of_end(dependency.end if dependency else None))
        return None

    def _begin_flow(self, job: Job, part: FlowPart | None) -> None:
        """Give a new job its part in flows; it is suspended if it has to wait."""
        if part is None:
            return
        job.flow = flow = Flow(
            stored=True, generation=part.generation or plain_generation(job.created), parent=part.parent,
            binds=part.binds, plan=part.plan, final=not part.open, extended_at=self.now,
        )  # fmt: skip
        flow.dependencies = {number: Dependency(ref) for number, ref in enumerate(part.dependencies)}
        flow.needs = flow.total = len(part.dependencies)
        flow.suspended = bool(part.dependencies or part.plan or part.open)
        flow.notices = {(n.queue, n.id, n.generation, n.number): n for n in part.notices}

    def _join(self, queue: Queue, new: NewJob, answer: Put) -> None:
        """Give the notices of a put to the job that it is about; send them at once if that has completed."""
        if new.flow is None or answer.refused or answer.status not in JOINED:
            return
        job = queue.jobs.get(new.id)
        if new.id in queue.blocked and answer.state is State.BLOCKED:
            job = queue.blocked[new.id]
        for notice in new.flow.notices:
            if job is None:  # a window holds the id of a job that has completed and is not kept
                self.effects.append(Effect(notice, JobRef(new.queue, new.id), End.COMPLETED))
            elif job.finish and answer.status is PutStatus.COMPLETED:
                self.effects.append(
                    Effect(notice, JobRef(new.queue, new.id), End.COMPLETED, job.finish.result, job.finish.error)
                )
            else:
                job.flow.notices[notice.queue, notice.id, notice.generation, notice.number] = notice

    # ends and notices ----------------------------------------------------------------------------

    def _ended(self, name: str, job: Job, state: State, end: End | None, mode: CancelMode) -> None:
        """Note the end of a job: its notices, and the message that cancels its children."""
        flow, finish = job.flow, job.finish
        assert finish
        flow.end = end or ENDS[state]
        flow.suspended, flow.wake, flow.wait, flow.cancel, flow.reviving = False, None, None, None, False
        source = JobRef(name, job.id)
        for notice in flow.notices.values():
            self.effects.append(Effect(notice, source, flow.end, finish.result, finish.error))
        if flow.open_among() and (flow.plan or flow.total > flow.needs):
            ref = GenerationRef(name, job.id, self._generation(job))
            self.outbox.append((family_of(name), Cascade(ref, flow.opening, "cancel", mode)))

    def _gone(self, name: str, job: Job) -> None:
        """Send the notices of a blocked successor that goes."""
        for notice in job.flow.notices.values():
            self.effects.append(Effect(notice, JobRef(name, job.id), End.CANCELLED))

    def _deleted(self, name: str, queue: Queue) -> None:
        """Send the notices of the unfinished jobs of a queue that is deleted, by the outbox."""
        jobs = [job for job in queue.jobs.values() if not job.finish]
        for job in sorted(jobs, key=lambda each: each.id.encode()):
            blocked = queue.blocked.get(job.id)
            for each in (job, blocked) if blocked else (job,):
                for notice in each.flow.notices.values():
                    self.outbox.append((family_of(name), Effect(notice, JobRef(name, job.id), End.CANCELLED)))

    def _forget_journal(self, flow: Flow) -> None:
        """Forget what the runs of a job have recorded, and the children that they made."""
        flow.journal.clear()
        flow.dependencies = {n: d for n, d in flow.dependencies.items() if n < flow.needs}
        flow.fresh += 1
        flow.durable = False

    def _revive_flow(self, name: str, job: Job, completed: bool, fresh: bool) -> None:
        """Open again what a revived job had closed, and suspend it if its own dependencies are open or not met."""
        flow = job.flow
        flow.end = None
        flow.opening += 1
        if completed:
            flow.notices.clear()
        else:
            self._reopen(name, job)
        if fresh:
            self._store_flow(job)
            self._forget_journal(flow)
        if flow.plan:
            flow.suspended = True
            self._revive_children(name, job)
        elif not flow.durable:
            flow.begun = False
            flow.suspended = not completed and bool(flow.verdict() or flow.open_among(flow.needed) or not flow.final)
        culprits = [dependency for dependency in flow.dependencies.values() if dependency.culprit]
        for dependency in culprits:
            dependency.open()
        if culprits:
            self._revive_children(name, job)

    def _apply_effects(self) -> None:
        """Apply effects one after the other, those that they cause at the end; store the rest in the outbox."""
        applied = 0
        while self.effects and applied < self.max_effects:
            self._apply_effect(self.effects.pop(0))
            applied += 1
        for effect in self.effects:
            self.outbox.append((family_of(effect.source.queue), effect))
        self.effects = []

    def _apply_effect(self, effect: Effect) -> None:
        job = self._living(effect.notice)
        if job is None:
            return
        self._promote(self.all[effect.notice.queue])
        if effect.end is None:
            self._open_again(effect.notice.queue, job, effect.notice.number)
        else:
            self._close_dependency(effect.notice.queue, job, effect)

    def _close_dependency(self, name: str, job: Job, effect: Effect) -> None:
        """Close a dependency of a job, and do what follows from it."""
        flow, notice, end = job.flow, effect.notice, effect.end
        dependency = flow.dependencies.get(notice.number)
        assert end is not None
        if dependency is None or dependency.end is not None:
            return
        flow.closed += 1
        dependency.end, dependency.notice, dependency.order = end, notice, flow.closed
        dependency.fatal = fatal_end(notice, end) if flow.plan else None
        value = effect.result if end is End.COMPLETED else effect.error
        dependency.value = value if notice.wants or dependency.fatal or dependency.unmet else None
        if job.finish is None:
            self._evaluate(name, job, notice.number)

    def _evaluate(self, name: str, job: Job, number: int | None = None) -> None:
        """End or resume a suspended job if its dependencies ask for it; `number` is the one that was closed."""
        flow = job.flow
        if not flow.suspended or flow.reviving:
            return
        if flow.plan:
            self._evaluate_plan(name, job, flow.plan)
        elif not flow.begun:
            if unmet := flow.verdict():
                self._end_unmet(name, job, unmet)
            elif flow.final and not flow.open_among(flow.needed):
                self._resume(name, job)
        elif number is not None and number in flow.awaited and not flow.open_among(flow.awaited):
            self._resume(name, job)

    def _end_unmet(self, name: str, job: Job, unmet: Dependency) -> None:
        """End a job without a run, because of a dependency that is not met."""
        assert unmet.end is not None
        error = unmet_error(unmet.ref, unmet.end, None if unmet.end is End.COMPLETED else unmet.value)
        self._finish(name, job, State.CANCELLED, "", UNMET_MS, error=error, end=end_of_unmet(unmet.end))

    def _evaluate_plan(self, name: str, job: Job, plan: Plan) -> None:
        flow = job.flow
        fatal = sorted((d for d in flow.dependencies.values() if d.fatal), key=lambda d: (d.fatal != "failed", d.order))
        failed = bool(fatal) and fatal[0].fatal == "failed"
        if not (failed and plan.fail_fast) and (flow.open_among() or not flow.final):
            return
        if failed:
            error = flow_error(fatal[0].ref, fatal[0].value)
            self._finish(name, job, State.FAILED, "", plan.failed_ttl, error=error)
        elif fatal:
            error = flow_error(fatal[0].ref, fatal[0].value)
            self._finish(name, job, State.CANCELLED, "", plan.failed_ttl, error=error)
        else:
            found = None if plan.result is None else flow.dependencies.get(plan.result)
            result = found.value if found and found.value is not None else plan.default
            self._finish(name, job, State.COMPLETED, "", plan.ttl, result=result)

    def _resume(self, name: str, job: Job, turn: int | None = None) -> None:
        """Queue a suspended job at its place; without a turn it enters now."""
        queue, flow = self.all[name], job.flow
        flow.suspended, flow.wake, flow.wait, flow.awaited = False, None, None, range(0)
        job.retried = False
        self._emit("resumed", name, job)
        if turn is None:
            self._enter_if_due(queue, job)
        else:
            job.format = max(job.format, getattr(self, "format", 1))
            if job.due <= self.now:
                job.entered = True
            self._update_turn(queue, job.group, (0, turn, job.seq))

    def _wake(self, queue: Queue) -> None:
        """Resume the suspended jobs whose wake time has come; a wait for a signal has timed out then."""
        late = [j for j in queue.jobs.values() if j.flow.suspended and j.flow.wake is not None]
        for job in sorted((j for j in late if (j.flow.wake or 0) <= self.now), key=lambda j: (j.flow.wake, j.seq)):
            if job.flow.wait:
                self._write(job, job.flow.wait.checkpoint, "signal", signal_value(None))
            self._resume(queue.name, job, job.flow.wake)

    # opening again -------------------------------------------------------------------------------

    def _reopen(self, name: str, job: Job) -> None:
        """Open again what the end of a job had closed."""
        for notice in job.flow.notices.values():
            self.effects.append(Effect(notice, JobRef(name, job.id), None))

    def _open_again(self, name: str, job: Job, number: int) -> None:
        """Open a dependency of a job again, because the job that it waits for was revived."""
        flow = job.flow
        dependency = flow.dependencies.get(number)
        if dependency is None or dependency.end is None or (job.finish and job.finish.state is State.COMPLETED):
            return
        if flow.plan:
            dependency.open()
            if job.finish:
                self._suspend_again(name, job)
                if flow.plan.fail_fast:
                    self._revive_children(name, job, (End.DROPPED,))
        elif number >= flow.needs:
            if (flow.suspended and number in flow.awaited) or (job.finish and dependency.culprit):
                dependency.open()
        elif job.finish:
            if flow.durable:
                return
            dependency.open()
            if flow.end in (End.UPSTREAM, End.SKIPPED) and flow.verdict() is None:
                self._suspend_again(name, job)
        elif not flow.begun and job.run is None:
            dependency.open()
            if not flow.suspended:
                self._suspend_again(name, job)

    def _suspend_again(self, name: str, job: Job) -> None:
        """Suspend a job that never began, or a plan, again: it was ended or released by its dependencies."""
        queue, flow = self.all[name], job.flow
        ended = job.finish is not None
        job.finish, job.error = None, None
        flow.suspended, flow.end = True, None
        flow.opening += 1
        job.entered = False
        self._emit("suspended", name, job)
        if ended:
            queue.jobs[job.id] = job
            self._reopen(name, job)
        else:
            self._update_turn(queue, job.group)

    def _revive_children(self, name: str, job: Job, ends: tuple[End, ...] = REVIVED) -> None:
        """Put a message into the outbox that revives the children of a flow."""
        job.flow.reviving = job.flow.plan is not None
        ref = GenerationRef(name, job.id, self._generation(job))
        self.outbox.append((family_of(name), Cascade(ref, job.flow.opening, "revive", ends=ends)))

    # runs ----------------------------------------------------------------------------------------

    def _claim_flow(self, job: Job) -> ClaimFlow | None:
        """Return the flow part of a claim, and note that the job has begun."""
        flow = job.flow
        flow.begun = True
        if not flow.stored:
            return None
        checkpoints = tuple(sorted(flow.journal.values(), key=lambda each: each.n))
        dependencies = tuple(self._entries(flow))
        size = sum(len(c.name.encode()) + len(c.value) for c in checkpoints)
        size += sum(len(d.queue.encode()) + len(d.id.encode()) + len(d.value or b"") for d in dependencies)
        whole = size <= JOURNAL_BYTES and len(checkpoints) + len(dependencies) <= JOURNAL_ENTRIES
        cancel, flow.cancel = flow.cancel, None
        assert job.run
        if cancel:
            job.run.cancel, job.run.cancel_ttl = cancel
        return ClaimFlow(
            flow.generation, self.now, flow.parent, flow.binds, flow.needs, flow.total, flow.fresh,
            checkpoints if whole else (), dependencies if whole else (), whole, cancel[0] if cancel else None,
        )  # fmt: skip

    def _entries(self, flow: Flow) -> list[DependencyEntry]:
        return [DependencyEntry(n, d.ref.queue, d.ref.id, d.end, d.value) for n, d in sorted(flow.dependencies.items())]

    def _checkpoint(self, job: Job, new: NewCheckpoint) -> Checkpoint | None:
        """Store a checkpoint unless there is one of its name, and return the stored one."""
        flow = self._store_flow(job)
        old = flow.journal.get(new.name)
        if old is not None and not (old.kind == new.kind == "cursor"):
            return old
        value = new.value
        if new.kind == "signal":
            read = next((signal for signal in flow.signals if signal[0] in new.signals), None)
            if read is None:
                return None
            flow.signals.remove(read)
            value = signal_value(*read)
        return self._write(job, new.name, new.kind, value)

    def _write(self, job: Job, name: str, kind: Any, value: bytes) -> Checkpoint:
        flow = self._store_flow(job)
        old = flow.journal.get(name)
        n = old.n if old else max((each.n for each in flow.journal.values()), default=0) + 1
        flow.journal[name] = Checkpoint(n, name, kind, value)
        flow.durable = True
        job.retries = job.stalls = job.timeouts = 0
        return flow.journal[name]

    def _suspend(self, name: str, job: Job, suspend: Suspend, worker: str) -> None:
        """Suspend a run, or queue its job if it waits for nothing."""
        queue, flow = self.all[name], self._store_flow(job)
        job.run = None
        job.attempts -= 1
        flow.durable = flow.begun = True
        for checkpoint in suspend.checkpoints:
            self._checkpoint(job, checkpoint)
        self._emit("suspended", name, job, worker=worker)
        job.retried = flow.suspended = True
        flow.awaited = range(suspend.first, suspend.first + suspend.count)
        for number, child in enumerate(suspend.puts, flow.total):
            flow.dependencies[number] = Dependency(JobRef(child.queue, child.id))
        flow.total += len(suspend.puts)
        self._set_wait(job, suspend)
        self._update_turn(queue, job.group)
        self.put(suspend.puts)
        if flow.suspended and not self._has_to_wait(flow):
            self._resume(name, job)

    def _set_wait(self, job: Job, suspend: Suspend) -> None:
        """Set the wake time and the wait for a signal; a signal that has come is read at once."""
        flow = job.flow
        wake = self.now + suspend.delay if suspend.delay is not None else suspend.at
        if suspend.sleep is not None and wake is not None:
            stored = self._checkpoint(job, NewCheckpoint(suspend.sleep, "sleep", str(wake).encode()))
            assert stored
            wake = int(stored.value) if stored.value.isdigit() else wake
        if suspend.signal is not None:
            asked = NewCheckpoint(suspend.signal.checkpoint, "signal", signals=suspend.signal.signals)
            if self._checkpoint(job, asked) is None:
                flow.wait = suspend.signal
            else:
                wake = None
        flow.wake = wake

    def _has_to_wait(self, flow: Flow) -> bool:
        if flow.open_among(flow.awaited) or flow.wait:
            return True
        return flow.wake is not None and flow.wake > self.now

    def _adopt(self, job: Job, then: Sequence[NewJob]) -> list[NewJob]:
        """Return the follow-up jobs of a child of a plan as children of the plan, which waits for them too."""
        parent = self._living(job.flow.parent) if job.flow.parent else None
        if parent is None or parent.finish or parent.flow.plan is None or job.flow.parent is None:
            return list(then)
        adopted: list[NewJob] = []
        ref = job.flow.parent
        for new in then:
            if new.flow is not None:
                adopted.append(new)
                continue
            number = FOLLOW_UPS + parent.flow.adopted
            parent.flow.dependencies[number] = Dependency(JobRef(new.queue, new.id))
            parent.flow.adopted += 1
            notice = Notice(ref.queue, ref.id, ref.generation, number, "ended")
            adopted.append(structs.replace(new, flow=FlowPart(parent=ref, notices=(notice,))))
        return adopted

    # verbs ---------------------------------------------------------------------------------------

    def signal(self, name: str, id: str, signal: str, value: bytes = b"") -> SignalStatus:
        self._expire(name)
        if name in self.all:
            self._promote(self.all[name])
        job = self._job(name, id)
        if job is None:
            return "not_found"
        if job.finish:
            return "finished"
        flow = self._store_flow(job)
        if flow.suspended and flow.wait and signal in flow.wait.signals:
            self._emit("signalled", name, job)
            self._write(job, flow.wait.checkpoint, "signal", signal_value(signal, value))
            self._resume(name, job)
            self._apply_effects()
            return "delivered"
        if len(flow.signals) >= MAX_SIGNALS:
            return "full"
        self._emit("signalled", name, job)
        flow.signals.append((signal, value))
        return "kept"

    def extend(
        self, name: str, id: str, generation: str, dependencies: Sequence[JobRef], first: int, final: bool = False
    ) -> Extended:
        job = self._living(GenerationRef(name, id, generation))
        if job is None or job.finish:
            return Extended(0, over=True)
        flow = job.flow
        if flow.final:
            return Extended(flow.total)
        self._promote(self.all[name])
        flow.extended_at = self.now
        for number, ref in enumerate(dependencies, first):
            flow.dependencies.setdefault(number, Dependency(ref))
        flow.total = flow.needs = max(flow.total, first + len(dependencies))
        if final:
            flow.final = True
            self._evaluate(name, job)
            self._apply_effects()
        return Extended(flow.total)

    def relay(self, families: Sequence[str], limit: int = MAX_BATCH) -> Relayed:
        applied = self._abandon(families)
        while applied < limit:
            found = next((m for m in self.outbox if m[0] in families), None)
            if found is None:
                break
            message = found[1]
            if isinstance(message, Effect):
                self.outbox.remove(found)
                self._apply_effect(message)
                self._apply_effects()
                applied += 1
                continue
            steps, done = self._cascade(message, limit - applied)
            applied += steps
            if done:
                self.outbox.remove(found)
        return Relayed(applied, any(family in families for family, _ in self.outbox))

    def _abandon(self, families: Sequence[str]) -> int:
        """Fail the open flows whose producers were silent for too long."""
        late: list[tuple[str, Job]] = []
        for name, queue in self.all.items():
            if family_of(name) in families:
                late += [(name, j) for j in queue.jobs.values() if not j.flow.final and j.flow.suspended]
        late = [(name, j) for name, j in late if j.flow.extended_at + ABANDONED_MS <= self.now and not j.finish]
        for name, job in sorted(
            late, key=lambda each: (each[1].flow.extended_at, each[0].encode(), each[1].id.encode())
        ):
            self._promote(self.all[name])
            if job.flow.suspended and not job.finish:
                self._finish(name, job, State.FAILED, "", UNMET_MS, error=ABANDONED)
                self._apply_effects()
        return len(late)

    def _cascade(self, message: Cascade, limit: int) -> tuple[int, bool]:
        """Cancel or revive some children of a flow; return how many were looked at, and whether all were."""
        flow = self._living(message.flow)
        if flow is None or flow.flow.opening != message.opening or bool(flow.finish) != (message.kind == "cancel"):
            return 0, True
        steps = 0
        for number in sorted(n for n in flow.flow.dependencies if n > message.after):
            dependency = flow.flow.dependencies[number]
            if not self._concerns(message, flow, number, dependency):
                continue
            if steps == limit:
                return steps, False
            steps += 1
            message.after = number
            if message.kind == "cancel":
                self._drop_child(message, flow, dependency)
            else:
                self._revive_child(message, flow, number, dependency)
            self._apply_effects()
        if message.kind == "revive":
            flow.flow.reviving = False
            self._evaluate(message.flow.queue, flow)
            self._apply_effects()
        return steps, True

    def _concerns(self, message: Cascade, flow: Job, number: int, dependency: Dependency) -> bool:
        """Return whether a message is about this child of the flow."""
        if message.kind == "cancel":
            return dependency.end is None and (flow.flow.plan is not None or number >= flow.flow.needs)
        return dependency.end in message.ends if flow.flow.plan else dependency.culprit

    def _drop_child(self, message: Cascade, flow: Job, dependency: Dependency) -> None:
        """Cancel a child whose flow has ended, unless another made it."""
        child = self._job(dependency.ref.queue, dependency.ref.id)
        if child is None or child.finish or child.flow.parent != message.flow:
            return
        assert flow.finish
        error = dropped_error(JobRef(message.flow.queue, message.flow.id), flow.finish.state.value)
        queue = self.all[dependency.ref.queue]
        self._promote(queue)
        self._cancel_one(queue, child, message.mode, UNMET_MS, error=error, end=End.DROPPED)

    def _revive_child(self, message: Cascade, flow: Job, number: int, dependency: Dependency) -> None:
        """Revive a child of a revived flow; one that is gone counts as failed again."""
        ref, notice = dependency.ref, dependency.notice
        culprit, dependency.culprit = dependency.culprit, False
        child = self._job(ref.queue, ref.id)
        assert notice
        if child is None:
            if culprit:
                self._close_dependency(message.flow.queue, flow, Effect(notice, ref, End.FAILED))
            return
        self._promote(self.all[ref.queue])
        key = (notice.queue, notice.id, notice.generation, notice.number)
        if child.finish is None or child.finish.state is State.COMPLETED:
            dependency.open()
            if child.finish is None:
                child.flow.notices[key] = notice
            else:
                self._close_dependency(
                    message.flow.queue, flow, Effect(notice, ref, End.COMPLETED, child.finish.result)
                )
            return
        child.flow.notices[key] = notice
        if not self._revive(ref.queue, ref.id, False, False) and culprit:
            end = child.flow.end or End.FAILED
            self._close_dependency(message.flow.queue, flow, Effect(notice, ref, end, None, child.finish.error))

    # reads ---------------------------------------------------------------------------------------

    def read_journal(self, name: str, id: str, after: int = 0, limit: int = 1000) -> JournalPage | None:
        job = self._job(name, id)
        if job is None:
            return None
        found = sorted((c for c in job.flow.journal.values() if c.n > after), key=lambda each: each.n)
        return JournalPage(found[:limit], len(found) > limit)

    def dependencies(self, name: str, id: str, after: int = -1, limit: int = 1000) -> DependencyPage | None:
        job = self._job(name, id)
        if job is None:
            return None
        found = [entry for entry in self._entries(job.flow) if entry.number > after]
        return DependencyPage(found[:limit], len(found) > limit)

    def _flow_snapshot(self, job: Job) -> FlowSnapshot | None:
        flow = job.flow
        if not flow.stored:
            return None
        ends = Counter(d.end for d in flow.dependencies.values())
        awaited = flow.awaited if flow.begun else flow.needed
        waits_for = flow.open_among(awaited)[:3] if flow.suspended else []
        return FlowSnapshot(
            generation=flow.generation, parent=flow.parent, plan=flow.plan is not None, final=flow.final,
            needs=flow.needs, open=ends[None], ends={end: ends[end] for end in End if ends[end]},
            waits_for=tuple(flow.dependencies[number].ref for number in waits_for), wakes_at=flow.wake,
            signals=flow.wait.signals if flow.wait else (), unread=len(flow.signals),
        )  # fmt: skip

    # invariants ----------------------------------------------------------------------------------

    def check_flows(self) -> None:
        """Check F12, F13, F15 and F16 of all jobs."""
        assert not self.effects
        for name, queue in self.all.items():
            for job in queue.jobs.values():
                self._check_suspended(job)
                self._check_notices(name, job)
                self._check_journal(name, job)

    def _check_suspended(self, job: Job) -> None:
        flow = job.flow
        if job.run is not None:
            assert not flow.suspended, f"F16: {job.id} runs although it is suspended"
            assert flow.durable or not flow.open_among(flow.needed), f"F16: {job.id} runs with an open dependency"
        if not flow.suspended:
            return
        assert job.run is None, f"F12: {job.id} is suspended and has a lease"
        assert job.finish is None, f"F12: {job.id} is suspended and has ended"
        assert not job.entered, f"F12: {job.id} is suspended and in the order"
        if not flow.begun:
            waits = flow.open_among(flow.needed) or not flow.final or flow.reviving
        else:
            waits = flow.open_among(flow.awaited) or flow.wake is not None or flow.wait is not None
        assert waits, f"F12: {job.id} is suspended and waits for nothing"
        assert flow.begun or not flow.verdict(), f"F12: {job.id} is suspended although a dependency is not met"

    def _check_notices(self, name: str, job: Job) -> None:
        """Check that each notice of an ended job has arrived, is on its way, or that its target is gone."""
        if job.finish is None:
            return
        messages = [message for _, message in self.outbox]
        on_their_way = [message.notice for message in messages if isinstance(message, Effect)]
        revived = [message.flow for message in messages if isinstance(message, Cascade)]
        for notice in job.flow.notices.values():
            target = self._living(notice)
            dependency = target.flow.dependencies.get(notice.number) if target else None
            if dependency is None or dependency.end is not None or notice in on_their_way:
                continue
            ref = GenerationRef(notice.queue, notice.id, notice.generation)
            assert ref in revived, f"F13: the notice of {job.id!r} in {name!r} to {notice.id!r} is lost"

    def _check_journal(self, name: str, job: Job) -> None:
        for checkpoint in job.flow.journal.values():
            key = (name, job.id, job.flow.generation, job.flow.fresh, checkpoint.name)
            before = self.seen.setdefault(key, checkpoint)
            assert checkpoint == before or checkpoint.kind == "cursor", f"F15: checkpoint {checkpoint.name!r} changed"


def state_of_end(end: End | None) -> State:
    """Return the state of a job that ended so; cancelled if that is not known."""
    return {End.COMPLETED: State.COMPLETED, End.FAILED: State.FAILED}.get(end or End.CANCELLED, State.CANCELLED)
