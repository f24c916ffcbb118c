"""What a run came to: jobs, runs, faults, how soon work went on after a kill, and what was violated."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from chaos.history import History
from chaos.log import Record
from chaos.violation import Violation

#: Seconds, and whether no other fault was under way meanwhile.
Recovery = tuple[float, bool]

__all__ = ["recoveries", "summary", "table"]

#: Faults after which somebody else must take over, and how the table calls what was killed.
KILLS = {"kill_child": "child", "kill_worker": "worker", "kill_parent": "worker's main process"}


def recoveries(history: History, records: Sequence[Record]) -> dict[str, list[Recovery]]:
    """How long it took after each kill: until each job that was running there was handed out again; of the server:
    from its answering again until the first job was handed out."""
    found: dict[str, list[Recovery]] = {}
    claims = sorted(claim.answered for job in history.jobs.values() for claim in job.claims)
    begun = {record["number"]: record["t"] for record in records if record["k"] == "fault"}
    over = {record["number"]: record["t"] for record in records if record["k"] == "fault_over"}

    def note(name: str, since: int, spans: Iterable[float]) -> None:
        for span in spans:
            until = since + span * 1e6
            busy = sum(first <= until and over.get(n, until) >= since for n, first in begun.items())
            found.setdefault(name, []).append((span, busy <= 1))

    for record in records:
        if record["k"] == "fault_over" and record["name"] in KILLS:
            since = begun[record["number"]]
            note(KILLS[record["name"]], since, _again(history, since, set(record["pids"]), record["t"]))
        elif record["k"] == "server" and record["did"] == "back":
            after = next((at for at in claims if at > record["t"]), None)
            note("server", record["t"], [] if after is None else [(after - record["t"]) / 1e6])
        elif record["k"] == "failover":
            note("primary", record["since"], _resumed(history, record["since"], record["families"]))
    return found


def _resumed(history: History, since: int, families: list[str] | None) -> Iterable[float]:
    """How long work stood still: from the loss of a primary until the next claim in one of its families."""
    first = min(
        (
            claim.answered
            for (queue, _), job in history.jobs.items()
            if families is None or queue.partition("/")[0] in families
            for claim in job.claims
            if claim.asked > since
        ),
        default=None,
    )
    return [] if first is None else [(first - since) / 1e6]


def _again(history: History, at: int, pids: set[int], over: int) -> Iterable[float]:
    """How long the jobs of dead processes waited for their next run."""
    for run in history.runs:
        if run.pid not in pids or run.started > over or (run.ended is not None and run.ended < over):
            continue
        for id, token, *_ in run.jobs:
            job = history.jobs[run.queue, id]
            own = history.claim_of(run.queue, id, token)
            if own is None or any(end.pid in pids for end in own.ends):
                continue  # its end was on its way
            later = min((claim.answered for claim in job.claims if claim.asked > run.started), default=None)
            if later is not None and later > at:
                yield (later - at) / 1e6


def summary(
    history: History, records: Sequence[Record], found: Sequence[Violation], about: dict[str, Any]
) -> dict[str, Any]:
    """One line of figures."""
    over = [record for record in records if record["k"] == "fault_over"]
    faults = Counter(record["name"] for record in over if not _missed(record))
    puts = sum(len(job.puts) for job in history.jobs.values()) + len(history.possible)
    ends = [end for job in history.jobs.values() for end in job.ends]
    spans = recoveries(history, records)
    return {
        **about,
        "puts": puts,
        "jobs": sum(1 for job in history.jobs.values() if job.puts or job.finals),
        "runs": len(history.runs),
        "ends": Counter(job.final.state for job in history.jobs.values() if job.final is not None),
        "refused_ends": sum(1 for end in ends if end.state == "lost"),
        "unanswered_ends": sum(1 for end in ends if end.state is None),
        "events": Counter(name for job in history.jobs.values() for name, _ in job.events),
        "faults": sum(faults.values()),
        "faults_that_hit_nobody": sum(map(_missed, over)),
        "faults_by_kind": dict(sorted(faults.items())),
        "recovery_s": {name: _figures([span for span, _ in all_]) for name, all_ in spans.items()},
        "recovery_alone_s": {
            name: _figures(alone) for name, all_ in spans.items() if (alone := [span for span, quiet in all_ if quiet])
        },
        "lost_by_the_server": sum(
            1
            for job in history.jobs.values()
            if not job.final and job.key[0] != "brief" and any(p.accepted for p in job.puts) and history.doubtful(job)
        ),
        "violations": dict(Counter(each.kind for each in found)),
    }


def _figures(spans: Sequence[float]) -> dict[str, float]:
    return {"n": len(spans), "p50": round(sorted(spans)[len(spans) // 2], 3), "max": round(max(spans), 3)}


def _missed(record: Record) -> bool:
    """Whether a fault hit nobody."""
    return "error" in record or "skipped" in record or record.get("pids") == [] or record.get("times") == 0


def table(line: dict[str, Any]) -> str:
    """A summary for the eye."""
    ends = ", ".join(f"{count} {state}" for state, count in sorted(line["ends"].items()))
    rows = [
        ("storage", line["storage"]),
        ("seed", str(line["seed"])),
        ("jobs", f"{line['jobs']:,} ({ends})"),
        ("runs", f"{line['runs']:,}; {line['refused_ends']} ends refused, {line['unanswered_ends']} not answered"),
        ("events heard", ", ".join(f"{count} {name}" for name, count in sorted(line["events"].items()))),
        ("faults", f"{line['faults']:,}, and {line['faults_that_hit_nobody']} that hit nobody"),
        *((f"  {name}", str(count)) for name, count in line["faults_by_kind"].items()),
        *(
            (f"after a kill: {name}", f"p50 {span['p50']:.2f} s, max {span['max']:.2f} s ({span['n']})")
            for name, span in line["recovery_s"].items()
        ),
        *(
            (f"  with no other fault: {name}", f"p50 {span['p50']:.2f} s, max {span['max']:.2f} s ({span['n']})")
            for name, span in line["recovery_alone_s"].items()
        ),
        ("lost by the server", f"{line['lost_by_the_server']} jobs acknowledged just before a failover or crash"),
        ("took", f"{line['seconds']:.0f} s"),
        ("violations", ", ".join(f"{n} {kind}" for kind, n in line["violations"].items()) or "none"),
    ]
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:<{width}}  {value}" for name, value in rows)
