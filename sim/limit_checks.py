"""The promises of limits, checked from the calls and answers of the storage alone.

Limits and pauses are those of the calls that were answered, and what runs is what the ledger knows to be claimed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from penstock.model.ids import family_of, is_fail_queue
from penstock.model.job import Claim
from penstock.model.limit import Rule
from penstock.storage.base import PutStatus, Retried
from penstock.storage.limiting import LimitPage, LimitRecord, Scope

__all__ = ["LimitChecks", "Live"]

Key = tuple[str, str]

#: The rule of a group without a limit.
ORDERED = Rule(concurrency=1, ordered=True)


class Live(Protocol):
    """A live claim of the ledger."""

    @property
    def claim(self) -> Claim: ...


class Start(NamedTuple):
    """A start that a rate counts: its time (us), its price, and the starts that were paid by time until then."""

    at: int
    price: int
    paid: float


class LimitChecks:
    """Limits and pauses in force, and the starts that rates count."""

    def __init__(self, fault: Callable[..., None], clock_ms: Callable[[], int], live: Mapping[Key, Live]) -> None:
        self._fault = fault
        self._ms = clock_ms
        self._live = live
        self._rules: dict[Scope, Rule] = {}
        #: The starts of each scope since it has a rate, or since the clock was set back.
        self._starts: dict[Scope, list[Start]] = {}
        #: The changes of the rate of a scope since its last start: when (us), and the step (us) until then.
        self._changes: dict[Scope, list[tuple[int, int]]] = {}
        #: The costs of jobs, None if an update may have changed it.
        self._costs: dict[Key, int | None] = {}
        #: The ends of pauses, None for one without an end, by queue and group.
        self._pauses: dict[tuple[str, str | None], int | None] = {}
        #: The ids that windows hold, and until when.
        self._windows: dict[Key, int] = {}
        self._last = self._latest = 0

    def observe_clock(self) -> None:
        """Forget the starts if the clock was set back: rates go back with it."""
        now = self._ms()
        if now < self._last:
            self._starts.clear()
            self._changes.clear()
        self._last, self._latest = now, max(now, self._latest)

    # rules ----------------------------------------------------------------------------------------

    def group_rule(self, queue: str, group: str) -> Rule:
        """Return the rule of a group."""
        return self._rules.get(Scope("group", queue, group)) or self._rules.get(Scope("groups", queue)) or ORDERED

    def on_set_limit(self, answer: int | None, scope: Scope, rule: Rule | None, *rest: Any) -> None:
        """Note a change of a limit."""
        if answer is None:
            return
        groups = [each for each in self._starts if each.kind == "group" and each.name == scope.name]
        changed = [each for each in (groups if scope.kind == "groups" else [scope]) if each in self._starts]
        steps = {each: self._step(each) for each in changed}
        self._rules.pop(scope, None)
        if rule is not None:
            self._rules[scope] = rule
        for each, step in steps.items():
            if self._step(each) == 0:
                del self._starts[each]
                self._changes.pop(each, None)
            elif step != self._step(each) or each in self._changes:
                changes = self._changes.setdefault(each, [])
                changes += [(self._ms() * 1000, step)] * (1 if rule else 2)  # without it an older rule has its own time

    def _step(self, scope: Scope) -> int:
        """Return the step (us) of the rate in force, 0 if there is none."""
        rule = self._rules.get(scope) if scope.group is None else self.group_rule(scope.name, scope.group)
        return 0 if rule is None else rule.step_us

    def on_delete_queue(self, answer: int, queue: str, settings: bool = False) -> None:
        """Forget the gates and pauses of a queue, with `settings` also its limits."""
        self._pauses = {key: until for key, until in self._pauses.items() if key[0] != queue}
        self._windows = {key: until for key, until in self._windows.items() if key[0] != queue}
        mine = [scope for scope in (*self._rules, *self._starts) if scope.kind != "family" and scope.name == queue]
        for scope in mine:
            self._starts.pop(scope, None)
            if settings:
                self._rules.pop(scope, None)

    # claims ---------------------------------------------------------------------------------------

    def check_claims(self, claims: Sequence[Claim]) -> None:
        """Check the limits of the jobs that a claim has started, which are among the live claims by now."""
        for claim in claims:
            for scope, rule in self._scopes(claim):
                if rule.concurrency:
                    self._check_concurrency(scope, rule, claim)
                if rule.step_us:
                    self._check_rate(scope, rule, claim)

    def _scopes(self, claim: Claim) -> Iterator[tuple[Scope, Rule]]:
        scopes = [Scope("queue", claim.queue)]
        if not is_fail_queue(claim.queue):
            scopes.append(Scope("family", family_of(claim.queue)))
        for scope in scopes:
            if (rule := self._rules.get(scope)) is not None:
                yield scope, rule
        if claim.group is not None:
            yield Scope("group", claim.queue, claim.group), self.group_rule(claim.queue, claim.group)

    def _running(self, scope: Scope) -> list[Claim]:
        claims = [live.claim for live in self._live.values()]
        if scope.kind == "family":
            return [c for c in claims if family_of(c.queue) == scope.name and not is_fail_queue(c.queue)]
        return [c for c in claims if c.queue == scope.name and (scope.group is None or c.group == scope.group)]

    def _check_concurrency(self, scope: Scope, rule: Rule, claim: Claim) -> None:
        running = self._running(scope)
        if scope.kind == "group" and rule.concurrency == 1:  # it runs a batch as one
            others = [each for each in running if (each.token, each.batch) != (claim.token, claim.batch)]
            if others:
                keys = (claim.queue, claim.id), (others[0].queue, others[0].id)
                self._fault(f"two live claims of one group: {others[0].id!r} runs too", *keys)
        elif len(running) > rule.concurrency:
            keys = [(each.queue, each.id) for each in running]
            self._fault(f"more live claims than the limit: {len(running)} of {rule.concurrency} in {scope}", *keys)

    def _check_rate(self, scope: Scope, rule: Rule, claim: Claim) -> None:
        """Check that the starts between any earlier one and this one are no more than the rate allows.

        What was started before a change of the rate counts on, as a number of starts.
        """
        cost = self._costs.get((claim.queue, claim.id), 1)
        if rule.by_cost and cost is None:
            self._starts.pop(scope, None)
            return
        price, now = cost if rule.by_cost and cost is not None else 1, self._ms() * 1000
        starts = self._starts.setdefault(scope, [])
        paid = starts[-1].paid + self._paid(scope, rule, starts[-1].at, now) if starts else 0.0
        starts.append(Start(now, price, paid))
        total = 0
        for start in reversed(starts):
            total += start.price
            most = int(paid - start.paid + max(rule.burst, price) + 1e-6)
            if total > most:
                text = f"more starts than the rate allows: {total} of {most} in {now - start.at} us in {scope}"
                self._fault(text, (claim.queue, claim.id))
                return

    def _paid(self, scope: Scope, rule: Rule, since: int, now: int) -> float:
        """Return how many starts time has paid for: storages know the time of the last change alone."""
        changes = self._changes.pop(scope, [])
        if len(changes) == 1:
            [(at, step)] = changes
            return max(at - since, 0) / step + (now - max(at, since)) / rule.step_us
        return (now - since) / min([rule.step_us, *(step for _, step in changes)])

    # puts and windows -----------------------------------------------------------------------------

    def on_put(self, answers: Sequence[Any], jobs: Sequence[Any], max_queued: int | None = None) -> None:
        """Note the costs of jobs, and check that the windows of their ids are over."""
        for new, put in zip(jobs, answers, strict=True):
            self._note_put(new, put)

    def _note_put(self, new: Any, put: Any) -> None:
        key = new.queue, new.id
        accepted = put.status in (PutStatus.QUEUED, PutStatus.SCHEDULED)
        if accepted:
            self._costs[key] = new.cost
        elif put.status in (PutStatus.UPDATED, PutStatus.BLOCKED):
            self._costs[key] = None
            self.free_window(key)
        if new.window is None or not accepted:
            return
        if new.start_by is not None or new.start_within is not None:  # it frees its id when it expires
            self.free_window(key)
            return
        until = self._windows.get(key, 0)
        if until > self._latest and new.update is None:
            self._fault(f"an id was free {until - self._ms()} ms before the end of its window", key)
        if new.update is None:
            due = new.run_at or self._ms() + (new.delay or 0)
            self._windows[key] = max(due, self._ms()) + new.window
        else:
            self.free_window(key)

    def free_window(self, key: Key) -> None:
        """Note that a job has not completed, or that its window is not known."""
        self._windows.pop(key, None)

    # pauses ---------------------------------------------------------------------------------------

    def is_paused(self, queue: str, group: str | None = None) -> bool:
        """Return whether nothing of a queue or a group may start; a pause that was ever over counts as over."""
        if (queue, group) not in self._pauses:
            return False
        until = self._pauses[queue, group]
        return until is None or until > self._latest

    def on_set_pause(
        self, answer: bool, queue: str, paused: bool, until: int | None = None, by: str = "", group: str | None = None
    ) -> None:
        """Note a pause, or the end of one."""
        self._pauses.pop((queue, group), None)
        if paused:
            self._pauses[queue, group] = until

    def on_retried(self, queue: str, group: str | None, resolution: Retried) -> int:
        """Note the pause that a retry asks for; returns when (ms) it is due."""
        due = self._ms() + resolution.delay if resolution.at is None else resolution.at
        if resolution.pause is not None:
            place = (queue, group if resolution.pause == "group" else None)
            until = self._pauses.get(place, 0)
            if until is not None and due > max(until, self._ms()):
                self._pauses[place] = due
        return due

    # reads ----------------------------------------------------------------------------------------

    def on_get_limit(self, record: LimitRecord, scope: Scope) -> None:
        """Check that a limit is read as it was set, and counts what runs."""
        found = None if record.rule is None else (record.rule.concurrency, record.rule.step_us, record.rule.burst)
        rule = self._rules.get(scope)
        if found != (None if rule is None else (rule.concurrency, rule.step_us, rule.burst)):
            self._fault(f"the limit of a scope is read as {record.rule}, not {rule}: {scope}")
        running = self._running(scope)
        if scope.kind != "groups" and record.running != len(running):
            keys = [(each.queue, each.id) for each in running]
            self._fault(f"a limit counts {record.running} runs, not {len(running)}: {scope}", *keys)

    def on_limits(self, page: LimitPage, *args: Any) -> None:
        """Check the limits of a page."""
        for record in page.limits:
            self.on_get_limit(record, record.scope)
