"""Loading of the module that writes metrics, for programs that may lack its library."""

from __future__ import annotations

import importlib
from typing import Any

__all__ = ["MISSING", "load_prometheus"]

#: What to do without prometheus-client.
MISSING = 'metrics need the prometheus-client package: pip install "penstock[metrics]"'


def load_prometheus() -> Any:
    """Return `penstock.telemetry.prometheus`, or None if prometheus-client is not installed."""
    try:
        return importlib.import_module("penstock.telemetry.prometheus")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "prometheus_client":
            raise
        return None
