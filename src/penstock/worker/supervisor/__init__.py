"""Workers with child processes: the children claim, run and settle; the parent keeps their leases and their time.

A board of shared memory says what each child holds (`board`), so that a handler that blocks its event
loop, or holds the interpreter for a minute, loses nothing and escapes nothing.
"""

from penstock.app_loader import CannotImport, load, modules_of, source_of
from penstock.worker.supervisor.config import Settings
from penstock.worker.supervisor.supervisor import Crew

__all__ = ["CannotImport", "Crew", "Settings", "load", "modules_of", "source_of"]
