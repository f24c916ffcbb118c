"""Faults of a simulated run: which calls, hints and moments they hit is a function of the seed and of their names.

A fault of a call is named `node/verb/n`, for the nth call of that verb by that node; one of a hint `node/hint/n`,
one of the surroundings `kind/n`. Its draws are a hash of the seed and its name, so it stays the same when
others are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from hashlib import blake2b
from struct import Struct
from typing import NamedTuple

__all__ = ["CALL_FAULTS", "HINT_FAULTS", "KINDS", "NODE_FAULTS", "SURROUNDINGS", "Fault", "Faults", "draws"]

_NUMBERS = Struct("<6Q")
_TOP = 2**64

#: Faults of single calls, and how often they hit a call at heat 1.
CALL_FAULTS: dict[str, float] = {
    "unavailable": 0.010,  # refused at once
    "lost_request": 0.006,  # not carried out, and an error after a reset or some seconds
    "lost_reply": 0.012,  # carried out, and an error after a reset or some seconds
    "late": 0.006,  # the caller gets its error, and the request is carried out afterwards
    "slow_request": 0.004,  # arrives after up to 12 s
    "slow_reply": 0.005,  # the answer comes after up to 15 s
    "doubled": 0.006,  # carried out twice, and answered the second time
    "reordered": 0.010,  # overtaken by later requests of the same node
    "clock_ahead": 0.012,  # the storage's clock is up to 4 s ahead while the call is carried out
}

#: The verbs that a storage may send a second time when the first answer is lost.
REPEATED = frozenset({"settle", "renew", "reap", "purge", "report", "beat", "due", "fire"})

#: The verbs that a clock which is ahead may meet: none of them ends a lease.
AHEAD = frozenset({"put", "settle", "claim"})

#: The verbs of the faults that do not hit all of them.
HIT = {"doubled": REPEATED, "clock_ahead": AHEAD}

#: Faults of hints, and how often they hit one.
HINT_FAULTS: dict[str, float] = {"hint_lost": 0.1, "hint_twice": 0.05, "hint_late": 0.1}

#: Faults of nodes and of the server, and how many of each there are in a minute at heat 1.
SURROUNDINGS: dict[str, float] = {
    "outage": 0.7,  # no call of any node is carried out for up to 10 s
    "full": 0.5,  # puts and ticks are refused for up to 10 s
    "server_stall": 0.4,  # the server carries out nothing for up to 14 s
    "freeze": 1.2,  # a process stands still for up to 2.5 leases
    "block": 0.8,  # its event loop stands still for up to 2.5 leases; its lease thread goes on
    "partition": 3.0,  # the answers of a process become slow, then it is cut off for up to 2.5 leases
    "backlog": 0.8,  # the requests of a process arrive up to 2.5 leases later, all at once
    "kill": 1.0,  # a process is killed, and another one started within 8 s
    "restart": 0.8,  # a worker is stopped and started again
    "clock_jump": 0.5,  # the wall clock of a process is set wrong by up to an hour
    "jump_forward": 0.4,  # the storage's clock is 12 s ahead from now on
    "jump_back": 0.8,  # the storage's clock is set back by 8 s
    "long_jump": 0.15,  # the storage's clock is half an hour ahead from now on
    "spurious": 1.0,  # all waiters of a process are woken
    "pause": 0.5,  # a queue is paused for up to 10 s
}

#: Faults that a node has from its start.
NODE_FAULTS = ("skew", "drift")

KINDS: tuple[str, ...] = (*CALL_FAULTS, *HINT_FAULTS, *SURROUNDINGS, *NODE_FAULTS)

#: Verbs whose loss matters most are hit more often than the reads of those that wait.
BIAS = {"settle": 5.0, "put": 3.0, "renew": 3.0, "cancel": 3.0, "fire": 3.0, "claim": 2.0, "look": 0.5}


def draws(seed: int, name: str) -> tuple[float, ...]:
    """Return six numbers from 0 to 1 that depend on the seed and on a name."""
    a, b, c, d, e, f = _NUMBERS.unpack(blake2b(f"{seed}/{name}".encode(), digest_size=_NUMBERS.size).digest())
    return a / _TOP, b / _TOP, c / _TOP, d / _TOP, e / _TOP, f / _TOP


class Fault(NamedTuple):
    """A fault: its name and kind, when it begins, and two numbers from 0 to 1 for its details."""

    name: str
    kind: str
    at: float
    size: float
    choice: float

    def __str__(self) -> str:
        return f"{self.at:.3f} {self.name} {self.kind}"


class Faults:
    """The faults of one run. Those that happen are recorded in `happened`.

    `only` leaves out all but the named ones. After `heal` there are no more.
    """

    def __init__(
        self, seed: int, kinds: Iterable[str], heat: float, now: Callable[[], float], only: frozenset[str] | None = None
    ) -> None:
        self.seed = seed
        self.kinds = frozenset(kinds)
        if unknown := sorted(self.kinds - set(KINDS)):
            raise ValueError(f"faults: there is no {unknown[0]!r}; known: {', '.join(KINDS)}")
        self.heat = heat
        self.happened: list[Fault] = []
        #: Whether calls of all nodes fail now, and whether puts do, each by the number of reasons.
        self.outages = self.full = 0
        #: The nodes whose calls and hints are not hit.
        self.spared: set[str] = set()
        #: How much more often than others the calls of a node are hit by a kind.
        self.bias: dict[tuple[str, str], float] = {}
        self._healed = False
        self._now = now
        self._only = only

    def heal(self) -> None:
        """Let no fault happen from now on."""
        self._healed = True

    def allowed(self, name: str, kind: str) -> bool:
        """Return whether a fault may happen."""
        return not self._healed and kind in self.kinds and (self._only is None or name in self._only)

    def record(self, fault: Fault) -> Fault:
        """Note that a fault happens now."""
        self.happened.append(fault)
        return fault

    def of_call(self, node: str, verb: str, name: str, drawn: tuple[float, ...]) -> Fault | None:
        """Return the fault that hits a call, if one does."""
        left = drawn[2] / (self.heat * BIAS.get(verb, 1.0))
        for kind, rate in CALL_FAULTS.items():
            rate *= self.bias.get((node, kind), 1.0)
            if left < rate:
                if verb not in HIT.get(kind, (verb,)) or (kind == "reordered" and verb == "look"):
                    return None
                return self._hit(node, name, kind, drawn)
            left -= rate
        return None

    def of_hint(self, node: str, name: str, drawn: tuple[float, ...]) -> Fault | None:
        """Return the fault that hits a hint, if one does."""
        left = drawn[2]
        for kind, rate in HINT_FAULTS.items():
            if left < rate:
                return self._hit(node, name, kind, drawn)
            left -= rate
        return None

    def _hit(self, node: str, name: str, kind: str, drawn: tuple[float, ...]) -> Fault | None:
        if node in self.spared or not self.allowed(name, kind):
            return None
        return self.record(Fault(name, kind, self._now(), drawn[3], drawn[4]))

    def of_surroundings(self, seconds: float) -> list[Fault]:
        """Return the faults of nodes and server within the first seconds, in their order."""
        found: list[Fault] = []
        for kind, rate in SURROUNDINGS.items():
            for number in range(1, 1 + round(rate * self.heat * seconds / 60 + 0.5)):
                name = f"{kind}/{number}"
                at, size, choice, *_ = draws(self.seed, name)
                if self.allowed(name, kind):
                    found.append(Fault(name, kind, at * seconds, size, choice))
        return sorted(found, key=lambda fault: fault.at)
