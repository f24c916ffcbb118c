"""The report of a run: jobs, handler runs, faults, recovery times after kills, and violations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from chaos.history import History
from chaos.limit_checks import slot_recoveries
from chaos.log import Record
from chaos.schedule_checks import accounted
from chaos.violation import Violation

#: Seconds, and whether no other fault was under way at that time.
Recovery = tuple[float, bool]

__all__ = ["recoveries", "summary", "table"]

#: Faults after which another process must take over, and the name of the killed part in the report.
KILLS = {"kill_child": "child", "kill_worker": "worker", "kill_parent": "worker's main process"}


def recoveries(history: History, records: Sequence[Record]) -> dict[str, list[Recovery]]:
    """Return the recovery times after kills.

    After the kill of a process: until each job that ran there was claimed again. After the kill of a server: from its
    first answer until the first claim. After a failover: from the loss of the primary until the first claim.
    """
    found: dict[str, list[Recovery]] = {}
    claims = sorted(claim.answered for job in history.jobs.values() for claim in job.claims)
    begun = {record["number"]: record["t"] for record in records if record["k"] == "fault"}
    over = {record["number"]: record["t"] for record in records if record["k"] == "fault_over"}

    def add(name: str, since: int, spans: Iterable[float]) -> None:
        for span in spans:
            until = since + span * 1e6
            busy = sum(first <= until and over.get(n, until) >= since for n, first in begun.items())
            found.setdefault(name, []).append((span, busy <= 1))

    for record in records:
        if record["k"] == "fault_over" and record["name"] in KILLS:
            since = begun[record["number"]]
            add(KILLS[record["name"]], since, _until_claimed_again(history, since, set(record["pids"]), record["t"]))
        elif record["k"] == "server" and record["did"] == "back":
            after = next((at for at in claims if at > record["t"]), None)
            add("server", record["t"], [] if after is None else [(after - record["t"]) / 1e6])
        elif record["k"] == "failover":
            add("primary", record["since"], _resumed(history, record["since"], record["families"]))
    return found


def _resumed(history: History, since: int, families: list[str] | None) -> Iterable[float]:
    """Return the seconds from the loss of a primary until the next claim in one of its families, if there is one."""
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


def _until_claimed_again(history: History, at: int, pids: set[int], over: int) -> Iterable[float]:
    """Yield the seconds that the jobs of dead processes waited for their next claim."""
    for run in history.runs:
        if run.pid not in pids or run.started > over or (run.ended is not None and run.ended < over):
            continue
        for id, token, *_ in run.jobs:
            job = history.jobs[run.queue, id]
            own = history.claim_of(run.queue, id, token)
            if own is None or any(settlement.pid in pids for settlement in own.settlements):
                continue  # its settle was already sent
            later = min((claim.answered for claim in job.claims if claim.asked > run.started), default=None)
            if later is not None and later > at:
                yield (later - at) / 1e6


def summary(
    history: History, records: Sequence[Record], found: Sequence[Violation], about: dict[str, Any]
) -> dict[str, Any]:
    """Return the figures of a run, which `--out` writes as one line."""
    over = [record for record in records if record["k"] == "fault_over"]
    faults = Counter(record["name"] for record in over if not _had_no_effect(record))
    puts = sum(len(job.puts) for job in history.jobs.values()) + len(history.unidentified_puts)
    settlements = [settlement for job in history.jobs.values() for settlement in job.settlements]
    spans = recoveries(history, records)
    return {
        **about,
        "puts": puts,
        "jobs": sum(1 for job in history.jobs.values() if job.puts or job.finals),
        "runs": len(history.runs),
        "final_states": Counter(job.final.state for job in history.jobs.values() if job.final is not None),
        "refused_settlements": sum(1 for settlement in settlements if settlement.state == "lost"),
        "unanswered_settlements": sum(1 for settlement in settlements if settlement.state is None),
        "events": Counter(name for job in history.jobs.values() for name, _ in job.events),
        "faults": sum(faults.values()),
        "faults_without_effect": sum(map(_had_no_effect, over)),
        "faults_by_kind": dict(sorted(faults.items())),
        "recovery_s": {name: _figures([span for span, _ in all_]) for name, all_ in spans.items()},
        "recovery_alone_s": {
            name: _figures(alone) for name, all_ in spans.items() if (alone := [span for span, quiet in all_ if quiet])
        },
        "lost_by_the_server": sum(
            1
            for job in history.jobs.values()
            if not job.final
            and job.key[0] != "brief"
            and any(p.accepted for p in job.puts)
            and history.touches_loss_window(job)
        ),
        **(_limit_figures(history) if history.settings.limit_changes else {}),
        "violations": dict(Counter(each.kind for each in found)),
    }


def _limit_figures(history: History) -> dict[str, Any]:
    """Return the figures of a run of limits."""
    settings = history.settings
    firings = [firing for firing in settings.firings if firing.sure]
    slots = list(slot_recoveries(history))
    ticks = Counter[str]()
    for firing in (each for each in firings if not each.manual):
        ticks.update(
            fired=firing.fired, skipped=firing.skipped, missed=firing.missed, dropped=firing.dropped
        )  # fmt: skip
    return {
        "ticks": ticks.total(),
        "ticks_by_outcome": dict(ticks),
        "ticks_by_hand": sum(len(firing.ids) for firing in firings if firing.manual),
        "stale_firings": sum(firing.refused for firing in settings.firings),
        "unanswered_firings": sum(not firing.sure and not firing.refused for firing in settings.firings),
        "schedules": len(settings.final_schedules),
        "schedules_accounted": len(list(accounted(history))),
        "limit_changes": sum(change.sure for change in settings.limit_changes),
        "schedule_changes": sum(each.sure for changes in settings.schedule_changes.values() for each in changes),
        "slots_s": _figures([slot.span / 1e6 for slot in slots]) if slots else None,
        "slots_alone_s": _figures(alone) if (alone := [slot.span / 1e6 for slot in slots if slot.alone]) else None,
    }


def _figures(spans: Sequence[float]) -> dict[str, float]:
    return {"n": len(spans), "p50": round(sorted(spans)[len(spans) // 2], 3), "max": round(max(spans), 3)}


def _had_no_effect(record: Record) -> bool:
    """Return whether a fault had no effect."""
    return "error" in record or "skipped" in record or record.get("pids") == [] or record.get("times") == 0


def table(line: dict[str, Any]) -> str:
    """Format the figures of a run as a table."""
    states = ", ".join(f"{count} {state}" for state, count in sorted(line["final_states"].items()))
    rows = [
        ("storage", line["storage"]),
        ("seed", str(line["seed"])),
        ("jobs", f"{line['jobs']:,} ({states})"),
        (
            "runs",
            f"{line['runs']:,}; settlements: {line['refused_settlements']} refused, "
            f"{line['unanswered_settlements']} not answered",
        ),
        ("events received", ", ".join(f"{count} {name}" for name, count in sorted(line["events"].items()))),
        ("faults", f"{line['faults']:,}, and {line['faults_without_effect']} without effect"),
        *((f"  {name}", str(count)) for name, count in line["faults_by_kind"].items()),
        *(
            (f"after a kill: {name}", f"p50 {span['p50']:.2f} s, max {span['max']:.2f} s ({span['n']})")
            for name, span in line["recovery_s"].items()
        ),
        *(
            (f"  with no other fault: {name}", f"p50 {span['p50']:.2f} s, max {span['max']:.2f} s ({span['n']})")
            for name, span in line["recovery_alone_s"].items()
        ),
        *_limit_rows(line),
        ("lost by the server", f"{line['lost_by_the_server']} jobs acknowledged just before a failover or crash"),
        ("took", f"{line['seconds']:.0f} s"),
        ("violations", ", ".join(f"{n} {kind}" for kind, n in line["violations"].items()) or "none"),
    ]
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:<{width}}  {value}" for name, value in rows)


def _limit_rows(line: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the rows of a run of limits, none for another run."""
    if "ticks" not in line:
        return []
    outcomes = ", ".join(f"{count} {name}" for name, count in line["ticks_by_outcome"].items())
    stale, unanswered = line["stale_firings"], line["unanswered_firings"]
    rows = [
        ("ticks", f"{line['ticks']:,} ({outcomes}), and {line['ticks_by_hand']} by hand"),
        ("firings in vain", f"{stale} stale, {unanswered} not answered"),
        ("schedules", f"{line['schedules']}, the ticks of {line['schedules_accounted']} added up"),
        ("changes", f"{line['limit_changes']} of limits, {line['schedule_changes']} of schedules"),
    ]
    for name, spans in (("slots of killed processes", "slots_s"), ("  with no other fault", "slots_alone_s")):
        if (span := line[spans]) is not None:
            rows.append((name, f"free after p50 {span['p50']:.2f} s, max {span['max']:.2f} s ({span['n']})"))
    return rows
