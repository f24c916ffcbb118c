"""Metrics for Prometheus, read from the storage when they are asked for: right after any restart, of all workers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from penstock.host import AppHost, SyncApp
from penstock.model.job import FINISHED, State
from penstock.model.stats import Histogram
from penstock.model.worker_status import WorkerStatus
from penstock.telemetry.fleet import Fleet, FleetReader, QueueFacts

__all__ = ["BOUNDS", "FleetCollector", "WorkerCollector", "exposition", "families_of_fleet", "families_of_worker"]

#: The upper bounds (seconds) of the buckets: every second one of the stored histograms.
BOUNDS = tuple(0.0001 * 2**k for k in range(27))


class FleetCollector(Collector):
    """Collector of the metrics of an app, for a registry of `prometheus_client`."""

    def __init__(self, app: AppHost | SyncApp) -> None:
        self._reader = FleetReader(app)

    def describe(self) -> Iterable[Metric]:
        """Return nothing: to be registered needs no look at the storage."""
        return []

    def collect(self) -> Iterable[Metric]:
        """Return the families, from the storage or from the last look if that was just now."""
        return families_of_fleet(self._reader.read())

    def close(self) -> None:
        """Close its connection."""
        self._reader.close()


class WorkerCollector(Collector):
    """Collector of the metrics of one worker."""

    def __init__(self, status: Callable[[], WorkerStatus]) -> None:
        self._status = status

    def describe(self) -> Iterable[Metric]:
        """Return nothing: the families are known when they are collected."""
        return []

    def collect(self) -> Iterable[Metric]:
        """Return the families of the worker as it is now."""
        return families_of_worker(self._status())


class _Families(Collector):
    """Collector of families that are there already."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        """Return the families."""
        return self._families


def exposition(families: Iterable[Metric], accept: str = "") -> tuple[bytes, str]:
    """Return families as text, and the type of it: OpenMetrics if the `Accept` header asks for that."""
    encoder, kind = choose_encoder(accept)
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Families(list(families)))
    return encoder(registry), kind


# the fleet ------------------------------------------------------------------------------------------


def families_of_fleet(fleet: Fleet) -> Iterator[Metric]:
    """Yield the metrics of a fleet; those of a storage that does not answer are that alone."""
    info = GaugeMetricFamily("penstock_info", "1, with the version and the storage.", labels=INFO_LABELS)
    info.add_metric([fleet.version, fleet.storage, fleet.namespace], 1)
    yield info
    yield GaugeMetricFamily("penstock_storage_up", "Whether the storage answers.", value=fleet.up)
    if not fleet.up:
        return
    yield GaugeMetricFamily("penstock_storage_latency_seconds", "Duration of one call.", value=fleet.latency)
    yield GaugeMetricFamily("penstock_read_seconds", "Duration of reading these metrics.", value=fleet.read)
    if fleet.bytes is not None:
        yield GaugeMetricFamily("penstock_storage_bytes", "File size, or memory of the servers.", value=fleet.bytes)
    yield from _queues(fleet.queues)
    yield from _histograms(fleet.queues)
    yield from _workers(fleet)
    if fleet.ticks is not None:
        ticks = CounterMetricFamily("penstock_schedule_ticks", "Ticks of schedules.", labels=["outcome"])
        for outcome, count in fleet.ticks.items():
            ticks.add_metric([outcome], count)
        yield ticks
    if fleet.lateness is not None:
        text = "How late the tick is that has been due longest."
        yield GaugeMetricFamily("penstock_schedule_lateness_seconds", text, value=fleet.lateness)


INFO_LABELS = ["version", "storage", "namespace"]


def _queues(queues: Sequence[QueueFacts]) -> Iterator[Metric]:
    shown = [each for each in queues if each.count]
    jobs = GaugeMetricFamily("penstock_jobs", "Jobs by state.", labels=["queue", "state"])
    ended = CounterMetricFamily("penstock_jobs_finished", "Jobs that ended.", labels=["queue", "state"])
    repeated = CounterMetricFamily("penstock_runs_repeated", "Runs that were repeated.", labels=["queue", "reason"])
    for each in shown:
        for state in State:
            jobs.add_metric([each.name, state.value], each.sample.counts.get(state, 0))
        if each.totals:
            totals = each.sample.totals
            for state in sorted(FINISHED):
                ended.add_metric([each.name, state.value], getattr(totals, state.value))
            for reason, count in (
                ("retry", totals.retried), ("stall", totals.stalled), ("timeout", totals.timed_out),
            ):  # fmt: skip
                repeated.add_metric([each.name, reason], count)
    yield jobs
    if any(each.totals for each in shown):
        yield ended
        yield repeated
    yield _gauge("penstock_queue_oldest_seconds", "How long the oldest queued job has been due.", shown, _oldest)
    yield _gauge("penstock_queue_paused", "Whether the queue is paused.", shown, lambda each: each.paused)
    yield _gauge("penstock_queue_workers", "Live workers that serve the queue.", shown, lambda each: each.workers)
    for name, text, value in OPTIONAL:
        family = _gauge(name, text, shown, value)
        if family.samples:
            yield family


def _oldest(each: QueueFacts) -> float:
    return (each.sample.oldest or 0) / 1000


#: Gauges of queues that not every storage or queue has.
OPTIONAL: tuple[tuple[str, str, Callable[[QueueFacts], float | None]], ...] = (
    ("penstock_error_groups_open", "Groups of failed jobs with one cause.", lambda each: each.error_groups),
    ("penstock_limit_running", "Running jobs of a queue with a limit.", lambda each: each.limit_running),
    ("penstock_limit_closed_groups", "Groups that their limit holds back.", lambda each: each.closed_groups),
    ("penstock_rate_wait_seconds", "How long the rate of the queue holds it back.", lambda each: each.rate_wait),
)


def _gauge(
    name: str, text: str, queues: Sequence[QueueFacts], value: Callable[[QueueFacts], float | None]
) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, text, labels=["queue"])
    for each in queues:
        found = value(each)
        if found is not None:
            family.add_metric([each.name], found)
    return family


def _histograms(queues: Sequence[QueueFacts]) -> Iterator[Metric]:
    shown = [each for each in queues if each.histograms]
    if not shown:
        return
    wait = HistogramMetricFamily("penstock_job_wait_seconds", "From due to begin of a run.", labels=["queue"])
    run = HistogramMetricFamily("penstock_run_seconds", "Duration of runs.", labels=["queue"])
    for each in shown:
        wait.add_metric([each.name], buckets_of(each.sample.wait), each.sample.wait.sum_us / 1e6)
        run.add_metric([each.name], buckets_of(each.sample.run), each.sample.run.sum_us / 1e6)
    yield wait
    yield run


def buckets_of(histogram: Histogram) -> list[tuple[str, float]]:
    """Return the cumulative buckets of a histogram: the stored ones span half an octave, these a whole one."""
    found: list[tuple[str, float]] = []
    total = 0
    for k, bound in enumerate(BOUNDS):
        total += sum(histogram.counts[max(2 * k - 1, 0) : 2 * k + 1])
        found.append((repr(bound), total))
    return [*found, ("+Inf", histogram.count)]


def _workers(fleet: Fleet) -> Iterator[Metric]:
    yield GaugeMetricFamily("penstock_workers", "Live workers.", value=len(fleet.workers))
    units = GaugeMetricFamily("penstock_units", "Units of all workers.", labels=["kind"])
    for kind in ("capacity", "allowed", "busy"):
        units.add_metric([kind], sum(getattr(worker, kind) for worker in fleet.workers))
    yield units


# one worker -----------------------------------------------------------------------------------------


def families_of_worker(status: WorkerStatus) -> Iterator[Metric]:
    """Yield the metrics of one worker with all its processes."""
    units = GaugeMetricFamily("penstock_worker_units", "Units of this worker.", labels=["kind"])
    for kind in ("capacity", "allowed", "busy"):
        units.add_metric([kind], getattr(status, kind))
    yield units
    yield GaugeMetricFamily("penstock_worker_memory_bytes", "Resident memory of all processes.", value=status.memory)
    runs = CounterMetricFamily("penstock_worker_runs", "Runs that ended here.", labels=["queue", "outcome"])
    for (queue, outcome), count in sorted(status.runs.items()):
        runs.add_metric([queue, outcome], count)
    yield runs
    yield GaugeMetricFamily(
        "penstock_worker_loop_lag_seconds", "How late the event loop of the slowest process is.", value=status.loop_lag
    )
    yield GaugeMetricFamily(
        "penstock_worker_claim_age_seconds", "How long a process has not looked for work.", value=status.claim_age
    )
    yield GaugeMetricFamily(
        "penstock_worker_lease_age_seconds", "Since when the leases are not confirmed.", value=status.lease_age or 0.0
    )
    yield _restarts(status.restarted)


def _restarts(restarted: Mapping[str, int]) -> Metric:
    family = CounterMetricFamily(
        "penstock_worker_children_restarted", "Child processes that were replaced.", labels=["reason"]
    )
    for reason, count in sorted(restarted.items()):
        family.add_metric([reason], count)
    return family
