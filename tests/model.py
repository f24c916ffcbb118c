"""The state machine in plain Python, with dicts and sorting: every storage must agree with it."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy, deepcopy
from dataclasses import dataclass, field, replace

from msgspec import structs

from penstock.errors import QueueFull
from penstock.model.flow import Checkpoint, End
from penstock.model.gate import NEW_GATE, Gate
from penstock.model.history import HistoryName, HistoryPage
from penstock.model.job import FINISHED, Claim, MoveWhen, NewJob, Snapshot, State, Update
from penstock.model.pause import Pause
from penstock.model.why import MAX_AHEAD
from penstock.storage.base import (
    CANCEL_MODES,
    EXPIRED,
    EXPIRED_MS,
    FIND_ORDER,
    MAX_BATCH,
    MAX_BYTES,
    Cancel,
    CancelAnswer,
    CancelMode,
    Claimed,
    ClaimRef,
    Complete,
    DiscardAnswer,
    EventRecord,
    Fail,
    JobPosition,
    Page,
    Put,
    PutStatus,
    Reaped,
    Release,
    Renewal,
    Report,
    Reported,
    Request,
    Retried,
    Settled,
    Settlement,
    Stall,
    Suspend,
)
from penstock.storage.scheduling import ScheduleRecord
from tests.model_flows import Flow, ModelFlows
from tests.model_histories import Histories, outcome_of
from tests.model_limits import Limits, Turn
from tests.model_schedules import ModelSchedules, next_tick
from tests.model_stats import ModelStats

#: How long the storage remembers the settlement of a job with a TTL of 0.
GONE_MS = 60_000
#: How long a job with a TTL of 0 stays for its waiters.
WAITED_MS = 60_000

#: The states to which each resolution may have led when it is settled a second time.
POSSIBLE_STATES: dict[type, tuple[State, ...]] = {
    Complete: (State.COMPLETED,),
    Fail: (State.FAILED, State.CANCELLED),
}


@dataclass
class Run:
    """The live claim of a running job."""

    token: str
    worker: str
    until: int
    begun: int
    cancel: CancelMode | None = None
    cancel_ttl: int | None = 0
    progress: bytes | None = None


@dataclass
class Finish:
    """How and when a job finished, and until when that is kept."""

    state: State
    token: str
    at: int
    number: int
    expires: int | None
    worker: str | None
    started: int | None
    result: bytes | None = None
    error: bytes | None = None
    free: bool = False  # kept for its waiters only: the id is free


@dataclass
class Job:
    """A job, or the successor of a running one."""

    id: str
    payload: bytes
    headers: bytes
    bounds: bytes
    priority: int
    group: str | None
    time: int
    seq: int
    due: int
    created: int
    attempts: int = 0
    retries: int = 0
    stalls: int = 0
    timeouts: int = 0
    retried: bool = False
    solo: bool = False
    start_by: int | None = None  # when it expires, unless its first run has begun
    cost: int = 1
    window: int | None = None
    earliest: int | None = None  # no update moves it before this: the end of the window in which it was put
    error: bytes | None = None
    settled: tuple[str, type] | None = None  # the last run's token and resolution, for a repeated settlement
    flags: Update | None = None  # of a blocked successor
    format: int = 1  # of its record: software may be too old to read it
    entered: bool = False  # promoted: in the ready order or in its group
    run: Run | None = None
    finish: Finish | None = None
    histories: Histories = field(default_factory=Histories)
    flow: Flow = field(default_factory=Flow)
    behind: int = 0  # of a blocked successor: the begin of the run that it waits for

    @property
    def busy(self) -> bool:
        """Whether a put of its id makes a successor: it runs, or its runs have recorded something."""
        return self.run is not None or (self.finish is None and self.flow.durable)

    @property
    def rank(self) -> tuple[int, int, int]:
        return (-self.priority, self.time, self.seq)

    def waiting(self) -> bool:
        return self.run is None and self.finish is None

    def state(self, now: int) -> State:
        if self.finish:
            return self.finish.state
        if self.run:
            return State.RUNNING
        if self.flow.suspended:
            return State.QUEUED if self.flow.wake is not None and self.flow.wake <= now else State.SUSPENDED
        if self.entered or self.due <= now:
            return State.QUEUED  # and stays so if the clock is set back
        return State.RETRYING if self.retried else State.SCHEDULED


@dataclass
class Queue:
    """The jobs of a queue, and what is remembered beside them."""

    name: str = ""
    seq: int = 0
    time: int = 0
    finished: int = 0
    paused: Pause | None = None
    jobs: dict[str, Job] = field(default_factory=dict)
    blocked: dict[str, Job] = field(default_factory=dict)
    turns: dict[str, Turn] = field(default_factory=dict)  # the rotation: groups that have jobs and may start one
    closed: dict[str, int] = field(default_factory=dict)  # groups that have jobs and may not: when they may
    stale: set[str] = field(default_factory=set)  # those of them whose rule or pause has changed,
    changed: int = 0  # at this time
    looked: int = 0  # when a group was last closed until a time
    stamps: dict[str, tuple[Turn, int]] = field(default_factory=dict)  # turns that are kept, and their starts so far
    gate: Gate = NEW_GATE  # of the queue's own rate
    gates: dict[str, Gate] = field(default_factory=dict)  # of the rates of groups
    pauses: dict[str, Pause] = field(default_factory=dict)  # of groups
    gone: dict[tuple[str, str], tuple[State, int]] = field(default_factory=dict)
    waits: set[str] = field(default_factory=set)  # the ids with a waiter
    schedules: dict[str, ScheduleRecord] = field(default_factory=dict)
    ticker: str | None = None  # the worker that holds the alarm of the schedules
    windows: dict[str, int] = field(default_factory=dict)  # until when an id is taken

    def next_seq(self) -> int:
        self.seq += 1
        return self.seq


class Model(Limits, ModelSchedules, ModelStats, ModelFlows):
    """The queues of one storage. The caller sets `now`."""

    def __init__(self, now: int) -> None:
        super().__init__()
        ModelStats.__init__(self)
        ModelFlows.__init__(self)
        self.now = now
        self.format = 1
        self.all: dict[str, Queue] = {}
        self.events: list[EventRecord] = []

    def check(self) -> None:
        """Check the invariants of limits and of flows."""
        super().check()
        self.check_flows()

    # put -----------------------------------------------------------------------------------------

    def put(self, jobs: Sequence[NewJob], max_queued: int | None = None) -> list[Put]:
        answers: list[Put] = []
        for new in jobs:
            self._check_flow(new)
        for name in dict.fromkeys(new.queue for new in jobs):
            self._expire(name)
        if max_queued is not None and jobs:
            queue = self.all.get(jobs[0].queue, Queue())
            waiting = sum(job.waiting() and not job.flow.suspended for job in queue.jobs.values())
            added = len({new.id for new in jobs if self._adds(queue, new)})
            if added and waiting + added > max_queued:
                raise QueueFull(jobs[0].queue, waiting, max_queued, added)
        for new in jobs:
            if refused := self._refuse_child(new):
                answers.append(refused)
                continue
            answer = self._put(new)
            self._join(self.all[new.queue], new, answer)
            self._apply_effects()
            if answer.status is PutStatus.DUPLICATE:
                answer = structs.replace(answer, until=self._window_end(self.all[new.queue], new))
            answers.append(answer)
            if new.waiter is not None and answer.state is not State.COMPLETED and not answer.refused:
                self.all[new.queue].waits.add(new.id)
        return answers

    def _put(self, new: NewJob) -> Put:
        queue = self._queue(new.queue)
        old = queue.jobs.get(new.id)
        if old or new.group is not None:
            self._promote(queue)
        if old is None or self._replaces(old, new):
            until = self._window_end(queue, new)
            if until is not None and new.update is None:
                return Put(PutStatus.DUPLICATE, State.COMPLETED)
            job = self._accept(queue, new)
            if until is not None:
                self._postpone(job, until)
            self._take_window(queue, job)
            queue.jobs[new.id] = job
            self._emit("enqueued", new.queue, job)
            if job.flow.suspended:
                self._evaluate(new.queue, job)
                return Put(PutStatus.SUSPENDED, job.state(self.now))
            self._enter_if_due(queue, job)
            state = job.state(self.now)
            return Put(PutStatus(state.value), state)
        state = old.state(self.now)
        if new.update is None or (not old.busy and old.waiting() and self._newer(old)):
            if old.finish:
                return Put(PutStatus.COMPLETED, state, old.finish.result)
            return Put(PutStatus.DUPLICATE, state)
        if not old.busy:
            if has_both(old, new, new.update):
                return Put(PutStatus.DUPLICATE, state, refused=True)
            group, seq = old.group, old.seq
            old.entered = False
            self._apply(queue, old, new, new.update)
            if not old.flow.suspended:
                self._enter_if_due(queue, old)
            if old.group != group:
                self._update_turn(queue, group, (0, self.now, seq))
            self._emit("updated", new.queue, old)
            return Put(PutStatus.UPDATED, old.state(self.now))
        successor = queue.blocked.get(new.id)
        if self._cannot_block(old, successor, new, new.update):
            return Put(PutStatus.DUPLICATE, state, refused=True)
        if successor is None:
            queue.blocked[new.id] = job = self._accept(queue, new)
            job.behind = old.run.begun if old.run else self.now
            job.flags = given_flags(new, new.update)
            self._emit("enqueued", new.queue, job)
            return Put(PutStatus.BLOCKED, State.BLOCKED)
        if self._newer(successor):
            return Put(PutStatus.DUPLICATE, state)
        assert successor.flags
        self._apply(queue, successor, new, new.update)
        successor.format = self.format
        successor.flags = merge_flags(successor.flags, given_flags(new, new.update))
        self._emit("updated", new.queue, successor)
        return Put(PutStatus.UPDATED, State.BLOCKED)

    def _replaces(self, old: Job | None, new: NewJob) -> bool:
        """Return whether a put makes a new job of this id: it is free, or its job has finished and may be replaced."""
        if old is None or not old.finish:
            return old is None
        finish = old.finish
        return bool(new.update or finish.free or finish.state is not State.COMPLETED or self._expired(finish))

    def _adds(self, queue: Queue, new: NewJob) -> bool:
        """Return whether a put makes a new job: its id may be replaced, and no window refuses it."""
        if new.flow and (new.flow.dependencies or new.flow.plan or new.flow.open):
            return False
        return self._replaces(queue.jobs.get(new.id), new) and (
            new.update is not None or self._window_end(queue, new) is None
        )

    def _window_end(self, queue: Queue, new: NewJob | Job) -> int | None:
        """Return when the open window of an id ends; a put or successor without a window looks at none."""
        until = queue.windows.get(new.id, self.now)
        return until if new.window is not None and until > self.now else None

    def _postpone(self, job: Job, until: int) -> None:
        """Make a job wait for the end of the window in which it was put."""
        job.earliest = until
        if job.due < until:
            job.due = job.time = until

    def _take_window(self, queue: Queue, job: Job) -> None:
        """Take the id of a job for its window, from its acceptance or its due time on."""
        if job.window is not None:
            queue.windows[job.id] = max(job.created, job.due) + job.window

    def _free_window(self, queue: Queue, job: Job) -> None:
        """Free the id of a job that has not completed; the window in which it was put goes on."""
        if job.window is not None:
            queue.windows.pop(job.id, None)
            if job.earliest is not None and job.earliest > self.now:
                queue.windows[job.id] = job.earliest

    def _accept(self, queue: Queue, new: NewJob) -> Job:
        """Return a new record, ordered by its run-at or its acceptance.

        In a group, run_at never sorts a job before ones accepted earlier.
        """
        queue.time = max(queue.time, self.now)
        asked = self._asked(new, self.now)
        due = self.now if asked is None else asked
        time = queue.time if asked is None else asked
        if new.group is not None:
            time = max(time, queue.time)
        job = Job(
            id=new.id, payload=new.payload, headers=new.headers, bounds=new.bounds,
            priority=new.priority, group=new.group, time=time, seq=queue.next_seq(), due=due, created=self.now,
            format=self.format, start_by=self._start_by(new), cost=new.cost, window=new.window,
        )  # fmt: skip
        self._begin_flow(job, new.flow)
        return job

    def _start_by(self, new: NewJob | Job) -> int | None:
        """Return when a new job expires, or one that a returning run is merged with."""
        within = new.start_within if isinstance(new, NewJob) else None
        return new.start_by if within is None else self.now + within

    def _asked(self, new: NewJob, created: int) -> int | None:
        """Return the due time that a put asks for, bounded by its longest wait since the job was created."""
        asked = new.run_at if new.delay is None else self.now + new.delay
        return asked if asked is None or new.max_wait is None else min(asked, created + new.max_wait)

    def _cannot_block(self, running: Job, successor: Job | None, new: NewJob, flags: Update) -> bool:
        """Return whether a put behind a run is refused: the successor, or the job it is folded in, would have both."""
        after: NewJob | Job = new
        if successor is not None:
            if self._newer(successor):
                return False  # it is left as it is
            if has_both(successor, new, flags):
                return True
            assert successor.flags
            after = replace(successor, priority=new.priority if flags.priority else successor.priority)
            if flags.group and new.group is not None:
                after.group = new.group
            flags = merge_flags(successor.flags, given_flags(new, flags))
        return not self._newer(running) and has_both(running, after, flags)  # else it is replaced, not merged

    def _apply(self, queue: Queue, job: Job, new: NewJob | Job, flags: Update) -> None:
        """Change a waiting or blocked job in place, by the flags of the update.

        A job that changes its group is accepted there now: it joins the end, and a backoff does not hold the group.
        """
        if flags.payload:
            job.payload, job.headers, job.cost = new.payload, new.headers, new.cost
        if flags.bounds:
            job.bounds = new.bounds
        if isinstance(new, NewJob):
            asked = self._asked(new, job.created)
        else:
            asked = new.due if new.due > self.now else None
        due = moved(flags.run_at, asked, self.now, job.due)
        if due is not None and job.earliest is not None:
            due = max(due, job.earliest)
        if due is not None and due != job.due:
            job.due, job.retried = due, False
            job.time = due if job.group is None else max(due, self.now)
        if flags.resets:
            job.attempts = job.retries = job.stalls = job.timeouts = 0
            job.solo, job.error = False, None
        if flags.priority:
            job.priority = new.priority
        if flags.group and new.group is not None and new.group != job.group:
            queue.time = max(queue.time, self.now)
            job.group, job.seq, job.retried = new.group, queue.next_seq(), False
            job.time = max(job.due, queue.time)
        start_by = self._start_by(new)
        if start_by is not None and job.attempts == 0:
            job.start_by = start_by

    # expiry --------------------------------------------------------------------------------------

    def _expire(self, name: str) -> None:
        """Cancel the jobs whose first run has not begun by their start-by time.

        Verbs that read or claim waiting jobs begin with it, so its result depends on the clock alone.
        """
        queue = self.all.get(name)
        if queue is None:
            return

        def overdue() -> list[Job]:
            jobs = (*queue.jobs.values(), *queue.blocked.values())
            late = [j for j in jobs if j.start_by is not None and j.start_by <= self.now and j.waiting()]
            return sorted(late, key=lambda j: (j.start_by, j.seq))

        if not overdue():
            return
        self._promote(queue)
        for job in overdue():
            if queue.blocked.get(job.id) is job:
                del queue.blocked[job.id]
                self._emit("cancelled", name, job, error=EXPIRED)
                self._gone(name, job)
            else:
                self._finish(name, job, State.CANCELLED, "", EXPIRED_MS, error=EXPIRED)
        self._apply_effects()

    # ready order and groups ----------------------------------------------------------------------

    def _jobs_of_group(self, queue: Queue, group: str) -> list[Job]:
        lane = [j for j in queue.jobs.values() if j.entered and j.group == group and j.waiting()]
        return sorted(lane, key=lambda j: (j.time, j.seq))

    def _enter_if_due(self, queue: Queue, job: Job) -> None:
        """Enter a due job into the ready order or its group; a group that becomes free gets its turn now."""
        job.format = max(job.format, self.format)
        if job.due <= self.now:
            job.entered, job.retried = True, False
        self._update_turn(queue, job.group, (0, self.now, job.seq))

    def _promote(self, queue: Queue) -> None:
        """Enter all due jobs into the order: scheduled ones before retrying ones, each by due time.

        Every verb that reads the order or gives a group its turn begins with it, so the order never depends on which
        call came first. It shows only when the clock is set back later: a job that has entered stays queued then. So
        a put of a job without a group and with a free id, and the settlement of one without a group and a successor,
        do not promote: nothing else depends on it, and they are the most frequent calls.
        """
        self._open_gates(queue)
        late = [j for j in queue.jobs.values() if not j.entered and j.due <= self.now and j.waiting()]
        due = [j for j in late if not j.flow.suspended]
        for job in sorted(due, key=lambda j: (j.retried, j.due, j.seq)):
            job.entered, job.retried = True, False
            self._update_turn(queue, job.group, (0, job.due, job.seq))
        self._wake(queue)

    # claim ---------------------------------------------------------------------------------------

    def claim(self, requests: Sequence[Request], worker: str, lease: int, token: str) -> Claimed:
        claims: list[Claim] = []
        more: list[str] = []
        known = [queue for request in requests if (queue := self.all.get(request.queue))]
        tick_at = min((at for queue in known if (at := next_tick(queue)) is not None), default=None)
        for request in requests:
            queue = self.all.get(request.queue)
            if queue is None or self.paused(request.queue):
                continue
            queue.paused = None
            self._expire(request.queue)
            self._promote(queue)
            run = Run(token, worker, self.now + lease, self.now)
            batches, cut = self._batches(queue, request.limit, request.batch, run)
            if cut:
                more.append(request.queue)
            elif len(batches) < request.limit:
                self._check_busy(queue)
            self._check_started(queue, batches)
            for number, batch in enumerate(batches):
                for job in batch:
                    claims.append(structs.replace(claim_of(request.queue, job, number), flow=self._claim_flow(job)))
                    self._emit("started", request.queue, job, worker=worker)
        return Claimed(claims, more=more, tick_at=tick_at)

    def _batches(self, queue: Queue, limit: int, size: int, run: Run) -> tuple[list[list[Job]], bool]:
        """Start up to `limit` batches: neighbours without a group together, the first jobs of each group apart.

        The claim ends where the family or the queue allows no further start. A group that may not start is closed, and
        the next in the order is looked at. True follows if the last job has reached the bound of jobs or of bytes.
        """
        batches: list[list[Job]] = []
        passed: list[tuple[str, str]] = []  # left for newer software
        together = False
        while not has_reached_bound([job for batch in batches for job in batch]):
            entry = next((each for each in self._order(queue) if each not in passed), None)
            if entry is None:
                break
            kind, name = entry
            job = queue.jobs[name] if kind == "job" else self._jobs_of_group(queue, name)[0]
            if self._newer(job):
                passed.append(entry)
                continue
            joins = kind == "job" and together and not job.solo and not batches[-1][0].solo and len(batches[-1]) < size
            if (len(batches) == limit and not joins) or self._room(queue) < 1:
                break
            opens = None if kind == "job" else self._opens(queue, name, job)
            if opens is not None:
                self._close(queue, name, opens)
                continue
            if not self._rates_allow(queue, job):
                break
            if not joins:
                batches.append([])
            together = kind == "job"
            jobs = [job] if together else self._group_batch(queue, name, size)
            for each in jobs:
                if each is not job and not self._may_join(queue, each, batches):
                    break
                self._start(queue, each, replace(run))
                batches[-1].append(each)
            if not together:
                self._after_start(queue, name)
        return batches, has_reached_bound([job for batch in batches for job in batch])

    def _may_join(self, queue: Queue, job: Job, batches: list[list[Job]]) -> bool:
        """Return whether a further job of a group may start with those before it: the bound and all rates allow it."""
        if has_reached_bound([each for batch in batches for each in batch]) or not self._rates_allow(queue, job):
            return False
        assert job.group is not None
        rule = self._group_rule(queue.name, job.group)
        return self._rate_opens(self._look(queue, job.group, rule), rule, job.cost) <= self.now

    def _start(self, queue: Queue, job: Job, run: Run) -> None:
        self._charge(queue, job)
        job.run, job.start_by, job.entered = run, None, False
        job.attempts += 1

    def _order(self, queue: Queue) -> list[tuple[str, str]]:
        entries = [(j.rank, "job", j.id) for j in queue.jobs.values() if j.entered and j.group is None and j.waiting()]
        entries += [(rank, "lane", group) for group, rank in queue.turns.items()]
        return [(kind, name) for _, kind, name in sorted(entries)]

    # settle --------------------------------------------------------------------------------------

    def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        answers: list[Settled] = []
        for s in settlements:
            answers.append(self._settle(s))
            self._apply_effects()
        return answers

    def _settle(self, s: Settlement) -> Settled:
        queue = self.all.get(s.queue)
        if queue is None:
            return Settled(None, lost=True)
        job = queue.jobs.get(s.id)
        if job is None or job.run is None or job.run.token != s.token:
            return self._settle_again(queue, job, s)
        if job.group is not None or s.id in queue.blocked:
            self._promote(queue)
        worker = job.run.worker
        if isinstance(s.resolution, Fail | Cancel) and not s.resolution.ran:
            job.attempts -= 1
        if ended := outcome_of(s.resolution, job.run.cancel is not None):
            job.histories.add_attempt(self.now, job.attempts, ended[0], job.run.begun, worker, ended[1])
        if job.run.cancel is not None and not isinstance(s.resolution, Complete):
            self._finish(s.queue, job, State.CANCELLED, s.token, job.run.cancel_ttl)
            return Settled(State.CANCELLED)
        match s.resolution:
            case Complete(result, ttl, then):
                adopted = self._adopt(job, then)
                self._finish(s.queue, job, State.COMPLETED, s.token, ttl, result=result)
                held, self.effects = self.effects, []  # the follow-up jobs come first
                self.put(adopted)
                self.effects = held
                return Settled(State.COMPLETED)
            case Fail(error, ttl, count, then):
                if count:
                    job.timeouts += 1
                    self.count(s.queue, "timed_out")
                    self._emit("timed_out", s.queue, job, worker=worker)
                for number in s.resolution.culprits:
                    if number in job.flow.dependencies:
                        job.flow.dependencies[number].culprit = True
                self._finish(s.queue, job, State.FAILED, s.token, ttl, error=error)
                held, self.effects = self.effects, []
                self.put(then)
                self.effects = held
                return Settled(State.FAILED)
            case Cancel(ttl):
                self._finish(s.queue, job, State.CANCELLED, s.token, ttl)
                return Settled(State.CANCELLED)
            case Release():
                job.attempts -= 1
                job = self._return(s.queue, job, "released", self.now)
            case Stall():
                job.stalls, job.solo = job.stalls + 1, True
                self.count(s.queue, "stalled")
                job = self._return(s.queue, job, "stalled", self.now)
            case Retried():
                job = self._retry(s.queue, job, s.resolution, worker)
            case Suspend():
                self._suspend(s.queue, job, s.resolution, worker)
        if not self._newer(job):
            job.settled = (s.token, type(s.resolution))
        return Settled(job.state(self.now))

    def _settle_again(self, queue: Queue, job: Job | None, s: Settlement) -> Settled:
        """Answer a repeated settlement as the first time; any other is lost."""
        state: State | None = None
        gone = queue.gone.get((s.id, s.token))
        if gone and gone[1] > self.now:
            state = gone[0]
        elif job and job.finish and job.finish.token == s.token and not self._expired(job.finish):
            state = job.finish.state
        if state in POSSIBLE_STATES.get(type(s.resolution), (State.CANCELLED,)):
            return Settled(state)
        if job and job.waiting() and job.settled == (s.token, type(s.resolution)):
            return Settled(job.state(self.now))
        return Settled(None, lost=True)

    def _retry(self, name: str, job: Job, resolution: Retried, worker: str) -> Job:
        queue = self.all[name]
        self.count(name, "retried")
        if resolution.count == "timeouts":
            job.timeouts += 1
            self.count(name, "timed_out")
            self._emit("timed_out", name, job, worker=worker)
        elif resolution.count == "retries":
            job.retries += 1
        due = self.now + resolution.delay if resolution.at is None else resolution.at
        if resolution.position == "due" and job.group is None:
            job.time, job.seq = max(due, self.now), queue.next_seq()
        job.error = resolution.error or None
        job.solo = resolution.solo
        if resolution.pause is not None:
            self._pause_until(queue, job.group if resolution.pause == "group" else None, due)
        return self._return(name, job, "retrying", due)

    def _return(self, name: str, job: Job, event: str, due: int) -> Job:
        """Return a running job to waiting and fold its successor in by its flags; return the waiting job."""
        queue = self.all[name]
        worker = job.run.worker if job.run else None
        job.run, job.due = None, due
        job.retried = job.due > self.now
        self._emit(event, name, job, worker=worker, error=job.error if event == "retrying" else None)
        successor = None if job.flow.durable else queue.blocked.pop(job.id, None)
        if successor:
            job.flow.notices |= successor.flow.notices
        if successor and (self._newer(successor) or self._newer(job)):
            return self._replace(name, job, successor)
        if successor:
            assert successor.flags
            group = job.group
            self._apply(queue, job, successor, successor.flags)
            self._emit("updated", name, job)
            if job.group != group:
                self._update_turn(queue, group)
        return self._requeue(queue, job)

    def _requeue(self, queue: Queue, job: Job) -> Job:
        job.format = max(job.format, self.format)
        if job.due <= self.now:
            job.entered, job.retried = True, False
        self._update_turn(queue, job.group)
        return job

    def _replace(self, name: str, job: Job, successor: Job) -> Job:
        """Replace a job by its successor, which cannot be folded in because one of the two cannot be read."""
        queue = self.all[name]
        queue.jobs[job.id] = successor
        successor.flow.notices = job.flow.notices
        self._update_turn(queue, job.group)
        successor.flags = None
        self._free_window(queue, job)
        self._release(queue, successor)
        self._emit("updated", name, successor)
        return self._requeue(queue, successor)

    def _finish(
        self, name: str, job: Job, state: State, token: str, ttl: int | None,
        result: bytes | None = None, error: bytes | None = None, end: End | None = None, mode: CancelMode = "refuse",
    ) -> None:  # fmt: skip
        """Finish a job as completed, failed or cancelled, and release its successor in the same step."""
        queue = self.all[name]
        worker, started = (job.run.worker, job.run.begun) if job.run else (None, None)
        queue.finished += 1
        self.count(name, "finished")
        if state is not State.COMPLETED:
            self.count(name, state.value)
        if state is State.FAILED:
            self.note_error(name, job.id, error)
        job.run, job.entered, job.start_by = None, False, None
        free = ttl == 0 and job.id in queue.waits
        queue.waits.discard(job.id)
        expires = None if ttl is None else self.now + (WAITED_MS if free else ttl)
        job.finish = Finish(
            state, token, self.now, queue.finished, expires, worker, started, result, error, free
        )  # fmt: skip
        self._emit(state.value, name, job, worker=worker, result=result, error=error)
        self._ended(name, job, state, end, mode)
        successor = queue.blocked.pop(job.id, None)
        if token and (ttl == 0 or successor):
            queue.gone[job.id, token] = (state, self.now + GONE_MS)
        if (ttl == 0 and not free) or successor:
            del queue.jobs[job.id]
        if state is not State.COMPLETED:
            self._free_window(queue, job)
        if successor:
            queue.jobs[job.id] = successor
            successor.flags = None
            self._release(queue, successor)
            self._enter_if_due(queue, successor)
        self._update_turn(queue, job.group)

    def _release(self, queue: Queue, successor: Job) -> None:
        """Put a successor into the window of its id, if that is open, and take its own."""
        until = self._window_end(queue, successor)
        if until is not None:
            self._postpone(successor, until)
        self._take_window(queue, successor)

    # leases --------------------------------------------------------------------------------------

    def renew(self, worker: str, held: Sequence[ClaimRef], lease: int) -> list[Renewal]:
        answers: list[Renewal] = []
        for h in held:
            job = self.all[h.queue].jobs.get(h.id) if h.queue in self.all else None
            if job and job.run and job.run.token == h.token:
                job.run.until = self.now + lease
                answers.append(Renewal(True, job.run.cancel))
            else:
                answers.append(Renewal(False))
        return answers

    def reap(self, queues: Sequence[str], limit: int = MAX_BATCH) -> list[Reaped]:
        """Reap expired runs; the order of the answer is the storage's own."""
        reaped: list[Reaped] = []
        for name in queues:
            queue = self.all.get(name)
            if queue:
                self._promote(queue)
            late = [j for j in queue.jobs.values() if j.run and j.run.until <= self.now] if queue else []
            for job in sorted(late, key=lambda j: (j.run.until if j.run else 0, j.time, j.seq)):
                assert job.run
                run, attempt = job.run, job.attempts
                job.stalls += 1
                self.count(name, "stalled")
                outcome = "stalled" if run.cancel is None else "cancelled"
                job.histories.add_attempt(self.now, attempt, outcome, run.begun, run.worker)
                if run.cancel is not None:
                    self._emit("stalled", name, job, worker=run.worker)
                    self._finish(name, job, State.CANCELLED, "", run.cancel_ttl)
                    self._apply_effects()
                    reaped.append(Reaped(name, job.id, State.CANCELLED, run.worker, attempt))
                else:
                    job.solo = job.stalls > 1
                    back = self._return(name, job, "stalled", self.now)
                    reaped.append(Reaped(name, job.id, back.state(self.now), run.worker, attempt))
        return reaped

    # operator ------------------------------------------------------------------------------------

    def cancel(
        self, name: str, ids: Sequence[str], running: CancelMode = "refuse", ttl: int | None = 0
    ) -> list[CancelAnswer]:
        self._expire(name)
        return [self._cancel(name, id, running, ttl) for id in ids]

    def _cancel(self, name: str, id: str, running: CancelMode, ttl: int | None) -> CancelAnswer:
        queue = self.all.get(name)
        if queue:
            self._promote(queue)
        job = queue.jobs.get(id) if queue else None
        if queue is None or job is None or (job.finish and self._expired(job.finish)):
            return CancelAnswer("not_found")
        if job.finish:
            already = job.finish.state is State.CANCELLED
            return CancelAnswer(job.finish.state.value, already=already)  # type: ignore[arg-type]
        answer = self._cancel_one(queue, job, running, ttl)
        self._apply_effects()
        return answer

    def _cancel_one(
        self, queue: Queue, job: Job, running: CancelMode, ttl: int | None,
        error: bytes | None = None, end: End | None = None,
    ) -> CancelAnswer:  # fmt: skip
        """Cancel an unfinished job; a suspended one that has begun is resumed instead by the mode `signal`."""
        name, id = queue.name, job.id
        if job.run is None:
            asked_before = job.flow.cancel is not None
            signals = running == "signal" and job.busy
            successor = queue.blocked.pop(id, None)
            if successor:
                self._emit("cancelled", name, successor)
                self._gone(name, successor)
            if not signals:
                self._finish(name, job, State.CANCELLED, "", ttl, error=error, end=end, mode=running)
                return CancelAnswer("cancelled")
            job.flow.cancel = ("signal", ttl)
            if not asked_before:
                self._emit("cancel_requested", name, job)
            if job.flow.suspended:
                self._resume(name, job)
            return CancelAnswer("cancel_requested", running=True, already=asked_before)
        before = CANCEL_MODES.index(job.run.cancel or "refuse")
        already = before >= CANCEL_MODES.index(running) > CANCEL_MODES.index("forget")
        if running != "refuse":
            asked: tuple[CancelMode, CancelMode] = (running, job.run.cancel or "refuse")
            job.run.cancel, job.run.cancel_ttl = max(asked, key=CANCEL_MODES.index), ttl
            if running != "forget" and not already:
                self._emit("cancel_requested", name, job, worker=job.run.worker)
        successor = queue.blocked.pop(id, None)
        if successor:
            self._emit("cancelled", name, successor)
            self._gone(name, successor)
            return CancelAnswer("cancelled", running=True)
        status = "running" if running in ("refuse", "forget") else "cancel_requested"
        return CancelAnswer(status, running=True, already=already)

    def discard(
        self, name: str, ids: Sequence[str], state: State | None = None, before: int | None = None
    ) -> list[DiscardAnswer]:
        self._expire(name)
        answers: list[DiscardAnswer] = []
        for id in ids:
            answers.append(self._discard(name, id, state, before))
            self._apply_effects()
        return answers

    def _discard(self, name: str, id: str, state: State | None, before: int | None) -> DiscardAnswer:
        queue = self.all.get(name)
        if queue:
            self._promote(queue)
        job = queue.jobs.get(id) if queue else None
        if queue is None or job is None or (job.finish and self._expired(job.finish)):
            return "not_found"
        if job.run and id not in queue.blocked:
            return "running"
        if id in queue.blocked:
            job = queue.blocked[id]
        found = State.BLOCKED if id in queue.blocked else job.state(self.now)
        since = job.finish.at if job.finish else job.created
        if (state is not None and found is not state) or (before is not None and since > before):
            return "kept"
        if job.finish:
            del queue.jobs[id]
            self._free_window(queue, job)
            return "discarded"
        if found is State.BLOCKED:
            del queue.blocked[id]
            self._emit("cancelled", name, job)
            self._gone(name, job)
        else:
            self._finish(name, job, State.CANCELLED, "", 0)
        return "cancelled"

    def revive(self, name: str, ids: Sequence[str], completed: bool = False, fresh: bool = False) -> list[bool]:
        self._expire(name)
        answers: list[bool] = []
        for id in ids:
            answers.append(self._revive(name, id, completed, fresh))
            self._apply_effects()
        return answers

    def _revive(self, name: str, id: str, completed: bool, fresh: bool) -> bool:
        queue = self.all.get(name)
        if queue:
            self._promote(queue)
        job = queue.jobs.get(id) if queue else None
        if queue is None or job is None or job.finish is None or self._expired(job.finish):
            return False
        was_completed = job.finish.state is State.COMPLETED
        if was_completed and not completed:
            return False
        if job.flow.plan and (was_completed or fresh):
            return False
        if job.flow.verdict() and job.flow.end in (End.UPSTREAM, End.SKIPPED):
            return False
        queue.time = max(queue.time, self.now)
        new = replace(
            job, finish=None, run=None, time=queue.time, seq=queue.next_seq(), due=self.now, error=None, settled=None,
            attempts=0, retries=0, stalls=0, timeouts=0, retried=False, solo=False, earliest=None,
        )  # fmt: skip
        queue.jobs[id] = new
        self._take_window(queue, new)
        self._emit("enqueued", name, new)
        self._revive_flow(name, new, was_completed, fresh)
        if new.flow.suspended:
            self._evaluate(name, new)
        else:
            self._enter_if_due(queue, new)
        return True

    def purge(self, queues: Sequence[str], limit: int = MAX_BATCH) -> int:
        count = 0
        for name in queues:
            self._purge_family(name)
            queue = self.all.get(name)
            if queue is None:
                continue
            self._expire(name)
            for id in [j.id for j in queue.jobs.values() if j.finish and self._expired(j.finish)]:
                del queue.jobs[id]
                count += 1
            for key in [key for key, (_, until) in queue.gone.items() if until <= self.now]:
                del queue.gone[key]
                count += 1
            self._purge_gates(queue)
            for id in [id for id, until in queue.windows.items() if until <= self.now]:
                del queue.windows[id]
                count += 1
            count += self.purge_schedules(queue)
        return count

    def delete_queue(self, name: str, settings: bool = False) -> int:
        queue = self.all.pop(name, None)
        self.totals.pop(name, None)
        self.failures.pop(name, None)
        for scope in [scope for scope in self.records if settings and scope.kind != "family" and scope.name == name]:
            del self.records[scope]
        self.starts = {scope: starts for scope, starts in self.starts.items() if scope.name != name}
        if queue is None:
            return 0
        self._deleted(name, queue)
        if queue.schedules and not settings:
            self.all[name] = Queue(name, schedules=queue.schedules, ticker=queue.ticker)
        gone = [j for j in queue.jobs.values() if not (j.finish and self._expired(j.finish))]
        return len(gone) + len(queue.blocked)

    def set_ttl(self, name: str, id: str, ttl: int | None) -> bool:
        queue = self.all.get(name)
        job = queue.jobs.get(id) if queue else None
        if queue is None or job is None or job.finish is None or self._expired(job.finish):
            return False
        job.finish.expires = None if ttl is None else self.now + ttl
        if ttl == 0:
            del queue.jobs[id]
        return True

    def report(self, reports: Sequence[Report]) -> list[Reported]:
        return [self._report(each) for each in reports]

    def _report(self, given: Report) -> Reported:
        queue = self.all.get(given.queue)
        job = queue.jobs.get(given.id) if queue else None
        if job is None or job.run is None or job.run.token != given.token:
            return Reported(False)
        if given.progress is not None:
            job.run.progress = given.progress
        job.histories.add_lines(self.now, job.attempts, given)
        job.histories.add_parts(self.now, job.attempts, given)
        stored: list[Checkpoint | None] = [self._checkpoint(job, each) for each in given.checkpoints]
        return Reported(True, tuple(stored))

    def read(self, name: str, id: str, history: HistoryName, after: int = 0, limit: int = 1000) -> HistoryPage | None:
        queue = self.all.get(name)
        job = queue.jobs.get(id) if queue else None
        if job is None or (job.finish and self._expired(job.finish)):
            return None
        return job.histories.page(history, after, limit)

    # reads ---------------------------------------------------------------------------------------

    def get(self, name: str, ids: Sequence[str]) -> list[Snapshot | None]:
        self._expire(name)
        queue = self.all.get(name, Queue())
        return [self._snapshot(name, queue.jobs.get(id)) for id in ids]

    def _snapshot(self, name: str, job: Job | None, blocked: bool = False) -> Snapshot | None:
        if job is None or (job.finish and self._expired(job.finish)):
            return None
        newer = self._newer(job)
        return Snapshot(
            queue=name, id=job.id, state=State.BLOCKED if blocked else job.state(self.now),
            payload=b"" if newer else job.payload, headers=b"" if newer else job.headers,
            bounds=b"" if newer else job.bounds, format=job.format if newer else None,
            group=job.group, priority=job.priority, created=job.created,
            run_at=job.due, attempts=job.attempts, retries=job.retries, stalls=job.stalls, timeouts=job.timeouts,
            progress=job.run.progress if job.run else None,
            worker=job.run.worker if job.run else job.finish.worker if job.finish else None,
            result=job.finish.result if job.finish else None,
            error=job.finish.error if job.finish else None if newer else job.error,
            cancel=job.run.cancel if job.run else None,
            finished=job.finish.at if job.finish else None,
            started=job.run.begun if job.run else job.finish.started if job.finish else None,
            expires=job.finish.expires if job.finish else None, start_by=job.start_by, cost=job.cost,
            window=job.window, flow=self._flow_snapshot(job),
        )  # fmt: skip

    def _in_state(self, queue: Queue, state: State) -> list[Job]:
        if state is State.BLOCKED:
            return sorted(queue.blocked.values(), key=lambda j: j.behind)
        jobs = [j for j in queue.jobs.values() if j.state(self.now) is state]
        if state in FINISHED:
            jobs = [j for j in jobs if j.finish and not self._expired(j.finish)]
            return sorted(jobs, key=expiry)
        if state is State.QUEUED:
            plain = sorted((j for j in jobs if j.group is None), key=lambda j: j.rank)
            grouped = (j for j in jobs if j.group is not None)
            return plain + sorted(grouped, key=lambda j: ((j.group or "").encode(), j.time, j.seq))
        if state is State.RUNNING:
            return sorted(jobs, key=begin)
        if state is State.SUSPENDED:
            return sorted(jobs, key=lambda j: (1 << 60 if j.flow.wake is None else j.flow.wake, j.seq))
        return sorted(jobs, key=lambda j: (j.due, j.seq))

    def find(self, name: str, state: State | None = None) -> list[Snapshot]:
        """Return all jobs at once; only storages have pages."""
        self._expire(name)
        queue = self.all.get(name, Queue())
        self._promote(queue)
        states = FIND_ORDER if state is None else (state,)
        found = [self._snapshot(name, j, s is State.BLOCKED) for s in states for j in self._in_state(queue, s)]
        return [snapshot for snapshot in found if snapshot]

    def page(self, name: str, state: State | None = None) -> Page:
        return Page(self.find(name, state))

    def peek(self, name: str) -> Snapshot | None:
        queue = self.all.get(name)
        if queue is None or self.paused(name):
            return None
        self._expire(name)
        self._promote(queue)
        trial = copy(self)
        trial.all, trial.family_gates = {**self.all, name: deepcopy(queue)}, dict(self.family_gates)
        trial.starts, trial.events = {}, []
        claimed = trial.claim([Request(name, 1)], "", 0, "")
        return self._snapshot(name, queue.jobs[claimed.claims[0].id]) if claimed.claims else None

    def why(self, name: str, id: str) -> JobPosition | None:
        self._expire(name)
        queue = self.all.get(name)
        if queue:
            self._promote(queue)
        job = queue.jobs.get(id) if queue else None
        if queue is None or job is None or (job.finish and self._expired(job.finish)):
            return None
        head = self._head(queue, job)
        return self._position(queue, job, None if head is None else self._position(queue, head, None))

    def _head(self, queue: Queue, job: Job) -> Job | None:
        """Return the job that holds a job's group: a running one, one in backoff, or the first of the group.

        Running jobs and those in backoff do not hold a group without order.
        """
        if job.group is None or job.state(self.now) is not State.QUEUED:
            return None
        mine = [j for j in queue.jobs.values() if j.group == job.group]
        running = sorted((j for j in mine if j.run), key=lambda j: (j.time, j.seq))
        backoff = sorted((j for j in mine if j.waiting() and j.retried and not j.entered), key=lambda j: (j.due, j.seq))
        holding = running + backoff if self._group_rule(queue.name, job.group).ordered else []
        first = (holding + self._jobs_of_group(queue, job.group))[0]
        return None if first is job else first

    def _position(self, queue: Queue, job: Job, head: JobPosition | None) -> JobPosition:
        state, newer = job.state(self.now), self._newer(job)
        ahead: int | None = None
        if state is State.QUEUED and not newer and head is None:
            entry = ("job", job.id) if job.group is None else ("lane", job.group)
            order = self._order(queue)
            ahead = min(order.index(entry), MAX_AHEAD) if entry in order else None
        return JobPosition(
            id=job.id, state=state, at=self.now, run_at=job.due, group=job.group, pause=self._live(queue.paused),
            group_pause=None if job.group is None else self.paused(queue.name, job.group),
            gate=self._closed_gate(queue, job, head is None) if state is State.QUEUED else None,
            worker=job.run.worker if job.run else job.finish.worker if job.finish else None,
            lease=job.run.until if job.run else None, finished=job.finish.at if job.finish else None,
            successor=job.run is not None and job.id in queue.blocked, ahead=ahead, head=head,
            format=job.format if newer else None, known=self.format if newer else None,
            flow=self._flow_snapshot(job) if state is State.SUSPENDED else None,
        )  # fmt: skip

    def counts(self, name: str) -> dict[State, int]:
        self._expire(name)
        queue = self.all.get(name, Queue())
        return {state: len(self._in_state(queue, state)) for state in State}

    def queues(self) -> list[str]:
        for name in self.all:
            self._expire(name)
        held = {n for n, q in self.all.items() if self._live(q.paused) or q.blocked or self._has_jobs(q)}
        held |= {n for n, q in self.all.items() if any(map(self._live, q.pauses.values())) or self.has_schedules(q)}
        return sorted(held | {scope.name for scope in self.records if scope.kind != "family"})

    def _has_jobs(self, queue: Queue) -> bool:
        return any(not (j.finish and self._expired(j.finish)) for j in queue.jobs.values())

    def _queue(self, name: str) -> Queue:
        return self.all.setdefault(name, Queue(name))

    # helpers -------------------------------------------------------------------------------------

    def _make_queue(self, name: str) -> Queue:
        return self._queue(name)

    def _newer(self, job: Job) -> bool:
        """Return whether only newer software can read the job."""
        return job.format > self.format

    def _expired(self, finish: Finish) -> bool:
        return finish.expires is not None and finish.expires <= self.now

    def _emit(
        self, name: str, queue: str, job: Job, *, worker: str | None = None,
        result: bytes | None = None, error: bytes | None = None,
    ) -> None:  # fmt: skip
        self.events.append(EventRecord(name, queue, job.id, self.now, job.attempts, worker, result, error))


def moved(flag: MoveWhen, asked: int | None, now: int, due: int) -> int | None:
    """Return the due time that an update sets, or None for no move; no run-at means as soon as possible."""
    if flag is False:
        return None
    if asked is None:
        return now if flag in (True, "if_earlier") and due > now else None
    if flag == "if_later":
        return asked if asked > due else None
    if flag == "if_earlier":
        return asked if asked < due else None
    return asked if asked != due else None


def merge_flags(first: Update, later: Update) -> Update:
    """Return the flags of a successor that was put twice: the changes of both."""
    run_at: MoveWhen = first.run_at
    if later.run_at is not False and first.run_at is not True:
        run_at = later.run_at
    return Update(
        payload=first.payload or later.payload,
        run_at=run_at,
        reset_counts=first.resets or later.resets,
        bounds=first.bounds or later.bounds,
        priority=first.priority or later.priority,
        group=first.group or later.group,
    )


def given_flags(new: NewJob, flags: Update) -> Update:
    """Return the flags without that of a group which is not given."""
    return flags if new.group is not None else structs.replace(flags, group=False)


def has_both(job: Job, new: NewJob | Job, flags: Update) -> bool:
    """Return whether an update would leave a job with a group and a priority."""
    priority = new.priority if flags.priority else job.priority
    group = new.group if flags.group and new.group is not None else job.group
    return bool(priority) and group is not None


def expiry(job: Job) -> tuple[int, int]:
    """Return the key by which finished jobs are listed: the expiry, those kept for ever last, then the number."""
    assert job.finish
    return (1 << 60 if job.finish.expires is None else job.finish.expires, job.finish.number)


def begin(job: Job) -> int:
    """Return when the run of a job began."""
    assert job.run
    return job.run.begun


def has_reached_bound(jobs: Sequence[Job]) -> bool:
    """Return whether a claim of these jobs takes no further one, by their number or the bytes of their records."""
    sizes = [len(j.payload) + len(j.headers) + len(j.bounds) + len(j.error or b"") for j in jobs]
    return len(jobs) >= MAX_BATCH or sum(sizes) >= MAX_BYTES


def claim_of(queue: str, job: Job, batch: int) -> Claim:
    assert job.run
    return Claim(
        queue=queue, id=job.id, token=job.run.token, payload=job.payload, batch=batch, group=job.group,
        priority=job.priority, headers=job.headers, bounds=job.bounds, created=job.created, run_at=job.due,
        attempts=job.attempts, retries=job.retries, stalls=job.stalls, timeouts=job.timeouts,
    )  # fmt: skip


__all__ = ["Model", "Release", "Stall", "merge_flags", "moved"]
