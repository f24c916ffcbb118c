"""Workload `memory`: the server's memory per queued job, with 50 bytes of payload and given ids."""

from __future__ import annotations

from bench.cases import Case, Sample
from bench.harness import Harness
from bench.systems import penstock_system


def once(harness: Harness, jobs: int) -> list[Sample]:
    harness.request("enqueue", count=1)
    before = harness.storage.info("memory")["used_memory"]
    harness.request("fill", count=jobs, kind="ids")
    used = harness.storage.info("memory")["used_memory"] - before
    return [Sample("memory", "bytes/job", used / jobs, jobs=jobs)]


def cases(full: bool) -> list[Case]:
    jobs = 200_000 if full else 30_000
    return [Case("memory", penstock_system(), lambda harness: once(harness, jobs))]
