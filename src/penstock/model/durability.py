"""Durability of an enqueue: the level asked for with `durability=`, and the level that was reached."""

from __future__ import annotations

from typing import Literal, cast, get_args

import msgspec

__all__ = ["Durability", "DurabilityLevel", "DurabilityReport", "durability_from"]

DurabilityLevel = Literal["replicas", "fsync"]

#: The longest timeout for a confirmation (seconds): the enqueueing caller waits that long.
MAX_TIMEOUT = 10.0


class Durability(msgspec.Struct, frozen=True):
    """The condition for acknowledging an enqueue.

    "replicas": `replicas` replicas (default 1) have the job, so it survives the loss of the primary.
    "fsync": the server has it on disk, so it survives a crash of the machine, and so have `replicas`
    replicas (default 0). An enqueue that is not confirmed within `timeout` seconds raises `NotDurable`.
    """

    level: DurabilityLevel
    replicas: int | None = None
    timeout: float = 2.0

    def __post_init__(self) -> None:
        if self.level not in get_args(DurabilityLevel):
            known = " or ".join(f'"{each}"' for each in get_args(DurabilityLevel))
            raise ValueError(f"durability must be {known}, not {self.level!r}")
        if self.replicas is not None:
            if isinstance(self.replicas, bool) or not isinstance(self.replicas, int):
                raise TypeError(f"replicas must be an int, not {type(self.replicas).__name__}")
            if self.replicas < (self.level == "replicas"):
                raise ValueError(f"replicas must be at least {int(self.level == 'replicas')}, not {self.replicas}")
        if isinstance(self.timeout, bool) or not isinstance(self.timeout, int | float):
            raise TypeError(f"timeout must be a number of seconds, not {type(self.timeout).__name__}")
        if not 0.001 <= self.timeout <= MAX_TIMEOUT:
            raise ValueError(f"timeout must be between 0.001 and {MAX_TIMEOUT:g} seconds, not {self.timeout}")

    @property
    def copies(self) -> int:
        """How many replicas must have a job."""
        return int(self.level == "replicas") if self.replicas is None else self.replicas


class DurabilityReport(msgspec.Struct, frozen=True, kw_only=True):
    """The durability that an enqueue had reached when it was answered; truthy if that is the level asked for."""

    asked: Durability
    #: How many replicas have it: in memory, or on disk if "fsync" was asked for.
    replicas: int = 0
    #: Whether the server that took it has it on disk; False also if "fsync" was not asked for.
    fsynced: bool = False

    def __bool__(self) -> bool:
        return self.replicas >= self.asked.copies and (self.fsynced or self.asked.level != "fsync")

    def __str__(self) -> str:
        fsynced = [] if self.asked.level != "fsync" else ["on disk" if self.fsynced else "not yet on disk"]
        replicas = [f"on {self.replicas} of {self.asked.copies} replicas"] if self.asked.copies else []
        return " and ".join(fsynced + replicas)


def durability_from(value: object) -> Durability | None:
    """Return the `Durability` for the argument `durability=`; raises `TypeError` or `ValueError`."""
    if value is None or isinstance(value, Durability):
        return value
    if not isinstance(value, str):
        raise TypeError(f"durability must be None, a str or a Durability, not {type(value).__name__}")
    return Durability(cast("DurabilityLevel", value))
