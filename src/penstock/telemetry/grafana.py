"""A Grafana dashboard and Prometheus alert rules over the metrics of `penstock metrics`."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

__all__ = ["ALERTS", "PANELS", "Alert", "Panel", "dashboard_json", "rules_text"]


class Panel(NamedTuple):
    """A panel: its title, the queries with their legends, the unit of its values, and what it shows."""

    title: str
    queries: tuple[tuple[str, str], ...]
    unit: str = "short"
    text: str = ""
    kind: str = "timeseries"


class Alert(NamedTuple):
    """An alert rule: its name, its query, how long that holds, how bad it is, and one line about it."""

    name: str
    query: str
    lasting: str
    severity: str
    summary: str


#: The queues that the reader of the dashboard has chosen.
Q = 'queue=~"$queue"'


def rate(name: str) -> str:
    """Return the query of the growth of a counter per second."""
    return f"rate({name}{{{Q}}}[$__rate_interval])"


def percentiles(name: str) -> tuple[tuple[str, str], ...]:
    """Return the queries of three percentiles of a histogram, with their names."""
    parts = ((0.5, "p50"), (0.95, "p95"), (0.99, "p99"))
    return tuple((f"histogram_quantile({part}, sum by (le) ({rate(name)}))", label) for part, label in parts)


PANELS = (
    Panel("Waiting", ((f'sum(penstock_jobs{{{Q}, state="queued"}})', "queued"),), kind="stat"),
    Panel("Running", (('sum(penstock_units{kind="busy"})', "busy units"),), kind="stat"),
    Panel("Workers", (("penstock_workers", "workers"),), kind="stat"),
    Panel("Storage", (("penstock_storage_up", "up"),), kind="stat", text="1 while the storage answers."),
    Panel(
        "Finished",
        (
            (
                f"sum by (queue, state) (rate(penstock_jobs_finished_total{{{Q}}}[$__rate_interval]))",
                "{{queue}} {{state}}",
            ),
        ),
        "ops",
        "Jobs that ended, per second.",
    ),
    Panel(
        "Runs that were repeated",
        (
            (
                f"sum by (queue, reason) (rate(penstock_runs_repeated_total{{{Q}}}[$__rate_interval]))",
                "{{queue}} {{reason}}",
            ),
        ),
        "ops",
        "Retries, timeouts and stalls, per second.",
    ),
    Panel("Queued jobs", ((f'sum by (queue) (penstock_jobs{{{Q}, state="queued"}})', "{{queue}}"),)),
    Panel(
        "Other open jobs",
        ((f'sum by (state) (penstock_jobs{{{Q}, state=~"scheduled|retrying|blocked|running"}})', "{{state}}"),),
    ),
    Panel(
        "Oldest job",
        ((f"max by (queue) (penstock_queue_oldest_seconds{{{Q}}})", "{{queue}}"),),
        "s",
        "How long the oldest queued job has been due.",
    ),
    Panel("Wait", percentiles("penstock_job_wait_seconds_bucket"), "s", "From due to begin of a run."),
    Panel("Run", percentiles("penstock_run_seconds_bucket"), "s", "Duration of runs."),
    Panel(
        "Units",
        tuple((f'sum(penstock_units{{kind="{kind}"}})', kind) for kind in ("capacity", "allowed", "busy")),
        text="Of all workers.",
    ),
    Panel("Failures with one cause", ((f"sum by (queue) (penstock_error_groups_open{{{Q}}})", "{{queue}}"),)),
    Panel(
        "Storage latency",
        (("penstock_storage_latency_seconds", "one call"), ("penstock_read_seconds", "reading these metrics")),
        "s",
    ),
)

ALERTS = (
    Alert(
        "PenstockOldestJob",
        "max by (queue) (penstock_queue_oldest_seconds) > 300",
        "5m",
        "warning",
        "A job of queue {{ $labels.queue }} has been due for {{ $value | humanizeDuration }}.",
    ),
    Alert(
        "PenstockNoWorker",
        'sum by (queue) (penstock_jobs{state="queued"}) > 0 and on (queue) penstock_queue_workers == 0',
        "5m",
        "critical",
        "Jobs wait in queue {{ $labels.queue }}, and no live worker serves it.",
    ),
    Alert(
        "PenstockFailures",
        'sum by (queue) (rate(penstock_jobs_finished_total{state="failed"}[10m])) '
        "/ sum by (queue) (rate(penstock_jobs_finished_total[10m])) > 0.05",
        "10m",
        "warning",
        "{{ $value | humanizePercentage }} of the jobs of queue {{ $labels.queue }} fail for good.",
    ),
    Alert("PenstockStorageDown", "penstock_storage_up == 0", "1m", "critical", "The storage does not answer."),
)


def dashboard_json() -> str:
    """Return the dashboard, to be imported into Grafana: it asks for its data source."""
    return json.dumps(_dashboard(), indent=2)


def rules_text() -> str:
    """Return the alert rules as a rule file of Prometheus."""
    lines = ["groups:", "  - name: penstock", "    rules:"]
    for alert in ALERTS:
        lines += [
            f"      - alert: {alert.name}",
            f"        expr: {json.dumps(alert.query)}",
            f"        for: {alert.lasting}",
            "        labels:",
            f"          severity: {alert.severity}",
            "        annotations:",
            f"          summary: {json.dumps(alert.summary)}",
        ]
    return "\n".join(lines)


def _dashboard() -> dict[str, Any]:
    return {
        "title": "Penstock",
        "uid": "penstock",
        "tags": ["penstock"],
        "schemaVersion": 39,
        "refresh": "30s",
        "time": {"from": "now-2h", "to": "now"},
        "templating": {"list": [_source_variable(), _queue_variable()]},
        "panels": [_panel(number, panel) for number, panel in enumerate(PANELS)],
    }


def _source_variable() -> dict[str, Any]:
    return {"name": "source", "label": "Data source", "type": "datasource", "query": "prometheus"}


def _queue_variable() -> dict[str, Any]:
    return {
        "name": "queue",
        "label": "Queue",
        "type": "query",
        "datasource": {"type": "prometheus", "uid": "${source}"},
        "query": "label_values(penstock_jobs, queue)",
        "refresh": 2,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }


def _panel(number: int, panel: Panel) -> dict[str, Any]:
    """Return a panel: four small ones in the first row, then two in each."""
    stat = panel.kind == "stat"
    row, column = divmod(number - 4, 2)
    place = {"x": 6 * number, "y": 0, "w": 6, "h": 4} if stat else {"x": 12 * column, "y": 4 + 8 * row, "w": 12, "h": 8}
    return {
        "id": number + 1,
        "title": panel.title,
        "description": panel.text,
        "type": panel.kind,
        "datasource": {"type": "prometheus", "uid": "${source}"},
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + index), "expr": query, "legendFormat": legend}
            for index, (query, legend) in enumerate(panel.queries)
        ],
    }
