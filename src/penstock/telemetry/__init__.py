"""Metrics, traces, logs and health of Penstock, for the systems that watch it."""

from __future__ import annotations

from typing import Any

from penstock.host import AppHost, SyncApp
from penstock.telemetry.on_demand import MISSING, load_prometheus

__all__ = ["collector"]


def collector(app: AppHost | SyncApp) -> Any:
    """Return a collector of the metrics of an app and all its workers: `registry.register(collector(app))`.

    It needs the extra `metrics`, which brings `prometheus_client`. The storage is read when the registry is.
    """
    writer = load_prometheus()
    if writer is None:
        raise ModuleNotFoundError(MISSING, name="prometheus_client")
    return writer.FleetCollector(app)
