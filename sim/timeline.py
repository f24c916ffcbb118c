"""The timeline of a run: the lines of its history that are about the broken promise."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.testing.simulation.history import Line
from sim.run import Report

__all__ = ["timeline"]

#: How many lines are shown, those nearest to the end; and how wide they are.
MAX_LINES, WIDTH = 120, 180

#: Lines of these kinds are about a process or the server as a whole.
ABOUT_ALL = frozenset({"start", "stopped", "heal"})


def timeline(report: Report, job: str | None = None) -> Iterator[str]:
    """Yield the plan of a run, its broken promises, and the lines about their jobs, or about the given one.

    Faults of a call are shown if the call is, faults of nodes and of the server always.
    """
    plan = report.plan
    yield f"seed {plan.seed}: {plan.workers} workers, lease {plan.lease:g} s, {report.jobs} jobs"
    yield f"  faults for {plan.seconds:.0f} s at heat {plan.heat:g}: {', '.join(sorted(plan.kinds)) or 'none'}"
    if plan.only is not None:
        yield f"  only {', '.join(sorted(plan.only)) or 'none'}"
    yield (
        f"  {report.seconds:.0f} virtual seconds, {report.calls} calls, {len(report.faults)} faults, "
        f"{report.runs} runs, digest {report.digest[:16]}"
    )
    ids = {job} if job else {id for violation in report.violations for _, id in violation.jobs}
    lines = list(_chosen(report.history, ids)) if ids else report.history
    if len(lines) > MAX_LINES:
        yield f"  … {len(lines) - MAX_LINES} lines before"
    for line in lines[-MAX_LINES:]:
        text = str(line)
        yield text if len(text) <= WIDTH else f"{text[: WIDTH - 1]}…"
    for violation in report.violations:
        yield f"BROKEN at {violation}"


def _chosen(history: list[Line], ids: set[str]) -> Iterator[Line]:
    """Yield the lines about jobs, about processes, and the faults of the calls that are shown."""
    named = {line.text.rpartition("[")[2].rstrip("]") for line in history if any(id in line.text for id in ids)}
    for line in history:
        about_job = any(id in line.text for id in ids)
        about_call = line.kind == "fault" and (line.node == "env" or line.text.partition(" ")[0] in named)
        if about_job or about_call or line.kind in ABOUT_ALL:
            yield line
