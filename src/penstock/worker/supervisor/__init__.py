"""Workers with child processes: the children claim, run and settle; the supervisor renews their leases.

Each child writes its claims into a table of shared memory (`claim_table`). So a handler that blocks the
child's event loop, or holds the interpreter for a minute, loses no lease and escapes no deadline.
"""

from penstock.app_loader import CannotImport, load, modules_of, source_of
from penstock.worker.supervisor.config import ChildConfig
from penstock.worker.supervisor.supervisor import Supervisor

__all__ = ["CannotImport", "ChildConfig", "Supervisor", "load", "modules_of", "source_of"]
