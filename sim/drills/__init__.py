"""Drills: situations that a seed would draw seldom, made on purpose in every fourth run after all faults.

Each drill has queues of its own, and those about workers have workers of their own, so that nothing else decides how
they go. The ledger, the runs and the model check their calls as all others; a drill checks what none of them sees.
"""

from __future__ import annotations

from sim.drills.drill import DRILLED
from sim.drills.driller import Driller

__all__ = ["DRILLED", "Driller"]
