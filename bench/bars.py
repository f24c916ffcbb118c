"""The bars: what each measure of ours must be against the best peer of the same run, or against a number."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from bench.lines import columns, figure

Line = dict[str, Any]
NODE = "bullmq-node"


@dataclass(frozen=True)
class Verdict:
    """One bar: what was reached, and against what."""

    work: str
    bar: str
    reached: str
    against: str
    met: bool


class Results:
    """The lines of one run, by what they measure."""

    def __init__(self, lines: Iterable[Line]) -> None:
        self._lines = [line for line in lines if line["values"]]

    def ours(self, workload: str, storage: str = "redis") -> Line | None:
        return next(self._find(workload, storage, lambda line: line["system"] == "penstock"), None)

    def of(self, system: str, workload: str, storage: str = "redis") -> Line | None:
        return next(self._find(workload, storage, lambda line: line["system"] == system), None)

    def best(
        self, workload: str, storage: str = "redis", *, lowest: bool = False, who: Callable[[Line], bool]
    ) -> Line | None:
        """The best peer among those that count."""
        found = list(self._find(workload, storage, lambda line: line["system"] != "penstock" and who(line)))
        pick = min if lowest else max
        return pick(found, key=lambda line: line["median"]) if found else None

    def largest(self, kind: str, storage: str) -> Line | None:
        """The measure of a flat cost beside the largest backlog."""
        found = [line for line in self._lines if line["workload"].startswith(f"flat/{kind}/")]
        found = [line for line in found if line["storage"] == storage]
        return max(found, key=lambda line: int(line["workload"].rpartition("/")[2])) if found else None

    def _find(self, workload: str, storage: str, who: Callable[[Line], bool]) -> Iterator[Line]:
        same = (line for line in self._lines if line["workload"] == workload and line["storage"] == storage)
        return (line for line in same if who(line))


def _anybody(line: Line) -> bool:
    return True


def _python(line: Line) -> bool:
    return line["language"] == "Python"


def _python_at_least_once(line: Line) -> bool:
    return _python(line) and line["guarantee"].startswith("at least once")


def _ratio(
    work: str, ours: Line | None, theirs: Line | None, least: float = 0.0, most: float = 0.0
) -> Iterator[Verdict]:
    """Ours against theirs: at least, or at most, so many times."""
    if ours is None or theirs is None or not theirs["median"]:
        return
    ratio = ours["median"] / theirs["median"]
    who = theirs["workload"] if theirs["system"] == "penstock" else theirs["system"]
    against = f"{figure(ours['median'])} : {figure(theirs['median'])} {ours['unit']} ({who})"
    bar = f"≥ {least:g} ×" if least else f"≤ {most:g} ×"
    met = ratio >= least if least else ratio <= most
    yield Verdict(work, bar, f"{ratio:.2f} ×", against, met)


def _limit(work: str, ours: Line | None, least: float = 0.0, most: float = 0.0) -> Iterator[Verdict]:
    """Ours against a number."""
    if ours is None:
        return
    value = ours["median"]
    bar = f"≥ {least:,g}" if least else f"≤ {most:g}"
    yield Verdict(work, bar, figure(value), ours["unit"], value >= least if least else value <= most)


def _drains(got: Results) -> Iterator[Verdict]:
    plain = got.ours("drain")
    yield from _ratio("drain, concurrency=100", plain, got.best("drain", who=_python_at_least_once), least=10)
    yield from _ratio("drain, concurrency=100, against Node", plain, got.of(NODE, "drain"), least=4)
    yield from _ratio("drain, default options", got.ours("drain/default"), got.best("drain", who=_python), least=5)
    for kind in ("ids", "groups", "priorities"):
        yield from _ratio(f"drain with {kind}", got.ours(f"drain/{kind}"), plain, least=0.5)
    for title, one, two in (
        ("drain, two worker processes", plain, got.ours("drain/processes-2")),
        ("drain, two, handlers that compute", got.ours("drain/computing"), got.ours("drain/computing-2")),
    ):
        busy = f" (cores in use: server {two['server_busy']}, workers {two['worker_busy']})" if two else ""
        yield from _ratio(f"{title}{busy}", two, one, least=1.4)


def _enqueues(got: Results) -> Iterator[Verdict]:
    yield from _ratio(
        "enqueue, one awaited at a time", got.ours("enqueue/one"), got.best("enqueue/one", who=_anybody), least=1
    )
    yield from _limit("enqueue, 100 callers", got.ours("enqueue/callers"), least=60_000)
    yield from _ratio("enqueue_many", got.ours("enqueue/many"), got.best("enqueue/many", who=_python), least=5)
    yield from _ratio(
        "sync enqueue, one at a time", got.ours("sync-enqueue"), got.best("sync-enqueue", who=_anybody), least=1
    )


def _latencies(got: Results) -> Iterator[Verdict]:
    best = got.best("call/p50", lowest=True, who=_python)
    yield from _ratio("request/response, p50", got.ours("call/p50"), best, most=0.6)
    if best is not None:
        yield from _ratio("request/response, p99", got.ours("call/p99"), got.of(best["system"], "call/p99"), most=1)
    quickest = got.best("pickup/p50", lowest=True, who=_anybody)
    yield from _ratio("pickup by an idle worker, p50", got.ours("pickup/p50"), quickest, most=1)


def _rest(got: Results) -> Iterator[Verdict]:
    for name, title in (("supervised", "--processes 1"), ("one-process", "--processes 0")):
        yield from _limit(f"idle worker, {title}: commands", got.ours(f"idle/{name}/commands"), most=1)
        yield from _limit(f"idle worker, {title}: CPU", got.ours(f"idle/{name}/cpu"), most=0.3)
        yield from _limit(f"idle worker, {title}: RSS", got.ours(f"idle/{name}/rss"), most=45)
    yield from _limit("memory of a queued job", got.ours("memory"), most=300)
    yield from _limit("200 idle workers, one job", got.ours("herd"), most=3)


def _sqlite(got: Results) -> Iterator[Verdict]:
    huey = got.of("huey", "sync-enqueue", "sqlite")
    plain = got.ours("drain", "sqlite")
    yield from _ratio("SQLite: drain", plain, got.of("huey", "drain", "sqlite"), least=1.5)
    yield from _ratio("SQLite: enqueue_many", got.ours("enqueue/many", "sqlite"), huey, least=3)
    yield from _ratio("SQLite: sync enqueue", got.ours("sync-enqueue", "sqlite"), huey, least=0.7)
    yield from _ratio("SQLite: two worker processes", got.ours("drain/processes-2", "sqlite"), plain, least=1)


def _flat(got: Results) -> Iterator[Verdict]:
    for storage in ("redis", "sqlite"):
        for kind in ("waiting", "scheduled", "groups"):
            line = got.largest(kind, storage)
            if line is not None:
                size = f"{int(line['workload'].rpartition('/')[2]):,}".replace(",", " ")
                work = f"{storage}: claim + settle, {size} {kind}"
                against = f"{figure(line['median'])} {line['unit']}, against the small case"
                yield Verdict(work, "≤ 1.3 ×", f"{line['ratio']:.2f} ×", against, line["ratio"] <= 1.3)


def verdicts(lines: Iterable[Line]) -> list[Verdict]:
    """Every bar for which this run has the figures."""
    got = Results(lines)
    return [found for part in (_drains, _enqueues, _latencies, _rest, _sqlite, _flat) for found in part(got)]


def table(found: list[Verdict]) -> str:
    rows = [[v.work, v.bar, v.reached, "met" if v.met else "NOT MET", v.against] for v in found]
    return columns(["work", "bar", "reached", "", "ours : theirs"], rows)
