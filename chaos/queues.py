"""The queues of the chaos run and the options of their handlers, which the checker reads as well.

plain       jobs in bulk                       plain/after  their follow-up jobs
brief       results are not kept               sync         sync handlers, in threads
lane        groups                             lanes        groups with a batch handler
bunch       a batch handler                    single       singleton ids with updates
call        callers wait for the result        later        delayed jobs
wanted      jobs that are cancelled            wantedsync   the same with sync handlers
gate        paused and resumed                 heavy, heavysync  handlers that cost a process
"""

from __future__ import annotations

from typing import Any

__all__ = ["BATCHED", "CAPACITY", "FAIL_HANDLER_OPTIONS", "NAMESPACE", "SETTINGS", "THREADED", "WITH_FAIL_HANDLER"]

NAMESPACE = "chaos"

DAY = 86_400.0
CAPACITY = 100

#: Finished jobs are kept for a day, so that the runner can read all of them at the end.
KEPT: dict[str, Any] = {"result_ttl": DAY, "failed_ttl": DAY, "min_backoff": 0.05, "max_backoff": 0.4}
#: Faults cause stalls and timeouts, so these handlers never fail a job because of them.
LENIENT: dict[str, Any] = {**KEPT, "max_retries": 2, "max_stalls": None, "max_timeouts": None, "timeout": 4.0}
#: A job fails after two timeouts or three stalls.
STRICT: dict[str, Any] = {**KEPT, "max_retries": 1, "max_stalls": 3, "max_timeouts": 2, "timeout": 0.6}

SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {**LENIENT, "size": 2},
    "plain/after": {**LENIENT, "size": 1},
    "brief": {**LENIENT, "size": 2, "retain": "none"},
    "sync": {**LENIENT, "size": 10},
    "lane": {**LENIENT, "size": 3},
    "lanes": {**LENIENT, "size": 5, "batch_size": 6},
    "bunch": {**LENIENT, "size": 5, "batch_size": 8},
    "single": {**LENIENT, "size": 4},
    "call": {**LENIENT, "size": 2, "priority": 120},
    "wanted": {**LENIENT, "size": 4},
    "wantedsync": {**LENIENT, "size": 10},
    "later": {**LENIENT, "size": 2},
    "gate": {**LENIENT, "size": 2},
    "heavy": {**STRICT, "size": 25},
    "heavysync": {**STRICT, "size": 25},
}

#: Queues with sync handlers, and queues with batch handlers.
THREADED = ("sync", "wantedsync", "heavysync")
BATCHED = ("bunch", "lanes")

#: Queues with a fail handler, and its options.
WITH_FAIL_HANDLER = ("plain", "sync", "heavy", "heavysync", "bunch", "call")
FAIL_HANDLER_OPTIONS: dict[str, Any] = {**KEPT, "max_stalls": None, "max_timeouts": None, "size": 2}
