"""Storages that are broken on purpose, each in one place: the conformance suite must notice every one.

Each mutant is an overlay of links to the package in which one text, found exactly once, was replaced; a few
conformance tests are run against it and have to fail. The same tests pass on the package as it is.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import penstock

ROOT = Path(__file__).parents[2]
PACKAGE = Path(penstock.__file__).parent


class Mutant(NamedTuple):
    """A defect: the text `old` of a file becomes `new`, and one of the tests (`file::name` or `file`) must fail."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    @property
    def storage(self) -> str:
        return "memory" if self.file.startswith("sqlite/") else "redis"


SETTLE = "test_settle.py"
GROUPS = "test_groups.py"
ORDER = "test_order.py"

MUTANTS = [
    # SQLite
    Mutant(
        "sqlite: no token check when settling one by one", "sqlite/settle.py",
        "job.place != RUNNING or job.token != s.token:", "job.place != RUNNING:",
        (f"{SETTLE}::test_settle_with_a_wrong_token_changes_nothing",),
    ),
    Mutant(
        "sqlite: no token check when completing many", "sqlite/settle.py",
        "row is not None and row[4] == s.token and", "row is not None and",
        (f"{SETTLE}::test_settle_with_a_stale_token_does_not_end_the_new_run",),
    ),
    Mutant(
        "sqlite: no token check when completing in one step", "sqlite/statements.sql",
        "AND place = 3 AND token = column2 AND grp", "AND place = 3 AND grp",
        (f"{SETTLE}::test_settle_with_a_stale_token_does_not_end_the_new_run",),
    ),
    Mutant(
        "sqlite: a job that has run before is claimed as a new one", "sqlite/statements.sql",
        "    attempts = 0 AND retries = 0 AND stalls = 0", "    stalls = 0",
        ("test_claim.py::test_attempts_count_claims",),
    ),
    Mutant(
        "sqlite: completions that were not all simple are not undone", "sqlite/settle.py",
        "        if completed:\n            tx.run(\"settle_undo\", queue.k, expires, queue.finished)\n", "",
        (f"{SETTLE}::test_completions_beside_a_lost_one_are_counted_once_and_in_order",),
    ),
    Mutant(
        "sqlite: the successor is not released", "sqlite/finish.py",
        "    if successor:\n        successor.twin, successor.flags = 0, None\n",
        "    if successor and ttl:\n        successor.twin, successor.flags = 0, None\n",
        ("test_successors.py::test_the_successor_replaces_the_finished_job",),
    ),
    Mutant(
        "sqlite: the sequence is no part of the order", "sqlite/statements.sql",
        "place = 1 ORDER BY rank, time, seq LIMIT ?2", "place = 1 ORDER BY rank, time, id LIMIT ?2",
        (f"{ORDER}::test_first_in_first_out",),
    ),
    Mutant(
        "sqlite: a finished run keeps its hold", "sqlite/finish.py",
        "    if held and job.grp is not None:\n        change_holds(tx, queue, job.grp, -1)\n    if successor:\n",
        "    if successor:\n",
        (f"{GROUPS}::test_the_next_runs_when_the_head_is_done",),
    ),
    Mutant(
        "sqlite: a reaped stall is not counted", "sqlite/reap.py",
        "            job.stalls += 1\n", "",
        ("test_reap.py::test_an_expired_run_is_queued_again",),
    ),
    Mutant(
        "sqlite: a release does not refund the attempt", "sqlite/settle.py",
        "            job.attempts -= 1\n", "",
        (f"{SETTLE}::test_release_refunds_the_attempt",),
    ),
    Mutant(
        "sqlite: a pause is ignored", "sqlite/claim.py",
        "if queue is None or queue.paused is not None:", "if queue is None:",
        ("test_pause.py::test_a_paused_queue_hands_out_nothing",),
    ),
    Mutant(
        "sqlite: jobs are promoted a second early", "sqlite/statements.sql",
        "AND retried = ? AND due <= ?\n", "AND retried = ? AND due <= ? + 1000\n",
        ("test_claim.py::test_a_due_job_takes_no_later_one_with_it",),
    ),
    Mutant(
        "sqlite: a result is a duplicate for ever", "sqlite/put.py",
        "if old is None or old.expired(tx.now) or (", "if old is None or (",
        ("test_put.py::test_a_completed_id_is_free_when_its_ttl_is_over",),
    ),
    Mutant(
        "sqlite: a fold is not applied", "sqlite/finish.py",
        "        apply_update(tx, job, successor, flags_of(successor.flags or 0))\n", "",
        ("test_successors.py::test_the_successor_is_folded_into_a_returning_run",),
    ),
    Mutant(
        "sqlite: a group keeps its turn at the front", "sqlite/ordering.py",
        "time, seq = turn or (tx.now, queue.next_seq())", "time, seq = turn or (0, queue.next_seq())",
        (f"{GROUPS}::test_jobs_without_a_group_and_groups_share_one_order",),
    ),
    Mutant(
        "sqlite: a backoff does not hold its group", "sqlite/rows.py",
        "self.place == RUNNING or (self.place == LATER and bool(self.retried))", "self.place == RUNNING",
        (f"{GROUPS}::test_a_failing_head_holds_its_group_through_its_backoff",),
    ),
    Mutant(
        "sqlite: a weaker cancel undoes a stronger", "sqlite/cancel.py",
        "max(running, stored, key=CANCEL_MODES.index)", "running",
        ("test_cancel.py::test_a_weaker_cancel_request_does_not_replace_a_stronger_one",),
    ),
    # Redis
    Mutant(
        "redis: opening writes the schema", "redis/__init__.py",
        "        await self._schema.check(self._connection)\n", "        await self._schema.write(self._connection)\n",
        ("test_schema.py::test_opening_and_reading_write_nothing",),
    ),
    Mutant(
        "redis: a newer schema is not noticed by the first write", "redis/schema.py",
        '"NX")\n            await self.check(connection)\n', '"NX")\n            self.known = True\n',
        ("test_schema.py::test_a_newer_schema_that_appears_later_is_refused",),
    ),
    Mutant(
        "redis: a claim is refused by a full server", "redis/lua/claim.lua",
        "-- flags: allow-oom\n", "-- flags:\n",
        ("test_full.py::test_each_verb_but_put_and_restore_works_on_a_full_server",),
    ),
    Mutant(
        "redis: a settlement is refused by a full server", "redis/lua/settle.lua",
        "-- flags: allow-oom\n", "-- flags:\n",
        ("test_full.py::test_each_verb_but_put_and_restore_works_on_a_full_server",),
    ),
    Mutant(
        "redis: a full server takes puts", "redis/lua/put.lua",
        "-- flags:\n", "-- flags: allow-oom\n",
        ("test_full.py::test_a_full_server_refuses_put_and_restore",),
    ),
    Mutant(
        "redis: the mark of an event listener is refused by a full server", "redis/notifier.py",
        'self._connection.write("SET", mark', 'self._connection.command("SET", mark',
        ("test_full.py::test_events_reach_a_listener_of_a_full_server",),
    ),
    Mutant(
        "redis: a worker that leaves keeps its subscription", "redis/__init__.py",
        "            await self._notifier.forget_worker(worker)\n", "            pass\n",
        ("test_full.py::test_a_worker_that_leaves_gives_its_connection_back",),
    ),
    Mutant(
        "redis: no token check", "redis/lua/settle.lua",
        "if not held or sub(held, 1, 16) ~= token then", "if not held then",
        (f"{SETTLE}::test_settle_with_a_wrong_token_changes_nothing",),
    ),
    Mutant(
        "redis: the successor is not released", "redis/lua/_transitions.lua",
        "  if replaced then release_successor(q, id) end\n", "",
        ("test_successors.py::test_the_successor_is_released_with_any_run_at",),
    ),
    Mutant(
        "redis: the sequence is no part of the rank", "redis/lua/_fast_put.lua",
        "ready[i], ready[i + 1] = '0', PLAIN_RANK .. position .. 'j' .. id",
        "ready[i], ready[i + 1] = '0', PLAIN_RANK .. pack('>I6I6', now, 0) .. 'j' .. id",
        (f"{ORDER}::test_first_in_first_out",),
    ),
    Mutant(
        "redis: a failed run keeps its hold", "redis/lua/_transitions.lua",
        "  hold(q, run.group, -1)\n", "",
        (GROUPS,),
    ),
    Mutant(
        "redis: a completed run keeps its hold", "redis/lua/_ordering.lua",
        "tonumber(holds[i] or 0) - count[groups[i]]", "tonumber(holds[i] or 0)",
        (f"{GROUPS}::test_one_run_of_a_group_at_a_time",),
    ),
    Mutant(
        "redis: a turn keeps a head that has left", "redis/lua/_shared.lua",
        "    call('ZREM', q.lanes, lane_member(j, id))\n    forget_head(q, j.group)\n",
        "    call('ZREM', q.lanes, lane_member(j, id))\n",
        ("test_many.py::test_a_group_gives_the_following_job_when_its_next_one_leaves",),
    ),
    Mutant(
        "redis: a completed run forgets its successor", "redis/lua/_ordering.lua",
        "string.find(run, GROUP_RUN, 17, true) ~= 17", "byte(run, 17) ~= 0",
        ("test_successors.py",),
    ),
    Mutant(
        "redis: a stall is not counted", "redis/lua/settle.lua",
        "j.attempts + 1, j.stalls + 1, true, now", "j.attempts + 1, j.stalls, true, now",
        (f"{SETTLE}::test_stall_counts_and_keeps_the_position",),
    ),
    Mutant(
        "redis: a pause is ignored", "redis/lua/claim.lua",
        "if known[1] then", "if false then",
        ("test_pause.py::test_a_paused_queue_hands_out_nothing",),
    ),
    Mutant(
        "redis: jobs are due a second early", "redis/lua/put.lua",
        "  if j.due > now then\n", "  if j.due > now + 1000 then\n",
        ("test_claim.py::test_a_scheduled_job_is_not_given_early",),
    ),
    Mutant(
        "redis: a result is a duplicate for ever", "redis/lua/_transitions.lua",
        "if over or e.update or state ~= 'completed' then", "if e.update or state ~= 'completed' then",
        ("test_put.py::test_a_completed_id_is_free_when_its_ttl_is_over",),
    ),
    Mutant(
        "redis: a fold is not applied", "redis/lua/_transitions.lua",
        "      apply(j, s, flags_of(byte(waiting, 1)))\n", "",
        ("test_successors.py::test_the_successor_is_folded_into_a_returning_run",),
    ),
    Mutant(
        "redis: a group loses its turn", "redis/lua/_shared.lua",
        "  elseif not current then\n", "  elseif not current and turn then\n",
        (GROUPS,),
    ),
    Mutant(
        "redis: an unkept end is not remembered", "redis/lua/_transitions.lua",
        "call('ZADD', q.gone, now + GONE_MS,", "call('ZADD', q.gone, now,",
        (f"{SETTLE}::test_a_settlement_with_a_ttl_of_zero_is_remembered_for_a_minute",),
    ),
    Mutant(
        "sqlite: what was parked does not come back", "sqlite/unknown_formats.sql",
        "UPDATE jobs SET place = 1 WHERE n IN", "UPDATE jobs SET place = 1 WHERE n = -1 AND n IN",
        ("test_formats.py::test_a_claim_passes_over_a_newer_record",),
    ),
    Mutant(
        "sqlite: a lane goes on over a head that is not known", "sqlite/claim.py",
        "        tx.run(\"park_lane\", rows[0][FORMAT], queue.k, group)\n", "        return rows[1:]\n",
        ("test_formats.py::test_a_batch_of_a_group_ends_before_a_newer_record",),
    ),
    Mutant(
        "sqlite: jobs that fall due are not counted anew", "sqlite/ordering.py",
        "    queue.count(READY, len(plain))\n", "",
        ("test_reads.py::test_a_job_is_counted_once_in_each_state",),
    ),
    Mutant(
        "redis: a parked group loses its turn", "redis/lua/_shared.lua",
        "  if group then call('HSET', q.turns, group, parked) end\n", "",
        ("test_formats.py",),
    ),
    Mutant(
        "redis: a group is not found by its backoff", "redis/lua/_shared.lua",
        "  call('ZADD', q.backoffs, 0, backoff_member(j, id))\n", "",
        ("test_why.py::test_why_behind_a_backoff_of_its_group",),
    ),
    Mutant(
        "redis: a backoff is remembered after it is over", "redis/lua/_shared.lua",
        "  call('ZREM', q.backoffs, backoff_member(j, id))\n", "",
        ("test_why.py::test_why_behind_a_backoff_of_its_group",),
    ),
    Mutant(
        "redis: a run that becomes ready wakes nobody", "redis/lua/_shared.lua",
        "    call('ZADD', q.ready, 0, rank(j.priority, j.time, j.seq) .. 'j' .. id)\n    wake(q)\n",
        "    call('ZADD', q.ready, 0, rank(j.priority, j.time, j.seq) .. 'j' .. id)\n",
        ("test_waits.py::test_every_transition_to_ready_wakes_a_waiter",),
    ),
]  # fmt: skip


#: Plugins that the tests under mutation need; loading the others would take longer than the tests.
PLUGINS = ("pytest_timeout",)


class Runs:
    """Runs of pytest against overlays of the package, each in a fork of one process (`preloaded`)."""

    def __init__(self) -> None:
        env = {
            **os.environ,
            "PYTHONDONTWRITEBYTECODE": "1",  # the overlay's caches are those of the package
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        }
        for name in ("PYTEST_ADDOPTS", "PYTEST_XDIST_WORKER", "PYTEST_CURRENT_TEST"):
            env.pop(name, None)
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("preloaded.py"))],
            cwd=ROOT, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def run(self, source: Path, storage: str, tests: tuple[str, ...]) -> tuple[int, str]:
        """Run conformance tests against the package in `source`, up to the first failure: exit code and output."""
        assert self._process.stdin
        assert self._process.stdout
        arguments = [
            "-x", "-q", "--tb=line", "-p", "no:cacheprovider", *(f"-p{plugin}" for plugin in PLUGINS),
            "-o", f"pythonpath={source}", "--storages", storage, *(f"tests/conformance/{test}" for test in tests),
        ]  # fmt: skip
        output = source / "output"
        request = {"arguments": arguments, "source": str(source), "output": str(output)}
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline()), output.read_text()

    def close(self) -> None:
        """End the process by closing its input."""
        self._process.communicate()


@pytest.fixture(scope="module")
def runs() -> Iterator[Runs]:
    """The process that runs pytest for this module."""
    runs = Runs()
    yield runs
    runs.close()


def make_overlay(source: Path, target: Path, changed: tuple[str, ...] = ()) -> None:
    """Make a package of links to `source`, except for the file at the path `changed` below it.

    Compiled modules are linked as well, so the overlay starts as fast as the package; a copy without them
    would be compiled again by each run. Only the changed module has none, so it is compiled from its text.
    """
    target.mkdir()
    for entry in source.iterdir():
        if not changed or entry.name not in (changed[0], "__pycache__"):
            (target / entry.name).symlink_to(entry)
    if not changed:
        return
    first, *rest = changed
    caches = source / "__pycache__"
    if caches.is_dir():
        (target / "__pycache__").mkdir()
        for cache in caches.iterdir():
            if not cache.name.startswith(f"{Path(first).stem}."):
                (target / "__pycache__" / cache.name).symlink_to(cache)
    if rest:
        make_overlay(source / first, target / first, tuple(rest))


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_broken_storage_is_noticed(mutant: Mutant, runs: Runs, tmp_path: Path) -> None:
    """A storage with this defect fails the conformance suite."""
    path = ("storage", *mutant.file.split("/"))
    make_overlay(PACKAGE, tmp_path / "penstock", path)
    text = PACKAGE.joinpath(*path).read_text()
    assert text.count(mutant.old) == 1, f"{mutant.file} has the text {text.count(mutant.old)} times: {mutant.old!r}"
    tmp_path.joinpath("penstock", *path).write_text(text.replace(mutant.old, mutant.new))
    code, output = runs.run(tmp_path, mutant.storage, mutant.tests)
    assert code == 1, f"not noticed (exit code {code}):\n{output[-5000:]}"
    assert "failed" in output or "FAILED" in output or "ERROR" in output


@pytest.mark.parametrize("storage", ["memory", "redis"])
def test_a_whole_storage_passes(storage: str, runs: Runs, tmp_path: Path) -> None:
    """The tests that notice the mutants pass on an overlay without a defect, so they fail because of the defect."""
    path = next(("storage", *mutant.file.split("/")) for mutant in MUTANTS if mutant.storage == storage)
    make_overlay(PACKAGE, tmp_path / "penstock", path)
    tmp_path.joinpath("penstock", *path).write_text(PACKAGE.joinpath(*path).read_text())
    tests = {test for mutant in MUTANTS if mutant.storage == storage for test in mutant.tests}
    code, output = runs.run(tmp_path, storage, tuple(sorted(tests)))
    assert code == 0, f"exit code {code}:\n{output[-5000:]}"
