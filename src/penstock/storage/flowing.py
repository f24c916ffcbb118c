"""The optional part of a storage that keeps flows: dependencies between jobs, journals, signals, and the outbox.

A job may have dependencies: other jobs, numbered from 0 on. A job that ends sends a notice to each dependency that it
was put for, in the step in which it ends: open → ended. A dependency takes one notice, and is opened again only by
`revive` of the job that it waits for. Notices name the generation of the job that they are for, and are dropped when
that is gone.

Three kinds of jobs have dependencies:

- One put with `FlowPart.dependencies` is suspended until all of them are met, then queued. The first one that is not
  met ends it as cancelled, with the error `UpstreamFailed` or `Skipped`.
- A plan (`FlowPart.plan`) is never claimed. It ends with its last dependency, which are its children.
- A run that settles with `Suspend` gives its job more dependencies, whose numbers follow. They never end it.

A transition applies up to `MAX_EFFECTS` notices, directly and one after the other, those that they cause included.
Further ones, and all that concerns the children of a flow that was cancelled or revived, are stored in the outbox of
the family of the job that caused them. `relay` applies them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from penstock.errors import NotSupported
from penstock.model.flow import DependencyPage, Extended, JobRef, JournalPage, Relayed, SignalStatus
from penstock.model.history import Report, Reported
from penstock.model.job import NewJob
from penstock.storage.base import MAX_BATCH, CancelAnswer, CancelMode, Claimed, Put, Request, Settled, Settlement

__all__ = ["Flowing", "check_flows", "need_flowing", "relay_family"]


@runtime_checkable
class Flowing(Protocol):
    """A storage with flows. On one without them, the calls that need them raise `NotSupported`.

    Each terminal transition of a job sends its notices: also `cancel`, `discard`, an expired start-by time, and a
    record that cannot be read. `delete_queue` sends those of unfinished jobs as cancelled, by the outbox.
    """

    async def put(self, jobs: Sequence[NewJob], max_queued: int | None = None) -> list[Put]:
        """Store jobs: nothing → suspended with dependencies, `open` or a plan; else as `Storage.put`.

        The notices of a put whose id is taken go to the job that is there: to the one that it would wait for, so to a
        blocked successor only if this put made or changed it. If that has completed, they are sent at once. The other
        fields of `flow` have no effect then. A job with dependencies or a plan must have no `update`: `ValueError`.

        A job with a parent is not stored if the generation of its parent is over, or if the dependency that it notifies
        there is not open. The answer is `duplicate` then, with the state in which the dependency ended (cancelled if
        that is not known). So a flow can be stored again from its beginning.

        A plan without open dependencies ends in this step, unless it is `open`. A put with `open` begins the time after
        which its producer counts as silent: see `relay`.
        """
        ...

    async def claim(self, requests: Sequence[Request], worker: str, lease: int, token: str) -> Claimed:
        """Claim jobs as `Storage.claim` does: `Claim.flow` has the journal of jobs with a generation of their own.

        A suspended job whose wake time has come is queued by the clock alone. If it waited for a signal, the checkpoint
        of that wait records then that none came.
        """
        ...

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        """Settle runs as `Storage.settle` does, and running → suspended, or queued if it waits for nothing: `Suspend`.

        The jobs in `Complete.then` of a child of a plan become children of that plan too, with the next numbers, in the
        same step. A job that ends while children of its own are unfinished puts a message into the outbox that cancels
        them.
        """
        ...

    async def report(self, reports: Sequence[Report]) -> list[Reported]:
        """Store progress, log lines and checkpoints of runs, fenced by their tokens; see `Storage.report`.

        A checkpoint is stored unless there is one of its name; a cursor replaces an earlier cursor. One that is stored
        sets retries, stalls and timeouts of its job to 0. A checkpoint of the kind `signal` takes the first unread
        signal of its names, and is not stored if there is none.
        """
        ...

    async def signal(self, queue: str, id: str, name: str, value: bytes = b"") -> SignalStatus:
        """Send a signal to an unfinished job: suspended → queued if it waits for it, else it is kept.

        Signals of one name are read in the order in which they came, each once. `MAX_SIGNALS` unread ones are kept with
        their job.
        """
        ...

    async def extend(
        self, queue: str, id: str, generation: str, dependencies: Sequence[JobRef], first: int, final: bool = False
    ) -> Extended:
        """Add dependencies to a job that was put with `open`, from number `first` on; those it has already are left.

        With `final` it is not open any more: suspended → queued, or the end of a plan, if no dependency is open. A call
        without dependencies shows that the producer is alive.
        """
        ...

    async def cancel(
        self, queue: str, ids: Sequence[str], running: CancelMode = "refuse", ttl: int | None = 0
    ) -> list[CancelAnswer]:
        """Cancel jobs as `Storage.cancel` does, and suspended → cancelled; unfinished children follow by the outbox.

        A suspended job that has begun is resumed instead if `running` is "signal": its next run knows that, and ends as
        cancelled unless it completes. The blocked successor of a job that is cancelled so goes with it.
        """
        ...

    async def revive(self, queue: str, ids: Sequence[str], completed: bool = False, fresh: bool = False) -> list[bool]:
        """Revive jobs: failed or cancelled → queued, or suspended if a dependency is open.

        A revived job opens the dependencies again that it had closed. A job that never began and was ended by these
        only is suspended again, and so on; a plan too, unless it completed. A job that ended without a run, and whose
        dependencies are still not met, is not revived. One that has begun, and whose dependencies would not be met now,
        becomes cancelled.

        A plan becomes suspended, and a message in the outbox revives its failed and cancelled children, in the order of
        their numbers. When it is done and no dependency is open, the plan ends again. Also the children that a run
        named as culprits are revived with its job.

        The journal is kept, with `fresh` it is forgotten. A plan is refused with `fresh`, and a completed plan always.
        A completed job that is revived sends no notices any more.
        """
        ...

    async def relay(self, families: Sequence[str], limit: int = MAX_BATCH) -> Relayed:
        """Apply up to `limit` effects of the outboxes of these families, in their order, a bounded number in one step.

        It also ends open flows of these families whose producers were silent for `ABANDONED_MS`: suspended → failed
        with the error `ABANDONED`; their children are cancelled.
        """
        ...

    async def read_journal(self, queue: str, id: str, after: int = 0, limit: int = 1000) -> JournalPage | None:
        """Return the checkpoints of a job with higher numbers than `after`; None if there is no such job.

        A page has at most `limit` of them, and fewer if they reach `MAX_BYTES`.
        """
        ...

    async def dependencies(self, queue: str, id: str, after: int = -1, limit: int = 1000) -> DependencyPage | None:
        """Return the dependencies of a job with higher numbers than `after`; None if there is no such job.

        A page has at most `limit` of them, and fewer if they reach `MAX_BYTES`.
        """
        ...


def check_flows(jobs: Sequence[NewJob]) -> None:
    """Raise `ValueError` if a job with dependencies or a plan is to be put with `update`."""
    for new in jobs:
        part = new.flow
        if part is not None and new.update is not None and (part.dependencies or part.plan or part.open):
            raise ValueError("a job with dependencies or a plan is put without update")


async def relay_family(storage: object, family: str) -> None:
    """Apply all messages of the outbox of a family, if the storage has flows."""
    if isinstance(storage, Flowing):
        while (await storage.relay([family])).more:
            pass


def need_flowing(storage: object) -> Flowing:
    """Return the flows of a storage; raises `NotSupported` if it has none."""
    if not isinstance(storage, Flowing):
        raise NotSupported(f"{type(storage).__name__} keeps no flows")
    return storage
