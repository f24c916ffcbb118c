"""The producers' plan in a run of limits: jobs of the limited queues, and changes of limits and schedules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from chaos.plan import Action, PlanDraw

__all__ = ["LIMITED_DRAWS", "LIMITED_KINDS"]

#: Weights of the kinds of actions.
LIMITED_KINDS: dict[str, float] = {
    "cap": 20, "caps": 16, "order": 16, "rate": 12, "cost": 12, "pack": 10, "fam": 16, "swap": 8, "set_limit": 5,
    "schedule": 14, "take": 6,
}  # fmt: skip

#: Behaviours of jobs that a reservation may complete as well as a handler, and of the others.
PLAIN: dict[str, float] = {"ok": 70, "sleep": 30}
USUAL: dict[str, float] = {"ok": 70, "sleep": 22, "raise": 4, "retry": 2, "pause_group": 2}


def draw_cap(d: PlanDraw, queue: str = "cap") -> Action:
    return Action("plain", queue, d.draw_jobs(1, 30, PLAIN, named=d.random.random() < 0.3))


def draw_fam(d: PlanDraw) -> Action:
    """Draw jobs of one of the two queues of the family."""
    return draw_cap(d, d.random.choice(("fam/a", "fam/b")))


def draw_pack(d: PlanDraw) -> Action:
    """Draw jobs for the batch handler."""
    jobs = d.draw_jobs(1, 20, {"ok": 90, "sleep": 10})
    for job in jobs:
        if job.payload["behaviour"] == "sleep":
            job.payload["s"] = 0.05
    return Action("plain", "pack", jobs)


def draw_cost(d: PlanDraw) -> Action:
    """Draw jobs of different costs, some of them above the burst of their rate."""
    jobs = d.draw_jobs(1, 12, PLAIN)
    for job in jobs:
        job.cost = d.random.choice((1, 1, 1, 2, 5, 8, 30))
    return Action("plain", "cost", jobs)


def draw_groups(d: PlanDraw, queue: str) -> Action:
    """Draw jobs of one group."""
    group = d.random.choice(limited_groups(d.name, queue))
    jobs = d.draw_jobs(1, 12, USUAL, named=True)
    for job in jobs:
        job.group = group
        if job.payload["behaviour"] in ("raise", "retry", "pause_group"):
            job.payload |= {"times": 1, "s": round(d.random.uniform(0.0, 0.4), 3)}
        if job.payload["behaviour"] == "sleep":
            job.payload["s"] = round(d.random.choice((0.02, d.random.uniform(0.05, 0.6))), 3)
    return Action("lane", queue, jobs, key=f"{queue}/{group}")


def limited_groups(name: str, queue: str) -> list[str]:
    """Return the groups of a producer in a queue."""
    return [f"{name}-{queue}-{number}" for number in range(8)]


def draw_set_limit(d: PlanDraw) -> Action:
    """Draw a change of a limit, which may be a reset of such changes."""
    queue = d.random.choice(("cap", "caps", "order", "rate", "cost", "pack", "swap", "fam"))
    change: dict[str, Any] = {"of": "queue"}
    match queue:
        case "fam":
            change = {"of": "family", "limit": draw_limit(d, 3, 10, (30, 90))}
        case "cost":
            limit = draw_limit(d, 4, 12, (80, 200))
            by_cost = {"by": "cost", "burst": d.random.choice((1, 10, 40))}
            change["limit"] = {**limit, **by_cost} if "rate" in limit else limit
        case "order" | "rate" | "caps" | "swap":
            change["of"] = d.random.choice(("every", *limited_groups(d.name, queue)))
            limit = draw_limit(d, 1, 1 if queue == "order" else 5, (5, 40))
            change["limit"] = {**limit, "weight": d.random.choice((1, 1, 3))}
        case _:
            change["limit"] = draw_limit(d, 2, 12, (40, 120))
    if d.random.random() < 0.3:
        del change["limit"]
    return Action("set_limit", queue, key="set_limit", change=change)


def draw_limit(d: PlanDraw, least: int, most: int, rates: tuple[int, int]) -> dict[str, Any]:
    """Draw a concurrency, a rate in a second, or both."""
    limit: dict[str, Any] = {"concurrency": d.random.randint(least, most)}
    if d.random.random() < 0.6:
        limit |= {"rate": f"{d.random.randint(*rates)}/s", "burst": d.random.choice((1, 2, 6))}
    return limit


#: What may be done with a schedule that was made at run time, and with one that code declares.
MADE: dict[str, float] = {"put": 6, "edit": 3, "pause": 3, "trigger": 2, "backfill": 2, "remove": 1}
DECLARED: dict[str, float] = {"pause": 2, "trigger": 1, "edit": 2, "reset": 2}


def draw_schedule(d: PlanDraw) -> Action:
    """Draw a change of a schedule; a pause is followed by a resume."""
    made = d.random.random() < 0.6
    number = d.random.randrange(6) if made else d.random.randrange(d.schedules)
    name = f"{d.name}-a{number}" if made else f"s{number}"
    change: dict[str, Any] = {"name": name, "do": d.weighted_choice(MADE if made else DECLARED)}
    options: dict[str, Any] = {"grace": d.random.choice((1, 5, 30))}
    if change["do"] == "put":
        options["overlap"] = d.random.choice(("allow", "skip"))
        options["payload"] = d.payload(d.weighted_choice(PLAIN))
    if made and change["do"] in ("put", "edit"):
        change["period"] = d.random.choice((1, 1, 2, 3))
    change |= {"options": options, "catch_up": d.random.random() < 0.3}
    queue = "tickcancel" if not made and number % 5 in (3, 4) else "tick"
    if not made and number % 5 == 2 and change["do"] == "trigger":
        change["do"] = "edit"  # its jobs run in the order of their nominal times, which a trigger has not
    return Action("schedule", queue, key=f"schedule/{name}", pause=round(d.random.uniform(0.1, 2.5), 3), change=change)


def draw_take(d: PlanDraw) -> Action:
    """Draw a reservation of up to five jobs, which are held for a while and then completed."""
    queue = d.random.choice(("cap", "fam/a", "fam/b", "cost"))
    return Action("take", queue, pause=round(d.random.uniform(0.0, 0.8), 3), change={"most": d.random.randint(1, 5)})


LIMITED_DRAWS: dict[str, Callable[[PlanDraw], Action]] = {
    "cap": draw_cap, "caps": lambda d: draw_groups(d, "caps"), "order": lambda d: draw_groups(d, "order"),
    "rate": lambda d: draw_groups(d, "rate"), "cost": draw_cost, "pack": draw_pack, "fam": draw_fam,
    "swap": lambda d: draw_groups(d, "swap"), "set_limit": draw_set_limit, "schedule": draw_schedule, "take": draw_take,
}  # fmt: skip
