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

    A file of a storage is named below `storage`, its tests below `tests/conformance`, or with their folder; other
    files below the package, and their tests below `tests`.
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
        conformance = "tests/conformance" if self.of_storage else "tests"
        return tuple(f"{'tests' if '/' in test else conformance}/{test}" for test in self.tests)


SETTLE = "test_settle.py"
GROUPS = "test_groups.py"
ORDER = "test_order.py"
FILE = "test_sqlite_file.py"
UPDATES = "test_put_updates_order.py"
FOREIGN = "security/test_foreign_project.py"
TERMINAL = "security/test_terminal.py"
MAX_QUEUED = "test_max_queued.py"
BOUNDS = "test_bounds.py"
TAMPERING = "storage/test_tampering.py"
DAMAGED = f"{TAMPERING}::test_a_damaged_value_of_a_key_stops_nothing"
ROWS = "storage/test_tampering_sqlite.py"
OTHER_USER = "security/test_other_user.py"

MUTANTS = [
    # SQLite
    Mutant(
        "sqlite: a damaged record is read as it is", "sqlite/rows.py",
        "    return _repair(values)\n", "    return JobRow(*values)\n",
        (f"{ROWS}::test_reap_sets_an_unreadable_run_aside_and_takes_its_neighbour_back",),
    ),
    Mutant(
        "sqlite: damaged records are not counted", "sqlite/queue_row.py",
        "        self.damaged += more\n", "",
        (f"{ROWS}::test_reap_gives_a_job_back_whose_run_cannot_be_read",),
    ),
    Mutant(
        "sqlite: purge does not look for damaged rows", "sqlite/purge.py",
        "        sweep(tx, queue)\n", "",
        (f"{ROWS}::test_purge_frees_a_group_that_nothing_holds",),
    ),
    Mutant(
        "sqlite: numbers of a queue are not checked", "sqlite/transaction.py",
        "sound = is_sound_queue(row)", "sound = True",
        (f"{ROWS}::test_damaged_numbers_of_a_queue_are_repaired",),
    ),
    Mutant(
        "sqlite: a put of one statement copies a damaged time", "sqlite/fast_put.sql",
        "AND time < 1 << 60 ", "",
        (f"{ROWS}::test_a_plain_put_does_not_copy_a_damaged_time_into_its_jobs",),
    ),
    Mutant(
        "sqlite: an unreadable event ends the feed", "sqlite/event_feed.py",
        "contextlib.suppress(*UNREADABLE, TypeError)", "contextlib.nullcontext()",
        (f"{ROWS}::test_an_unreadable_event_is_skipped",),
    ),
    Mutant(
        "sqlite: a wake-up goes to any address", "sqlite/wakeup.py",
        "elif _NAME.fullmatch(wake.address) and _WAITER.fullmatch(wake.waiter):", "elif True:",
        (f"{OTHER_USER}::test_a_row_with_a_foreign_address_makes_no_process_send_anything",),
    ),
    Mutant(
        "sqlite: no warning of a file that other users can change", "sqlite/file_access.py",
        "    if exposures:\n", "    if not exposures:\n",
        (f"{OTHER_USER}::test_a_file_that_other_users_can_change_is_a_warning_at_open",),
    ),
    Mutant(
        "sqlite: a foreign wake-up directory is not mentioned", "sqlite/notifier.py",
        "                warn_once(\n", "                str(\n",
        (f"{OTHER_USER}::test_a_squatted_wake_up_directory_is_a_warning_and_jobs_still_arrive",),
    ),
    Mutant(
        "counts of any size are imported", "model/storage_info.py",
        "if min(counts) < 0 or max(counts) > MAX_COUNT:", "if min(counts) < 0:",
        ("conformance/test_restore.py::test_restore_of_an_impossible_job_is_refused",),
    ),
    Mutant(
        "headers and errors of any size are imported", "model/storage_info.py",
        'if most is not None and len(data or b"") > most:', "if False:",
        ("conformance/test_restore.py::test_restore_of_an_impossible_job_is_refused",),
    ),
    Mutant(
        "a line of any length is read", "ops/export.py",
        "file.readline(longest + 1)", "file.readline(200 * longest)",
        ("security/test_hostile_import.py::test_a_line_without_an_end_is_refused_before_it_is_read_whole",),
    ),
    Mutant(
        "an export is written through a file that was there", "cli/transfer.py",
        'tempfile.mkstemp(prefix=f".{name[:100]}.", dir=directory)',
        '(os.open(path + ".part", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), path + ".part")',
        ("security/test_other_user.py::test_an_export_is_not_written_through_files_that_were_there_before",),
    ),
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
        "    if successor:\n        release_successor(tx, queue, successor)\n",
        "    if successor and ttl:\n        release_successor(tx, queue, successor)\n",
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
        "return old is None or old.expired(tx.now) or (", "return old is None or (",
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
        "start_by = NULL, token = ?, worker = ?, until = ?, begun = ?,\n    cancel = NULL, progress = NULL\nWHERE n IN",
        "token = ?, worker = ?, until = ?, begun = ?,\n    cancel = NULL, progress = NULL\nWHERE n IN",
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
        "            if is_full(error):\n                self._make_room()\n", "",
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
        "redis: the mark of an event listener is refused by a full server", "redis/scripts.py",
        '_SET_MARK = f"""{_first_line(["allow-oom"])}', '_SET_MARK = f"""{_first_line([])}',
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
        "  if read and type(kept) == 'table' and #kept == 1 then return", "  if false then return",
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
        " or (meta[3] and (tonumber(meta[3]) or 0) <= now)", "",
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
        "  if replaced then store(q, id, replaced) end", "",
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
        "before and before - count[groups[i]]", "before and before",
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
        "return expires ~= 0 and expires <= now or has(counted, FREE) or update or", "return update or",
        ("test_put.py::test_a_completed_id_is_free_when_its_ttl_is_over",),
    ),
    Mutant(
        "redis: a fold is not applied", "redis/lua/_transitions.lua",
        "      apply(q, j, s, flags_of(code))\n", "",
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
    # Bounds of queues
    Mutant(
        "sqlite: scheduled jobs do not count for max_queued", "sqlite/statements.sql",
        "SELECT n_later + n_ready + n_lane + n_retrying + n_parked", "SELECT n_ready + n_lane + n_retrying + n_parked",
        (f"{MAX_QUEUED}::test_queued_scheduled_and_retrying_jobs_count",),
    ),
    Mutant(
        "sqlite: a duplicate is refused in a full queue", "sqlite/put.py",
        "added = {new.id for new in jobs if (new.queue, new.id) not in taken}", "added = {new.id for new in jobs}",
        (f"{MAX_QUEUED}::test_a_put_that_adds_no_waiting_job_is_not_refused",),
    ),
    Mutant(
        "sqlite: a job that replaces a finished one does not count", "sqlite/put.py",
        "added.update({new.id for new in known if may_replace(tx, tx.job(queue, new.id), new)})", "del known",
        (f"{MAX_QUEUED}::test_a_job_that_replaces_a_finished_one_counts",),
    ),
    Mutant(
        "sqlite: some of the jobs that do not fit are stored", "sqlite/put.py",
        "if added and waiting + len(added) > max_queued:", "if added and waiting + 1 > max_queued:",
        (f"{MAX_QUEUED}::test_of_several_jobs_all_are_stored_or_none",),
    ),
    Mutant(
        "redis: scheduled jobs do not count for max_queued", "redis/lua/put.lua",
        "    + call('ZCARD', q.scheduled) + call('ZCARD', q.retrying)\n", "",
        (f"{MAX_QUEUED}::test_queued_scheduled_and_retrying_jobs_count",),
    ),
    Mutant(
        "redis: a duplicate is refused in a full queue", "redis/lua/put.lua",
        "or not known[e[1]] then return true end", "or e[1] then return true end",
        (f"{MAX_QUEUED}::test_a_put_that_adds_no_waiting_job_is_not_refused",),
    ),
    Mutant(
        "redis: a job that replaces a finished one does not count", "redis/lua/put.lua",
        "return ended and may_replace(ended, read_entry(e).update)", "return false",
        (f"{MAX_QUEUED}::test_a_job_that_replaces_a_finished_one_counts",),
    ),
    Mutant(
        "redis: a refused put counts as made when it is sent again", "redis/lua/put.lua",
        "sent again, it is made\n      call('SET', key, last, 'PX', ms)\n", "sent again, it is made\n",
        ("test_lost_replies.py::test_a_lost_refusal_is_repeated",),
    ),
    Mutant(
        "redis: a bounded put that is sent again is refused by its own jobs", "redis/lua/put.lua",
        "if repeated then -- the answer", "if repeated and form ~= 'bounded' then -- the answer",
        ("test_lost_replies.py::test_a_lost_put_that_filled_its_queue_is_answered_as_the_first_time",),
    ),
    Mutant(
        "client: an enqueue ignores max_queued", "client/queue.py",
        "[put] = await (storage.put((job,)) if most is None else storage.put((job,), most))",
        "[put] = await storage.put((job,))",
        ("testing/test_inline.py::test_inline_respects_the_bound_of_a_queue",),
    ),
    Mutant(
        "client: an enqueue of many ignores max_queued", "client/queue.py",
        "puts = await (storage.put(jobs) if most is None else storage.put(jobs, most))",
        "puts = await storage.put(jobs)",
        ("testing/test_inline.py::test_inline_respects_the_bound_of_a_queue",),
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
    # Redis: damaged records
    Mutant(
        "redis: a due member is removed before its job is moved", "redis/lua/_shared.lua",
        """      promote_one(q, due[last], spend(call('HGET', q.jobs, sub(due[last], 13))), retried)
      call('ZREM', line, due[last])
""",
        """      call('ZREM', line, due[last])
      promote_one(q, due[last], spend(call('HGET', q.jobs, sub(due[last], 13))), retried)
""",
        (f"{TAMPERING}::test_a_promotion_that_fails_loses_no_due_job",),
    ),
    Mutant(
        "redis: a due member may have any length", "redis/lua/_shared.lua",
        "local drop = #member < 13 or is_placed(q, id, j)", "local drop = is_placed(q, id, j)",
        (f"{TAMPERING}::test_one_damaged_member_of_scheduled_loses_no_other_due_job",),
    ),
    Mutant(
        "redis: a run record may have any length", "redis/lua/_ordering.lua",
        "  if #run < 27 then return nil end\n", "", (f"{DAMAGED}[redis-runs]",),
    ),
    Mutant(
        "redis: a damaged run belongs to no batch", "redis/lua/_runs.lua",
        "return other == token or #other < 16 or not call('ZSCORE', q.leases, other)", "return other == token",
        (f"{TAMPERING}::test_a_run_that_cannot_be_read_is_taken_back_at_the_end_of_its_lease",),
    ),
    Mutant(
        "redis: the runs of a damaged batch are not looked for", "redis/lua/_runs.lua",
        "  ids = find_runs(q, name)\n", "  ids = {}\n", (f"{DAMAGED}[redis-batches]",),
    ),
    Mutant(
        "redis: runs without a lease are not looked for", "redis/lua/_repair.lua",
        "  repair_leases(q)\n", "", (f"{DAMAGED}[redis-leases]",),
    ),
    Mutant(
        "redis: a job is claimed by any entry with its id", "redis/lua/claim.lua",
        "  if not is_ranked_by(member, rec) and is_stale(id, rec) then return true end\n", "",
        (f"{DAMAGED}[redis-ready]",),
    ),
    Mutant(
        "redis: a lost turn of a group is not put back", "redis/lua/claim.lua",
        "  if turn_lost then restore_turns() end\n", "", (f"{DAMAGED}[redis-ready]",),
    ),
    Mutant(
        "redis: a damaged number of holds is none", "redis/lua/_shared.lua",
        "  if not held then held = recount_holds(q, group) end\n", "  held = held or 0\n",
        (f"{TAMPERING}::test_a_group_with_a_damaged_hold_waits_for_its_run",),
    ),
    Mutant(
        "redis: a purge trusts the members of finished jobs", "redis/lua/purge.lua",
        "local fits = ended and (bad or end_member(expires, number, ids[i]) == members[i])", "local fits = true",
        (f"{TAMPERING}::test_a_damaged_member_of_a_finished_job_deletes_no_other_job",),
    ),
    Mutant(
        "redis: a damaged sequence begins at one", "redis/lua/_ordering.lua",
        "    last = now + count\n", "    last = count\n",
        (f"{TAMPERING}::test_damaged_counters_go_on_above_the_numbers_in_use",),
    ),
    Mutant(
        "redis: damage is not counted", "redis/lua/_queue.lua",
        "  local counted = redis.pcall('HINCRBY', q.meta, 'damaged', count)\n",
        "  local counted = 0\n",
        (f"{TAMPERING}::test_one_damaged_member_of_scheduled_loses_no_other_due_job",),
    ),
    Mutant(
        "redis: a length that does not fit is cut", "redis/lua/_shared.lua",
        "if math.max(glen, llen, hlen) > 65535 or", "if",
        (f"{TAMPERING}::test_headers_that_do_not_fit_a_record_are_refused_before_anything_is_stored",),
    ),
    Mutant(
        "worker: an outcome that cannot be resolved is not noticed", "claims.py",
        "    except Exception as error:\n        outcome, resolution = unrecordable",
        "    except ImportError as error:\n        outcome, resolution = unrecordable",
        ("worker/test_odd_exceptions.py::test_an_outcome_that_cannot_be_resolved_fails_its_own_job",),
    ),
    Mutant(
        "worker: an outcome that the storage refuses is tried for ever", "claims.py",
        "            if tries == TRIES:\n", "            if tries == TRIES:\n                raise\n",
        ("worker/test_refused_outcomes.py::test_a_refused_outcome_fails_its_own_job_alone[refused]",),
    ),
    Mutant(
        "worker: a connection that breaks under one outcome holds up all", "claims.py",
        "        await _raise_outage(storage, ended[0].claim.queue, error)\n", "        raise\n",
        ("worker/test_refused_outcomes.py::test_a_refused_outcome_fails_its_own_job_alone[connection breaks]",),
    ),
    Mutant(
        "worker: an outcome is changed while the storage records none", "claims.py",
        "if isinstance(error, OUTAGES) and not (", "if not isinstance(error, OUTAGES) and not (",
        ("worker/test_refused_outcomes.py::test_outcomes_wait_for_a_storage_that_records_none[StorageUnavailable]",),
    ),
    Mutant(
        "worker: a queue in which nothing can be settled holds up the others", "claims.py",
        "    except StorageError as error:\n        return error\n", "    except StorageError:\n        raise\n",
        ("worker/test_refused_outcomes.py::test_a_queue_that_refuses_every_settle_holds_up_no_other",),
    ),
    Mutant(
        "worker: stop() waits for ever for outcomes that cannot be recorded", "worker/runtime.py",
        "asyncio.timeout(self._leases.seconds):", "asyncio.timeout(None):",
        ("worker/test_refused_outcomes.py::test_a_queue_that_refuses_every_settle_holds_up_no_other",),
    ),
    Mutant(
        "worker: results have no bound", "worker/executor.py",
        "return data if len(data) <= self._max_result else check_result(data, self._max_result)", "return data",
        ("worker/test_refused_outcomes.py::test_a_result_above_max_result_fails_its_job_for_good",),
    ),
    Mutant(
        "reservations: results have no bound", "client/reservation.py",
        'check_result(encode(self._results, result, "result"), self._manager.max_result)',
        'encode(self._results, result, "result")',
        ("worker/test_refused_outcomes.py::test_a_reservation_refuses_a_result_above_max_result",),
    ),
    Mutant(
        "worker: progress messages have no bound", "model/context.py",
        "MAX_MESSAGE = 1_000", "MAX_MESSAGE = 10_000",
        ("unit/test_context.py::test_a_long_progress_message_is_cut",),
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
        "model: signed and encrypted bytes are not bound to their queue", "model/encryption.py",
        "names = [place.namespace, place.queue, place.kind]", "names = [place.namespace, place.kind]",
        ("client/test_binding.py::test_a_payload_put_into_another_queue_is_refused",),
    ),
    Mutant(
        "model: signed and encrypted bytes are not bound to their namespace", "model/encryption.py",
        "names = [place.namespace, place.queue, place.kind]", "names = [place.queue, place.kind]",
        ("client/test_binding.py::test_a_payload_of_another_namespace_is_refused",),
    ),
    Mutant(
        "model: the id of bytes that are bound to a job is ignored", "model/encryption.py",
        "([] if place.id is None else [place.id])", "([] if place.id is None else [''])",
        ("client/test_binding.py::test_a_payload_repeated_under_another_id",),
    ),
    Mutant(
        "model: the names of a place run together", "model/encryption.py",
        'len(part).to_bytes(4, "big") + part for', "part for",
        ("unit/test_binding.py::test_bytes_are_valid_in_their_queue_and_nowhere_else",),
    ),
    Mutant(
        "model: a body can continue a place", "model/encryption.py",
        "return bytes([len(parts)]) + b", "return b",
        ("unit/test_binding.py::test_the_begin_of_a_body_does_not_pass_for_a_part_of_the_place",),
    ),
    Mutant(
        "model: a payload passes for a result", "model/serde.py",
        'Place(namespace, queue, "result")', 'Place(namespace, queue, "payload")',
        ("client/test_binding.py::test_a_payload_passed_off_as_a_result_and_a_result_of_another_job",),
    ),
    Mutant(
        "model: a wrapper hides the place from the serde inside", "model/serde.py",
        "        return serde.around(bind_serde(serde.inner, place))\n", "        return serde\n",
        ("unit/test_binding.py::test_a_serde_is_bound_through_the_wrappers_around_it",),
    ),
    Mutant(
        "model: a fail handler opens the payload of another job", "model/failure.py",
        "self.codec.payload_for(record.claim.id)", "self.codec.payload",
        ("client/test_binding.py::test_a_fail_handler_gets_the_payload_of_its_queue_and_of_no_other",),
    ),
    Mutant(
        "model: a key may be a repetition", "model/encryption.py",
        "if len(set(key)) < MIN_DIFFERENT:", "if not key:",
        ("unit/test_encryption.py::test_weak_keys_are_refused",),
    ),
    Mutant(
        "model: the error of an encrypted payload quotes it", "model/encryption.py",
        'return None, without_values(error, f"{len(body)} bytes', 'return None, str(error) or (f"{len(body)} bytes',
        ("security/test_secret_payload.py::test_bytes_that_are_not_of_the_format_are_not_quoted",),
    ),
    Mutant(
        "model: the error of a value that cannot be encrypted quotes it", "model/encryption.py",
        'return b"", without_values(error, ', 'return b"", str(error) or (',
        ("security/test_secret_payload.py::test_values_that_cannot_be_encoded_are_not_quoted",),
    ),
    Mutant(
        "model: the error of a wrapped payload quotes it", "model/serde.py",
        "        if not isinstance(serde, Wrapper):\n            if isinstance(error, InvalidPayload):",
        "        if serde:\n            if isinstance(error, InvalidPayload):",
        ("security/test_secret_payload.py::test_no_exception_of_a_decoder_holds_a_value",),
    ),
    Mutant(
        "model: a reason has the name of an unknown field", "model/redaction.py",
        "    if text.startswith(UNKNOWN_FIELD):\n        return UNKNOWN_FIELD\n",
        "    if text.startswith(UNKNOWN_FIELD):\n        return text\n",
        ("security/test_secret_payload.py::test_no_exception_of_a_decoder_holds_a_value",),
    ),
    Mutant(
        "model: a reason has the text of a check of the user's type", "model/redaction.py",
        "    if cause is not None:", "    if cause is not None and not text:",
        ("security/test_secret_payload.py::test_no_exception_of_a_decoder_holds_a_value",),
    ),
    Mutant(
        "client: an argument of an encrypted task is quoted", "model/formats.py",
        "text = decoding_reason(error) if isinstance(serde, Wrapper) else str(error)", "text = str(error)",
        ("security/test_secret_payload.py::test_arguments_results_and_reservations_are_not_quoted",),
    ),
    Mutant(
        "client: encrypted jobs are compared by their bytes", "client/queue.py",
        "        if inner is codec.payload:\n            return job.payload == data",
        "        if inner is not None:\n            return job.payload == data",
        ("client/test_binding.py::test_matching_jobs_are_cancelled_whatever_their_bytes",),
    ),
    Mutant(
        "ops: an import puts bytes where they cannot be opened", "ops/rebind.py",
        "if not (is_bindable(before) or is_protected(data)):", "if not is_bindable(before):",
        ("cli/test_transfer_bound.py::test_an_import_without_the_keys_stores_no_protected_job",),
    ),
    Mutant(
        "ops: an import decrypts", "ops/rebind.py",
        "if not (is_bindable(before) and is_bindable(after)):", "if not is_bindable(before):",
        ("cli/test_transfer_bound.py::test_encrypted_jobs_are_not_imported_in_clear",),
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
    # The command line
    Mutant(
        "cli: a project of another user is used", "cli/trust.py",
        "    if reason := distrust(path):\n        return reason\n    between", "    between",
        (f"{FOREIGN}::test_each_file_and_directory_of_a_project_must_be_the_users_own",),
    ),
    Mutant(
        "cli: the directories of a project are not checked", "cli/trust.py",
        "if reason := distrust(directory, passed=directory not in (here, path.parent)):", "if reason := None:",
        (f"{FOREIGN}::test_each_file_and_directory_of_a_project_must_be_the_users_own",),
    ),
    Mutant(
        "cli: a directory that all users may write to is trusted", "cli/trust.py",
        "if mode & stat.S_IWOTH:", "if mode & stat.S_IWOTH and not path.is_dir():",
        (f"{FOREIGN}::test_each_file_and_directory_of_a_project_must_be_the_users_own",),
    ),
    Mutant(
        "cli: the trust of the project is not asked", "cli/target.py",
        "if reason := distrust_project(path, here):", "if reason := None:",
        (f"{FOREIGN}::test_a_sticky_directory_is_passed_on_the_way_to_a_project",),
    ),
    Mutant(
        "cli: PENSTOCK_APP is imported from any directory", "cli/target.py",
        'refusal = distrust(here) or ""', 'refusal = ""',
        (f"{FOREIGN}::test_penstock_app_is_not_searched_in_a_directory_of_another_user",),
    ),
    Mutant(
        "cli: completion imports the app", "cli/completion.py",
        "open_app(target.build_without_app())", "target.opened()",
        (f"{FOREIGN}::test_tab_imports_no_app_of_another_user_and_none_of_the_user",),
    ),
    Mutant(
        "cli: completion offers every name", "cli/completion.py",
        " and SAFE_NAME.fullmatch(name)]", "]",
        ("security/test_shell_completion.py::test_tab_and_enter_run_no_name_of_a_queue",),
    ),
    Mutant(
        "cli: an error is not escaped", "cli/base.py",
        'super().__init__(escape_controls(redact_secrets(" ".join(message.split()))))',
        'super().__init__(redact_secrets(" ".join(message.split())))',
        (f"{TERMINAL}::test_no_name_drives_the_terminal[dumb-bench]",),
    ),
    Mutant(
        "cli: an error of click is not escaped", "cli/base.py",
        "click.UsageError(escape_controls(message), error.ctx)", "click.UsageError(message, error.ctx)",
        (f"{TERMINAL}::test_no_name_drives_the_terminal[dumb-top]",),
    ),
    Mutant(
        "cli: a question is not escaped", "cli/base.py",
        "    question = escape_controls(question)\n", "",
        (f"{TERMINAL}::test_no_name_drives_the_terminal[dumb-queue delete]",),
    ),
    Mutant(
        "cli: JSON is not escaped", "cli/output.py",
        'click.echo(escape_controls(data.decode("utf-8", "replace"), json=True))',
        'click.echo(data.decode("utf-8", "replace"))',
        (f"{TERMINAL}::test_json_has_no_raw_character_and_the_same_values[dumb-queue ls]",),
    ),
    Mutant(
        "cli: a line of text may have newlines", "cli/output.py",
        "click.echo(escape_controls(text), err=err)", "click.echo(escape_controls(text, lines=True), err=err)",
        (f"{TERMINAL}::test_no_name_drives_the_terminal[dumb-queue pause]",),
    ),
    Mutant(
        "the log formatter does not indent", "log_config.py",
        "return escape_controls(first) + indent(rest)", "return escape_controls(text, lines=True)",
        (f"{TERMINAL}::test_a_record_of_the_log_cannot_be_forged",),
    ),
    Mutant(
        "names in log lines are not escaped", "model/printing.py",
        "return short if short.isprintable() and not _QUOTED.search(short) else repr(short)", "return short",
        (f"{TERMINAL}::test_log_lines_of_a_worker_are_clean_for_every_formatter",),
    ),
    Mutant(
        "redis: a wait for an end that gives up stays a waiter", "redis/end_notices.py",
        "                self._abandoned.add(job)\n", "",
        ("test_waits.py::test_a_put_with_a_waiter_that_gives_up_leaves_no_waiter",),
    ),
    Mutant(
        "redis: a storage that closes stays a waiter", "redis/end_notices.py",
        "                    await self._leave(self._joined)\n", "                    pass\n",
        ("test_waits.py::test_close_leaves_no_waiter",),
    ),
    Mutant(
        "redis: a job has any number of waiters", "redis/lua/_transitions.lua",
        "  if #waiters + #entry > MAX_WAITERS * #entry then return false end\n", "",
        ("test_waits.py::test_a_job_has_at_most_a_hundred_waiters",),
    ),
    Mutant(
        "redis: a client is a waiter once for each wait", "redis/lua/_transitions.lua",
        "  if string.find(waiters, entry, 1, true) then return true end\n", "",
        ("test_waits.py::test_many_waits_of_one_client_are_one_waiter",),
    ),
    Mutant(
        "redis: a waiter that leaves takes others with it", "redis/lua/_transitions.lua",
        "sub(waiters, 1, first - 1) .. sub(waiters, last + 1)", "sub(waiters, last + 1)",
        ("test_waits.py::test_a_waiter_that_leaves_does_not_take_others_with_it",),
    ),
    Mutant(
        "redis: a seal is not compared", "storage/redis/event_codec.py",
        "    return message if hmac.compare_digest(seal(message, secret)[:_SEAL_SIZE], data[:_SEAL_SIZE]) else None\n",
        "    return message\n",
        ("security/test_forged_notices.py::test_a_call_does_not_believe_a_published_end",),
    ),
    Mutant(
        "redis: each listener has a secret of its own", "storage/redis/scripts.py",
        "#old > 48 and string.sub(old, 17, 48) or ARGV[2]", "ARGV[2]",
        ("security/test_forged_notices.py::test_a_published_event_is_not_delivered",),
    ),
    Mutant(
        "redis: each message on its channel makes a worker look", "storage/redis/notifier.py",
        "_LOOK_EVERY = 0.1", "_LOOK_EVERY = 0.0",
        ("security/test_forged_notices.py::test_a_published_cancel_only_makes_the_worker_look",),
    ),
    Mutant(
        "redis: all databases of a server have the same channels", "storage/redis/keys.py",
        'f"{self.namespace}:{database}"', 'f"{self.namespace}:0"',
        ("security/test_forged_notices.py::test_apps_in_two_databases_get_their_own_messages",),
    ),
    Mutant(
        "redis: no TLS to Sentinels", "storage/redis/clients.py",
        "if key not in server.login}", 'if key not in server.login and not key.startswith("ssl")}',
        ("security/test_tls.py::test_a_server_without_tls_gets_a_client_hello_and_no_password",),
    ),
    Mutant(
        "redis: no TLS to a node of a Cluster that is subscribed to", "storage/redis/connection.py",
        "node_client_of(self._server, ASYNCIO", "node_client_of(self._server._replace(tls={}), ASYNCIO",
        ("security/test_tls.py::test_subscriptions_to_the_nodes_of_a_cluster_use_tls",),
    ),
    Mutant(
        "redis: an option of a URL that needs TLS is ignored without", "storage/redis/server_url.py",
        "    if options:\n", "    if False:\n",
        ("storage/test_connect.py::test_a_mistake_in_the_url_of_a_server_is_one_line_at_once",),
    ),
    Mutant(
        "storage: a password ends at its first @", "storage/__init__.py",
        'login, _, rest = rest.rpartition("@")', 'login, _, rest = rest.partition("@")',
        ("storage/test_connect.py::test_credentials_are_never_shown",),
    ),
    Mutant(
        "redis: a URL with a piece of a password behind the address is used", "storage/redis/server_url.py",
        'if "#" in url or "@" in _BEFORE_PATH.sub("", url):', "if False:",
        ("storage/test_connect.py::test_a_mistake_in_the_url_of_a_server_is_one_line_at_once",),
    ),
    Mutant(
        "sqlite: a wait for an end that is cancelled stays a waiter", "sqlite/notifier.py",
        "self._submit_unawaited(lambda tx: remove(tx, waiter, claims_next))", "pass",
        ("test_waits.py::test_a_wait_done_that_times_out_leaves_no_waiter",),
    ),
    # Bounds
    Mutant(
        "sqlite: a claim takes jobs of any length", "sqlite/claim.py",
        "        rows.append(row)\n        room -= row[-1]\n", "        rows.append(row)\n",
        (f"{BOUNDS}::test_a_claim_ends_with_the_job_that_reaches_the_bytes",),
    ),
    Mutant(
        "sqlite: a claim of groups takes jobs of any length", "sqlite/claim.py",
        "self.jobs - 1, self.bytes - row[SIZE]", "self.jobs - 1, self.bytes",
        (f"{BOUNDS}::test_groups_are_served_in_turn_across_the_bound",),
    ),
    Mutant(
        "sqlite: a page has jobs of any length", "sqlite/reads.py",
        "_key(section, row), room - job.size", "_key(section, row), room",
        (f"{BOUNDS}::test_a_page_ends_at_the_bytes",),
    ),
    Mutant(
        "sqlite: runs are listed without the begin of their runs", "sqlite/statements.sql",
        "(begun, n) > (?, ?) ORDER BY begun, n LIMIT ?\n\n-- name: find_row",
        "(begun, n) > (?, ?) ORDER BY until, n LIMIT ?\n\n-- name: find_row",
        ("test_reads.py::test_find_lists_running_jobs_by_the_begin_of_their_runs",),
    ),
    Mutant(
        "redis: a claim takes jobs of any length", "redis/lua/claim.lua",
        "  if big then room = room - size_of(rec) end\n", "",
        (f"{BOUNDS}::test_a_claim_ends_with_the_job_that_reaches_the_bytes",),
    ),
    Mutant(
        "redis: a claim takes any number of jobs", "redis/lua/claim.lua",
        "return room <= 0 or #ids >= MAX_BATCH end", "return room <= 0 end",
        (f"{BOUNDS}::test_a_claim_of_batches_takes_at_most_a_thousand_jobs",),
    ),
    Mutant(
        "redis: a long record is noticed by plain puts only", "redis/lua/_shared.lua",
        "  if #rec > SMALL and", "  if false and",
        (f"{BOUNDS}::test_long_records_are_bounded_however_they_came",),
    ),
    Mutant(
        "redis: due jobs behind long ones are lost", "redis/lua/_shared.lua",
        "      call('ZREM', line, due[last])\n", "      call('ZREM', line, unpack(due))\n",
        (f"{BOUNDS}::test_a_call_for_many_long_jobs_is_answered_whole",),
    ),
    Mutant(
        "redis: settlements behind long records are not sent again", "redis/__init__.py",
        "                rest += indexes[len(codes) :]\n", "                pass\n",
        (f"{BOUNDS}::test_a_call_for_many_long_jobs_is_answered_whole",),
    ),
    Mutant(
        "redis: a page has jobs of any length", "redis/__init__.py",
        "len(found) <= limit and size < MAX_BYTES:", "len(found) <= limit:",
        (f"{BOUNDS}::test_a_page_ends_at_the_bytes",),
    ),
    Mutant(
        "redis: a listing of runs skips a claim after one that has ended", "redis/lua/_claims.lua",
        "  return rank_after(q, begun, member), 0\n", "  return rank_after(q, begun, member) + 1, 0\n",
        (f"{BOUNDS}::test_a_walk_over_runs_finds_each_that_stays_once",),
    ),
    Mutant(
        "redis: a claim that has ended stays in the listing of runs", "redis/lua/_queue.lua",
        "call('ZREM', q.leases, token, '!' .. token)", "call('ZREM', q.leases, token)",
        ("test_reads.py::test_a_listing_of_runs_leaves_nothing_behind",),
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
    """Tests pass on an overlay without a defect, so those that notice mutants fail because of the defect.

    It runs one test of each file: all of them run in the suite as well, on the package itself.
    """
    path = next(mutant.path for mutant in MUTANTS if mutant.storage == storage)
    make_overlay(PACKAGE, tmp_path / "penstock", path)
    tmp_path.joinpath("penstock", *path).write_text(PACKAGE.joinpath(*path).read_text())
    tests = {test.partition("::")[0]: test for mutant in MUTANTS if mutant.storage == storage for test in mutant.paths}
    code, output = runs.run(tmp_path, storage, tuple(sorted(tests.values())))
    assert code == 0, f"exit code {code}:\n{output[-5000:]}"
