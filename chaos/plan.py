"""What the producers ask for, drawn from a seed: the same seed gives the same jobs in the same order."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

__all__ = ["KINDS", "Act", "Ask", "acts"]


@dataclass(slots=True)
class Ask:
    """One job to be asked for."""

    payload: dict[str, Any]
    id: str | None = None
    group: str | None = None
    delay: float | None = None


@dataclass(slots=True)
class Act:
    """One thing that a producer does: jobs for one queue, and what else."""

    kind: str
    queue: str
    asks: list[Ask] = field(default_factory=list[Ask])
    #: Acts with the same key follow each other, each when the one before it is acknowledged.
    key: str | None = None
    #: Seconds before the second part of the act: a cancel, a resume.
    pause: float = 0.0
    mode: str = ""
    patience: float = 0.0


#: How often each kind is drawn. Most jobs come in bulk, since those acts have many jobs each.
KINDS: dict[str, float] = {
    "plain": 30, "brief": 6, "sync": 6, "lane": 14, "lanes": 8, "bunch": 8, "single": 14, "call": 6, "cancel": 8,
    "later": 6, "gate": 1.5, "heavy": 3,
}  # fmt: skip

#: Moods of the usual queues, and those that cost a process.
USUAL: dict[str, float] = {"ok": 74, "sleep": 16, "raise": 4, "permanent": 2, "retry": 2, "progress": 2}
HEAVY: dict[str, float] = {"hang": 3, "stubborn": 1, "spin": 2, "leak": 3, "exit": 3, "die": 2}
HEAVY_SYNC: dict[str, float] = {"hang": 3, "spin": 2, "leak": 2, "exit": 2, "die": 2}


class Draw:
    """The state of one producer's plan: its numbers, groups and singletons."""

    def __init__(self, seed: str, name: str, first: int, heavy: float) -> None:
        self.random = random.Random(seed)
        self.name = name
        self.next = first
        self.heavy = heavy
        self.groups = {
            queue: [f"{name}-{queue}-{i}" for i in range(8)] + [f"{name} {{:*}}/\n{i}" for i in range(2)]
            for queue in ("lane", "lanes")
        }
        self.singles = [f"{name}-s{i}" for i in range(6)]

    def number(self) -> int:
        self.next += 1
        return self.next

    def weighed(self, weights: dict[str, float]) -> str:
        return self.random.choices(list(weights), list(weights.values()))[0]

    def payload(self, mood: str) -> dict[str, Any]:
        """A payload of this mood; the number comes first, where the recorder looks for it."""
        draw = self.random
        payload: dict[str, Any] = {"n": self.number(), "mood": mood}
        match mood:
            case "sleep" | "progress":
                payload["s"] = round(draw.choice((0.01, 0.05, 0.2, draw.uniform(0.2, 1.2))), 3)
            case "raise":
                payload["times"] = draw.choice((1, 1, 2, 5))
            case "retry":
                payload |= {"times": draw.choice((1, 2)), "s": round(draw.uniform(0.0, 0.4), 3)}
            case "then":
                payload |= {"times": draw.choice((1, 2, 5)), "s": draw.choice((0.0, 0.02))}
            case "hang" | "stubborn" | "spin":
                payload["times"] = draw.choice((1, 1, 2))
            case "exit" | "die":
                payload["times"] = draw.choice((1, 1, 3))
            case "leak":
                payload["bytes"] = draw.choice((30, 60)) * 2**20
            case _:
                pass
        return payload

    def asks(self, least: int, most: int, weights: dict[str, float], named: bool = False) -> list[Ask]:
        count = self.random.randint(least, most)
        return [self.ask(self.payload(self.weighed(weights)), named) for _ in range(count)]

    def ask(self, payload: dict[str, Any], named: bool = True) -> Ask:
        return Ask(payload, f"{self.name}-{payload['n']}" if named else None)


def plain(d: Draw) -> Act:
    return Act("plain", "plain", d.asks(1, 60, {**USUAL, "then": 3}, named=d.random.random() < 0.3))


def brief(d: Draw) -> Act:
    return Act("brief", "brief", d.asks(1, 40, {"ok": 8, "sleep": 2}))


def sync(d: Draw) -> Act:
    return Act("sync", "sync", d.asks(1, 12, {"ok": 6, "sleep": 3, "raise": 1, "permanent": 0.3}))


def lane(d: Draw, queue: str = "lane") -> Act:
    group = d.random.choice(d.groups[queue])
    moods: dict[str, float] = {"ok": 75, "sleep": 18, "raise": 5, "spoil": 2 if queue == "lanes" else 0}
    asks = d.asks(1, 12, moods, named=True)
    for ask in asks:
        ask.group = group
        if ask.payload["mood"] in ("raise", "spoil"):
            ask.payload["times"] = d.random.choice((1, 2))
        if ask.payload["mood"] == "sleep":
            ask.payload["s"] = round(d.random.uniform(0.01, 0.3), 3)
    return Act(queue, queue, asks, key=f"{queue}/{group}")


def lanes(d: Draw) -> Act:
    return lane(d, "lanes")


def bunch(d: Draw) -> Act:
    asks = d.asks(1, 40, {"ok": 90, "sleep": 4, "raise": 3, "spoil": 3})
    for ask in asks:
        if ask.payload["mood"] == "spoil":
            ask.payload["times"] = d.random.choice((1, 2, 5))
        if ask.payload["mood"] == "raise":
            ask.payload["times"] = d.random.choice((1, 2, 5))
        if ask.payload["mood"] == "sleep":
            ask.payload["s"] = 0.02
    return Act("bunch", "bunch", asks)


def single(d: Draw) -> Act:
    """An update of one of a few ids; now and then it is delayed, and now and then cancelled."""
    payload = d.payload(d.weighed({"ok": 60, "sleep": 30, "raise": 10}))
    if payload["mood"] == "raise":
        payload["times"] = 1
    id = d.random.choice(d.singles)
    delay = round(d.random.uniform(0.05, 0.6), 3) if d.random.random() < 0.3 else None
    mode = d.random.choice(("refuse", "forget", "signal", "kill")) if d.random.random() < 0.08 else ""
    return Act("single", "single", [Ask(payload, id, delay=delay)], key=f"single/{id}", mode=mode)


def call(d: Draw) -> Act:
    asks = d.asks(1, 1, {"ok": 60, "sleep": 30, "raise": 5, "permanent": 5}, named=d.random.random() < 0.5)
    return Act("call", "call", asks, patience=d.random.choice((2.0, 10.0, 30.0)))


def cancel(d: Draw) -> Act:
    queue = d.random.choice(("wanted", "wanted", "wantedsync"))
    payload = {"n": d.number(), "mood": d.random.choice(("obey", "deaf")), "s": round(d.random.uniform(0.0, 1.5), 3)}
    mode = d.random.choice(("refuse", "forget", "signal", "kill"))
    return Act("cancel", queue, [d.ask(payload)], pause=round(d.random.uniform(0.0, 0.8), 3), mode=mode)


def later(d: Draw) -> Act:
    asks = d.asks(1, 12, {"ok": 1})
    for ask in asks:
        ask.delay = round(d.random.uniform(0.0, 2.5), 3)
    return Act("later", "later", asks)


def gate(d: Draw) -> Act:
    return Act("gate", "gate", d.asks(2, 15, {"ok": 1}), key="gate", pause=round(d.random.uniform(0.1, 1.0), 3))


def heavy(d: Draw) -> Act:
    if d.random.random() >= d.heavy:
        return plain(d)
    queue = d.random.choice(("heavy", "heavysync"))
    return Act("heavy", queue, d.asks(1, 1, HEAVY if queue == "heavy" else HEAVY_SYNC))


DRAWN: dict[str, Callable[[Draw], Act]] = {
    "plain": plain, "brief": brief, "sync": sync, "lane": lane, "lanes": lanes, "bunch": bunch, "single": single,
    "call": call, "cancel": cancel, "later": later, "gate": gate, "heavy": heavy,
}  # fmt: skip


def acts(seed: str, name: str, first: int, count: int, kinds: list[str], heavy: float = 1.0) -> Iterator[Act]:
    """Acts with `count` jobs together, numbered from `first` on; `heavy` thins out those that cost a process."""
    draw = Draw(seed, name, first, heavy)
    weights = {kind: KINDS[kind] for kind in kinds}
    left = count
    while left > 0:
        act = DRAWN[draw.weighed(weights)](draw)
        del act.asks[left:]
        left -= len(act.asks)
        yield act
