"""The checks of each job by itself: each reads the history of one job and yields its violations.

A check yields only certain violations: an operation without an answer may have taken effect or not, and the check
assumes the case that breaks no promise.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from chaos.history import History
from chaos.history_model import TERMINAL, Claim, Job, Settlement
from chaos.limited_queues import ALL_SETTINGS
from chaos.queues import WITH_FAIL_HANDLER
from chaos.violation import Violation

__all__ = ["JOB_CHECKS"]

#: Largest difference (µs) between the clocks of one machine as two programs read them.
CLOCK_TOLERANCE = 20_000


def lost(history: History, job: Job) -> Iterator[Violation]:
    """Yield an accepted job that does not exist at the end."""
    if not history.storage_read or job.final is not None or history.may_be_lost(job):
        return
    queue, _ = job.key
    accepted = [put for put in job.puts if put.accepted]
    if not accepted:
        return
    if ALL_SETTINGS[queue].get("retain") == "none" and any(
        settlement.kind == "c" and settlement.state != "lost" for settlement in job.settlements
    ):
        return  # completed, and its result is not kept
    statuses = ", ".join(str(put.status) for put in accepted)
    yield Violation("lost", job.key, f"accepted ({statuses}) and gone", [job.key])


def lost_update(history: History, job: Job) -> Iterator[Violation]:
    """Yield an id whose last update is not the one that finished."""
    updates = [put for put in job.puts if put.update]
    final = job.final
    if not updates or final is None or final.number is None or history.may_be_lost(job):
        return
    last = max(updates, key=lambda put: put.number)
    unanswered = any(not put.accepted for put in updates)
    cancelled = any(cancel.answered > last.asked for cancel in job.cancels)
    if unanswered or cancelled or final.number == last.number:
        return
    text = f"the last update was {last.number}, but {final.number} is the one that finished"
    yield Violation("lost", job.key, text, [job.key])


def lost_follow_ups(history: History, job: Job) -> Iterator[Violation]:
    """Yield a follow-up job without a recorded settle of its run, and a recorded settle without its follow-up job."""
    if not history.storage_read or history.touches_loss_window(job):
        return
    for token in {settlement.token for settlement in job.settlements if settlement.follow_ups}:
        settlements = [each for each in job.settlements if each.token == token and each.follow_ups]
        recorded = any(settlement.recorded for settlement in settlements)
        refused = all(settlement.state == "lost" for settlement in settlements) and not recorded
        for queue, id in {tuple(each) for settlement in settlements for each in settlement.follow_ups}:
            follow_up = history.jobs.get((queue, id))
            exists = follow_up is not None and bool(follow_up.finals or follow_up.claims)
            keys = [job.key, (queue, id)]
            if recorded and not exists:
                text = f"it is settled, but its follow-up {id} of {queue} does not exist"
                yield Violation("lost", job.key, text, keys)
            if refused and exists:
                text = f"its settle was refused, but its follow-up {id} of {queue} exists"
                yield Violation("unrequested", job.key, text, keys)


def stuck(history: History, job: Job) -> Iterator[Violation]:
    """Yield a job that is unfinished although nothing changes any more."""
    for final in job.finals:
        if final.state not in TERMINAL:
            yield Violation("stuck", job.key, f"it stays {final.state}, counts {final.counts}", [job.key])


def duplicated(history: History, job: Job) -> Iterator[Violation]:
    """Yield a job with two terminal settlements, or two terminal events."""
    if history.touches_loss_window(job):
        return
    by_number: dict[int | None, set[str]] = {}
    for settlement in (each for each in job.settlements if each.terminal):
        claim = history.claim_of(settlement.queue, settlement.id, settlement.token)
        by_number.setdefault(claim.number if claim else None, set()).add(settlement.token)
    for tokens in by_number.values():
        if len(tokens) > 1:
            text = f"settled by {len(tokens)} runs: {', '.join(sorted(tokens))}"
            yield Violation("duplicated", job.key, text, [job.key])
            return
    final = job.final
    others = set[str]() if final is None or not final.token else by_number.get(final.number, set()) - {final.token}
    if final is not None and others:
        text = f"recorded by {', '.join(sorted(others))}, stored as settled by {final.token}"
        yield Violation("duplicated", job.key, text, [job.key])
    terminal = [name for name, _ in job.events if name in TERMINAL]
    if len(terminal) > 1 and not any(put.update for put in job.puts):
        yield Violation("duplicated", job.key, f"{len(terminal)} terminal events: {', '.join(terminal)}", [job.key])


def other_result(history: History, job: Job) -> Iterator[Violation]:
    """Yield a job of which a caller got another result than the stored one."""
    final = job.final
    if final is None or history.touches_loss_window(job):
        return
    for call in job.calls:
        if call.state is not None and (call.state, call.token) != (final.state, final.token):
            text = f"a caller got {call.state} {call.token or ''}, stored is {final.state} {final.token or ''}"
            yield Violation("duplicated", job.key, text, [job.key])


def stale(history: History, job: Job) -> Iterator[Violation]:
    """Yield a settle that was recorded although another run had claimed the job before."""
    if history.touches_loss_window(job):
        return
    for claim in job.claims:
        first = claim.first_settled
        if first is None or not any(each.recorded for each in claim.settlements):
            continue
        for later in job.claims:
            if claim.answered < later.asked and later.answered < first:
                text = f"{claim.token} was recorded after {later.token} had claimed the job"
                yield Violation("stale", job.key, text, [job.key])
                return
    yield from _not_the_last_claim(job)


def _not_the_last_claim(job: Job) -> Iterator[Violation]:
    """Yield a job whose stored result is not of its last claim."""
    final = job.final
    if final is None or not final.token:
        return
    ending = next((claim for claim in job.claims if claim.token == final.token), None)
    if ending is None:
        return
    for claim in job.claims:
        if ending.answered < claim.asked:
            text = f"{ending.token} settled it, but {claim.token} claimed it after that one"
            yield Violation("stale", job.key, text, [job.key])
            return


def early(history: History, job: Job) -> Iterator[Violation]:
    """Yield a job that was claimed before its delay or its backoff was over."""
    if any(put.update for put in job.puts):
        return
    puts = [put for put in job.puts if put.delay]
    if puts and len(puts) == len(job.puts):
        due = min(put.asked + round((put.delay or 0) * 1_000_000) for put in puts)
        for claim in job.claims:
            if claim.answered < due - CLOCK_TOLERANCE and not history.clock_jumped(puts[0].asked, claim.answered):
                yield Violation("early", job.key, f"claimed {(due - claim.answered) / 1e6:.3f} s early", [job.key])
                return
    for settlement in job.settlements:
        if settlement.kind == "r" and settlement.recorded and settlement.delay and not history.touches_loss_window(job):
            due = settlement.asked + settlement.delay * 1000
            for claim in job.claims:
                if (
                    settlement.answered is not None
                    and settlement.answered < claim.asked
                    and claim.answered < due - CLOCK_TOLERANCE
                    and not history.clock_jumped(settlement.asked, claim.answered)
                ):
                    text = f"run again {(due - claim.answered) / 1e6:.3f} s before its backoff was over"
                    yield Violation("early", job.key, text, [job.key])
                    return


def failure_not_handled(history: History, job: Job) -> Iterator[Violation]:
    """Yield a failed job whose fail handler was not called, or that has two fail jobs."""
    queue, _ = job.key
    final = job.final
    if queue not in WITH_FAIL_HANDLER or final is None or history.touches_loss_window(job):
        return
    fail_jobs = history.fail_jobs.get(job.key, [])
    keys = [job.key, *fail_jobs]
    if final.state == "failed" and not fail_jobs:
        yield Violation("failure_not_handled", job.key, "it failed, and there is no fail job", keys)
    elif final.state == "failed" and len(fail_jobs) > 1:
        text = f"it failed once, and there are {len(fail_jobs)} fail jobs"
        yield Violation("failure_not_handled", job.key, text, keys)
    elif final.state != "failed" and fail_jobs:
        yield Violation("unrequested", job.key, f"it is {final.state}, and there is a fail job", keys)
    elif fail_jobs and not any(run.of for run in history.jobs[fail_jobs[0]].runs):
        text = "its fail job is finished, but its fail handler was never called"
        yield Violation("failure_not_handled", job.key, text, keys)


def wrong_outcome(history: History, job: Job) -> Iterator[Violation]:
    """Yield a job that finished in a state to which its handler's behaviour does not lead."""
    final = job.final
    if final is None or final.state not in TERMINAL or not job.puts:
        return
    never_updated = len({put.number for put in job.puts}) == 1
    put = next((put for put in job.puts if never_updated or put.number == final.number), None)
    if put is None or job.cancels:
        return
    possible = _possible_states(job.key[0], put.behaviour, put.times)
    if final.state not in possible:
        text = f"{put.behaviour} {put.times or ''}: it is {final.state} ({final.error or ''}), counts {final.counts}"
        yield Violation("wrong_outcome", job.key, text, [job.key])


def _possible_states(queue: str, behaviour: str, times: int) -> tuple[str, ...]:
    """Return the states in which a job of this behaviour may finish; in strict queues, faults may fail it."""
    options = ALL_SETTINGS[queue]
    match behaviour:
        case "permanent":
            return ("failed",)
        case _ if queue == "tickcancel":
            return ("completed", "cancelled")  # the next tick may cancel it
        case "raise" | "fail_batch" | "retry" | "pause_group":
            return ("failed",) if times > options["max_retries"] else ("completed",)
        case "hang" | "refuse_cancel" | "spin":
            return ("failed",) if times >= options["max_timeouts"] else ("completed", "failed")
        case "exit_process" | "kill_process":
            return ("failed",) if times >= options["max_stalls"] else ("completed", "failed")
        case _:
            return ("completed",) if options["max_stalls"] is None else ("completed", "failed")


def ran_after_cancel(history: History, job: Job) -> Iterator[Violation]:
    """Yield a job that was claimed after its cancel was acknowledged."""
    if any(put.update for put in job.puts) or history.touches_loss_window(job):
        return
    for cancel in job.cancels:
        cancelled = cancel.status == "cancelled" and not cancel.running
        last_run = cancel.status == "cancel_requested" or (cancel.status == "running" and cancel.mode != "refuse")
        again = next((claim for claim in job.claims if claim.asked > cancel.answered), None)
        if (cancelled or last_run) and again is not None:
            text = f"cancel answered {cancel.status!r} ({cancel.mode}), and then {again.token} claimed it"
            yield Violation("ran_after_cancel", job.key, text, [job.key])
        elif cancelled and job.final is not None and job.final.state != "cancelled":
            yield Violation("ran_after_cancel", job.key, f"cancelled, and yet {job.final.state}", [job.key])


def unrequested(history: History, job: Job) -> Iterator[Violation]:
    """Yield a job that no producer enqueued and no run put."""
    queue, id = job.key
    if job.puts or not (job.finals or job.claims):
        return
    if queue.endswith(("/after", "/failures")):
        if (queue, id) not in history.follow_ups:
            yield Violation("unrequested", job.key, "no run ever put it", [job.key])
    else:
        yield Violation("unrequested", job.key, "no producer ever enqueued it", [job.key])


def stale_update(history: History, job: Job) -> Iterator[Violation]:
    """Yield an id of which an older update was claimed after a newer one."""
    updates = [put for put in job.puts if put.update]
    if not updates or any(not put.accepted for put in updates) or history.touches_loss_window(job):
        return
    newest: Claim | None = None
    for claim in job.claims:
        if newest is not None and claim.asked > newest.answered and (claim.number or 0) < (newest.number or 0):
            text = f"update {claim.number} was claimed after update {newest.number}"
            yield Violation("stale", job.key, text, [job.key])
            return
        if newest is None or (claim.number or 0) > (newest.number or 0):
            newest = claim


def too_many_retries(history: History, job: Job) -> Iterator[Violation]:
    """Yield a job with more retries than its options allow; retries after the failure of a whole batch do not count."""
    queue, _ = job.key
    if queue not in ALL_SETTINGS or any(put.update for put in job.puts) or history.touches_loss_window(job):
        return
    counted = Counter(
        _retry_reason(history, settlement)
        for settlement in {e.token: e for e in job.settlements if e.recorded and e.kind == "r"}.values()
    )
    for reason, name in (("raised", "max_retries"), ("timeout", "max_timeouts")):
        most = ALL_SETTINGS[queue][name]
        if most is not None and counted[reason] > most:
            yield Violation("wrong_outcome", job.key, f"retried {counted[reason]} times, {name} is {most}", [job.key])


def _retry_reason(history: History, settlement: Settlement) -> str:
    """Return why a run was retried: "raised", "shared" if its whole batch failed, or "other"."""
    for run in history.jobs[settlement.queue, settlement.id].runs:
        if any(each[1] == settlement.token for each in run.jobs) and run.how in ("RuntimeError", "Retry", "ok"):
            return "shared" if run.how != "ok" and len(run.jobs) > 1 else "raised"
    return "other"


JOB_CHECKS = (
    lost, lost_update, lost_follow_ups, stuck, duplicated, other_result, stale, early, failure_not_handled,
    wrong_outcome, ran_after_cancel, unrequested, stale_update, too_many_retries,
)  # fmt: skip
