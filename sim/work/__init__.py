"""Simulated work: producers, callers, reservations and operators, each kind in a module, each client on its own node.

A new kind of work is a module with a class derived from `Client`, and a line in `CLIENTS`.
"""

from __future__ import annotations

from sim.work.caller import Caller
from sim.work.client import Client, Shared
from sim.work.latecomer import Latecomer
from sim.work.limiter import Limiter
from sim.work.operator import Operator
from sim.work.planner import Planner
from sim.work.prober import Prober
from sim.work.producer import Producer, is_heavy
from sim.work.puller import Puller, SlowPuller
from sim.work.sampler import Sampler
from sim.work.stager import Stager
from sim.work.tenant import Tenant
from sim.work.updater import Updater
from sim.work.walker import Walker

__all__ = ["CLIENTS", "PULLERS", "Client", "Prober", "Shared", "is_heavy"]

#: The programs that reserve jobs, by the names of their processes, which faults may hit.
PULLERS: dict[str, type[Puller]] = {"puller": Puller, "slow": SlowPuller}

#: The clients of a run, by the names of their nodes.
CLIENTS: dict[str, type[Client]] = {
    "producer0": Producer,
    "producer1": Producer,
    "caller": Caller,
    "updater": Updater,
    "latecomer": Latecomer,
    "operator": Operator,
    "tenant": Tenant,
    "limiter": Limiter,
    "planner": Planner,
    "sampler": Sampler,
    "walker": Walker,
    "stager": Stager,
}
