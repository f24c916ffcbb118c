"""Mutants of the tests that no simulated run can meet, with the reason: their own tests find them."""

from __future__ import annotations

from tests.mutants.test_mutants import Mutant

__all__ = ["REASONS", "reason_out_of_reach"]

DAMAGE = "no fault changes what is stored"
FILES = "the database of a run is in memory, without a file"
NEWER = "no record of a newer format is stored"
SECURITY = "about keys, seals, TLS, other users or terminals"
TRANSFER = "export and import are no part of the work"
CONNECTION = "about connections to Redis, which a run does not have"
INSIDE = "needs a fault inside of the package itself"
LASTING = "about the time while a storage refuses every settle; a run has no such fault"
FULL = "about flags of scripts on a server without memory; in a run the network refuses the puts"
BULK = "bulk actions are no part of the work"
COST = "changes no answer: about the work that a listener or a waiter causes"
DRAIN = "about `drain` of tests, which is no part of the work"
EVENTS = "streams of events with a filter are not simulated"
RESTORE = "import of jobs is no part of the work"
TASKS = "tasks are no part of the work"
WORKERS = "requests to workers are no part of the work"
CALENDAR = "the checks use the same code: changes of local time"
SAME_CODE = "the checks use the same code: fingerprints of errors"
SAMPLES = "samples and times of runs are not part of the model"
SCALE = "needs more jobs, waiters or bytes than a run has"

#: The reasons by the begin of the file, and by the folder of the tests that find the mutant.
FILE_REASONS = {
    "cli/": SECURITY, "log_config": SECURITY, "model/encryption": SECURITY, "model/serde": SECURITY,
    "model/redaction": SECURITY, "model/failure": SECURITY, "model/formats": SECURITY, "model/printing": SECURITY,
    "ops/export": TRANSFER, "ops/rebind": TRANSFER, "model/storage_info": TRANSFER, "sqlite/file_": FILES,
    "sqlite/engine": FILES,
    "redis/end_notices": CONNECTION, "redis/scripts": CONNECTION, "redis/schema": CONNECTION,
    "redis/__init__": CONNECTION, "storage/": SECURITY,
}  # fmt: skip
TEST_REASONS = {
    "storage/test_tampering": DAMAGE, "security/": SECURITY, "test_formats.py": NEWER, "client/test_binding": SECURITY,
}  # fmt: skip

#: The reasons of single mutants.
REASONS: dict[str, str] = {
    "worker: an outcome that cannot be resolved is not noticed": INSIDE,
    "worker: an outcome is changed while the storage records none": LASTING,
    "worker: a queue in which nothing can be settled holds up the others": LASTING,
    "worker: stop() waits for ever for outcomes that cannot be recorded": LASTING,
    "a bulk action takes jobs that are newer than its preview": BULK,
    "a bulk action of a dead process is resumed": BULK,
    "redis: a bulk action is changed without its version": BULK,
    "a drain waits for the holder of the alarm": DRAIN,
    "client: keys of a task forget the defaults of its arguments": TASKS,
    "sqlite: a listener of one queue gets the events of another": EVENTS,
    "sqlite: a listener to another queue costs": COST,
    "sqlite: a listener that has left still costs": COST,
    "redis: a listener of one queue gets the events of another": EVENTS,
    "redis: a listener gets events of other names": EVENTS,
    "redis: a listener that has left still costs": COST,
    "redis: a listener that leaves takes others with it": EVENTS,
    "redis: a killed listener costs while another lives": COST,
    "redis: a restored job frees its id": RESTORE,
    "redis: a request is for the next worker of the id too": WORKERS,
    "a repeated time counts twice": CALENDAR,
    "a time in a gap is lost": CALENDAR,
    "the fingerprint has the message": SAME_CODE,
    "the last look at an idle queue is forgotten": SAMPLES,
    "a measured run counts for itself alone": SAMPLES,
    "times that could not be sent are lost": SAMPLES,
    "sqlite: a wait for an end that is cancelled stays a waiter": COST,
    "redis: the last look at an idle queue is forgotten": SAMPLES,
    "error groups are not bounded": SCALE,
    "redis: error groups are not bounded": SCALE,
    "redis: a log has no bound of its bytes": SCALE,
    "redis: a claim takes any number of jobs": SCALE,
    "redis: a job has any number of waiters": SCALE,
    "redis: a repeated request is made again": CONNECTION,
    "redis: a refused put counts as made when it is sent again": CONNECTION,
    "redis: a bounded put that is sent again is refused by its own jobs": CONNECTION,
    "redis: a claim is refused by a full server": FULL,
    "redis: a settlement is refused by a full server": FULL,
    "redis: a full server takes puts": FULL,
    "redis: a waiter that leaves takes others with it": CONNECTION,
    "redis: a client is a waiter once for each wait": CONNECTION,
    "redis: a page of several states has jobs of any length": "",  # found by a seed with long records
}


def reason_out_of_reach(mutant: Mutant) -> str:
    """Return why no simulated run can meet a mutant, empty if one can."""
    if mutant.name in REASONS:
        return REASONS[mutant.name]
    for begin, reason in FILE_REASONS.items():
        if mutant.file.startswith(begin):
            return reason
    for begin, reason in TEST_REASONS.items():
        if mutant.tests and all(test.startswith(begin) for test in mutant.tests):
            return reason
    return ""
