"""Limits: how much of a queue, a family or a group may start or run, and the packed rule that storages read."""

from __future__ import annotations

import enum
import re
import struct
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

import msgspec

from penstock.errors import UNREADABLE
from penstock.model.checks import check_choice, check_whole
from penstock.model.clock import Span, span_ms

__all__ = ["EVERY", "NO_RULE", "EveryGroup", "Limit", "LimitBy", "LimitScope", "Rate", "Rule"]

LimitBy = Literal["starts", "cost"]
LimitScope = Literal["family", "queue", "group"]

#: The units of a rate in text, in seconds.
UNITS: Final = {
    **dict.fromkeys(("s", "sec", "second", "seconds"), 1),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60),
    **dict.fromkeys(("h", "hour", "hours"), 3_600),
    **dict.fromkeys(("d", "day", "days"), 86_400),
}
RATE_TEXT = re.compile(r"\s*([0-9]{1,18})\s*/\s*([0-9]{0,9})\s*([a-z]+)\s*", re.ASCII)
LONGEST_PER_MS = 31 * 86_400_000
#: The most starts in a second: a step is at least a microsecond.
FASTEST = 1_000_000
#: The largest `concurrency` and `burst`: they are packed into four bytes.
MOST = 1_000_000_000
MOST_WEIGHT = 1_000_000


class EveryGroup(enum.Enum):
    """The choice of every group of a queue, where a group can be named."""

    EVERY = "every group"

    def __repr__(self) -> str:
        return "EVERY"


#: In place of a group: every group of the queue.
EVERY: Final = EveryGroup.EVERY


@dataclass(frozen=True, init=False)
class Rate:
    """A number of starts in a span of time: `count` in `per` seconds, at most 31 days and a million per second."""

    count: int
    per: float

    def __init__(self, count: int, per: Span) -> None:
        check_whole(count, "count", least=1)
        per_ms = span_ms(per, "per", zero=False)
        if per_ms > LONGEST_PER_MS:
            raise ValueError(f"per must be at most 31 days, not {per_ms / 86_400_000:g}")
        if count * 1000 > FASTEST * per_ms:
            raise ValueError(f"count must be at most {FASTEST} per second, not {count} in {per_ms / 1000:g} s")
        object.__setattr__(self, "count", count)
        object.__setattr__(self, "per", per_ms / 1000)

    @classmethod
    def parse(cls, text: str) -> Rate:
        """Return the rate of a text: "10/s", "500/min", "5000/hour", "1/day", "10/30s".

        The units are s, sec, second, m, min, minute, h, hour, d, day, and the plurals; a whole number may stand before
        the unit. Raises `ValueError`, which names `rate`.
        """
        found = RATE_TEXT.fullmatch(text)
        if found is None or found[3] not in UNITS:
            raise ValueError(f'rate must be like "10/s", "500/min", "5000/hour", "1/day" or "10/30s", not {text!r}')
        try:
            return cls(int(found[1]), int(found[2] or 1) * UNITS[found[3]])
        except ValueError as error:
            raise ValueError(f"rate {text!r}: {error}") from None

    @property
    def step_us(self) -> int:
        """The microseconds between two starts, rounded up, so that a span never has more than `count`."""
        return -(-round(self.per * 1000) * 1000 // self.count)

    @classmethod
    def of_step(cls, step_us: int) -> Rate:
        """Return a rate with this step: the shortest of a second, a minute, an hour and a day that has one."""
        for seconds in (1, 60, 3_600, 86_400):
            count = round(seconds * 1_000_000 / step_us)
            if 1 <= count <= FASTEST * seconds and (rate := cls(count, seconds)).step_us == step_us:
                return rate
        return cls(1, max(step_us / 1_000_000, 0.001))

    @property
    def span(self) -> str:
        """The span as text, in its largest unit: "1 s", "30 s", "1 min"."""
        for seconds, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
            if self.per % seconds == 0:
                return f"{self.per / seconds:g} {unit}"
        return f"{self.per:g} s"

    def __str__(self) -> str:
        for seconds, unit in ((86_400, "day"), (3_600, "hour"), (60, "min"), (1, "s")):
            if self.per % seconds == 0:
                number = int(self.per // seconds)
                return f"{self.count}/{unit}" if number == 1 else f"{self.count}/{int(self.per)}s"
        return f"{self.count} in {self.per:g} s"


RateLike: TypeAlias = Rate | str


@dataclass(frozen=True, init=False)
class Limit:
    """How much may run at once and start in a span of time, in a family, a queue, or each group of a queue.

    - `concurrency`: the most runs at once; None is no limit, of a group 1
    - `rate`: "10/s", "500/min", "10/30s" or a `Rate`: the most starts in a span of time
    - `burst`: the starts that an unused rate saves up
    - `by`: "starts" counts each start as 1, "cost" as the cost of its job
    - `weight`: of a group: the starts that it gets when it is its turn
    - `ordered`: of a group: whether each job waits for the end of the one before; True if `concurrency` is 1
    """

    concurrency: int | None
    rate: Rate | None
    burst: int
    by: LimitBy
    weight: int
    ordered: bool | None

    def __init__(
        self,
        *,
        concurrency: int | None = None,
        rate: RateLike | None = None,
        burst: int = 1,
        by: LimitBy = "starts",
        weight: int = 1,
        ordered: bool | None = None,
    ) -> None:
        if isinstance(rate, str):
            rate = Rate.parse(rate)
        if not (rate is None or isinstance(rate, Rate)):
            raise TypeError(f'rate must be a text like "10/s", a Rate or None, not {type(rate).__name__}')
        if concurrency == 0 and not isinstance(concurrency, bool):
            raise ValueError("concurrency must be at least 1, not 0; to stop the jobs, pause the queue or the group")
        check_whole(concurrency, "concurrency", least=1, most=MOST, optional=True)
        check_whole(burst, "burst", least=1, most=MOST)
        check_choice(by, "by", ("starts", "cost"))
        check_whole(weight, "weight", least=1, most=MOST_WEIGHT)
        if not (ordered is None or isinstance(ordered, bool)):
            raise TypeError(f"ordered must be True, False or None, not {type(ordered).__name__}")
        if rate is None and burst != 1:
            raise ValueError("burst is of a rate, but rate is not given")
        if rate is None and by != "starts":
            raise ValueError("by is of a rate, but rate is not given")
        if ordered and concurrency not in (None, 1):
            raise ValueError(f"ordered needs concurrency=1, not {concurrency}: runs at once have no order")
        for name, value in zip(self.__dataclass_fields__, (concurrency, rate, burst, by, weight, ordered), strict=True):
            object.__setattr__(self, name, value)

    def check_scope(self, scope: LimitScope) -> None:
        """Check that the limit fits this scope; raises `ValueError` for `weight` or `ordered` outside of groups."""
        if scope != "group":
            for name, default in (("weight", 1), ("ordered", None)):
                if getattr(self, name) != default:
                    raise ValueError(f"{name} is for groups, not for a {scope}: give it in a limit of groups")

    def rule(self, scope: LimitScope, changed_at: int) -> Rule:
        """Return the rule that storages follow in this scope, from `changed_at` (ms) on."""
        self.check_scope(scope)
        group = scope == "group"
        concurrency = self.concurrency or (1 if group else 0)
        ordered = group and (concurrency == 1 if self.ordered is None else self.ordered)
        step = self.rate.step_us if self.rate else 0
        return Rule(concurrency, step, self.burst, self.by == "cost", self.weight, ordered, changed_at)

    def encode(self) -> bytes:
        """Return its stored form, which `decode` reads."""
        rate = (self.rate.count, round(self.rate.per * 1000)) if self.rate else None
        return _encode(_Stored(self.concurrency, rate, self.burst, self.by, self.weight, self.ordered))

    @classmethod
    def decode(cls, data: bytes) -> Limit | None:
        """Return a stored limit; None if the bytes are not one. Fields of newer software are left out."""
        try:
            stored = _decode(data)
            rate = Rate(stored.rate[0], stored.rate[1] / 1000) if stored.rate else None
            given: dict[str, Any] = {**msgspec.structs.asdict(stored), "rate": rate}
            return cls(**given)
        except (*UNREADABLE, TypeError, ValueError):
            return None


class _Stored(msgspec.Struct, omit_defaults=True):
    """The stored form of a limit; the span of a rate is in milliseconds."""

    concurrency: int | None = None
    rate: tuple[int, int] | None = None
    burst: int = 1
    by: LimitBy = "starts"
    weight: int = 1
    ordered: bool | None = None


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Stored).decode


class Rule(msgspec.Struct, frozen=True):
    """The effective limit of a scope, as numbers that a storage compares.

    `concurrency` 0 is no limit of runs, `step_us` 0 no rate. `changed_at` is the time of the change, in ms.
    """

    concurrency: int = 0
    step_us: int = 0
    burst: int = 1
    by_cost: bool = False
    weight: int = 1
    ordered: bool = False
    changed_at: int = 0

    def as_limit(self) -> Limit:
        """Return a limit that has this rule; its rate may be given in another span of time than the user's."""
        rate = Rate.of_step(self.step_us) if self.step_us else None
        return Limit(
            concurrency=self.concurrency or None,
            rate=rate,
            burst=self.burst if rate else 1,
            by="cost" if rate and self.by_cost else "starts",
            weight=self.weight,
            ordered=None if self.ordered == (self.concurrency == 1) else self.ordered,
        )

    def price(self, cost: int) -> int:
        """Return what a start of a job of this cost takes from the rate."""
        return cost if self.by_cost else 1

    def pack(self) -> bytes:
        """Return the rule as 30 bytes, big-endian; in Lua: `struct.unpack(">I4I8I4BI4BI8", packed)`."""
        return _PACKED.pack(*msgspec.structs.astuple(self))

    @classmethod
    def unpack(cls, packed: bytes) -> Rule:
        """Return a packed rule; raises `ValueError` for bytes of another length."""
        if len(packed) != _PACKED.size:
            raise ValueError(f"a packed rule has {_PACKED.size} bytes, not {len(packed)}")
        concurrency, step, burst, by_cost, weight, ordered, changed_at = _PACKED.unpack(packed)
        return cls(concurrency, step, burst, bool(by_cost), weight, bool(ordered), changed_at)


_PACKED = struct.Struct(">IQIBIBQ")

#: The rule of a scope without a limit.
NO_RULE = Rule()
