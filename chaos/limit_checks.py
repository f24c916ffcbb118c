"""The checks of limits: runs at once, starts in a time, the order of starts, and the slots of dead processes."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from chaos.history import History
from chaos.history_model import Claim
from chaos.limited_queues import LIMITED_SETTINGS, UNORDERED
from chaos.settings_history import LimitTimeline, Rule, ScopeKey
from chaos.violation import Violation

__all__ = ["KILLS", "LIMIT_CHECKS", "SlotRecovery", "slot_recoveries"]

#: The longest span (µs) in which starts are counted, and how much longer it may be by the storage's clock.
SPAN, CLOCK_STEP = 2_000_000, 3_000
#: The rule of a group for which there is no limit.
ONE_RUN = Rule(1, 0, 1, False)
#: Faults that end processes, whose slots must become free.
KILLS = ("kill_child", "kill_worker", "kill_parent")
#: The slots of a dead process are free again when its lease has expired and this time (µs) has passed.
SWEEP = 5_000_000


class Scopes:
    """The claims of each limited scope, by the time of their answers, and the rules that may have held in it."""

    def __init__(self, history: History) -> None:
        self._timelines: Mapping[ScopeKey, LimitTimeline] = history.settings.timelines()
        self.claims: defaultdict[ScopeKey, list[Claim]] = defaultdict(list)
        grouped = {name for kind, name, _ in self._timelines if kind in ("groups", "group")}
        for job in history.jobs.values():
            if history.touches_loss_window(job):
                continue
            queue = job.key[0]
            for claim in job.claims:
                scopes: list[ScopeKey] = [("queue", queue, None)]
                if not queue.endswith("/failures"):
                    scopes.append(("family", queue.partition("/")[0], None))
                for scope in scopes:
                    if scope in self._timelines:
                        self.claims[scope].append(claim)
                if claim.group is not None and queue in grouped:
                    self.claims["group", queue, claim.group].append(claim)
        for claims in self.claims.values():
            claims.sort(key=lambda claim: claim.answered)

    def _timelines_of(self, scope: ScopeKey) -> list[LimitTimeline]:
        """Return the limits of a scope; of a group those of its own, and those of every group."""
        keys: list[ScopeKey] = [scope, ("groups", scope[1], None)] if scope[0] == "group" else [scope]
        return [self._timelines[key] for key in keys if key in self._timelines]

    def possible(self, scope: ScopeKey, first: int, last: int) -> set[Rule | None]:
        """Return the rules of which one held at some moment between two; None stands for no limit."""
        if scope[0] != "group":
            return self._timelines[scope].possible(first, last)
        found: set[Rule | None] = {None}
        for timeline in self._timelines_of(scope):
            if None in found:
                found = (found - {None}) | timeline.possible(first, last)
        return {ONE_RUN if rule is None else rule for rule in found}

    def next_change(self, scope: ScopeKey, moment: int) -> int | None:
        """Return when the next change of the rule after a moment was requested, or None."""
        changes = [timeline.next_change(moment) for timeline in self._timelines_of(scope)]
        return min((at for at in changes if at is not None), default=None)


def over_limit(history: History) -> Iterator[Violation]:
    """Yield scopes with more live claims after a claim than every limit that may have held when it was granted.

    All claims that were certainly live at one moment were live when the last of them was granted. That was after the
    last of their requests, and not after that moment.
    """
    scopes = Scopes(history)
    for scope, claims in scopes.claims.items():
        live: list[Claim] = []
        for claim in claims:
            if claim.live_until < claim.answered:
                continue  # its lease may have expired before its process, which was stopped, read the answer
            live = [each for each in live if each.live_until >= claim.answered]
            live.append(claim)
            rules = scopes.possible(scope, max(each.asked for each in live), claim.answered)
            most = max((_most(rule) for rule in rules), default=0)
            count = len({(each.token, each.batch, each.queue) for each in live}) if most == 1 else len(live)
            if most and count > most:
                text = f"{count} live claims, its limit is {most}: {', '.join(sorted(each.id for each in live))}"
                yield Violation("over_limit", _subject(scope), text, [(each.queue, each.id) for each in live])
                break


def _most(rule: Rule | None) -> int:
    """Return how many runs a rule allows at once, more than any run has if there is no such limit."""
    return rule.concurrency if rule is not None and rule.concurrency else 1 << 40


def _subject(scope: ScopeKey) -> tuple[str, ...]:
    kind, name, group = scope
    return (kind, name) if group is None else (kind, name, group)


def over_rate(history: History) -> Iterator[Violation]:
    """Yield scopes in which more was started in a span of time than the rate allows.

    A span of k steps has at most `k + max(burst, largest cost) - 1`. Only claims that were requested and answered in a
    span without a change of the rule or a jump of the clock count, and only if one rule alone may have held in it.
    """
    costs = {job.key: job.puts[0].cost for job in history.jobs.values() if job.puts}
    scopes = Scopes(history)
    for scope, claims in scopes.claims.items():
        answers = [claim.answered for claim in claims]
        for first in sorted(claims, key=lambda claim: claim.asked):
            rules = scopes.possible(scope, first.asked, first.asked)
            rule = next(iter(rules)) if len(rules) == 1 else None
            if rule is None or not rule.step:
                continue
            end = min(first.asked + SPAN, scopes.next_change(scope, first.asked) or first.asked + SPAN)
            if history.clock_jumped(first.asked, end):
                continue
            later = claims[bisect_left(answers, first.asked) : bisect_left(answers, end)]
            found = _too_many(rule, first.asked, [each for each in later if each.asked >= first.asked], costs)
            if found is not None:
                text, started = found
                yield Violation("over_rate", _subject(scope), text, [(each.queue, each.id) for each in started])
                break


def _too_many(
    rule: Rule, since: int, claims: Sequence[Claim], costs: Mapping[tuple[str, str], int]
) -> tuple[str, list[Claim]] | None:
    """Return a sentence about claims that were more than a rate allows, and these claims; None if none were."""
    total = largest = 0
    for place, claim in enumerate(claims):
        price = rule.price(costs.get((claim.queue, claim.id), 1))
        total, largest = total + price, max(largest, price)
        span = claim.answered - since + CLOCK_STEP
        most = span // rule.step + max(rule.burst, largest)
        if total > most:
            text = f"{total} started in {span / 1e6:.3f} s, at most {most} may, one in {rule.step / 1e6:.3f} s"
            return text, list(claims[: place + 1])
    return None


def started_out_of_order(history: History) -> Iterator[Violation]:
    """Yield groups of several runs at once in which the first claim of a job came after that of one accepted later."""
    for (queue, group), jobs in history.groups().items():
        if queue not in UNORDERED:
            continue
        order = sorted((job for job in jobs if job.puts and job.claims), key=lambda job: job.puts[0].number)
        earliest: Claim | None = None  # the first claim that was answered, of all jobs behind the current one
        for job in reversed(order):
            claim = job.claims[0]
            # A claim that is not the first attempt may follow one that was granted and never recorded.
            if earliest is not None and claim.attempts == 1 and earliest.answered < claim.asked:
                keys = [(queue, claim.id), (queue, earliest.id)]
                if not history.touches_loss_window(*(history.jobs[key] for key in keys)):
                    text = f"{claim.id} started after {earliest.id}, which was accepted later"
                    yield Violation("out_of_order", (queue, group), text, keys)
                    break
            if earliest is None or claim.answered < earliest.answered:
                earliest = claim


@dataclass(slots=True)
class SlotRecovery:
    """Time (µs) from the kill of a process until the slot of one of its claims was free for certain."""

    claim: Claim
    span: int
    #: Whether no other fault was under way meanwhile.
    alone: bool


def slot_recoveries(history: History) -> Iterator[SlotRecovery]:
    """Yield the slots that killed processes held: free by a settle of another process, a reap, or the next claim."""
    by_pid: defaultdict[int, list[Claim]] = defaultdict(list)
    for job in history.jobs.values():
        for claim in job.claims:
            by_pid[claim.pid].append(claim)
    for number, fault in history.faults.items():
        if fault.name not in KILLS:
            continue
        for claim in (claim for pid in fault.pids for claim in by_pid[pid]):
            if claim.answered > fault.began or any(each.pid in fault.pids for each in claim.settlements):
                continue
            freed = _freed(history, claim, fault.began)
            if freed is not None:
                alone = not any(
                    other.began <= freed and (other.over is None or other.over >= fault.began)
                    for place, other in history.faults.items()
                    if place != number
                )
                yield SlotRecovery(claim, freed - fault.began, alone)


def _freed(history: History, claim: Claim, since: int) -> int | None:
    """Return when the slot of a claim was free for certain, None if that was before the kill or is not known."""
    job = history.jobs[claim.queue, claim.id]
    moments = [each.answered for each in claim.settlements if each.answered is not None]
    moments += [at for at in history.reaps.get(job.key, ()) if at > claim.answered]
    moments += [each.answered for each in job.claims if each.asked > claim.answered]
    freed = min(moments, default=None)
    return None if freed is None or freed < since else freed


def slot_not_freed(history: History) -> Iterator[Violation]:
    """Yield slots of killed processes that were not free in time, although no other fault was under way."""
    for recovery in slot_recoveries(history):
        claim = recovery.claim
        if claim.queue in LIMITED_SETTINGS and recovery.alone and recovery.span > claim.lease * 1000 + SWEEP:
            text = f"its slot was free {recovery.span / 1e6:.1f} s after the kill, its lease was {claim.lease / 1e3} s"
            yield Violation("slot_not_freed", (claim.queue, claim.id), text, [(claim.queue, claim.id)])


LIMIT_CHECKS = (over_limit, over_rate, started_out_of_order, slot_not_freed)
