"""Two versions of the simulated code, which declare different limits and schedules."""

from __future__ import annotations

import re
from dataclasses import dataclass
from random import Random
from typing import Any

from penstock import Cron, Every, Limit, Schedule
from penstock.model.schedule import CATCH_UPS, OVERLAPS, When
from penstock.model.tick import Tick
from penstock.storage.limiting import Scope

__all__ = ["FAMILY", "LIMITED", "SCOPES", "TICKS", "Version", "draw_limit", "draw_options", "draw_when", "version_of"]

#: The queues with limits, the family of two of them, and the queue of the schedules.
LIMITED = ("llm/ask", "llm/sum", "tenant", "strict")
FAMILY, TICKS = "llm", "ticks"

#: The scopes for which code may declare a limit.
SCOPES = (
    Scope("family", FAMILY),
    *(Scope("queue", queue) for queue in LIMITED),
    *(Scope("groups", queue) for queue in LIMITED),
)

#: The rates of limits: slow enough to hold jobs back, and fast enough for all of them to end.
RATES = ("1/s", "2/s", "4/s", "3/2s", "30/min")

WORKER = re.compile(r"w([0-9]+)\.([0-9]+)")

CRONS = ("*/7 * * * * *", "3-59/11 * * * * *", "0,20,45 * * * * *", "*/10 * * * * *")
ZONES = ("UTC", "Europe/Paris", "America/New_York", "Asia/Kathmandu")


@dataclass(frozen=True)
class Version:
    """Declarations of one version of the code: limits of queues, of their groups, of the family, and schedules."""

    limits: dict[str, Limit]
    group_limits: dict[str, Limit]
    family: Limit | None
    schedules: tuple[Schedule, ...]

    def limit_of(self, scope: Scope) -> Limit | None:
        """Return the limit that it declares for a scope."""
        if scope.kind == "family":
            return self.family
        return (self.limits if scope.kind == "queue" else self.group_limits).get(scope.name)


def version_of(seed: int, node: str) -> Version:
    """Return the version of the code of a node: a worker that is started again has the other one."""
    found = WORKER.match(node)
    number = sum(map(int, found.groups())) % 2 if found else 0
    random = Random(f"{seed}/declared/{number}")
    return Version(
        limits={queue: draw_limit(random, queue) for queue in LIMITED if random.random() < 0.5},
        group_limits={
            queue: draw_limit(random, queue, group=True)
            for queue in LIMITED
            if queue != "llm/sum" and random.random() < 0.8
        },
        family=draw_limit(random, FAMILY) if random.random() < 0.7 else None,
        schedules=(
            Schedule(draw_when(random), name="both", **draw_options(random)),
            Schedule(draw_when(random), name=f"only{number}", **{**draw_options(random), **payload_of(number)}),
        ),
    )


def payload_of(number: int) -> dict[str, Any]:
    """Return the payload of the schedule that one version alone declares: of the second one a function computes it."""
    return {"payload": nominal_of} if number else {"at_once": True}


def nominal_of(tick: Tick) -> str:
    """Return the nominal time of a tick as its payload."""
    return f"{tick.nominal:%F %T}"


def draw_limit(random: Random, queue: str, *, group: bool = False) -> Limit:
    """Draw a limit for a queue, a family or groups; groups of the queue `strict` are ordered, of others mostly not."""
    given: dict[str, Any] = {}
    if random.random() < 0.6:
        given = {"rate": random.choice(RATES), "burst": random.choice([1, 1, 2, 5])}
        if queue == "llm/ask" and random.random() < 0.7:
            given["by"] = "cost"
    if group and queue == "strict":
        return Limit(concurrency=random.choice([None, 1]), **given)
    if group:
        given["weight"] = random.choice([1, 1, 2, 3])
        given["ordered"] = False if random.random() < 0.9 else None
    return Limit(concurrency=random.choice([1, 2, 2, 3]), **given) if group or random.random() < 0.7 else Limit(**given)


def draw_when(random: Random) -> When:
    """Draw the times of a schedule, some seconds apart."""
    if random.random() < 0.5:
        span = random.randint(3, 15)
        return Every(span, phase=random.randrange(span))
    return Cron(random.choice(CRONS), tz=random.choice(ZONES))


def draw_options(random: Random) -> dict[str, Any]:
    """Draw the options of a schedule: late ticks matter, because the grace is short."""
    options: dict[str, Any] = {
        "overlap": random.choice(OVERLAPS), "catch_up": random.choice(CATCH_UPS), "grace": random.choice([0, 1, 4, 30]),
        "most": random.choice([1, 3]), "result_ttl": 60,
    }  # fmt: skip
    if random.random() < 0.3:
        options["jitter"] = random.choice([1, 3])
    return options
