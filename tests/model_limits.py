"""Limits and pauses of the model: rules, gates, the rotation of groups and those that may not start.

A group with ready jobs is either in the rotation (`Queue.turns`) or closed (`Queue.closed`). It is closed while its
limit is reached, while its rate allows no start of its first job, and while it is paused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from msgspec import structs

from penstock.model.gate import NEW_GATE, Gate, charge, current, opens_at
from penstock.model.ids import FAIL_SUFFIX, family_of
from penstock.model.job import State
from penstock.model.limit import NO_RULE, Rule
from penstock.model.pause import Pause
from penstock.model.why import MAX_AHEAD, MAX_HOLDERS, GatePosition, Holder
from penstock.storage.limiting import LimitPage, LimitRecord, Scope

if TYPE_CHECKING:
    from tests.model import Job, Queue

#: When a gate opens that waits for an event instead of a time.
FOREVER = 1 << 60

#: The rule of a group without a limit: strict order.
ORDERED = Rule(concurrency=1, ordered=True)

#: The rank of a group in the rotation.
Turn = tuple[int, int, int]


@dataclass
class Record:
    """A limit as it was set."""

    rule: Rule | None
    settings: bytes
    version: int


class Limits:
    """The part of the model that decides whether a job may start."""

    now: int
    all: dict[str, Queue]

    def __init__(self) -> None:
        self.records: dict[Scope, Record] = {}
        self.family_gates: dict[str, Gate] = {}
        #: The starts of each scope since its rule was set or the clock was set back: time and price. For L12.
        self.starts: dict[Scope, list[tuple[int, int]]] = {}
        self.latest = 0

    def _promote(self, queue: Queue) -> None:
        raise NotImplementedError

    def _expire(self, name: str) -> None:
        raise NotImplementedError

    def _jobs_of_group(self, queue: Queue, group: str) -> list[Job]:
        raise NotImplementedError

    def _queue(self, name: str) -> Queue:
        raise NotImplementedError

    def _newer(self, job: Job) -> bool:
        raise NotImplementedError

    def _order(self, queue: Queue) -> list[tuple[str, str]]:
        raise NotImplementedError

    # rules ---------------------------------------------------------------------------------------

    def _rule(self, scope: Scope) -> Rule | None:
        record = self.records.get(scope)
        return record.rule if record else None

    def _group_rule(self, name: str, group: str) -> Rule:
        own = self._rule(Scope("group", name, group))
        return own or self._rule(Scope("groups", name)) or ORDERED

    def _family_rule(self, name: str) -> Rule | None:
        return None if name.endswith(FAIL_SUFFIX) else self._rule(Scope("family", family_of(name)))

    def _queues_of(self, family: str) -> list[Queue]:
        """Return the queues that a family's limit is for: fail queues are not."""
        return [q for n, q in self.all.items() if family_of(n) == family and not n.endswith(FAIL_SUFFIX)]

    def set_limit(self, scope: Scope, rule: Rule | None, settings: bytes, version: int) -> int | None:
        record = self.records.get(scope)
        if (record.version if record else 0) != version:
            return None
        queue = self.all.get(scope.name) if scope.kind != "family" else None
        if queue:
            self._promote(queue)
        self.starts.pop(scope, None)
        if scope.kind == "groups":
            self.starts = {each: starts for each, starts in self.starts.items() if each.kind != "group"}
        if rule is None and not settings:
            self.records.pop(scope, None)
            if scope.kind == "family":
                self.family_gates.pop(scope.name, None)
        else:
            changed = structs.replace(rule, changed_at=self.now) if rule else None
            self.records[scope] = Record(changed, settings, version + 1)
        if queue and scope.kind == "groups":
            self._recheck(queue, list(queue.closed))
        elif queue and scope.kind == "group":
            assert scope.group is not None
            self._recheck(queue, [scope.group])
        return self.records[scope].version if scope in self.records else 0

    def _recheck(self, queue: Queue, groups: list[str]) -> None:
        """Mark closed groups whose rule or pause has changed: the next `_promote` looks at them."""
        queue.changed = self.now
        queue.stale.update(group for group in groups if group in queue.closed)

    def get_limit(self, scope: Scope) -> LimitRecord:
        record = self.records.get(scope, Record(None, b"", 0))
        some = structs.replace  # the state is added to this
        answer = LimitRecord(scope=scope, rule=record.rule, settings=record.settings, version=record.version)
        family = scope.kind == "family"
        queues = self._queues_of(scope.name) if family else [q for n, q in self.all.items() if n == scope.name]
        for queue in queues:
            self._expire(queue.name)
            self._promote(queue)
        if scope.kind == "groups":
            closed = [opens for queue in queues for opens in queue.closed.values()]
            first = min((opens for opens in closed if opens != FOREVER), default=None)
            return some(answer, closed=len(closed), opens=first)
        group = scope.group
        jobs = [j for q in queues for j in q.jobs.values() if group is None or j.group == group]
        running = sum(j.run is not None for j in jobs)
        waiting = sum(j.state(self.now) is State.QUEUED for j in jobs)
        answer = some(answer, running=running, waiting=waiting if group is None else min(waiting, MAX_AHEAD))
        rule, gate, cost, pause = record.rule or NO_RULE, NEW_GATE, 1, None
        full = rule.concurrency > 0 and running >= rule.concurrency
        if family:
            gate = self.family_gates.get(scope.name, NEW_GATE)
        elif queues and group is None:
            gate, pause = queues[0].gate, self._live(queues[0].paused)
        elif queues and group is not None:
            rule, gate = self._group_rule(scope.name, group), queues[0].gates.get(group, NEW_GATE)
            pause, full = self._live(queues[0].pauses.get(group)), self._full(queues[0], group, rule)
            cost = next((job.cost for job in self._jobs_of_group(queues[0], group)), 1)
        opens = max(self._rate_opens(gate, rule, cost), pause.until or 0 if pause else 0)
        for_ever = full or (pause is not None and pause.until is None)
        return some(answer, pause=pause, opens=opens if opens > self.now and not for_ever else None)

    def limits(self, name: str, after: str | None = None, limit: int = 100) -> LimitPage:
        queue = self.all.get(name)
        paused = [g for g, pause in queue.pauses.items() if self._live(pause)] if queue else []
        groups = {scope.group for scope in self.records if scope.name == name and scope.kind == "group"} | {*paused}
        scopes = [] if name.endswith(FAIL_SUFFIX) else [Scope("family", family_of(name))]
        scopes = [each for each in [*scopes, Scope("queue", name), Scope("groups", name)] if each in self.records]
        scopes += [Scope("group", name, group) for group in sorted(groups, key=lambda g: (g or "").encode())]
        start = int(after or 0)
        found = [self.get_limit(scope) for scope in scopes[start : start + limit]]
        return LimitPage(found, str(start + limit) if len(scopes) > start + limit else None)

    # pauses --------------------------------------------------------------------------------------

    def _live(self, pause: Pause | None) -> Pause | None:
        return None if pause is None or pause.is_over(self.now) else pause

    def paused(self, name: str, group: str | None = None) -> Pause | None:
        queue = self.all.get(name)
        if queue is None:
            return None
        return self._live(queue.paused if group is None else queue.pauses.get(group))

    def set_pause(
        self, name: str, paused: bool, until: int | None = None, by: str = "", group: str | None = None
    ) -> bool:
        """Pause or resume; a pause until a time that has passed is none."""
        if until is not None and until <= self.now:
            paused = False
        if not paused and name not in self.all:
            return False
        queue = self._queue(name)
        if group is not None:
            self._promote(queue)
        old = self.paused(name, group)
        new = Pause(old.since if old else self.now, until, by) if paused else None
        self._set_pause(queue, group, new)
        if group is not None and new != old:
            self._recheck(queue, [group])
        return new != old

    def _set_pause(self, queue: Queue, group: str | None, pause: Pause | None) -> None:
        if group is None:
            queue.paused = pause
        elif pause is None:
            queue.pauses.pop(group, None)
        else:
            queue.pauses[group] = pause

    def _pause_until(self, queue: Queue, group: str | None, until: int) -> None:
        """Pause until a retry is due; a pause that ends later stays."""
        old = self.paused(queue.name, group)
        if until > self.now and (old is None or (old.until is not None and old.until < until)):
            self._set_pause(queue, group, Pause(old.since if old else self.now, until))

    # gates ---------------------------------------------------------------------------------------

    @property
    def us(self) -> int:
        return self.now * 1000

    def _rate_opens(self, gate: Gate, rule: Rule, cost: int) -> int:
        """Return when (ms) a rate allows a start, `now` if it does."""
        return -(-opens_at(gate, rule, cost, self.us) // 1000)

    def _runs_of(self, queue: Queue, group: str) -> int:
        return sum(j.run is not None and j.group == group for j in queue.jobs.values())

    def _full(self, queue: Queue, group: str, rule: Rule) -> bool:
        """Return whether a group's limit is reached: ordered groups are held also by a backoff."""
        running = self._runs_of(queue, group)
        if rule.ordered:
            backoffs = [j for j in queue.jobs.values() if j.group == group and j.waiting() and j.retried]
            return running > 0 or any(not j.entered for j in backoffs)
        return running >= max(rule.concurrency, 1)

    def _look(self, queue: Queue, group: str, rule: Rule) -> Gate:
        """Return the gate of a group, corrected by the clock and the rule; the correction is stored."""
        gate = current(queue.gates.get(group, NEW_GATE), rule, self.us)
        if group in queue.gates:
            queue.gates[group] = gate
        return gate

    def _opens(self, queue: Queue, group: str, head: Job) -> int | None:
        """Return when a group may start its first job: None for now, `FOREVER` if that takes an event."""
        rule = self._group_rule(queue.name, group)
        if self._full(queue, group, rule):
            return FOREVER
        pause = self.paused(queue.name, group)
        if pause is None:
            queue.pauses.pop(group, None)
        elif pause.until is None:
            return FOREVER
        opens = self._rate_opens(self._look(queue, group, rule), rule, head.cost)
        if pause and pause.until is not None:
            opens = max(opens, pause.until)
        return opens if opens > self.now else None

    def _close(self, queue: Queue, group: str, opens: int) -> None:
        queue.turns.pop(group, None)
        queue.stale.discard(group)
        queue.closed[group] = opens
        if opens != FOREVER:
            queue.looked = self.now

    def _update_turn(self, queue: Queue, group: str | None, turn: Turn | None = None) -> None:
        """Look at a group that has changed: it is in the rotation if it has jobs and may start one, else closed.

        A group that enters takes the turn that it has kept, or else the given one, or else the last.
        """
        if group is None:
            return
        lane = self._jobs_of_group(queue, group)
        if not lane:
            for each in (queue.turns, queue.closed, queue.stamps):
                each.pop(group, None)
            queue.stale.discard(group)
            return
        opens = self._opens(queue, group, lane[0])
        if opens is not None:
            self._close(queue, group, opens)
        elif group not in queue.turns:
            queue.closed.pop(group, None)
            queue.stale.discard(group)
            kept = queue.stamps.get(group)
            queue.turns[group] = kept[0] if kept else turn or (0, self.now, queue.next_seq())

    def _open_gates(self, queue: Queue) -> None:
        """Look at the closed groups that have changed, and at those whose time has come.

        If the clock was set back since the last look, all closed groups count as changed: rates go back with it.
        """
        if self.now < queue.looked:
            queue.looked = self.now
            self._recheck(queue, list(queue.closed))
        for group in sorted(queue.stale):
            self._update_turn(queue, group, (0, queue.changed, self._jobs_of_group(queue, group)[0].seq))
        for group, opens in sorted(queue.closed.items()):
            if opens <= self.now:
                self._update_turn(queue, group, (0, opens, self._jobs_of_group(queue, group)[0].seq))

    # starts --------------------------------------------------------------------------------------

    def _running(self, family: str) -> int:
        return sum(job.run is not None for queue in self._queues_of(family) for job in queue.jobs.values())

    def _room(self, queue: Queue) -> int:
        """Return how many more runs the limits of the family and the queue allow."""
        rooms = [1 << 60]
        family, own = self._family_rule(queue.name), self._rule(Scope("queue", queue.name))
        if family and family.concurrency:
            rooms.append(family.concurrency - self._running(family_of(queue.name)))
        if own and own.concurrency:
            rooms.append(own.concurrency - sum(job.run is not None for job in queue.jobs.values()))
        return min(rooms)

    def _rates_allow(self, queue: Queue, job: Job) -> bool:
        """Return whether the rates of the family and the queue allow a start; what is looked at is corrected."""
        family, rule = family_of(queue.name), self._family_rule(queue.name)
        if rule:
            gate = current(self.family_gates.get(family, NEW_GATE), rule, self.us)
            if family in self.family_gates:
                self.family_gates[family] = gate
            if self._rate_opens(gate, rule, job.cost) > self.now:
                return False
        rule = self._rule(Scope("queue", queue.name))
        if rule:
            gate = current(queue.gate, rule, self.us)
            if queue.gate != NEW_GATE:
                queue.gate = gate
            return self._rate_opens(gate, rule, job.cost) <= self.now
        return True

    def _charge(self, queue: Queue, job: Job) -> None:
        """Charge a start to the rates of the family, the queue and the group."""
        family, rule = family_of(queue.name), self._family_rule(queue.name)
        if rule and rule.step_us:
            self.family_gates[family] = charge(self.family_gates.get(family, NEW_GATE), rule, job.cost, self.us)
            self._note_start(Scope("family", family), rule, job)
        rule = self._rule(Scope("queue", queue.name))
        if rule and rule.step_us:
            queue.gate = charge(queue.gate, rule, job.cost, self.us)
            self._note_start(Scope("queue", queue.name), rule, job)
        if job.group is not None:
            rule = self._group_rule(queue.name, job.group)
            if rule.step_us:
                queue.gates[job.group] = charge(queue.gates.get(job.group, NEW_GATE), rule, job.cost, self.us)
                self._note_start(Scope("group", queue.name, job.group), rule, job)

    def _group_batch(self, queue: Queue, group: str, size: int) -> list[Job]:
        """Return the jobs of a group that may start together, after its first: the caller checks that one."""
        lane = self._jobs_of_group(queue, group)[:size]
        cut = next((i for i, job in enumerate(lane) if job.solo or self._newer(job)), None)
        if cut is not None:
            lane = lane[: max(cut, 1)]
        rule = self._group_rule(queue.name, group)
        if rule.concurrency > 1:
            lane = lane[
                : max(rule.concurrency - sum(j.run is not None and j.group == group for j in queue.jobs.values()), 1)
            ]
        return lane[: self._room(queue)]

    def _after_start(self, queue: Queue, group: str) -> None:
        """Count a start of a group, which keeps its turn for `weight` starts, and look at its gate again."""
        turn = queue.turns.pop(group)
        used = queue.stamps.pop(group, (turn, 0))[1] + 1
        if used < self._group_rule(queue.name, group).weight:
            queue.stamps[group] = (turn, used)
        self._update_turn(queue, group)

    # purge ---------------------------------------------------------------------------------------

    def _purge_gates(self, queue: Queue) -> None:
        """Forget rates of which all starts are paid, and pauses that are over."""
        for group, gate in list(queue.gates.items()):
            if gate.tat <= self.us:
                now = current(gate, self._group_rule(queue.name, group), self.us)
                queue.gates[group] = now
                if now.tat <= self.us:
                    del queue.gates[group]
        if queue.gate.tat <= self.us:
            queue.gate = current(queue.gate, self._rule(Scope("queue", queue.name)) or NO_RULE, self.us)
            queue.gate = NEW_GATE if queue.gate.tat <= self.us else queue.gate
        queue.pauses = {group: pause for group, pause in queue.pauses.items() if self._live(pause)}
        queue.paused = self._live(queue.paused)

    def _purge_family(self, name: str) -> None:
        """Forget the rate of the family of a queue if all starts are paid; the queue need not exist."""
        family, rule = family_of(name), self._family_rule(name) or NO_RULE
        gate = self.family_gates.get(family)
        if gate and gate.tat <= self.us and not name.endswith(FAIL_SUFFIX):
            self.family_gates[family] = current(gate, rule, self.us)
            if self.family_gates[family].tat <= self.us:
                del self.family_gates[family]

    # why -----------------------------------------------------------------------------------------

    def _closed_gate(self, queue: Queue, job: Job, first: bool) -> GatePosition | None:
        """Return the first closed gate of a queued job, outside in; `first`: no job of its group is before it."""
        family, rule = family_of(queue.name), self._family_rule(queue.name)
        if rule:
            runs = [(q, j) for q in self._queues_of(family) for j in q.jobs.values() if j.run]
            gate = self.family_gates.get(family, NEW_GATE)
            found = self._closed(gate, rule, job, runs, kind="family", name=family)
            if found:
                return found
        rule = self._rule(Scope("queue", queue.name))
        if rule:
            runs = [(queue, j) for j in queue.jobs.values() if j.run]
            found = self._closed(queue.gate, rule, job, runs, kind="queue", name=queue.name)
            if found:
                return found
        if job.group is None or not first or self.paused(queue.name, job.group):
            return None
        rule = self._group_rule(queue.name, job.group)
        runs = [(queue, j) for j in queue.jobs.values() if j.run and j.group == job.group]
        gate = queue.gates.get(job.group, NEW_GATE)
        return self._closed(gate, rule, job, runs, kind="group", name=queue.name, group=job.group)

    def _closed(
        self, gate: Gate, rule: Rule, job: Job, runs: list[tuple[Queue, Job]], **scope: Any
    ) -> GatePosition | None:
        if rule.concurrency and len(runs) >= rule.concurrency:
            held = [Holder(j.id, j.run.worker, j.run.begun, q.name) for q, j in runs if j.run]
            held.sort(key=lambda h: (h.since, h.queue, h.id))
            holders = tuple(held[:MAX_HOLDERS])
            return GatePosition(rule=rule, reason="limit", used=len(runs), holders=holders, **scope)
        opens = self._rate_opens(gate, rule, job.cost)
        return GatePosition(rule=rule, reason="rate", until=opens, **scope) if opens > self.now else None

    # invariants ----------------------------------------------------------------------------------

    def _note_clock(self) -> None:
        """Forget the starts before the clock was set back."""
        if self.now < self.latest:
            self.starts.clear()
        self.latest = self.now

    def _note_start(self, scope: Scope, rule: Rule, job: Job) -> None:
        """Check L12: the prices of the starts in any span of time are bounded by the rate."""
        self._note_clock()
        starts = self.starts.setdefault(scope, [])
        starts.append((self.us, rule.price(job.cost)))
        total = dearest = 0
        for at, price in reversed(starts):
            total, dearest = total + price, max(dearest, price)
            most = (self.us - at) // rule.step_us + max(rule.burst, dearest)
            assert total <= most, f"L12: {scope} started {total} in {self.us - at} us, at most {most}"

    def _check_started(self, queue: Queue, batches: list[list[Job]]) -> None:
        """Check L11: after a claim that started jobs, each of their limits is kept."""
        assert not batches or self._room(queue) >= 0, "L11: more runs than the limit of the queue or family"
        for group in {batch[0].group for batch in batches} - {None}:
            assert group is not None
            rule = self._group_rule(queue.name, group)
            running = self._runs_of(queue, group)
            assert rule.concurrency <= 1 or running <= rule.concurrency, f"L11: {running} runs of group {group!r}"

    def _check_busy(self, queue: Queue) -> None:
        """Check L15: a claim that answered fewer than asked leaves no job whose gates are all open."""
        if self._room(queue) < 1:
            return
        for kind, name in self._order(queue):
            job = queue.jobs[name] if kind == "job" else self._jobs_of_group(queue, name)[0]
            if not self._newer(job):
                assert not self._rates_allow(queue, job), f"L15: {job.id} could have started"
                return

    def check(self) -> None:
        """Check L13 and L17: groups with jobs are in one place, and nothing remains of groups without."""
        self._note_clock()
        for queue in self.all.values():
            groups = {j.group for j in queue.jobs.values() if j.waiting() and j.entered and j.group is not None}
            assert groups == queue.turns.keys() | queue.closed.keys(), f"L13: {groups} of {queue.name!r}"
            assert not queue.turns.keys() & queue.closed.keys(), f"L13: a group of {queue.name!r} is open and closed"
            assert queue.stale <= queue.closed.keys(), f"L13: {queue.name!r}"
            assert queue.stamps.keys() <= groups, f"L17: {queue.name!r} keeps the turn of a group without jobs"
            for group, opens in queue.closed.items():
                if opens == FOREVER and group not in queue.stale:
                    pause = queue.pauses.get(group)
                    full = self._full(queue, group, self._group_rule(queue.name, group))
                    assert full or (pause and pause.until is None), f"L13: nothing will open group {group!r}"
