"""What must hold for each job by itself. Each check reads the history of a job and yields what is wrong with it.

A check says something only if it is certain: of an operation that was not answered it assumes whatever is right.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from chaos.facts import TERMINAL, Claim, End, Job
from chaos.history import History
from chaos.queues import SETTINGS, WITH_FAIL_HANDLER
from chaos.violation import Violation

__all__ = ["JOB_CHECKS"]

#: Clocks of one machine, read by different programs, agree so well (µs).
SLACK = 20_000


def lost(h: History, job: Job) -> Iterator[Violation]:
    """Accepted, and not there in the end."""
    if not h.looked or job.final is not None or h.losable(job):
        return
    queue, _ = job.key
    accepted = [put for put in job.puts if put.accepted]
    if not accepted:
        return
    if SETTINGS[queue].get("retain") == "none" and any(end.kind == "c" and end.state != "lost" for end in job.ends):
        return  # done, and not to be kept
    statuses = ", ".join(str(put.status) for put in accepted)
    yield Violation("lost", job.key, f"accepted ({statuses}) and gone", [job.key])


def lost_update(h: History, job: Job) -> Iterator[Violation]:
    """The last update of an id must be the one that ends."""
    updates = [put for put in job.puts if put.update]
    final = job.final
    if not updates or final is None or final.number is None or h.losable(job):
        return
    last = max(updates, key=lambda put: put.number)
    doubt = any(not put.accepted for put in updates)
    withdrawn = any(cancel.answered > last.asked for cancel in job.cancels)
    if doubt or withdrawn or final.number == last.number:
        return
    yield Violation("lost", job.key, f"the last update was {last.number}, but {final.number} is what ended", [job.key])


def lost_follow_ups(h: History, job: Job) -> Iterator[Violation]:
    """What a run put with its end exists if, and only if, that end was recorded."""
    if not h.looked or h.doubtful(job):
        return
    for token in {end.token for end in job.ends if end.then}:
        ends = [end for end in job.ends if end.token == token and end.then]
        recorded = any(end.recorded for end in ends)
        refused = all(end.state == "lost" for end in ends) and not recorded
        for queue, id in {tuple(each) for end in ends for each in end.then}:
            there = (queue, id) in h.jobs and bool(h.jobs[queue, id].finals or h.jobs[queue, id].claims)
            keys = [job.key, (queue, id)]
            if recorded and not there:
                yield Violation("lost", job.key, f"it ended, but {id} of {queue}, put with its end, is not there", keys)
            if refused and there:
                yield Violation("phantom", job.key, f"its end was refused, but {id} of {queue} is there", keys)


def stuck(h: History, job: Job) -> Iterator[Violation]:
    """Everything is over, but not this."""
    for final in job.finals:
        if final.state not in TERMINAL:
            yield Violation("stuck", job.key, f"it is {final.state} for ever, counts {final.counts}", [job.key])


def doubled(h: History, job: Job) -> Iterator[Violation]:
    """Two ends for one job, or two events of its end."""
    if h.doubtful(job):
        return
    ends = [end for end in job.ends if end.terminal]
    by_number: dict[int | None, set[str]] = {}
    for end in ends:
        claim = h.claim_of(end.queue, end.id, end.token)
        by_number.setdefault(claim.number if claim else None, set()).add(end.token)
    for tokens in by_number.values():
        if len(tokens) > 1:
            yield Violation("doubled", job.key, f"ended by {len(tokens)} runs: {', '.join(sorted(tokens))}", [job.key])
            return
    final = job.final
    others = set[str]() if final is None or not final.token else by_number.get(final.number, set()) - {final.token}
    if final is not None and others:
        text = f"recorded by {', '.join(sorted(others))}, shown as ended by {final.token}"
        yield Violation("doubled", job.key, text, [job.key])
    told = [name for name, _ in job.events if name in TERMINAL]
    if len(told) > 1 and not any(put.update for put in job.puts):
        yield Violation("doubled", job.key, f"its end was told {len(told)} times: {', '.join(told)}", [job.key])


def other_result(h: History, job: Job) -> Iterator[Violation]:
    """What a caller heard is what is stored."""
    final = job.final
    if final is None or h.doubtful(job):
        return
    for call in job.calls:
        if call.state is not None and (call.state, call.token) != (final.state, final.token):
            text = f"a caller heard {call.state} {call.token or ''}, stored is {final.state} {final.token or ''}"
            yield Violation("doubled", job.key, text, [job.key])


def stale(h: History, job: Job) -> Iterator[Violation]:
    """The end of a run was recorded although its job had been handed to another run before."""
    if h.doubtful(job):
        return
    for claim in job.claims:
        ends = [end for end in claim.ends if end.recorded]
        first = claim.first_end
        if not ends or first is None:
            continue
        for later in job.claims:
            if claim.answered < later.asked and later.answered < first:
                text = f"{claim.token} was recorded after the job had gone to {later.token}"
                yield Violation("stale", job.key, text, [job.key])
                return
    yield from _not_the_last(job)


def _not_the_last(job: Job) -> Iterator[Violation]:
    """The run that ended a job is the last that it was handed to."""
    final = job.final
    if final is None or not final.token:
        return
    ending = next((claim for claim in job.claims if claim.token == final.token), None)
    if ending is None:
        return
    for claim in job.claims:
        if ending.answered < claim.asked:
            text = f"{ending.token} ended it, but it was handed to {claim.token} after that one"
            yield Violation("stale", job.key, text, [job.key])
            return


def early(h: History, job: Job) -> Iterator[Violation]:
    """Handed out before its delay, or before its backoff, was over."""
    if any(put.update for put in job.puts):
        return
    puts = [put for put in job.puts if put.delay]
    if puts and len(puts) == len(job.puts):
        due = min(put.asked + round((put.delay or 0) * 1_000_000) for put in puts)
        for claim in job.claims:
            if claim.answered < due - SLACK:
                yield Violation("early", job.key, f"handed out {(due - claim.answered) / 1e6:.3f} s early", [job.key])
                return
    for end in job.ends:
        if end.kind == "r" and end.recorded and end.delay and not h.doubtful(job):
            due = end.asked + end.delay * 1000
            for claim in job.claims:
                if end.answered is not None and end.answered < claim.asked and claim.answered < due - SLACK:
                    text = f"run again {(due - claim.answered) / 1e6:.3f} s before its backoff was over"
                    yield Violation("early", job.key, text, [job.key])
                    return


def unheard(h: History, job: Job) -> Iterator[Violation]:
    """Failed, and its fail handler was not told, or was told twice."""
    queue, _ = job.key
    final = job.final
    if queue not in WITH_FAIL_HANDLER or final is None or h.doubtful(job):
        return
    told = h.fail_jobs.get(job.key, [])
    keys = [job.key, *told]
    if final.state == "failed" and not told:
        yield Violation("unheard", job.key, "it failed, and there is no fail job", keys)
    elif final.state == "failed" and len(told) > 1:
        yield Violation("unheard", job.key, f"it failed once, and there are {len(told)} fail jobs", keys)
    elif final.state != "failed" and told:
        yield Violation("phantom", job.key, f"it is {final.state}, and there is a fail job", keys)
    elif told and not any(run.of for run in h.jobs[told[0]].runs):
        yield Violation("unheard", job.key, "its fail job is over, but its handler was never called", keys)


def wrong(h: History, job: Job) -> Iterator[Violation]:
    """It ended otherwise than its handler said."""
    final = job.final
    if final is None or final.state not in TERMINAL or not job.puts:
        return
    alone = len({put.number for put in job.puts}) == 1
    put = next((put for put in job.puts if alone or put.number == final.number), None)
    if put is None or job.cancels:
        return
    possible = _possible(job.key[0], put.mood, put.times)
    if final.state not in possible:
        text = f"{put.mood} {put.times or ''}: it is {final.state} ({final.error or ''}), counts {final.counts}"
        yield Violation("wrong", job.key, text, [job.key])


def _possible(queue: str, mood: str, times: int) -> tuple[str, ...]:
    """How a job of this mood may end; in strict queues the faults count, too."""
    options = SETTINGS[queue]
    match mood:
        case "permanent":
            return ("failed",)
        case "raise" | "spoil" | "retry":
            return ("failed",) if times > options["max_retries"] else ("completed",)
        case "hang" | "stubborn" | "spin":
            return ("failed",) if times >= options["max_timeouts"] else ("completed", "failed")
        case "exit" | "die":
            return ("failed",) if times >= options["max_stalls"] else ("completed", "failed")
        case _:
            return ("completed",) if options["max_stalls"] is None else ("completed", "failed")


def defied(h: History, job: Job) -> Iterator[Violation]:
    """Handed out after it was cancelled."""
    if any(put.update for put in job.puts) or h.doubtful(job):
        return
    for cancel in job.cancels:
        gone = cancel.status == "cancelled" and not cancel.running
        last = cancel.status == "cancel_requested" or (cancel.status == "running" and cancel.mode != "refuse")
        again = next((claim for claim in job.claims if claim.asked > cancel.answered), None)
        if (gone or last) and again is not None:
            text = f"cancel answered {cancel.status!r} ({cancel.mode}), and then {again.token} got it"
            yield Violation("defied", job.key, text, [job.key])
        elif gone and job.final is not None and job.final.state != "cancelled":
            yield Violation("defied", job.key, f"cancelled, and yet {job.final.state}", [job.key])


def phantom(h: History, job: Job) -> Iterator[Violation]:
    """Nobody asked for it."""
    queue, id = job.key
    if job.puts or not (job.finals or job.claims):
        return
    if queue.endswith(("/after", "/failures")):
        if (queue, id) not in h.then:
            yield Violation("phantom", job.key, "no run ever put it", [job.key])
    else:
        yield Violation("phantom", job.key, "nobody ever asked for it", [job.key])


def versions(h: History, job: Job) -> Iterator[Violation]:
    """Updates are never undone: an older one is not handed out after a newer one."""
    updates = [put for put in job.puts if put.update]
    if not updates or any(not put.accepted for put in updates) or h.doubtful(job):
        return
    newest: Claim | None = None
    for claim in job.claims:
        if newest is not None and claim.asked > newest.answered and (claim.number or 0) < (newest.number or 0):
            text = f"update {claim.number} was handed out after update {newest.number}"
            yield Violation("stale", job.key, text, [job.key])
            return
        if newest is None or (claim.number or 0) > (newest.number or 0):
            newest = claim


def overdone(h: History, job: Job) -> Iterator[Violation]:
    """More repetitions than the rules allow; those after a failure that was shared with others are none of them."""
    queue, _ = job.key
    if queue not in SETTINGS or any(put.update for put in job.puts) or h.doubtful(job):
        return
    counted = Counter(_why(h, end) for end in {e.token: e for e in job.ends if e.recorded and e.kind == "r"}.values())
    for why, name in (("raised", "max_retries"), ("timeout", "max_timeouts")):
        most = SETTINGS[queue][name]
        if most is not None and counted[why] > most:
            yield Violation("wrong", job.key, f"repeated {counted[why]} times, {name} is {most}", [job.key])


def _why(h: History, end: End) -> str:
    """Why a run is repeated, as its handler knew it: those that were cut off were too slow."""
    for run in h.jobs[end.queue, end.id].runs:
        if any(each[1] == end.token for each in run.jobs) and run.how in ("RuntimeError", "Retry", "ok"):
            return "shared" if run.how != "ok" and len(run.jobs) > 1 else "raised"
    return "other"


JOB_CHECKS = (
    lost, lost_update, lost_follow_ups, stuck, doubled, other_result, stale, early, unheard, wrong, defied, phantom,
    versions, overdone,
)  # fmt: skip
