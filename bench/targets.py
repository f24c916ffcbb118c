"""The targets: Penstock's figures must reach a ratio to the best peer of the same run, or a fixed number."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from bench.results import columns, figure

Line = dict[str, Any]
NODE = "bullmq-node"


@dataclass(frozen=True)
class TargetResult:
    """A target and the figure that a run reached for it."""

    work: str
    target: str
    reached: str
    against: str
    met: bool


class Results:
    """Result lines of one run, found by workload, storage and system."""

    def __init__(self, lines: Iterable[Line]) -> None:
        self._lines = [line for line in lines if line["values"]]

    def penstock(self, workload: str, storage: str = "redis") -> Line | None:
        return next(self._find(workload, storage, lambda line: line["system"] == "penstock"), None)

    def of(self, system: str, workload: str, storage: str = "redis") -> Line | None:
        return next(self._find(workload, storage, lambda line: line["system"] == system), None)

    def best(
        self, workload: str, storage: str = "redis", *, lowest: bool = False, accepts: Callable[[Line], bool]
    ) -> Line | None:
        """Return the best peer among those that `accepts` admits, or None."""
        found = list(self._find(workload, storage, lambda line: line["system"] != "penstock" and accepts(line)))
        pick = min if lowest else max
        return pick(found, key=lambda line: line["median"]) if found else None

    def largest(self, kind: str, storage: str) -> Line | None:
        """Return the `flat` line of this kind with the largest backlog, or None."""
        found = [line for line in self._lines if line["workload"].startswith(f"flat/{kind}/")]
        found = [line for line in found if line["storage"] == storage]
        return max(found, key=lambda line: int(line["workload"].rpartition("/")[2])) if found else None

    def _find(self, workload: str, storage: str, accepts: Callable[[Line], bool]) -> Iterator[Line]:
        same = (line for line in self._lines if line["workload"] == workload and line["storage"] == storage)
        return (line for line in same if accepts(line))


def _any_system(line: Line) -> bool:
    return True


def _python(line: Line) -> bool:
    return line["language"] == "Python"


def _python_at_least_once(line: Line) -> bool:
    return _python(line) and line["guarantee"].startswith("at least once")


def _ratio(
    work: str, ours: Line | None, theirs: Line | None, least: float = 0.0, most: float = 0.0
) -> Iterator[TargetResult]:
    """Compare two lines: the ratio of their medians must be at least `least`, or at most `most`."""
    if ours is None or theirs is None or not theirs["median"]:
        return
    ratio = ours["median"] / theirs["median"]
    accepts = theirs["workload"] if theirs["system"] == "penstock" else theirs["system"]
    against = f"{figure(ours['median'])} : {figure(theirs['median'])} {ours['unit']} ({accepts})"
    target = f"≥ {least:g} ×" if least else f"≤ {most:g} ×"
    met = ratio >= least if least else ratio <= most
    yield TargetResult(work, target, f"{ratio:.2f} ×", against, met)


def _limit(work: str, ours: Line | None, least: float = 0.0, most: float = 0.0) -> Iterator[TargetResult]:
    """Compare a line with a number: its median must be at least `least`, or at most `most`."""
    if ours is None:
        return
    value = ours["median"]
    target = f"≥ {least:,g}" if least else f"≤ {most:g}"
    yield TargetResult(work, target, figure(value), ours["unit"], value >= least if least else value <= most)


def _drains(results: Results) -> Iterator[TargetResult]:
    plain = results.penstock("drain")
    yield from _ratio("drain, concurrency=100", plain, results.best("drain", accepts=_python_at_least_once), least=10)
    yield from _ratio("drain, concurrency=100, against Node", plain, results.of(NODE, "drain"), least=4)
    yield from _ratio(
        "drain, default options", results.penstock("drain/default"), results.best("drain", accepts=_python), least=5
    )
    for kind in ("ids", "groups", "priorities"):
        yield from _ratio(f"drain with {kind}", results.penstock(f"drain/{kind}"), plain, least=0.5)
    for title, one, two in (
        ("drain, two worker processes", plain, results.penstock("drain/processes-2")),
        (
            "drain, two, handlers that compute",
            results.penstock("drain/computing"),
            results.penstock("drain/computing-2"),
        ),
    ):
        busy = f" (cores in use: server {two['server_busy']}, workers {two['worker_busy']})" if two else ""
        yield from _ratio(f"{title}{busy}", two, one, least=1.4)


def _enqueues(results: Results) -> Iterator[TargetResult]:
    yield from _ratio(
        "enqueue, one awaited at a time",
        results.penstock("enqueue/one"),
        results.best("enqueue/one", accepts=_any_system),
        least=1,
    )
    yield from _limit("enqueue, 100 callers", results.penstock("enqueue/callers"), least=60_000)
    yield from _ratio(
        "enqueue_many", results.penstock("enqueue/many"), results.best("enqueue/many", accepts=_python), least=5
    )
    yield from _ratio(
        "sync enqueue, one at a time",
        results.penstock("sync-enqueue"),
        results.best("sync-enqueue", accepts=_any_system),
        least=1,
    )


def _latencies(results: Results) -> Iterator[TargetResult]:
    best = results.best("call/p50", lowest=True, accepts=_python)
    yield from _ratio("request/response, p50", results.penstock("call/p50"), best, most=0.6)
    if best is not None:
        yield from _ratio(
            "request/response, p99", results.penstock("call/p99"), results.of(best["system"], "call/p99"), most=1
        )
    quickest = results.best("pickup/p50", lowest=True, accepts=_any_system)
    yield from _ratio("pickup by an idle worker, p50", results.penstock("pickup/p50"), quickest, most=1)


def _rest(results: Results) -> Iterator[TargetResult]:
    for name, title in (("supervised", "--processes 1"), ("one-process", "--processes 0")):
        yield from _limit(f"idle worker, {title}: commands", results.penstock(f"idle/{name}/commands"), most=1)
        yield from _limit(f"idle worker, {title}: CPU", results.penstock(f"idle/{name}/cpu"), most=0.3)
        yield from _limit(f"idle worker, {title}: RSS", results.penstock(f"idle/{name}/rss"), most=45)
    yield from _limit("memory of a queued job", results.penstock("memory"), most=300)
    yield from _limit("200 idle workers, one job", results.penstock("herd"), most=3)


def _sqlite(results: Results) -> Iterator[TargetResult]:
    huey = results.of("huey", "sync-enqueue", "sqlite")
    plain = results.penstock("drain", "sqlite")
    yield from _ratio("SQLite: drain", plain, results.of("huey", "drain", "sqlite"), least=1.5)
    yield from _ratio("SQLite: enqueue_many", results.penstock("enqueue/many", "sqlite"), huey, least=3)
    yield from _ratio("SQLite: sync enqueue", results.penstock("sync-enqueue", "sqlite"), huey, least=0.7)
    yield from _ratio("SQLite: two worker processes", results.penstock("drain/processes-2", "sqlite"), plain, least=1)


def _flat(results: Results) -> Iterator[TargetResult]:
    for storage in ("redis", "sqlite"):
        for kind in ("waiting", "scheduled", "groups"):
            line = results.largest(kind, storage)
            if line is not None:
                size = f"{int(line['workload'].rpartition('/')[2]):,}".replace(",", " ")
                work = f"{storage}: claim + settle, {size} {kind}"
                against = f"{figure(line['median'])} {line['unit']}, against the small case"
                yield TargetResult(work, "≤ 1.3 ×", f"{line['ratio']:.2f} ×", against, line["ratio"] <= 1.3)


def target_results(lines: Iterable[Line]) -> list[TargetResult]:
    """Return the results of all targets for which this run has figures."""
    results = Results(lines)
    return [found for part in (_drains, _enqueues, _latencies, _rest, _sqlite, _flat) for found in part(results)]


def table(found: list[TargetResult]) -> str:
    rows = [[v.work, v.target, v.reached, "met" if v.met else "NOT MET", v.against] for v in found]
    return columns(["work", "target", "reached", "", "ours : theirs"], rows)
