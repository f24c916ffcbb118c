"""The producers' plan, drawn from a seed: the same seed gives the same actions in the same order.

The order of the random draws and the order of the entries in the weight tables are part of the plan: changing either
gives every seed another plan.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["DRAWS", "KINDS", "Action", "Draw", "JobSpec", "PlanDraw", "plan_actions"]


@dataclass(slots=True)
class JobSpec:
    """One job that a producer enqueues."""

    payload: dict[str, Any]
    id: str | None = None
    group: str | None = None
    delay: float | None = None
    cost: int = 1


@dataclass(slots=True)
class Action:
    """One step of a producer: it enqueues jobs into one queue and may cancel, call, pause or resume afterwards.

    One without jobs changes a limit or a schedule, or reserves jobs.
    """

    kind: str
    queue: str
    jobs: list[JobSpec] = field(default_factory=list[JobSpec])
    #: Actions with the same key run one after another, each after the acknowledgement of the previous one.
    key: str | None = None
    #: Seconds before the second part of the action, a cancel or a resume.
    pause: float = 0.0
    #: How a cancel treats a running job; empty: no cancel.
    mode: str = ""
    #: Seconds that a call waits for its result.
    timeout: float = 0.0
    #: What an action without jobs does.
    change: dict[str, Any] = field(default_factory=dict[str, Any])


#: Weights of the kinds of actions. Most jobs come in bulk, because one "plain" action has up to 60 of them.
KINDS: dict[str, float] = {
    "plain": 30, "brief": 6, "sync": 6, "lane": 14, "lanes": 8, "bunch": 8, "single": 14, "call": 6, "cancel": 8,
    "later": 6, "gate": 1.5, "heavy": 3,
}  # fmt: skip

#: Weights of the behaviours of usual jobs, and of those that cost a process.
USUAL: dict[str, float] = {"ok": 74, "sleep": 16, "raise": 4, "permanent": 2, "retry": 2, "progress": 2}
HEAVY: dict[str, float] = {"hang": 3, "refuse_cancel": 1, "spin": 2, "leak": 3, "exit_process": 3, "kill_process": 2}
HEAVY_SYNC: dict[str, float] = {"hang": 3, "spin": 2, "leak": 2, "exit_process": 2, "kill_process": 2}


class PlanDraw:
    """Random source of one producer's plan, with its job numbers, from `first + 1` on, groups and singleton ids.

    `heavy` is the share, 0 to 1, of the drawn jobs that cost a process; the others become plain ones. `schedules` is
    the number of schedules that the code of a run of limits declares.
    """

    def __init__(self, seed: str, name: str, first: int, heavy: float, schedules: int = 0) -> None:
        self.schedules = schedules
        self.random = random.Random(seed)
        self.name = name
        self.last_number = first
        self.heavy = heavy
        self.groups = {
            queue: [f"{name}-{queue}-{i}" for i in range(8)] + [f"{name} {{:*}}/\n{i}" for i in range(2)]
            for queue in ("lane", "lanes")
        }
        self.singles = [f"{name}-s{i}" for i in range(6)]

    def next_number(self) -> int:
        self.last_number += 1
        return self.last_number

    def weighted_choice(self, weights: dict[str, float]) -> str:
        return self.random.choices(list(weights), list(weights.values()))[0]

    def payload(self, behaviour: str) -> dict[str, Any]:
        """Draw a payload with this behaviour; its number is the first field, where the recorder reads it."""
        draw = self.random
        payload: dict[str, Any] = {"n": self.next_number(), "behaviour": behaviour}
        match behaviour:
            case "sleep" | "progress":
                payload["s"] = round(draw.choice((0.01, 0.05, 0.2, draw.uniform(0.2, 1.2))), 3)
            case "raise":
                payload["times"] = draw.choice((1, 1, 2, 5))
            case "retry":
                payload |= {"times": draw.choice((1, 2)), "s": round(draw.uniform(0.0, 0.4), 3)}
            case "follow_up":
                payload |= {"times": draw.choice((1, 2, 5)), "s": draw.choice((0.0, 0.02))}
            case "hang" | "refuse_cancel" | "spin":
                payload["times"] = draw.choice((1, 1, 2))
            case "exit_process" | "kill_process":
                payload["times"] = draw.choice((1, 1, 3))
            case "leak":
                payload["bytes"] = draw.choice((30, 60)) * 2**20
            case _:
                pass
        return payload

    def draw_jobs(self, least: int, most: int, weights: dict[str, float], named: bool = False) -> list[JobSpec]:
        count = self.random.randint(least, most)
        return [self.spec(self.payload(self.weighted_choice(weights)), named) for _ in range(count)]

    def spec(self, payload: dict[str, Any], named: bool = True) -> JobSpec:
        return JobSpec(payload, f"{self.name}-{payload['n']}" if named else None)


def draw_plain(d: PlanDraw) -> Action:
    return Action("plain", "plain", d.draw_jobs(1, 60, {**USUAL, "follow_up": 3}, named=d.random.random() < 0.3))


def draw_brief(d: PlanDraw) -> Action:
    return Action("brief", "brief", d.draw_jobs(1, 40, {"ok": 8, "sleep": 2}))


def draw_sync(d: PlanDraw) -> Action:
    return Action("sync", "sync", d.draw_jobs(1, 12, {"ok": 6, "sleep": 3, "raise": 1, "permanent": 0.3}))


def draw_lane(d: PlanDraw, queue: str = "lane") -> Action:
    """Draw jobs of one group."""
    group = d.random.choice(d.groups[queue])
    behaviours: dict[str, float] = {"ok": 75, "sleep": 18, "raise": 5, "fail_batch": 2 if queue == "lanes" else 0}
    jobs = d.draw_jobs(1, 12, behaviours, named=True)
    for job in jobs:
        job.group = group
        if job.payload["behaviour"] in ("raise", "fail_batch"):
            job.payload["times"] = d.random.choice((1, 2))
        if job.payload["behaviour"] == "sleep":
            job.payload["s"] = round(d.random.uniform(0.01, 0.3), 3)
    return Action(queue, queue, jobs, key=f"{queue}/{group}")


def draw_lanes(d: PlanDraw) -> Action:
    """Draw jobs of one group in the queue whose handler takes batches."""
    return draw_lane(d, "lanes")


def draw_bunch(d: PlanDraw) -> Action:
    """Draw jobs for a batch handler."""
    jobs = d.draw_jobs(1, 40, {"ok": 90, "sleep": 4, "raise": 3, "fail_batch": 3})
    for job in jobs:
        if job.payload["behaviour"] == "fail_batch":
            job.payload["times"] = d.random.choice((1, 2, 5))
        if job.payload["behaviour"] == "raise":
            job.payload["times"] = d.random.choice((1, 2, 5))
        if job.payload["behaviour"] == "sleep":
            job.payload["s"] = 0.02
    return Action("bunch", "bunch", jobs)


def draw_single(d: PlanDraw) -> Action:
    """Draw an update of one of six ids; 30 % of them are delayed, 8 % are cancelled afterwards."""
    payload = d.payload(d.weighted_choice({"ok": 60, "sleep": 30, "raise": 10}))
    if payload["behaviour"] == "raise":
        payload["times"] = 1
    id = d.random.choice(d.singles)
    delay = round(d.random.uniform(0.05, 0.6), 3) if d.random.random() < 0.3 else None
    mode = d.random.choice(("refuse", "forget", "signal", "kill")) if d.random.random() < 0.08 else ""
    return Action("single", "single", [JobSpec(payload, id, delay=delay)], key=f"single/{id}", mode=mode)


def draw_call(d: PlanDraw) -> Action:
    jobs = d.draw_jobs(1, 1, {"ok": 60, "sleep": 30, "raise": 5, "permanent": 5}, named=d.random.random() < 0.5)
    return Action("call", "call", jobs, timeout=d.random.choice((2.0, 10.0, 30.0)))


def draw_cancel(d: PlanDraw) -> Action:
    queue = d.random.choice(("wanted", "wanted", "wantedsync"))
    behaviour = d.random.choice(("obey_cancel", "ignore_cancel"))
    payload = {"n": d.next_number(), "behaviour": behaviour, "s": round(d.random.uniform(0.0, 1.5), 3)}
    mode = d.random.choice(("refuse", "forget", "signal", "kill"))
    return Action("cancel", queue, [d.spec(payload)], pause=round(d.random.uniform(0.0, 0.8), 3), mode=mode)


def draw_later(d: PlanDraw) -> Action:
    jobs = d.draw_jobs(1, 12, {"ok": 1})
    for job in jobs:
        job.delay = round(d.random.uniform(0.0, 2.5), 3)
    return Action("later", "later", jobs)


def draw_gate(d: PlanDraw) -> Action:
    """Draw jobs that are enqueued while their queue is paused."""
    return Action("gate", "gate", d.draw_jobs(2, 15, {"ok": 1}), key="gate", pause=round(d.random.uniform(0.1, 1.0), 3))


def draw_heavy(d: PlanDraw) -> Action:
    if d.random.random() >= d.heavy:
        return draw_plain(d)
    queue = d.random.choice(("heavy", "heavysync"))
    return Action("heavy", queue, d.draw_jobs(1, 1, HEAVY if queue == "heavy" else HEAVY_SYNC))


Draw = Callable[[PlanDraw], Action]

DRAWS: dict[str, Draw] = {
    "plain": draw_plain, "brief": draw_brief, "sync": draw_sync, "lane": draw_lane, "lanes": draw_lanes,
    "bunch": draw_bunch, "single": draw_single, "call": draw_call, "cancel": draw_cancel, "later": draw_later,
    "gate": draw_gate, "heavy": draw_heavy,
}  # fmt: skip


def plan_actions(
    draw: PlanDraw, weights: Mapping[str, float], draws: Mapping[str, Draw], count: int
) -> Iterator[Action]:
    """Yield actions of these weights with `count` jobs in total."""
    left = count
    while left > 0:
        action = draws[draw.weighted_choice(dict(weights))](draw)
        del action.jobs[left:]
        left -= len(action.jobs)
        yield action
