"""The base of all simulated clients, and the state that they share in a run."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

from penstock import Penstock
from penstock.errors import StorageUnavailable
from penstock.testing.simulation.loop import Node

__all__ = ["SHARED_IDS", "Client", "Shared"]

#: Ids that several producers share, so that puts meet waiting, running and finished jobs.
SHARED_IDS = 4

#: How often a call is made until the storage answers.
TRIES = 1000


class Shared:
    """State that the clients of a run share. `stopping` ends their loops, `closing` those of reservations."""

    def __init__(
        self,
        seed: int,
        jobs: int,
        seconds: float,
        fault: Callable[..., None],
        running: Callable[[], dict[tuple[str, str], str]],
    ) -> None:
        self.seed = seed
        #: The number of jobs of all producers, and the virtual seconds of faults.
        self.jobs, self.seconds = jobs, seconds
        #: Records a broken promise.
        self.fault = fault
        #: Returns the jobs that run now, and the tokens of their claims.
        self.running = running
        self.stopping = self.closing = False
        #: The network of the run, for clients that lose hints on purpose.
        self.network: Any = None
        #: The simulation of the run and its runs of handlers, for clients that start workers of their own.
        self.simulation: Any = None
        self.runs: Any = None
        #: Checks that the storage has found nothing damaged in a queue.
        self.check_damage: Callable[[str], None] = lambda queue: None
        #: Whether schedules may still put jobs.
        self.ticking = True
        #: The ids that were put, by queue.
        self.ids: dict[str, list[str]] = {}
        #: The jobs that callers wait for, each once for each call.
        self.waited: list[tuple[str, str]] = []
        #: All jobs that were called.
        self.called: list[tuple[str, str]] = []


class Client:
    """One client of a run, on its own node."""

    def __init__(self, shared: Shared, app: Penstock, node: Node) -> None:
        self.shared = shared
        self.app = app
        self.node = node
        self.random = Random(f"{shared.seed}/work/{node.name}")

    async def run(self) -> None:
        """Do the work of this client."""
        raise NotImplementedError

    async def patient(self, call: Callable[[], Awaitable[Any]], tries: int = TRIES) -> Any:
        """Make a call until the storage answers it."""
        for _ in range(tries):
            try:
                return await call()
            except StorageUnavailable:
                await asyncio.sleep(0.5)
        if tries == TRIES:
            self.shared.fault(f"a caller got no answer in {tries} tries")
        return None

    def new_id(self) -> str:
        """Return an id that no other job has."""
        return f"{self.random.getrandbits(40):010x}"

    def shared_id(self) -> str:
        """Return one of the ids that several jobs have."""
        return f"shared{self.random.randrange(SHARED_IDS)}"
