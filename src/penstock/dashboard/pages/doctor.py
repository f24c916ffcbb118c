"""The page Doctor: findings about the storage and its jobs, and what can be lost."""

from __future__ import annotations

from datetime import datetime

import msgspec

from penstock.aio import gather_each
from penstock.dashboard.context import PageContext
from penstock.dashboard.protocols import observing_of
from penstock.model.clock import as_datetime
from penstock.model.storage_info import FileInfo, ServerInfo
from penstock.ops.doctor import Finding, examine
from penstock.storage import redact
from penstock.storage.observing import MAX_RINGS, RINGS

__all__ = ["DoctorPage", "view"]


class Fact(msgspec.Struct, frozen=True):
    """A fact about the storage, by name."""

    name: str
    value: str


class HistorySize(msgspec.Struct, frozen=True, kw_only=True):
    """How many samples of all queues together are kept, of how many at most, and since when.

    `bytes` is about what these samples and those of single queues take in the storage.
    """

    samples: int
    most: int
    since: datetime | None
    bytes: int


class DoctorPage(msgspec.Struct, frozen=True, kw_only=True):
    """View model of the doctor; `checked` is whether the storage was searched for damage."""

    at: datetime
    where: str
    findings: list[Finding]
    lost: list[str]
    facts: list[Fact]
    checked: bool
    latency_ms: float | None
    size: int | None
    history: HistorySize | None
    outage: str = ""


async def view(context: PageContext) -> DoctorPage:
    """Return the view model without a search for damage."""
    return await examined(context, check=False)


async def examined(context: PageContext, *, check: bool) -> DoctorPage:
    """Return the view model; `check` searches for damage, which may take a while."""
    reading = await (context.reader.refresh() if check else context.reading())
    report = await examine(context.app, check=check, overview=reading.overview)
    facts, latency, size = facts_of(report.info)
    return DoctorPage(
        at=await context.now(),
        where=redact(report.where) if "://" in report.where else report.where,
        findings=[msgspec.structs.replace(each, message=context.text(each.message)) for each in report.findings],
        lost=report.lost,
        facts=facts,
        checked=check,
        latency_ms=latency,
        size=size,
        history=await history_size(context),
    )


async def history_size(context: PageContext) -> HistorySize | None:
    """Return the size of the history of all queues together; None if the storage keeps none."""
    storage = observing_of(await context.storage())
    if storage is None:
        return None
    rings = await gather_each(lambda step: storage.history(None, step), list(RINGS))
    # A ring without a change has one more sample: the newest one, as of the last look.
    taken = [sample.at for ring, most in zip(rings, RINGS.values(), strict=True) for sample in ring[-most:]]
    since = as_datetime(min(taken)) if taken else None
    names = [queue.name for queue in (await context.reading()).overview.queues]
    size = await storage.history_bytes(names[:MAX_RINGS])
    return HistorySize(samples=len(taken), most=sum(RINGS.values()), since=since, bytes=size)


def facts_of(info: FileInfo | ServerInfo | None) -> tuple[list[Fact], float | None, int | None]:
    """Return facts, latency (ms) and size (bytes) of a storage."""
    if isinstance(info, FileInfo):
        facts = [
            Fact("SQLite", info.version),
            Fact("schema", str(info.schema)),
            Fact("journal", info.journal_mode),
            Fact("synchronous", info.synchronous),
        ]
        return facts, info.latency_ms, info.size + info.log_size
    if isinstance(info, ServerInfo):
        facts = [
            Fact(
                f"{node.software} {node.version}",
                f"{node.role}, {node.replicas} replicas, {node.clients:,} clients, "
                f"{'append-only file' if node.aof else 'no append-only file'}",
            )
            for node in info.nodes
        ]
        latency = max((node.latency_ms for node in info.nodes), default=None)
        return [Fact("schema", str(info.schema)), *facts], latency, sum(node.used_memory for node in info.nodes)
    return [], None, None
