"""Bulk actions without `await`: `penstock.Bulk` for scripts and threads."""

from __future__ import annotations

from penstock.client.bulk import Bulk as AsyncBulk
from penstock.client.bulk import BulkPreview, OnStep
from penstock.model.activity import BulkAction, BulkVerb
from penstock.model.clock import Span
from penstock.sync.backends import SyncBackends

__all__ = ["Bulk"]


class Bulk:
    """One verb on all jobs that fit a filter, made by `app.bulk`; nothing changes before `run`."""

    def __init__(self, backends: SyncBackends, verb: BulkVerb, filter: str, who: str | None = None) -> None:
        self._backends = backends
        self._bulk = AsyncBulk(backends.loop_app, verb, filter, who=who)
        self.verb: BulkVerb = self._bulk.verb
        #: The text of the filter.
        self.filter = self._bulk.filter
        #: The name of the operator in the activity.
        self.who = self._bulk.who

    def __repr__(self) -> str:
        return repr(self._bulk)

    def preview(self) -> BulkPreview:
        """Count the jobs that would be changed now; a `run` after it leaves out the jobs that come later.

        A filter of `queue`, `state` and `error_group` is counted exactly; of any other, 2,000 jobs are looked at.
        """
        return self._backends.run_on_loop(self._bulk.preview())

    def run(self, *, delay: Span = 0, on_step: OnStep | None = None) -> BulkAction:
        """Change the jobs in steps of 500, after `delay`; returns the record of the action when it has ended.

        Its state is "done", or "failed" with `error` if the storage gave one, or "stopped" (before its begin "undone")
        if a process stopped it: see `stop_bulk` of the app. `on_step` is called with the record after each step. A
        cancelled `run` stops the action. Jobs that no longer fit when their turn comes are counted as skipped.
        """
        return self._backends.run_blocking("Bulk.run", self._bulk.run(delay=delay, on_step=on_step))
