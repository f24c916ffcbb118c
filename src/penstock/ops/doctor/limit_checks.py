"""Checks of limits: those that are above what the live workers can start or run, so that they never close."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Iterator, Sequence

from penstock.client.limits import LimitInfo
from penstock.model.ids import family_of
from penstock.model.options import HandlerOptions
from penstock.model.worker_info import WorkerInfo
from penstock.ops.doctor.findings import Finding, warning
from penstock.ops.overview import Overview

__all__ = ["check_limits"]

#: More starts in a second than a process can make.
STARTS_PER_PROCESS = 20_000


def check_limits(overview: Overview, options: Callable[[str], HandlerOptions | None]) -> list[Finding]:
    """Return the findings about limits; `options` returns those of a queue's handler, None if they are not known."""
    return [finding for info in overview.limits for finding in check_limit(info, overview.workers, options)]


def check_limit(
    info: LimitInfo, workers: Sequence[WorkerInfo], options: Callable[[str], HandlerOptions | None]
) -> Iterator[Finding]:
    """Yield the findings about one limit; without workers that serve its queues there are none."""
    serving = [worker for worker in workers if any(serves(info, queue) for queue in worker.queues)]
    limit = info.limit
    if limit is None or not serving:
        return
    about = f"limit of {describe(info)}"
    fix = f"penstock limit ls {shlex.quote(info.name)}"
    processes = sum(max(len(worker.processes), 1) for worker in serving)
    if limit.rate is not None and limit.by == "starts":
        per_second = limit.rate.count / limit.rate.per
        if per_second > STARTS_PER_PROCESS * processes:
            yield warning(about, f"{limit.rate} is more than {processes} worker processes can start: it never holds "
                          "a job back", fix)  # fmt: skip
    room = sum(room_of(worker, info, options) for worker in serving)
    if limit.concurrency is not None and limit.concurrency > room:
        yield warning(about, f"{limit.concurrency:,} at once is above the capacity of the live workers, {room:,} runs: "
                      "it never holds a job back", "add workers or processes, or lower it")  # fmt: skip


def serves(info: LimitInfo, queue: str) -> bool:
    """Return whether a limit holds for a queue."""
    return family_of(queue) == info.name if info.scope == "family" else queue == info.name


def describe(info: LimitInfo) -> str:
    """Return the scope of a limit in words."""
    if info.scope == "family":
        return f"family {info.name}"
    return f"queue {info.name}" + {"groups": ", every group", "group": f", group {info.group}"}.get(info.scope, "")


def room_of(worker: WorkerInfo, info: LimitInfo, options: Callable[[str], HandlerOptions | None]) -> float:
    """Return how many jobs of the queues of a limit a worker can run at once; infinite if a handler is not known."""
    shared, own = 0, 0
    for queue in worker.queues:
        if not serves(info, queue):
            continue
        known = options(queue)
        if known is None:
            return math.inf
        if known.concurrency is not None:
            own += known.concurrency * max(len(worker.processes), 1) * known.batch_size
        else:
            shared = max(shared, worker.capacity // known.size * known.batch_size)
    return own + shared
