"""Imported jobs that are signed or encrypted: for another namespace or queue they are signed or encrypted anew.

The keys are those of the app that imports. A payload is opened as one of the queue in its line, so a line that was
changed to another queue is refused; the name of the namespace is taken from the file.
"""

from __future__ import annotations

from typing import Literal, NoReturn

from msgspec.structs import replace

from penstock.client.app import Penstock
from penstock.errors import InvalidPayload
from penstock.model.encryption import is_protected
from penstock.model.failure import FailureSerde, failed_claim, replace_failed_claim
from penstock.model.formats import RawSerde
from penstock.model.ids import FAIL_SUFFIX
from penstock.model.job import Claim, Snapshot
from penstock.model.serde import Place, Serde, bind_serde, decode, encode, is_bindable, with_innermost

__all__ = ["Mover"]


class Mover:
    """Puts exported jobs into the namespace of an app, and into one queue if it is given."""

    def __init__(self, app: Penstock, queue: str | None) -> None:
        self._app = app
        self._queue = queue
        #: The namespace that the jobs come from; the header of the export has it.
        self.namespace = app.namespace

    def move(self, job: Snapshot) -> Snapshot:
        """Return a job for its new place; raises `ValueError` if it is protected and this app has no keys."""
        queue = job.queue if self._queue is None else self._queue
        if queue == job.queue and self.namespace == self._app.namespace:
            return job
        result = None if job.result is None else self._bound_anew(job, queue, "result", job.result)
        return replace(job, queue=queue, payload=self._payload(job, queue), result=result)

    def _payload(self, job: Snapshot, queue: str) -> bytes:
        claim = failed_claim(job.payload) if job.queue.endswith(FAIL_SUFFIX) else None
        if claim is None:
            return self._bound_anew(job, queue, "payload", job.payload)
        return replace_failed_claim(job.payload, self._failed_claim(job, queue, claim))

    def _failed_claim(self, job: Snapshot, queue: str, claim: Claim) -> Claim:
        """Return the claim in a fail job, whose payload belongs to the queue of the failed job."""
        before, after = self._app.codec(job.queue).payload, self._app.codec(queue).payload
        if not (isinstance(before, FailureSerde) and isinstance(after, FailureSerde)):
            return self._refuse(job, "payload") if is_protected(claim.payload) else claim
        origin = Place(self.namespace, before.queue, "payload", claim.id)
        target = Place(self._app.namespace, after.queue, "payload", claim.id)
        serdes = before.codec.payload, after.codec.payload
        return replace(claim, payload=self._rebind(job, claim.payload, serdes, origin, target))

    def _bound_anew(self, job: Snapshot, queue: str, kind: Literal["payload", "result"], data: bytes) -> bytes:
        before, after = self._app.codec(job.queue), self._app.codec(queue)
        serdes = (before.payload, after.payload) if kind == "payload" else (before.result, after.result)
        target = Place(self._app.namespace, queue, kind, job.id)
        return self._rebind(job, data, serdes, Place(self.namespace, job.queue, kind, job.id), target)

    def _rebind(self, job: Snapshot, data: bytes, serdes: tuple[Serde, Serde], origin: Place, target: Place) -> bytes:
        before, after = serdes
        if not (is_bindable(before) or is_protected(data)):
            return data
        if not (is_bindable(before) and is_bindable(after)):
            self._refuse(job, origin.kind)
        opening = bind_serde(with_innermost(before, RawSerde()), origin)
        binding = bind_serde(with_innermost(after, RawSerde()), target)
        try:
            return encode(binding, decode(opening, data), origin.kind)
        except InvalidPayload as error:
            raise ValueError(
                f"the {origin.kind} of job {job.id!r} in queue {job.queue!r} cannot be opened ({error}); "
                "import with the app that has its keys, or remove its line"
            ) from None

    def _refuse(self, job: Snapshot, kind: str) -> NoReturn:
        raise ValueError(
            f"the {kind} of job {job.id!r} is signed or encrypted for queue {job.queue!r} in namespace "
            f"{self.namespace!r}; import it there, or with --app and an app that has keys for both queues"
        )
