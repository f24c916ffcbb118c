"""The queues, limits and schedules of a chaos run of limits, of which the code has two versions.

cap         a queue's concurrency               caps         groups of several runs at once, in a queue with a limit
order       ordered groups with a rate          rate         groups of several runs at once with a rate
cost        a queue's rate, by cost             pack         a batch handler in a queue with a concurrency
fam/a, fam/b  the limit of a family             swap         groups whose limit changes between one run and several
tick        schedules whose jobs may wait       tickcancel   schedules whose jobs are cancelled by the next tick
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from chaos.queues import LENIENT, SETTINGS
from penstock import Cron, Every, Limit, Schedule, Tick

__all__ = [
    "ALL_SETTINGS",
    "FAMILY",
    "GROUPED",
    "LIMITED_BATCHED",
    "LIMITED_SETTINGS",
    "UNORDERED",
    "DeclaredLimits",
    "declared_limits",
    "declared_schedules",
]

FAMILY = "fam"

LIMITED_SETTINGS: dict[str, dict[str, Any]] = {
    "cap": {**LENIENT, "size": 2},
    "caps": {**LENIENT, "size": 2},
    "order": {**LENIENT, "size": 2},
    "rate": {**LENIENT, "size": 2},
    "cost": {**LENIENT, "size": 2},
    "pack": {**LENIENT, "size": 4, "batch_size": 6},
    "fam/a": {**LENIENT, "size": 2},
    "fam/b": {**LENIENT, "size": 2},
    "swap": {**LENIENT, "size": 2},
    "tick": {**LENIENT, "size": 2},
    "tickcancel": {**LENIENT, "size": 2},
}

#: The options of the queues of both kinds of runs.
ALL_SETTINGS = SETTINGS | LIMITED_SETTINGS

LIMITED_BATCHED = ("pack",)
#: Queues whose jobs are in groups, and those of them whose groups are not always ordered.
GROUPED = ("caps", "order", "rate", "swap")
UNORDERED = ("caps", "rate", "swap")


@dataclass(frozen=True)
class DeclaredLimits:
    """The limits that one version of the code declares: of queues, of their groups, and of the family."""

    queues: dict[str, Limit]
    groups: dict[str, Limit]
    family: Limit


VERSIONS = (
    DeclaredLimits(
        {
            "cap": Limit(concurrency=6),
            "caps": Limit(concurrency=9),
            "cost": Limit(rate="150/s", by="cost", burst=20),
            "pack": Limit(concurrency=8),
            "tick": Limit(concurrency=20),
        },
        {
            "caps": Limit(concurrency=3),
            "order": Limit(rate="25/s", burst=2),
            "rate": Limit(concurrency=4, rate="8/s", burst=3),
            "swap": Limit(concurrency=2),
        },
        Limit(concurrency=6, rate="50/s", burst=5),
    ),
    DeclaredLimits(
        {
            "cap": Limit(concurrency=4),
            "cost": Limit(rate="100/s", by="cost", burst=5),
            "pack": Limit(concurrency=5, rate="60/s", burst=10),
            "tick": Limit(concurrency=12),
            "order": Limit(concurrency=5),
        },
        {
            "caps": Limit(concurrency=2),
            "order": Limit(rate="40/s", weight=2),
            "rate": Limit(concurrency=2, rate="12/s"),
            "swap": Limit(concurrency=1),
        },
        Limit(concurrency=4, rate="40/s"),
    ),
)


def declared_limits(version: int) -> DeclaredLimits:
    """Return the limits that this version of the code declares, 0 or 1."""
    return VERSIONS[version]


OVERLAPS = ("allow", "skip", "queue", "replace", "kill")


def declared_schedules(version: int, count: int) -> Iterator[tuple[str, Schedule]]:
    """Yield the schedules that this version of the code declares, of `count` in both, each with its queue.

    Of twelve, one is in the first version alone, one in the second alone, and one has other times in the second.
    """
    for number in range(count):
        place = number % 12
        if place == 10 + (1 - version):
            continue
        overlap = OVERLAPS[number % 5]
        period = 2 if place == 9 and version == 1 else 1
        when = Cron(f"*/{period} * * * * *") if number % 3 == 0 else Every(period)
        payload: Any = {"n": number, **behaviour_of(number)}
        yield (
            "tickcancel" if overlap in ("replace", "kill") else "tick",
            Schedule(
                when, name=f"s{number}", overlap=overlap, payload=compute_payload if place in (2, 7) else payload,
                catch_up=("latest", "all", "skip")[number % 4 % 3], grace=(1, 4, 30)[number // 5 % 3], most=20,
                jitter=0.6 if number % 7 == 3 else 0, cost=1 + number % 3,
            ),
        )  # fmt: skip


def compute_payload(tick: Tick) -> dict[str, Any]:
    """Return the payload of a tick whose schedule has a function in place of a value."""
    return {"n": int(tick.nominal.timestamp()), **behaviour_of(int(tick.schedule[1:]))}


def behaviour_of(number: int) -> dict[str, Any]:
    """Return what the handler of a schedule's jobs does: a third of them sleep, some for longer than a period."""
    if number % 3 == 1:
        return {"behaviour": "sleep", "s": (0.1, 0.6, 1.4)[number // 3 % 3]}
    return {"behaviour": "ok"}
