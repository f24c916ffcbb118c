"""The queues of the chaos run and the options of their handlers; the checker judges by them."""

from __future__ import annotations

from typing import Any

__all__ = ["BATCHED", "CAPACITY", "FAILING", "NAMESPACE", "SETTINGS", "THREADED", "WITH_FAIL_HANDLER"]

NAMESPACE = "chaos"

DAY = 86_400.0
CAPACITY = 100

#: Kept to be looked at; stalls and timeouts are the faults' doing and no reason to give up.
KEPT: dict[str, Any] = {"result_ttl": DAY, "failed_ttl": DAY, "min_backoff": 0.05, "max_backoff": 0.4}
PATIENT: dict[str, Any] = {**KEPT, "max_retries": 2, "max_stalls": None, "max_timeouts": None, "timeout": 4.0}
#: Given up after two timeouts or three stalls.
STRICT: dict[str, Any] = {**KEPT, "max_retries": 1, "max_stalls": 3, "max_timeouts": 2, "timeout": 0.6}

SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {**PATIENT, "size": 2},
    "plain/after": {**PATIENT, "size": 1},
    "brief": {**PATIENT, "size": 2, "retain": "none"},
    "sync": {**PATIENT, "size": 10},
    "lane": {**PATIENT, "size": 3},
    "lanes": {**PATIENT, "size": 5, "batch_size": 6},
    "bunch": {**PATIENT, "size": 5, "batch_size": 8},
    "single": {**PATIENT, "size": 4},
    "call": {**PATIENT, "size": 2, "priority": 120},
    "wanted": {**PATIENT, "size": 4},
    "wantedsync": {**PATIENT, "size": 10},
    "later": {**PATIENT, "size": 2},
    "gate": {**PATIENT, "size": 2},
    "heavy": {**STRICT, "size": 25},
    "heavysync": {**STRICT, "size": 25},
}

#: Queues whose handlers are plain functions, and those that take lists.
THREADED = ("sync", "wantedsync", "heavysync")
BATCHED = ("bunch", "lanes")

#: Queues whose failed jobs are told to a fail handler, and how that one is run.
WITH_FAIL_HANDLER = ("plain", "sync", "heavy", "heavysync", "bunch", "call")
FAILING: dict[str, Any] = {**KEPT, "max_stalls": None, "max_timeouts": None, "size": 2}
