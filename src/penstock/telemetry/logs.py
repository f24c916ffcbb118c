"""Log records with the job that wrote them, for `logging` and for structlog. Payloads are never logged."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

from penstock.log_config import JobContextFilter, JsonLines, job_fields

__all__ = ["JobContextFilter", "JsonLines", "add_job"]


def add_job(logger: Any, method_name: str, event_dict: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Add the fields of the running job to an event of structlog: a processor. Fields that the event has are kept."""
    for name, value in job_fields().items():
        event_dict.setdefault(name, value)
    return event_dict
