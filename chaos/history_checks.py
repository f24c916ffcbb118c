"""The checks of a history as a whole: leases, groups, pauses, capacity, leftovers and exit codes."""

from __future__ import annotations

from bisect import insort
from collections import defaultdict
from collections.abc import Iterator, Sequence

from chaos.history import History
from chaos.history_model import Claim, Job
from chaos.limited_queues import UNORDERED
from chaos.queues import CAPACITY
from chaos.violation import Violation

__all__ = ["HISTORY_CHECKS"]


def overlapped(history: History) -> Iterator[Violation]:
    """Yield ids and groups with two live claims at once.

    A claim is live from its answer until the first settle call for it, or until its lease may have expired: a lease
    counts from the request of the last claim or renewal that was granted. The job, or another one of its group, may be
    claimed only after that. A handler that continues without a lease is no violation; its settle would be `stale`.
    """
    for job in history.jobs.values():
        for first, second in _live_at_once(job.claims):
            if not history.touches_loss_window(job):
                text = f"{second.token} claimed it while the lease of {first.token} was valid"
                yield Violation("overlapped", job.key, text, [job.key])
                break
    for (queue, group), jobs in ordered_groups(history):
        claims = [claim for job in jobs for claim in job.claims if claim.group == group]
        for first, second in _live_at_once(sorted(claims, key=lambda claim: claim.asked)):
            keys = [(queue, first.id), (queue, second.id)]
            if first.id != second.id and not history.touches_loss_window(*(history.jobs[key] for key in keys)):
                text = f"{second.id} ({second.token}) was claimed during {first.id} ({first.token})"
                yield Violation("overlapped", (queue, group), text, keys)
                break


def ordered_groups(history: History) -> Iterator[tuple[tuple[str, str], list[Job]]]:
    """Yield the jobs of the groups that are ordered during the whole run, with queue and name."""
    for key, jobs in history.groups().items():
        if key[0] not in UNORDERED:
            yield key, jobs


def _live_at_once(claims: Sequence[Claim]) -> Iterator[tuple[Claim, Claim]]:
    """Yield the pairs of claims that were certainly live at once, without those of one batch."""
    live: list[Claim] = []
    for claim in claims:
        live = [each for each in live if each.live_until >= claim.asked]
        for other in live:
            if other.token == claim.token and other.batch == claim.batch and other.queue == claim.queue:
                continue
            if other.live_until > claim.answered and claim.live_until > other.answered:
                yield other, claim
        live.append(claim)


def out_of_order(history: History) -> Iterator[Violation]:
    """Yield groups in which a job was claimed before one that was accepted earlier was finished.

    Jobs that were in one batch are not compared: after the batch each is retried by itself. Delayed jobs are not
    compared either: they join their group when they are due.
    """
    for (queue, group), jobs in ordered_groups(history):
        order = sorted((job for job in jobs if job.puts and not job.puts[0].delay), key=lambda j: j.puts[0].number)
        found = _misordered_pair(order)
        if found is None:
            continue
        earlier, later = found
        keys = [(queue, earlier.id), (queue, later.id)]
        if not history.touches_loss_window(*(history.jobs[key] for key in keys)):
            text = (
                f"{earlier.id} was claimed ({earlier.token}) after {later.id} ({later.token}), which was accepted later"
            )
            yield Violation("out_of_order", (queue, group), text, keys)


def _misordered_pair(jobs: Sequence[Job]) -> tuple[Claim, Claim] | None:
    """Return a claim of an earlier job that came certainly after a claim of a later one, and the latter."""
    behind: list[Claim] = []  # the claims of all jobs behind the current one, by the time they were answered
    for job in reversed(jobs):
        for claim in job.claims:
            for other in behind:
                if other.answered >= claim.asked:
                    break
                if not _in_one_batch(job, other):
                    return claim, other
        for claim in job.claims:
            insort(behind, claim, key=lambda each: each.answered)
    return None


def _in_one_batch(job: Job, other: Claim) -> bool:
    """Return whether a claim had this job in its batch."""
    return any(claim.token == other.token and claim.batch == other.batch for claim in job.claims)


def ran_while_paused(history: History) -> Iterator[Violation]:
    """Yield queues of which a job was claimed while they were certainly paused."""
    if history.loss_windows:
        return
    for queue in {switch.queue for switch in history.pause_changes}:
        pauses = [s for s in history.pause_changes if s.queue == queue and s.paused and s.sure]
        resumes = [s for s in history.pause_changes if s.queue == queue and not s.paused]
        for claim in (claim for job in history.jobs.values() if job.key[0] == queue for claim in job.claims):
            before = [s for s in pauses if s.by < claim.asked]
            if not before:
                continue
            last = max(before, key=lambda switch: switch.asked)
            if not any(s.by > last.asked and s.asked < claim.answered for s in resumes):
                text = f"{claim.id} was claimed {(claim.asked - last.by) / 1e6:.3f} s after the queue was paused"
                yield Violation("ran_while_paused", (queue, claim.id), text, [(queue, claim.id)])
                break


def over_capacity(history: History) -> Iterator[Violation]:
    """Yield processes whose runs needed more units at once than the capacity."""
    moments: defaultdict[int, list[tuple[int, int, str]]] = defaultdict(list)
    for run in history.runs:
        name = str(run.jobs[0][0])
        moments[run.pid].append((run.started, run.units, name))
        if run.ended is not None:
            moments[run.pid].append((run.ended, -run.units, name))
    for pid, steps in moments.items():
        units = 0
        for _, change, name in sorted(steps):
            units += change
            if units > CAPACITY:
                yield Violation("over_capacity", (str(pid),), f"{units} units in use of {CAPACITY} when {name} started")
                break


def leaked(history: History) -> Iterator[Violation]:
    """Yield keys or rows that are left after all TTLs have expired."""
    for each in history.leftovers:
        yield Violation("leaked", (each.partition(" ")[0],), f"left behind: {each}")


def wrong_exits(history: History) -> Iterator[Violation]:
    for each in history.wrong_exits:
        yield Violation("wrong_exit", (each.partition(" ")[0],), each)


def wrong_refusals(history: History) -> Iterator[Violation]:
    """Yield requests that a server with a full memory refused, and enqueues that it accepted."""
    for each in history.wrong_refusals:
        yield Violation("wrong_refusal", (each.partition(" ")[0],), each)


def lost_calls(history: History) -> Iterator[Violation]:
    """Yield jobs that were acknowledged to a caller and do not exist."""
    for (queue, number), put in history.unidentified_puts.items():
        if (
            put.accepted
            and history.storage_read
            and not any(a <= (put.answered or 0) <= b for a, b in history.loss_windows)
        ):
            yield Violation("lost", (queue, f"number {number}"), "it was acknowledged to a caller and does not exist")


HISTORY_CHECKS = (
    overlapped,
    out_of_order,
    ran_while_paused,
    over_capacity,
    leaked,
    wrong_exits,
    wrong_refusals,
    lost_calls,
)
