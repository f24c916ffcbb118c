"""Data without a page: series for charts, and raw payloads."""

from __future__ import annotations

import msgspec
from starlette.responses import Response

from penstock.dashboard.answers import json_answer
from penstock.dashboard.charts import SPANS, Series, SpanName, series_of
from penstock.dashboard.context import NotThere, PageContext
from penstock.dashboard.pages.error_groups import releases_of
from penstock.dashboard.pages.overview import chosen_span
from penstock.dashboard.protocols import observing_of

__all__ = ["ReleaseMark", "SeriesAnswer", "history_answer", "payload_answer", "read_series"]

MINUTES: dict[SpanName, int] = {"2h": 120, "2d": 2_880, "14d": 20_160}


class ReleaseMark(msgspec.Struct, frozen=True):
    """A release on a chart: its name, and when it was (seconds since 1970)."""

    name: str
    at: float


class SeriesAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The series of a chart with its bounds (seconds since 1970) and the releases within them."""

    begin: float
    end: float
    step: int
    series: Series
    releases: list[ReleaseMark]


async def history_answer(context: PageContext) -> Response:
    """Return the series of one queue, or of all, for a span."""
    queue = context.needed("queue") if context.param("queue") else None
    return json_answer(await read_series(context, queue, chosen_span(context)))


async def read_series(context: PageContext, queue: str | None, span: SpanName) -> SeriesAnswer:
    """Read the samples of a span and the state of this moment, and return them as series."""
    storage, now = observing_of(await context.storage()), await context.now()
    if storage is None:
        raise NotThere("This storage keeps no history.")
    step, end = SPANS[span], now.timestamp()
    begin = end - MINUTES[span] * 60
    samples = await storage.history(queue, step, int((begin - step * 60) * 1000))
    reading = await context.reading()
    if queue is not None and (stats := reading.stats.get(queue)) and (not samples or stats.sample.at > samples[-1].at):
        samples = [*samples, stats.sample]
    releases = [ReleaseMark(each.name, each.at / 1000) for each in await releases_of(context)]
    return SeriesAnswer(
        begin=begin, end=end, step=step, series=series_of(samples, step),
        releases=[mark for mark in releases if begin <= mark.at <= end],
    )  # fmt: skip


async def payload_answer(context: PageContext) -> Response:
    """Return the bytes of a payload, for admins."""
    if not context.viewer.may("raw"):
        raise PermissionError("raw")
    queue, id = context.needed("queue"), context.needed("id")
    [snapshot] = await (await context.storage()).get(queue, [id])
    if snapshot is None:
        raise NotThere(f"There is no job {id!r} in queue {queue!r}.")
    headers = {"Content-Disposition": 'attachment; filename="payload.bin"'}
    return Response(snapshot.payload, media_type="application/octet-stream", headers=headers)
