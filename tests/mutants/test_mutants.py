"""Storages and workers that are broken on purpose, each in one place: the tests must notice every one.

Each mutant is an overlay of links to the package in which one text, found exactly once, was replaced; a few
tests are run against it and have to fail. The same tests pass on the package as it is.
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
    """A defect: the text `old` of a file becomes `new`, and one of the tests (`file::name` or `file`) must fail.

    A file of a storage is named below `storage`, its tests below `tests/conformance`; other files below the
    package, and their tests below `tests`.
    """

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    @property
    def of_storage(self) -> bool:
        return self.file.startswith(("sqlite/", "redis/"))

    @property
    def path(self) -> tuple[str, ...]:
        parts = self.file.split("/")
        return ("storage", *parts) if self.of_storage else tuple(parts)

    @property
    def storage(self) -> str:
        return "redis" if self.file.startswith("redis/") else "memory"

    @property
    def paths(self) -> tuple[str, ...]:
        folder = "tests/conformance" if self.of_storage else "tests"
        return tuple(f"{folder}/{test}" for test in self.tests)


SETTLE = "test_settle.py"
GROUPS = "test_groups.py"
ORDER = "test_order.py"
FILE = "test_sqlite_file.py"
UPDATES = "test_put_updates_order.py"

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
        "        apply_update(tx, queue, job, successor, flags_of(successor.flags or 0))\n", "",
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
    Mutant(
        "sqlite: a cancelled job is cancelled again", "sqlite/cancel.py",
        'CancelAnswer("cancelled", already=True)', 'CancelAnswer("cancelled")',
        ("test_cancel.py::test_cancel_of_a_finished_job_changes_nothing",),
    ),
    Mutant(
        "sqlite: a second cancel request emits its event again", "sqlite/cancel.py",
        'if running != "forget" and not already:', 'if running != "forget":',
        ("test_events.py::test_a_second_cancel_emits_nothing",),
    ),
    Mutant(
        "sqlite: a completed job is always revived", "sqlite/revive.py",
        "    if job.place == Bucket.COMPLETED and not completed:\n        return False\n", "",
        ("test_revive.py::test_only_failed_and_cancelled_jobs_are_revived",),
    ),
    Mutant(
        "sqlite: a revived job keeps its id free", "sqlite/revive.py",
        "job.cancel = job.flags = None", "job.cancel = None",
        ("test_revive.py::test_revive_of_a_completed_job_that_was_kept_for_its_waiter",),
    ),
    Mutant(
        "sqlite: a claim that called no handler is an attempt", "sqlite/settle.py",
        "        job.attempts -= 1  # the claim called no handler\n", "        pass\n",
        (f"{SETTLE}::test_a_claim_that_called_no_handler_is_no_attempt",),
    ),
    Mutant(
        "sqlite: a plain put promotes due jobs", "sqlite/put.py",
        "            expire(tx, queue)\n", "            promote(tx, queue)\n            expire(tx, queue)\n",
        ("test_clock.py::test_a_plain_put_or_settlement_does_not_promote_due_jobs",),
    ),
    Mutant(
        "sqlite: a put with a group does not promote due jobs", "sqlite/put.py",
        "    if new.group is not None:\n        promote(tx, queue)\n", "",
        ("test_clock.py::test_other_puts_and_settlements_promote_due_jobs",),
    ),
    Mutant(
        "sqlite: an update keeps the priority", "sqlite/put.py",
        "    if flags.priority:\n        job.rank = rank\n", "",
        (f"{UPDATES}::test_an_update_changes_the_priority",),
    ),
    Mutant(
        "sqlite: a job that changes its group keeps its place", "sqlite/put.py",
        "        job.time = max(job.due, queue.time)\n", "        job.time = job.created\n",
        (f"{UPDATES}::test_an_update_with_a_group_moves_the_job_to_the_end_of_it",),
    ),
    Mutant(
        "sqlite: a job in backoff holds the group it moves to", "sqlite/put.py",
        "group, queue.next_seq(), 0\n", "group, queue.next_seq(), job.retried\n",
        (f"{UPDATES}::test_a_job_in_backoff_does_not_hold_the_group_it_moves_to",),
    ),
    Mutant(
        "sqlite: the group that a job leaves stays held", "sqlite/ordering.py",
        "        if held:\n            change_holds(tx, queue, group, -1)\n        update_turn", "        update_turn",
        (f"{UPDATES}::test_the_group_that_a_job_leaves_goes_on",),
    ),
    Mutant(
        "sqlite: an update may give a group and a priority", "sqlite/put.py",
        "    if has_both(old, new, new.update):\n", "    if False:\n",
        (f"{UPDATES}::test_an_update_to_a_group_and_a_priority_is_refused",),
    ),
    Mutant(
        "sqlite: a successor that cannot be folded in is accepted", "sqlite/put.py",
        "    return running.format <= tx.format and rank != 0 and group is not None\n", "    return False\n",
        (f"{UPDATES}::test_a_successor_that_could_not_be_folded_in_is_refused",),
    ),
    Mutant(
        "sqlite: an expired job is claimed", "sqlite/claim.py",
        "        if expire(tx, queue):\n            tx.notify_work(queue)\n            continue\n", "",
        ("test_expire.py::test_a_job_that_has_not_begun_in_time_is_never_claimed",),
    ),
    Mutant(
        "sqlite: a job expires after its first run has begun", "sqlite/statements.sql",
        "start_by = NULL, token = ?, worker = ?, until = ?, cancel = NULL,\n    progress = NULL\nWHERE n IN",
        "token = ?, worker = ?, until = ?, cancel = NULL,\n    progress = NULL\nWHERE n IN",
        ("test_expire.py::test_a_released_job_does_not_expire",),
    ),
    Mutant(
        "sqlite: an expired head keeps its group", "sqlite/expire.py",
        "        change_holds(tx, queue, job.grp, -1)\n", "        pass\n",
        ("test_expire.py::test_a_reset_head_in_backoff_that_expires_frees_its_group",),
    ),
    Mutant(
        "sqlite: a plain put does not look for expired jobs", "sqlite/put.py",
        "            expire(tx, queue)\n", "",
        ("test_expire.py::test_the_id_of_an_expired_job_is_free",),
    ),
    Mutant(
        "sqlite: a discard takes jobs in any state", "sqlite/discard.py",
        "(state is not None and state_of(job, tx.now) is not state) or ", "",
        ("test_discard.py::test_discard_with_a_state_keeps_jobs_in_other_states",),
    ),
    Mutant(
        "sqlite: a discarded job leaves its group held", "sqlite/discard.py",
        "        finish(tx, queue, job, Bucket.CANCELLED, \"\", 0)\n", "        tx.delete(queue, job)\n",
        ("test_discard.py::test_discarding_a_head_in_backoff_frees_its_group",),
    ),
    Mutant(
        "sqlite: the database of another program is used", "sqlite/file_errors.py",
        "if id == APPLICATION_ID or (id == 0 and table is None):", "if True:",
        (f"{FILE}::test_open_refuses_the_database_of_another_program",),
    ),
    Mutant(
        "sqlite: a new file is not marked", "sqlite/engine.py",
        "                    db.execute(f\"PRAGMA application_id = {APPLICATION_ID}\")\n", "",
        (f"{FILE}::test_a_new_file_is_marked_with_the_application_id",),
    ),
    Mutant(
        "sqlite: a replaced file is not noticed", "sqlite/file_errors.py",
        "None if FileIdentity.of(path) == known else", "None if FileIdentity.of(path) else",
        (f"{FILE}::test_put_is_refused_when_the_file_was_replaced",),
    ),
    Mutant(
        "sqlite: a deleted file is compared once", "sqlite/engine.py",
        "            if time.monotonic() >= self._next_check:\n                self._check_file()\n", "",
        (f"{FILE}::test_put_is_refused_when_the_file_was_deleted",),
    ),
    Mutant(
        "sqlite: the log is not used again on a full disk", "sqlite/engine.py",
        "                self._reuse_log()\n", "                pass\n",
        (f"{FILE}::test_a_full_disk_can_be_drained",),
    ),
    Mutant(
        "sqlite: a read fails with its promotions on a full disk", "sqlite/engine.py",
        "return self._attempt(ops, True, reading=True)", "return self._attempt(ops, True)",
        (f"{FILE}::test_find_on_a_full_disk_shows_jobs_that_fell_due",),
    ),
    Mutant(
        "sqlite: a damaged file is waited for", "sqlite/file_errors.py",
        "        case sqlite3.SQLITE_CORRUPT:\n            return StorageUnusable(",
        "        case sqlite3.SQLITE_CORRUPT:\n            return StorageUnavailable(",
        (f"{FILE}::test_open_names_the_way_out_of_a_damaged_file",),
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
        'self._connection.write("SET", key, mark', 'self._connection.command("SET", key, mark',
        ("test_full.py::test_events_reach_a_listener_of_a_full_server",),
    ),
    Mutant(
        "redis: a worker that leaves keeps its subscription", "redis/__init__.py",
        "            await self._notifier.forget_worker(worker)\n", "            pass\n",
        ("test_full.py::test_a_worker_that_leaves_gives_its_connection_back",),
    ),
    Mutant(
        "redis: a cancelled job is cancelled again", "redis/lua/cancel.lua",
        "state == 'cancelled' and CANCELLED + ALREADY or STATES[state]", "STATES[state]",
        ("test_cancel.py::test_cancel_of_a_finished_job_changes_nothing",),
    ),
    Mutant(
        "redis: a second cancel request emits its event again", "redis/lua/cancel.lua",
        "if not already then emit('cancel_requested'", "if true then emit('cancel_requested'",
        ("test_events.py::test_a_second_cancel_emits_nothing",),
    ),
    Mutant(
        "redis: a repeated request is made again", "redis/lua/_once.lua",
        "  if before then return", "  if false then return",
        ("test_lost_replies.py::test_a_lost_cancel_is_made_once",),
    ),
    Mutant(
        "redis: the answer of a request is kept for ever", "redis/lua/_once.lua",
        ", 'PX', ARGV[5])", ")",
        ("test_lost_replies.py::test_the_answers_kept_for_repetitions_expire",),
    ),
    Mutant(
        "redis: a completed job is always revived", "redis/lua/revive.lua",
        "(state == 'completed' and ARGV[6] ~= '1') or ", "",
        ("test_revive.py::test_only_failed_and_cancelled_jobs_are_revived",),
    ),
    Mutant(
        "redis: a claim that called no handler is an attempt", "redis/lua/settle.lua",
        "run.attempt = uncounted and 0 or COUNT_ATTEMPT", "run.attempt = COUNT_ATTEMPT",
        (f"{SETTLE}::test_a_claim_that_called_no_handler_is_no_attempt",),
    ),
    Mutant(
        "redis: a plain settlement promotes due jobs", "redis/lua/settle.lua",
        "  if run.group or run.successor then promote(q) end\n", "  promote(q)\n",
        ("test_clock.py::test_a_failure_without_a_group_does_not_promote_due_jobs",),
    ),
    Mutant(
        "redis: an update keeps the priority", "redis/lua/_transitions.lua",
        "  if flags.priority then j.priority = e.priority end\n", "",
        (f"{UPDATES}::test_an_update_changes_the_priority",),
    ),
    Mutant(
        "redis: a job that changes its group keeps its place", "redis/lua/_transitions.lua",
        "    j.time = math.max(j.due, acceptance(q))\n", "    j.time = j.created\n",
        (f"{UPDATES}::test_an_update_with_a_group_moves_the_job_to_the_end_of_it",),
    ),
    Mutant(
        "redis: a job in backoff holds the group it moves to", "redis/lua/_transitions.lua",
        "e.group, seq or next_seq(q), false\n", "e.group, seq or next_seq(q), j.retried\n",
        (f"{UPDATES}::test_a_job_in_backoff_does_not_hold_the_group_it_moves_to",),
    ),
    Mutant(
        "redis: the group that a job leaves gets no turn", "redis/lua/_transitions.lua",
        "  if j.group ~= group then regroup(q, group, turn) end\n", "",
        (f"{UPDATES}::test_the_group_that_a_job_leaves_goes_on",),
    ),
    Mutant(
        "redis: the group that a folded job leaves gets no turn", "redis/lua/_transitions.lua",
        "      if j.group ~= group then regroup(q, group) end\n", "",
        (f"{UPDATES}::test_a_successor_folds_its_group_in",),
    ),
    Mutant(
        "redis: an update may give a group and a priority", "redis/lua/_transitions.lua",
        "  if has_both(j, e, e.update) then return { 'refused', waiting_state(q, e.id, j) } end\n", "",
        (f"{UPDATES}::test_an_update_to_a_group_and_a_priority_is_refused",),
    ),
    Mutant(
        "redis: a successor that cannot be folded in is accepted", "redis/lua/_transitions.lua",
        "  return running and not running.rest and has_both(running, after, flags)\n", "  return false\n",
        (f"{UPDATES}::test_a_successor_that_could_not_be_folded_in_is_refused",),
    ),
    Mutant(
        "redis: an expired job is claimed", "redis/lua/claim.lua",
        " or (known[4] and expire(q, known[4]))", "",
        ("test_expire.py::test_a_job_that_has_not_begun_in_time_is_never_claimed",),
    ),
    Mutant(
        "redis: the fast path claims jobs that may expire", "redis/lua/_fast_claim.lua",
        "known[2] or known[4] or size", "known[2] or size",
        ("test_expire.py::test_a_job_that_has_not_begun_in_time_is_never_claimed",),
    ),
    Mutant(
        "redis: a job expires after its first run has begun", "redis/lua/_transitions.lua",
        "  j.retried, j.start_by = j.due > now, nil\n", "  j.retried = j.due > now\n",
        ("test_expire.py::test_a_released_job_does_not_expire",),
    ),
    Mutant(
        "redis: an expired head keeps its turn", "redis/lua/_expiry.lua",
        "  regroup(q, j.group)\n", "",
        ("test_expire.py",),
    ),
    Mutant(
        "redis: the fast path of put does not look for expired jobs", "redis/lua/_fast_put.lua",
        " or (meta[3] and tonumber(meta[3]) <= now)", "",
        ("test_expire.py::test_a_plain_put_after_the_start_by_time_of_another_job_ends_it",),
    ),
    Mutant(
        "redis: a claimed job stays among those that may expire", "redis/lua/claim.lua",
        "    drop_expiry(q, id, parse(rec))\n", "",
        ("test_expire.py::test_a_run_leaves_no_expiry_behind",),
    ),
    Mutant(
        "redis: a reap forgets the last settlement", "redis/lua/reap.lua",
        "    j.attempts, j.stalls, j.due = attempt, j.stalls + 1, now\n",
        "    j.attempts, j.stalls, j.due, j.settled = attempt, j.stalls + 1, now, ''\n",
        ("test_reap.py::test_a_retry_repeated_after_the_next_run_stalled_is_answered_again",),
    ),
    Mutant(
        "redis: a discard takes jobs in any state", "redis/lua/discard.lua",
        "(wanted == '' or wanted == state) and ", "",
        ("test_discard.py::test_discard_with_a_state_keeps_jobs_in_other_states",),
    ),
    Mutant(
        "redis: a discarded job leaves its end behind", "redis/lua/discard.lua",
        "  forget_end(q, id, ended)\n", "",
        ("test_discard.py::test_a_job_in_any_state_but_running_is_gone",),
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
        "      apply(q, j, s, flags_of(byte(waiting, 1)))\n", "",
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
    # Runs
    Mutant(
        "errors: a lone surrogate is not escaped", "errors.py",
        'return str.encode(text, "utf-8", "backslashreplace").decode()', "return text",
        ("unit/test_errors.py::test_every_exception_has_a_record_that_can_be_stored",),
    ),
    Mutant(
        "errors: an exception may raise while it is recorded", "errors.py",
        "        return call()\n    except BaseException:\n", "        return call()\n    except Exception:\n",
        ("unit/test_errors.py::test_every_exception_has_a_record_that_can_be_stored[kind raises]",),
    ),
    Mutant(
        "worker: an outcome that cannot be resolved is not noticed", "claims.py",
        "    except Exception as error:\n        outcome, resolution = unrecordable",
        "    except ImportError as error:\n        outcome, resolution = unrecordable",
        ("worker/test_odd_exceptions.py::test_an_outcome_that_cannot_be_resolved_fails_its_own_job",),
    ),
    Mutant(
        "worker: a base exception of a handler is not noticed", "worker/executor.py",
        "        except BaseException as error:\n            return self._failed(run, error)",
        "        except Exception as error:\n            return self._failed(run, error)",
        ("worker/test_executor.py::test_a_run_ends_with_an_outcome_whatever_its_handler_raises",),
    ),
    Mutant(
        "worker: a task that its run cancelled takes the next run", "worker/task_pool.py",
        "run.interruption is not None or task.cancelling() or", "run.interruption is not None or",
        ("worker/test_odd_exceptions.py::test_a_handler_that_cancels_its_own_task_fails_its_run_alone",),
    ),
    Mutant(
        "worker: a run begins after its lease", "worker/pool.py",
        "now >= run.jobs[0].confirmed + self._lease", "False",
        ("worker/test_runs.py::test_no_run_begins_after_its_lease",),
    ),
    Mutant(
        "worker: a batch begins with a lost job", "worker/pool.py",
        "(len(run.jobs) > 1 or now", "(now",
        ("worker/test_runs.py::test_a_batch_with_a_lost_job_is_not_begun",),
    ),
    Mutant(
        "model: a listener may raise a base exception", "model/events.py",
        "            except BaseException as error:\n                self.log_raised",
        "            except Exception as error:\n                self.log_raised",
        ("unit/test_events.py::test_a_raising_listener_is_logged_and_harms_nothing",),
    ),
    Mutant(
        "model: a permanent class is not looked at", "model/outcome.py",
        "    if issubclass(kind, permanent):\n", "    if kind in permanent:\n",
        ("unit/test_outcome.py::test_an_exception_of_a_permanent_class_is_permanent",),
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
        """Run tests against the package in `source`, up to the first failure: exit code and output."""
        assert self._process.stdin
        assert self._process.stdout
        arguments = [
            "-x", "-q", "--tb=line", "-p", "no:cacheprovider", *(f"-p{plugin}" for plugin in PLUGINS),
            "-o", f"pythonpath={source}", "--storages", storage, *tests,
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
def test_a_defect_is_noticed(mutant: Mutant, runs: Runs, tmp_path: Path) -> None:
    """A package with this defect fails the tests."""
    path = mutant.path
    make_overlay(PACKAGE, tmp_path / "penstock", path)
    text = PACKAGE.joinpath(*path).read_text()
    assert text.count(mutant.old) == 1, f"{mutant.file} has the text {text.count(mutant.old)} times: {mutant.old!r}"
    tmp_path.joinpath("penstock", *path).write_text(text.replace(mutant.old, mutant.new))
    code, output = runs.run(tmp_path, mutant.storage, mutant.paths)
    assert code == 1, f"not noticed (exit code {code}):\n{output[-5000:]}"
    assert "failed" in output or "FAILED" in output or "ERROR" in output


@pytest.mark.parametrize("storage", ["memory", "redis"])
def test_a_whole_package_passes(storage: str, runs: Runs, tmp_path: Path) -> None:
    """The tests that notice the mutants pass on an overlay without a defect, so they fail because of the defect."""
    path = next(mutant.path for mutant in MUTANTS if mutant.storage == storage)
    make_overlay(PACKAGE, tmp_path / "penstock", path)
    tmp_path.joinpath("penstock", *path).write_text(PACKAGE.joinpath(*path).read_text())
    tests = {test for mutant in MUTANTS if mutant.storage == storage for test in mutant.paths}
    code, output = runs.run(tmp_path, storage, tuple(sorted(tests)))
    assert code == 0, f"exit code {code}:\n{output[-5000:]}"
