"""What must hold between jobs: leases, groups, pauses, the capacity of processes; and what is left in the end."""

from __future__ import annotations

from bisect import insort
from collections import defaultdict
from collections.abc import Iterator, Sequence

from chaos.facts import Claim, Job
from chaos.history import History
from chaos.queues import CAPACITY
from chaos.violation import Violation

__all__ = ["CHECKS"]


def overlapped(h: History) -> Iterator[Violation]:
    """One id, or one group, in two hands at once.

    A run is live from its claim until somebody asks to record its end, or until its lease may have run out: a lease
    counts from the asking of the last claim or renewal that named the run and was answered. Another claim may be
    handed out only when that is over. A run that goes on without a lease is no violation; what it reports is `stale`.
    """
    for job in h.jobs.values():
        for first, second in _together(job.claims):
            if not h.doubtful(job):
                text = f"{second.token} got it while the lease of {first.token} was good"
                yield Violation("overlapped", job.key, text, [job.key])
                break
    for (queue, group), jobs in h.groups().items():
        claims = [claim for job in jobs for claim in job.claims if claim.group == group]
        for first, second in _together(sorted(claims, key=lambda claim: claim.asked)):
            keys = [(queue, first.id), (queue, second.id)]
            if first.id != second.id and not h.doubtful(*(h.jobs[key] for key in keys)):
                text = f"{second.id} ({second.token}) was handed out during {first.id} ({first.token})"
                yield Violation("overlapped", (queue, group), text, keys)
                break


def _together(claims: Sequence[Claim]) -> Iterator[tuple[Claim, Claim]]:
    """Pairs of claims that were certainly live at once, in order of asking; those of one batch belong together."""
    live: list[Claim] = []
    for claim in claims:
        live = [each for each in live if _until(each) >= claim.asked]
        for other in live:
            if other.token == claim.token and other.batch == claim.batch and other.queue == claim.queue:
                continue
            if _until(other) > claim.answered and _until(claim) > other.answered:
                yield other, claim
        live.append(claim)


def _until(claim: Claim) -> int:
    """Until when a run was certainly live."""
    first = claim.first_end
    return claim.valid if first is None else min(claim.valid, first)


def disordered(h: History) -> Iterator[Violation]:
    """A job of a group handed out while one that was accepted before it was not done for good.

    Jobs that were in one batch are not compared: each goes its own way after it. Delayed jobs join their lane when
    they fall due, so they are not compared either.
    """
    for (queue, group), jobs in h.groups().items():
        order = sorted((job for job in jobs if job.puts and not job.puts[0].delay), key=lambda j: j.puts[0].number)
        found = _out_of_order(order)
        if found is None:
            continue
        earlier, later = found
        keys = [(queue, earlier.id), (queue, later.id)]
        if not h.doubtful(*(h.jobs[key] for key in keys)):
            text = f"{earlier.id} was handed out ({earlier.token}) after {later.id} ({later.token}), which came later"
            yield Violation("disordered", (queue, group), text, keys)


def _out_of_order(jobs: Sequence[Job]) -> tuple[Claim, Claim] | None:
    """A claim of an earlier job that came certainly after a claim of a later one."""
    behind: list[Claim] = []  # the claims of all jobs behind the current one, by the time they were answered
    for job in reversed(jobs):
        for claim in job.claims:
            for other in behind:
                if other.answered >= claim.asked:
                    break
                if not _shared(job, other):
                    return claim, other
        for claim in job.claims:
            insort(behind, claim, key=lambda each: each.answered)
    return None


def _shared(job: Job, other: Claim) -> bool:
    """Whether a claim had this job in its batch."""
    return any(claim.token == other.token and claim.batch == other.batch for claim in job.claims)


def paused(h: History) -> Iterator[Violation]:
    """Handed out by a queue that was certainly paused."""
    if h.shaky:
        return
    for queue in {switch.queue for switch in h.switches}:
        pauses = [s for s in h.switches if s.queue == queue and s.paused and s.sure]
        resumes = [s for s in h.switches if s.queue == queue and not s.paused]
        for claim in (claim for job in h.jobs.values() if job.key[0] == queue for claim in job.claims):
            before = [s for s in pauses if s.by < claim.asked]
            if not before:
                continue
            last = max(before, key=lambda switch: switch.asked)
            if not any(s.by > last.asked and s.asked < claim.answered for s in resumes):
                text = f"{claim.id} was handed out {(claim.asked - last.by) / 1e6:.3f} s after the queue was paused"
                yield Violation("paused", (queue, claim.id), text, [(queue, claim.id)])
                break


def crowded(h: History) -> Iterator[Violation]:
    """A process ran more at once than it has units for."""
    moments: defaultdict[int, list[tuple[int, int, str]]] = defaultdict(list)
    for run in h.runs:
        name = str(run.jobs[0][0])
        moments[run.pid].append((run.started, run.units, name))
        if run.ended is not None:
            moments[run.pid].append((run.ended, -run.units, name))
    for pid, steps in moments.items():
        units = 0
        for _, change, name in sorted(steps):
            units += change
            if units > CAPACITY:
                yield Violation("crowded", (str(pid),), f"{units} units in use of {CAPACITY} when {name} began")
                break


def leaked(h: History) -> Iterator[Violation]:
    """Something is left that nobody needs."""
    for each in h.left:
        yield Violation("leaked", (each.partition(" ")[0],), f"left behind: {each}")


def exits(h: History) -> Iterator[Violation]:
    for each in h.wrong_exits:
        yield Violation("exit", (each.partition(" ")[0],), each)


def lost_calls(h: History) -> Iterator[Violation]:
    """A caller heard of a job that is not there."""
    for (queue, number), put in h.possible.items():
        if put.accepted and h.looked and not any(a <= (put.answered or 0) <= b for a, b in h.shaky):
            yield Violation("lost", (queue, f"number {number}"), "a caller was told of it, and it is not there")


CHECKS = (overlapped, disordered, paused, crowded, leaked, exits, lost_calls)
