"""Metrics for Prometheus: names, types, labels and values, read by the official parser."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families

from penstock import Cron, Entry, Limit, NotSupported, Penstock, PermanentError, State, Worker, sync
from penstock.model.stats import BUCKETS, Histogram, bucket_of
from penstock.model.worker_status import WorkerStatus
from penstock.storage import connect
from penstock.telemetry import collector, fleet
from penstock.telemetry.fleet import OTHER, FleetReader, read_fleet
from penstock.telemetry.grafana import ALERTS, PANELS, dashboard_json, rules_text
from penstock.telemetry.prometheus import BOUNDS, buckets_of, exposition, families_of_fleet, families_of_worker
from penstock.testing import Clock
from tests.servers import Servers
from tests.support import eventually, make_backend, new_namespace
from tests.sync.conftest import url_of

#: Every family with its type and labels: a change here is a change for everyone who has a dashboard.
FAMILIES = {
    "penstock_jobs": ("gauge", {"queue", "state"}),
    "penstock_jobs_finished": ("counter", {"queue", "state"}),
    "penstock_runs_repeated": ("counter", {"queue", "reason"}),
    "penstock_job_wait_seconds": ("histogram", {"queue", "le"}),
    "penstock_run_seconds": ("histogram", {"queue", "le"}),
    "penstock_queue_oldest_seconds": ("gauge", {"queue"}),
    "penstock_queue_paused": ("gauge", {"queue"}),
    "penstock_queue_workers": ("gauge", {"queue"}),
    "penstock_error_groups_open": ("gauge", {"queue"}),
    "penstock_workers": ("gauge", set[str]()),
    "penstock_units": ("gauge", {"kind"}),
    "penstock_storage_up": ("gauge", set[str]()),
    "penstock_storage_latency_seconds": ("gauge", set[str]()),
    "penstock_storage_bytes": ("gauge", set[str]()),
    "penstock_read_seconds": ("gauge", set[str]()),
    "penstock_info": ("gauge", {"version", "storage", "namespace"}),
    "penstock_schedule_ticks": ("counter", {"outcome"}),
    "penstock_schedule_lateness_seconds": ("gauge", set[str]()),
    "penstock_limit_running": ("gauge", {"queue"}),
    "penstock_limit_closed_groups": ("gauge", {"queue"}),
    "penstock_rate_wait_seconds": ("gauge", {"queue"}),
}

#: A queue whose name needs escapes.
ODD = 'odd "\\\n\x00é'

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def scraped(app: Any) -> str:
    registry = CollectorRegistry()
    found = collector(app)
    registry.register(found)
    try:
        return generate_latest(registry).decode()
    finally:
        found.close()


def samples_of(text: str) -> Samples:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def value(samples: Samples, name: str, **labels: str) -> float:
    return samples[name, frozenset(labels.items())]


def by_queue(samples: Samples, name: str, **labels: str) -> dict[str, float]:
    """Return the values of a metric by queue."""
    found = [(dict(each), value) for (known, each), value in samples.items() if known == name]
    return {each["queue"]: value for each, value in found if each.items() >= labels.items()}


async def fill(app: Penstock, clock: Clock) -> None:
    """Fill an app with jobs in several states, a schedule and limits, and run some of them."""

    @app.handler("mail", limit=Limit(concurrency=5, rate="1/min"), group_limit=Limit(concurrency=1))
    async def send(payload: int) -> None:
        if payload == 0:
            raise PermanentError("no")

    app.schedule(Cron("0 0 * * *"), queue="mail")(send)
    await app.queue("mail").enqueue_many([0, 1])
    await Worker(app, queues=["mail"]).drain()
    clock.advance(60)
    await Worker(app, queues=["mail"]).drain()
    await app.queue("orders").enqueue_many([Entry(1, id="a"), Entry(2, delay=3600)])
    await app.queue("orders").pause()
    clock.advance(90)


async def test_every_family_has_its_type_and_labels_and_right_values(app: Penstock, clock: Clock) -> None:
    """The text passes the official parsers; counters end with _total, and only `queue` is a free label."""
    await fill(app, clock)
    async with Worker(app, queues=["mail"], id="w1", capacity=70):
        await eventually(app.workers)
        text = scraped(app)
    found = {family.name: family for family in text_string_to_metric_families(text)}
    assert {
        name: (family.type, {label for sample in family.samples for label in sample.labels})
        for name, family in found.items()
    } == FAMILIES
    assert all(family.documentation for family in found.values())
    samples = samples_of(text)
    assert value(samples, "penstock_jobs", queue="orders", state="scheduled") == 1
    assert value(samples, "penstock_jobs_finished_total", queue="mail", state="completed") == 1
    assert value(samples, "penstock_jobs_finished_total", queue="mail", state="failed") == 1
    assert value(samples, "penstock_error_groups_open", queue="mail") == 1
    assert value(samples, "penstock_queue_oldest_seconds", queue="orders") == 90
    assert value(samples, "penstock_queue_oldest_seconds", queue="mail") == 0
    assert value(samples, "penstock_queue_paused", queue="orders") == 1
    assert value(samples, "penstock_queue_workers", queue="mail") == 1
    assert value(samples, "penstock_units", kind="capacity") == 70
    assert value(samples, "penstock_run_seconds_count", queue="mail") == 2
    assert value(samples, "penstock_limit_running", queue="mail") == 0
    assert value(samples, "penstock_schedule_ticks_total", outcome="fired") == 0
    assert value(samples, "penstock_storage_up") == 1
    states = {dict(labels)["state"] for name, labels in samples if name == "penstock_jobs"}
    assert states == {str(each) for each in State}
    body, kind = exposition(families_of_fleet(await read_fleet(app.storage, "n")), "application/openmetrics-text")
    assert kind.startswith("application/openmetrics-text")
    assert {family.name for family in parse_openmetrics(body.decode())} == set(FAMILIES)


@pytest.mark.parametrize("storage", ["sqlite", "redis", "cluster"])
def test_a_collector_of_a_sync_app_reads_every_storage(storage: str, servers: Servers, tmp_path: Path) -> None:
    """The same families on each of them, on the thread of the scrape, with the kind of the storage."""
    backend = make_backend(storage, servers, tmp_path, new_namespace())
    app = sync.Penstock(url_of(backend), namespace=backend.namespace)
    app.listen("q", lambda payload: payload)
    with app:
        app.queue("q").enqueue_many(range(3))
        sync.Worker(app).drain()
        samples = samples_of(scraped(app))
        app.queue("q").delete(settings=True)
    assert value(samples, "penstock_jobs_finished_total", queue="q", state="completed") == 3
    assert value(samples, "penstock_job_wait_seconds_count", queue="q") == 3
    [info] = [dict(labels) for name, labels in samples if name == "penstock_info"]
    assert info["storage"] == ("sqlite" if storage == "sqlite" else "redis")
    names = {re.sub("_(total|bucket|sum|count)$", "", name) for name, _ in samples}
    optional = {"penstock_limit_running", "penstock_limit_closed_groups", "penstock_rate_wait_seconds"}
    assert names == set(FAMILIES) - optional


async def test_more_queues_than_labels_are_summed(app: Penstock, monkeypatch: pytest.MonkeyPatch) -> None:
    """The busiest have labels of their own, fewer of them histograms; a queue of the name of the sum is in it."""
    monkeypatch.setattr(fleet, "MAX_QUEUES", 3)
    monkeypatch.setattr(fleet, "MAX_HISTOGRAMS", 1)
    for size, name in enumerate(["a", "b", "c", "d", OTHER, ODD], 1):
        app.listen(name, lambda payload: payload)
        await app.queue(name).enqueue_many(range(size))
    await Worker(app).drain()
    samples = samples_of(scraped(app))
    queues = by_queue(samples, "penstock_jobs", state="completed")
    assert queues == {ODD: 6, "d": 4, "c": 3, OTHER: 1 + 2 + 5}
    runs = by_queue(samples, "penstock_run_seconds_count")  # of runs that end together only some are measured
    assert runs.keys() == {ODD, OTHER}
    assert sum(queues.values()) == sum(runs.values()) == 21


async def test_a_storage_that_does_not_answer_is_down_and_nothing_else(tmp_path: Any) -> None:
    """The scrape succeeds, so that an alert can see it."""
    app = Penstock("redis://127.0.0.1:1", timeout=1)
    assert samples_of(scraped(app)).keys() == {
        ("penstock_storage_up", frozenset()),
        ("penstock_info", frozenset({("version", fleet.__version__), ("storage", "redis"), ("namespace", "penstock")})),
    }
    found = FleetReader(app)
    assert not found.read().up
    found.close()


async def test_a_reader_rests_a_hundred_times_as_long_as_it_reads(
    app: Penstock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second scrape right after the first gets the same answer."""
    now = [1000.0]
    monkeypatch.setattr(fleet.time, "monotonic", lambda: now[0])
    reader = FleetReader(app)
    monkeypatch.setattr(reader, "_read", slowly(reader._read, now, 0.02))
    first = reader.read()
    now[0] += 1.9
    assert reader.read() is first
    now[0] += 0.2
    assert reader.read() is not first


def slowly(read: Any, now: list[float], seconds: float) -> Any:
    """Return the same coroutine function, which takes some seconds of a clock."""

    async def slow() -> Any:
        now[0] += seconds
        return await read()

    return slow


def test_an_app_with_a_storage_object_has_no_collector_of_its_own() -> None:
    """The object belongs to one event loop; the error names the remedy."""
    found = collector(Penstock(storage=connect("memory:")))
    with pytest.raises(NotSupported, match="metrics need an app with a URL"):
        list(found.collect())


async def test_a_storage_without_statistics_has_the_other_families(app: Penstock, clock: Clock) -> None:
    """Totals and histograms are absent, not zero."""

    class Plain:
        """A storage without the optional verbs."""

        def __getattr__(self, name: str) -> Any:
            if name in ("record_stats", "error_groups", "stats", "fire", "set_limit", "where", "inspect"):
                raise AttributeError(name)
            return getattr(app.storage, name)

    await app.queue("q").enqueue(1)
    clock.advance(5)
    plain: Any = Plain()
    text = exposition(families_of_fleet(await read_fleet(plain, "n")))[0].decode()
    samples = samples_of(text)
    assert value(samples, "penstock_jobs", queue="q", state="queued") == 1
    assert value(samples, "penstock_queue_oldest_seconds", queue="q") == 5
    names = {family.name for family in text_string_to_metric_families(text)}
    assert names == {
        "penstock_jobs", "penstock_queue_oldest_seconds", "penstock_queue_paused", "penstock_queue_workers",
        "penstock_workers", "penstock_units", "penstock_storage_up", "penstock_storage_latency_seconds",
        "penstock_read_seconds", "penstock_info",
    }  # fmt: skip


def test_buckets_are_cumulative_and_hold_every_duration() -> None:
    """Each duration is below the bound of its bucket, and within an octave of it; the last one is the count."""
    for seconds in (0.00005, 0.00011, 0.0015, 0.9, 3.0, 6000.0):
        counts = [0] * BUCKETS
        counts[bucket_of(seconds * 1e6)] = 2
        found = buckets_of(Histogram(tuple(counts), 0))
        bound = next(float(bound) for bound, count in found if count)
        assert bound / 2 <= max(seconds, BOUNDS[0] / 2) <= bound
        assert [count for _, count in found] == sorted(count for _, count in found)
        assert found[-1] == ("+Inf", 2)
    assert len(BOUNDS) == 27


def test_the_metrics_of_a_worker_pass_the_parser() -> None:
    """They have their types and labels; ages that are not known are 0."""
    status = WorkerStatus(
        id="w", stage="working", capacity=8, allowed=6, busy=2, memory=1000, runs={("q", "completed"): 3},
        restarted={"died": 1}, claim_age=1.5,
    )  # fmt: skip
    text = exposition(families_of_worker(status))[0].decode()
    samples = samples_of(text)
    assert value(samples, "penstock_worker_units", kind="allowed") == 6
    assert value(samples, "penstock_worker_runs_total", queue="q", outcome="completed") == 3
    assert value(samples, "penstock_worker_children_restarted_total", reason="died") == 1
    assert {family.name: family.type for family in text_string_to_metric_families(text)} == {
        "penstock_worker_units": "gauge", "penstock_worker_memory_bytes": "gauge", "penstock_worker_runs": "counter",
        "penstock_worker_loop_lag_seconds": "gauge", "penstock_worker_claim_age_seconds": "gauge",
        "penstock_worker_lease_age_seconds": "gauge", "penstock_worker_children_restarted": "counter",
    }  # fmt: skip


SELECTOR = re.compile(r"(penstock_[a-z_]+)(?:\{([^}]*)\})?")
MATCHER = re.compile(r'(\w+)(=~|=)"([^"]*)"')


def selectors(query: str) -> Iterator[tuple[str, list[tuple[str, str, str]]]]:
    for name, labels in SELECTOR.findall(query):
        yield name, MATCHER.findall(labels)


async def test_every_query_of_the_dashboard_and_of_the_alerts_finds_series(app: Penstock, clock: Clock) -> None:
    """Names, labels, values and the labels of `by` exist in the metrics that this version exposes."""
    await fill(app, clock)
    samples = samples_of(scraped(app))
    queries = [query for panel in PANELS for query, _ in panel.queries] + [alert.query for alert in ALERTS]
    for query in queries:
        found = list(selectors(query))
        assert found, query
        for name, matchers in found:
            series = [dict(labels) for each, labels in samples if each == name]
            for label, how, wanted in matchers:
                pattern = wanted.replace("$queue", ".*") if how == "=~" else re.escape(wanted)
                series = [each for each in series if re.fullmatch(pattern, each.get(label, ""))]
            assert series, f"{query}: nothing matches {name}"
            for group in re.findall(r"(?:by|on) \(([^)]*)\)", query):
                assert all(set(group.split(", ")) <= each.keys() for each in series), query
    legends = [(legend, query) for panel in PANELS for query, legend in panel.queries]
    for legend, query in legends:
        assert set(re.findall(r"{{(\w+)}}", legend)) <= set(re.findall(r"\w+", query)), legend


def test_the_dashboard_has_fourteen_panels_and_its_variables() -> None:
    """Every panel has its own place and the data source of the variable; the rules name what they are about."""
    dashboard = json.loads(dashboard_json())
    assert [variable["name"] for variable in dashboard["templating"]["list"]] == ["source", "queue"]
    assert len(dashboard["panels"]) == 14
    assert len({(each["gridPos"]["x"], each["gridPos"]["y"]) for each in dashboard["panels"]}) == 14
    assert {each["datasource"]["uid"] for each in dashboard["panels"]} == {"${source}"}
    assert [line.split(": ")[1] for line in rules_text().splitlines() if "- alert:" in line] == [
        "PenstockOldestJob", "PenstockNoWorker", "PenstockFailures", "PenstockStorageDown",
    ]  # fmt: skip
