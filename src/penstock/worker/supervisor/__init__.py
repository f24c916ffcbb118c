"""Workers with child processes: the children claim, run and settle; the parent keeps their leases and their time.

A board of shared memory says what each child holds (`board`), so that a handler that blocks its event
loop, or holds the interpreter for a minute, loses nothing and escapes nothing.
"""

from penstock.app_loader import CannotImport, load, modules_of, source_of
from penstock.worker.supervisor.config import ChildConfig
from penstock.worker.supervisor.supervisor import Supervisor

__all__ = ["CannotImport", "ChildConfig", "Supervisor", "load", "modules_of", "source_of"]
