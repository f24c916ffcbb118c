"""The plan of a simulated run: which faults it has, how many, and the workers they hit.

Each seed turns on about half of the kinds: with all of them at once, some would hide others.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from penstock.testing.simulation.faults import KINDS

__all__ = ["Plan"]


@dataclass(frozen=True)
class Plan:
    """The settings of a run, all of them drawn from the seed by `of_seed`."""

    seed: int
    #: The kinds of faults that may happen, and how often in comparison with the table.
    kinds: frozenset[str]
    heat: float
    workers: int
    #: The lease of the workers, and for how long there are faults (seconds).
    lease: float
    seconds: float
    #: The names of the only faults that may happen, None for all.
    only: frozenset[str] | None = None

    @classmethod
    def of_seed(cls, seed: int) -> Plan:
        """Return the plan of a seed."""
        random = Random(f"{seed}/plan")
        kinds = frozenset(kind for kind in KINDS if random.random() < 0.5)
        heat, workers = random.choice((0.5, 1.0, 3.0)), random.randint(1, 4)
        return cls(seed, kinds, heat, workers, random.choice((2.0, 5.0, 10.0)), random.uniform(30.0, 90.0))
