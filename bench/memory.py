"""What does a queued job cost the server's memory? 50 bytes of payload, ids given, so that duplicates are known."""

from __future__ import annotations

from bench.cases import Case, Reading
from bench.rig import Rig
from bench.systems import ours


def once(rig: Rig, jobs: int) -> list[Reading]:
    rig.ask("enqueue", count=1)
    before = rig.storage.info("memory")["used_memory"]
    rig.ask("fill", count=jobs, kind="ids")
    used = rig.storage.info("memory")["used_memory"] - before
    return [Reading("memory", "bytes/job", used / jobs, jobs=jobs)]


def cases(full: bool) -> list[Case]:
    jobs = 200_000 if full else 30_000
    return [Case("memory", ours(), lambda rig: once(rig, jobs))]
