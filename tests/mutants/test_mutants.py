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
WINDOWS = "test_windows.py"
MAX_WAIT = "test_max_wait.py"
BOUNDS = "test_bounds.py"
LIMITS = "test_limits_queue.py"
GROUP_LIMITS = "test_limits_groups.py"
TAMPERING = "storage/test_tampering.py"
DAMAGED = f"{TAMPERING}::test_a_damaged_value_of_a_key_stops_nothing"
ROWS = "storage/test_tampering_sqlite.py"
OTHER_USER = "security/test_other_user.py"
FIRE = "test_fire.py"
EVENTS = "test_events.py"
BUDGET = "test_budget.py"
SCHEDULES = "test_schedules.py"
TICKER = "worker/test_ticker.py"
TICK_REPORTS = "worker/supervisor/test_tick_reports.py"
DUE = "test_due.py"
ERROR_GROUPS = "test_error_groups.py"
RECORD_STATS = "test_record_stats.py"
HISTORIES = "test_histories.py"
OPERATORS = "test_operators.py"
JOB_LOG = "worker/test_job_log.py"
BULK = "client/test_bulk.py"
INTERLEAVED = "test_schedule_walk.py::test_workers_in_any_interleaving_put_the_jobs_of_one_worker"

MUTANTS = [
    # schedules
    Mutant(
        "a repeated time counts twice", "model/cron.py",
        'minute.startswith("*") or hour.startswith("*")', "True",
        ("unit/test_cron.py::test_a_cron_in_a_gap_and_in_a_fold",),
    ),
    Mutant(
        "a time in a gap is lost", "model/cron.py",
        "                if at > last:\n", "                if at > last and self._local(at) == hit:\n",
        ("unit/test_cron.py::test_a_cron_in_a_gap_and_in_a_fold",),
    ),
    Mutant(
        "late ticks are forgotten", "model/schedule_decision.py",
        "    missed = late[: min(len(late), MAX_COUNTED) - kept]\n", "    missed = late[:0]\n",
        ("unit/test_schedule_decision.py",),
    ),
    Mutant(
        "a tick fires before its time", "model/schedule_decision.py",
        "    while nominal is not None and nominal <= now and len(fresh) <= MAX_FIRES:\n",
        "    while nominal is not None and nominal <= now + 1 and len(fresh) <= MAX_FIRES:\n",
        ("unit/test_schedule_decision.py",),
    ),
    Mutant(
        "the first declaration holds", "model/settings.py",
        "(record.started, record.worker) < (claimant.started, claimant.worker)",
        "(record.started, record.worker) > (claimant.started, claimant.worker)",
        (f"{TICKER}::test_the_declaration_of_the_last_started_live_worker_holds",),
    ),
    Mutant(
        "a change of the code forgets the ticks that are due", "worker/declared_schedules.py",
        "            firing = firing_before_change(self._host, record, old, now)\n",
        "            firing = firing_before_change(self._host, record, old, record.cursor)\n",
        (f"{TICKER}::test_ticks_that_are_due_at_the_switch_belong_to_the_old_times",),
    ),
    Mutant(
        "a change of the code forgets the ticks beyond one step", "worker/declared_schedules.py",
        "            if firing.next is not None and firing.next <= now:  # more are due than one step decides\n",
        "            if False:\n",
        (f"{TICKER}::test_more_ticks_than_one_step_decides_are_all_decided_at_the_switch",),
    ),
    Mutant(
        "a schedule of other code is fired", "ticking.py",
        "                self.foreign.add((record.queue, record.name))\n                return None\n",
        "                self.foreign.add((record.queue, record.name))\n",
        (f"{TICKER}::test_code_that_does_not_declare_a_schedule_does_not_fire_it",),
    ),
    Mutant(
        "a retired schedule is never declared again", "worker/declared_schedules.py",
        ', "retired": None,', ",",
        (f"{TICKER}::test_a_schedule_without_a_live_declarer_is_retired_and_a_rollback_goes_on",),
    ),
    Mutant(
        "a declared schedule is read at every start as if new", "ticking.py",
        "    if resumed or nominal_times(old) != nominal_times(new):\n", "    if True:\n",
        ("client/test_schedule_declarations.py::test_a_declared_schedule_catches_up_after_a_restart",),
    ),
    Mutant(
        "a pause is always made up for", "ticking.py",
        "    resumed = old.paused is not None and new.paused is None and not catch_up\n", "    resumed = False\n",
        ("client/test_schedules.py::test_ticks_in_a_pause_are_not_made_up_for",),
    ),
    Mutant(
        "an edit at run time forgets the ticks that are due", "client/schedules.py",
        "            firing = firing_before_change(self._host, record, old, now)\n",
        "            firing = firing_before_change(self._host, record, old, record.cursor)\n",
        ("client/test_schedules.py::test_ticks_that_are_due_before_an_edit_belong_to_the_old_times",),
    ),
    Mutant(
        "a drain waits for the holder of the alarm", "ticking.py",
        'self._worker if stays else ""', "self._worker",
        ("client/test_schedules.py::test_each_tick_is_one_job_with_its_nominal_time",),
    ),
    Mutant(
        "a full worker does not fire", "worker/ticker.py",
        "        if self._is_answered_by_claims():\n", "        if self._is_answered_by_claims() or not self.active:\n",
        (f"{TICKER}::test_a_worker_that_is_full_from_the_start_looks_by_itself",),
    ),
    Mutant(
        "a queue that no claim asks for is not looked at", "worker/ticker.py",
        "        covered = set(self._queues) <= set(self._asked())\n",
        "        covered = bool(set(self._queues) & set(self._asked()))\n",
        (f"{TICKER}::test_claims_that_name_far_ticks_replace_looks",),
    ),
    Mutant(
        "a child does not report an earlier tick at once", "worker/supervisor/tick_reports.py",
        "        if here < self._due and tick_at >= self._reported:\n", "        if here < self._due:\n",
        (f"{TICK_REPORTS}::test_a_child_reports_now_and_then_and_an_earlier_tick_at_once",),
    ),
    Mutant(
        "a late report of a child names a time that is over", "worker/supervisor/tick_reports.py",
        "else now - here * 1000\n", "else 0.0\n",
        (f"{TICK_REPORTS}::test_a_supervisor_reads_the_time_of_the_storage_from_a_report",),
    ),
    Mutant(
        "claims replace the look before a near tick", "worker/ticker.py",
        "self._named_ahead > (LONGEST_REST + 2 * MARGIN) * 1000", "self._named_ahead > 0",
        (f"{TICKER}::test_a_near_tick_is_looked_at_although_claims_name_it",),
    ),
    Mutant(
        "a clock that was set forward wakes no ticker", "worker/ticker.py",
        "        return jumped and self.active and", "        return False and self.active and",
        (f"{TICKER}::test_a_claim_after_the_clock_was_set_forward_wakes_the_ticker",),
    ),
    Mutant(
        "redis: a slot is not freed by a reap", "redis/lua/reap.lua",
        "  drop_run(q, id, run)\n", "  drop_run(q, id, run)\n  call('HSET', q.runs, id .. '~', run.token)\n",
        (f"{LIMITS}::test_the_slots_of_a_dead_worker_are_free_when_its_leases_are_reaped",),
    ),
    Mutant(
        "sqlite: the cursor moves without the job", "sqlite/fire.py",
        "    put(tx, [replace(tick.job, fresh=old is None, update=None, waiter=None)])\n", "",
        (f"{FIRE}::test_fire_puts_the_job_of_a_tick_and_moves_the_cursor",),
    ),
    Mutant(
        "redis: the cursor moves without the job", "redis/lua/_firing.lua",
        "    put_one(q, e)\n", "",
        (f"{FIRE}::test_fire_puts_the_job_of_a_tick_and_moves_the_cursor",),
    ),
    Mutant(
        "sqlite: the job is put and the cursor stays", "sqlite/fire.py",
        "    save(tx, queue, replace(record, version=version))\n", "", (INTERLEAVED,),
    ),
    Mutant(
        "redis: the job is put and the cursor stays", "redis/lua/fire.lua",
        "  store_schedule(q, name, s, old)\n", "", (INTERLEAVED,),
    ),
    Mutant(
        "sqlite: a firing of an old version fires", "sqlite/fire.py",
        "or record is None or record.version != firing.version", "or record is None", (INTERLEAVED,),
    ),
    Mutant(
        "redis: a firing of an old version fires", "redis/lua/fire.lua",
        "if not s or s.version ~= firing[1] then", "if not s then", (INTERLEAVED,),
    ),
    Mutant(
        "sqlite: an edit forgets the ticks that are due", "sqlite/set_schedule.py",
        "    if firing is not None:\n        base, _ = carry_out(tx, queue, base, firing)\n", "",
        (f"{SCHEDULES}::test_set_schedule_fires_the_ticks_that_were_due_before_the_change",),
    ),
    Mutant(
        "redis: an edit forgets the ticks that are due", "redis/lua/set_schedule.lua",
        "  if ARGV[10] ~= '' then carry_out(q, base, cmsgpack.unpack(ARGV[10]), ARGV[6]) end\n", "",
        (f"{SCHEDULES}::test_set_schedule_fires_the_ticks_that_were_due_before_the_change",),
    ),
    Mutant(
        "sqlite: a schedule is replaced whatever its version", "sqlite/set_schedule.py",
        "    if version != (old.version if old else 0):\n        return None\n", "",
        (f"{SCHEDULES}::test_set_schedule_with_another_version_changes_nothing",),
    ),
    Mutant(
        "redis: a schedule is replaced whatever its version", "redis/lua/set_schedule.lua",
        "  if version ~= (old and old.version or 0) then return 0 end\n", "",
        (f"{SCHEDULES}::test_set_schedule_with_another_version_changes_nothing",),
    ),
    Mutant(
        "sqlite: a tick is put although its id has a record", "sqlite/fire.py",
        '        return "known"\n', "        pass\n",
        (f"{FIRE}::test_fire_with_an_id_that_exists_puts_no_job",),
    ),
    Mutant(
        "redis: a tick is put although its id has a record", "redis/lua/_firing.lua",
        "    if is_known(q, e.id) then return 'known' end\n", "",
        (f"{FIRE}::test_fire_with_an_id_that_exists_puts_no_job",),
    ),
    Mutant(
        "sqlite: a job in backoff counts as finished", "sqlite/fire.py",
        "not last.ended", "last.place in (1, 2, 3)",
        (f"{FIRE}::test_overlap_skip_puts_no_job_while_the_last_is_unfinished",),
    ),
    Mutant(
        "redis: only a running job counts as unfinished", "redis/lua/_firing.lua",
        "call('HEXISTS', q.jobs, id) == 1 and call('HEXISTS', q.ends, id) == 0", "call('HEXISTS', q.runs, id) == 1",
        (f"{FIRE}::test_overlap_skip_puts_no_job_while_the_last_is_unfinished",),
    ),
    Mutant(
        "sqlite: jobs that became due take no room", "sqlite/fire.py",
        "        promote(tx, queue)\n", "",
        (f"{FIRE}::test_overlap_queue_counts_jobs_that_became_due",),
    ),
    Mutant(
        "sqlite: every worker gets what is due", "sqlite/due.py",
        "holder not in (None, worker) and tx.now < first + HELP_MS", "False",
        (f"{DUE}::test_due_keeps_other_workers_away_for_a_second",),
    ),
    Mutant(
        "redis: the alarm of a dead worker stays with it", "redis/lua/due.lua",
        "if known[2] and now < first + help then", "if known[2] then",
        (f"{DUE}::test_due_keeps_other_workers_away_for_a_second",),
    ),
    Mutant(
        "redis: an earlier tick waits for the holder of the alarm", "redis/lua/set_schedule.lua",
        "    call('HDEL', q.meta, 'ticker')\n", "",
        (f"{DUE}::test_an_earlier_tick_takes_the_alarm_from_its_holder",),
    ),
    Mutant(
        "sqlite: a new schedule wakes no worker", "sqlite/set_schedule.py",
        "        tx.notify_work(queue)\n", "",
        ("test_waits.py::test_an_earlier_tick_wakes_a_worker",),
    ),
    Mutant(
        "redis: a deleted queue forgets its next tick", "redis/lua/delete_queue.lua",
        "    if alarm[1] then call('HSET', q.meta, 'tick', alarm[1]) end\n", "",
        (f"{SCHEDULES}::test_delete_queue_leaves_the_schedules",),
    ),
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
        "    if held and job.grp is not None:\n        change_holds(tx, queue, job.grp, -1)\n    if bucket",
        "    if bucket",
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
        "        if queue.paused is not None:\n", "        if queue.paused == 0:\n",
        ("test_pause.py::test_a_paused_queue_hands_out_nothing",),
    ),
    Mutant(
        "sqlite: jobs are promoted a second early", "sqlite/statements.sql",
        "AND retried = ? AND due <= ?\n", "AND retried = ? AND due <= ? + 1000\n",
        ("test_claim.py::test_a_due_job_takes_no_later_one_with_it",),
    ),
    Mutant(
        "redis: a job that ends sends no notice", "redis/lua/_notices.lua",
        "    for _, notice in ipairs(F.notices_of(q, id)) do N.add(q, notice, id, letter, value) end\n", "",
        ("test_flows.py::test_a_failed_dependency_cancels_the_dependent_and_names_the_culprit",),
    ),
    Mutant(
        "redis: a notice copies no value", "redis/lua/_notices.lua",
        "    if value and (has(mode, 4) or fatal or not met) then\n", "    if false then\n",
        ("test_flows.py::test_a_dependent_waits_gets_the_value_and_the_flow_ends_with_its_last_child",),
    ),
    Mutant(
        "redis: a revived job opens nothing again", "redis/lua/_reopening.lua",
        "    for _, notice in ipairs(F.notices_of(q, id)) do N.add(q, notice, id, false, false) end\n", "",
        ("test_flows.py::test_a_retry_of_the_flow_runs_only_what_failed",),
    ),
    Mutant(
        "redis: a follow-up of a child is no child of the flow", "redis/lua/settle.lua",
        "s[6] and j.flow and suspending().adopt(q, id, s[6])", "nil",
        ("test_flows.py::test_a_follow_up_of_a_child_is_a_child_of_the_flow",),
    ),
    Mutant(
        "redis: a timeout of a wait is not recorded", "redis/lua/_suspended.lua",
        "    if g.wait then F.write(q, j, g, g.wait[1], KIND_SIGNAL, '') end\n", "",
        ("test_flows.py::test_signals_are_kept_in_order_and_a_late_one_is_for_the_next_wait",),
    ),
    Mutant(
        "redis: a retry merges the successor of a durable job", "redis/lua/_transitions.lua",
        "    if not durable then s, code = take_successor(q, id) end\n", "    s, code = take_successor(q, id)\n",
        ("test_flows.py::test_a_suspended_job_that_has_begun_gets_a_successor_and_holds_its_group",),
    ),
    Mutant(
        "redis: the keys of a job stay behind", "redis/lua/_flows.lua",
        "      if g and g.key ~= '' then F.drop_keys(q.prefix, g.key) end\n      parts[id] = false\n",
        "      parts[id] = false\n",
        ("test_flow_graphs.py::test_which_nodes_run_is_a_function_of_conditions_and_ends",),
    ),
    Mutant(
        "sqlite: a job that ends sends no notice", "sqlite/finish.py",
        "        note_end(tx, queue, job, end or ENDS[bucket], mode, result, error)\n", "        pass\n",
        ("test_flows.py::test_a_failed_dependency_cancels_the_dependent_and_names_the_culprit",),
    ),
    Mutant(
        "sqlite: a notice copies no value", "sqlite/flows.py",
        "kept = value if notice.wants or fatal or not met else None", "kept = None",
        ("test_flows.py::test_a_dependent_waits_gets_the_value_and_the_flow_ends_with_its_last_child",),
    ),
    Mutant(
        "sqlite: a revived job opens nothing again", "sqlite/flows.py",
        "    tx.effects += [Effect(notice, source, None) for notice in notices_of(tx, job.n)]\n", "",
        ("test_flows.py::test_a_retry_of_the_flow_runs_only_what_failed",),
    ),
    Mutant(
        "sqlite: a follow-up of a child is no child of the flow", "sqlite/settle.py",
        "                then = adopt(tx, queue, job, then)\n", "                pass\n",
        ("test_flows.py::test_a_follow_up_of_a_child_is_a_child_of_the_flow",),
    ),
    Mutant(
        "sqlite: a timeout of a wait is not recorded", "sqlite/ordering.py",
        '            write_checkpoint(tx, queue, job, wait.checkpoint, "signal", signal_value(None))\n',
        "            pass\n",
        ("test_flows.py::test_signals_are_kept_in_order_and_a_late_one_is_for_the_next_wait",),
    ),
    Mutant(
        "sqlite: a retry merges the successor of a durable job", "sqlite/finish.py",
        "None if is_durable(tx, queue, job) else tx.job(queue, job.id, twin=1)", "tx.job(queue, job.id, twin=1)",
        ("test_flows.py::test_a_suspended_job_that_has_begun_gets_a_successor_and_holds_its_group",),
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
        "(self.place == RUNNING or self.backoff is not None)", "self.place == RUNNING",
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
        "    if was_completed and not completed:\n        return False\n", "",
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
        "sqlite: an update keeps the priority", "sqlite/update.py",
        "    if flags.priority:\n        job.rank = rank\n", "",
        (f"{UPDATES}::test_an_update_changes_the_priority",),
    ),
    Mutant(
        "sqlite: a job that changes its group keeps its place", "sqlite/update.py",
        "        job.time = max(job.due, queue.time)\n", "        job.time = job.created\n",
        (f"{UPDATES}::test_an_update_with_a_group_moves_the_job_to_the_end_of_it",),
    ),
    Mutant(
        "sqlite: a job in backoff holds the group it moves to", "sqlite/update.py",
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
        "    if expire(tx, queue):\n        tx.notify_work(queue)\n        return None\n", "",
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
        "    text = f\"{_first_line(['allow-oom'])}{body}\"\n", "    text = f\"{_first_line([])}{body}\"\n",
        ("test_full.py::test_events_reach_a_listener_of_a_full_server",),
    ),
    Mutant(
        "redis: a worker that leaves keeps its subscription", "redis/__init__.py",
        "            await self._notifier.forget_worker(worker)\n", "            pass\n",
        ("test_full.py::test_a_worker_that_leaves_gives_its_connection_back",),
    ),
    Mutant(
        "redis: a closed group stays in the rotation", "redis/lua/_gated_claim.lua",
        "        G.set_turn(group, nil, member)\n        G.close(q, group, g, at)\n        return true\n",
        "        return false, true\n",
        (GROUP_LIMITS,),
    ),
    Mutant(
        "redis: a rate is charged at put", "redis/lua/put.lua",
        "put_all()\nreturn",
        "put_all()\ndo\n  local G = gates()\n  local own, g = G.rules_of(q).queue, G.gate_of(q, '')\n"
        "  if own and G.charge(g, own, 1) then G.store_gate(q, '', g) end\nend\nreturn",
        (f"{LIMITS}::test_a_rate_is_charged_by_starts_and_not_by_puts",),
    ),
    Mutant(
        "redis: a lowered limit ends a run", "redis/lua/_limits.lua",
        "      q.rules = nil\n", "      q.rules = nil\n      call('HDEL', q.runs, call('HRANDFIELD', q.runs) or '')\n",
        (f"{LIMITS}::test_a_limit_that_is_lowered_touches_no_run",),
    ),
    Mutant(
        "redis: a follow-up reads the gates of its queue anew", "redis/lua/_queue.lua",
        "  if prefix == q.prefix then return q end\n",
        "  if prefix == q.prefix then return queue_at(prefix, name) end\n",
        (f"{GROUP_LIMITS}::test_a_follow_up_into_the_group_of_a_settled_run_leaves_no_closed_group",),
    ),
    Mutant(
        "redis: a stale settlement frees a slot", "redis/lua/settle.lua",
        "~= token then return settled_before(s) end",
        "~= token then\n    local j = parse(call('HGET', q.jobs, id))\n    if j then hold(q, j.group, -1) end\n"
        "    return settled_before(s)\n  end",
        (f"{GROUP_LIMITS}::test_a_stale_settlement_frees_no_slot_of_a_group",),
    ),
    Mutant(
        "redis: a cancelled job is cancelled again", "redis/lua/_cancelling.lua",
        "state == 'cancelled' and CANCEL_CANCELLED + CANCEL_ALREADY or STATES[state]", "STATES[state]",
        ("test_cancel.py::test_cancel_of_a_finished_job_changes_nothing",),
    ),
    # events
    Mutant(
        "redis: the events of a fast put are lost", "redis/lua/_fast_put.lua",
        "    add_events(to, 'enqueued', ARGV[3], ids, 0)\n", "",
        (f"{EVENTS}::test_each_feed_has_the_events_of_its_queue_and_names_only",),
    ),
    Mutant(
        "redis: the events of a fast claim are lost", "redis/lua/_fast_claim.lua",
        "      if listened then emit_started(ids, recs) end\n", "",
        (f"{EVENTS}::test_a_started_event_is_that_of_the_model",),
    ),
    Mutant(
        "redis: the events of a fast settle are lost", "redis/lua/_fast_settle.lua",
        "      if plain.to then emit_completed(plain, at, count, sub(worker, 7)) end\n", "",
        (f"{EVENTS}::test_a_completed_event_has_every_field",),
    ),
    Mutant(
        "redis: the events after a fast path are not published", "redis/scripts.py",
        "if publish_events then publish_events() end", "",
        (f"{EVENTS}::test_a_completed_event_has_every_field",),
    ),
    Mutant(
        "redis: a listener of one queue gets the events of another", "redis/lua/_events.lua",
        "own = redis.pcall('HGET', KEYS[1], queue)", "own = marks[2]",
        (f"{EVENTS}::test_each_feed_has_the_events_of_its_queue_and_names_only",),
    ),
    Mutant(
        "redis: a script of a queue without a listener publishes nothing", "redis/lua/_base.lua",
        "      if queue == ARGV[3] then return false end\n", "      if true then return false end\n",
        (f"{EVENTS}::test_a_feed_of_one_queue_has_its_follow_ups_of_runs_in_another",),
    ),
    Mutant(
        "redis: a listener gets events of other names", "redis/lua/_events.lua",
        "if not listener.names or find(listener.names, ',' .. name .. ',', 1, true) then", "if true then",
        (f"{EVENTS}::test_each_feed_has_the_events_of_its_queue_and_names_only",),
    ),
    Mutant(
        "redis: a listener that has left still costs", "redis/listener_marks.py",
        '            await self._mark(key, "")\n', "            pass\n",
        (f"{BUDGET}::test_a_listener_that_has_left_costs_nothing",),
    ),
    Mutant(
        "redis: a listener that leaves takes others with it", "redis/listener_marks.py",
        "if live and string.sub(value, at, at + 15) ~= owner then", "if false then",
        (f"{EVENTS}::test_a_feed_that_ends_leaves_others_with_its_filter_their_events",),
    ),
    Mutant(
        "redis: a killed listener costs while another lives", "redis/listener_marks.py",
        "ends > now and ends < now + 4 * ms", "true",
        ("storage/test_listener_marks.py::test_the_entry_of_a_killed_listener_expires_while_another_lives",),
    ),
    Mutant(
        "sqlite: the events of a fast settle are lost", "sqlite/settle.py",
        "        _emit_completed(tx, queue, settlements, expires)\n", "        pass\n",
        (f"{EVENTS}::test_a_completed_event_has_every_field",),
    ),
    Mutant(
        "sqlite: a listener of one queue gets the events of another", "sqlite/waiters.sql",
        "CASE WHEN ?3 IS NULL OR queue = ?3 THEN note END", "note",
        (f"{EVENTS}::test_each_feed_has_the_events_of_its_queue_and_names_only",),
    ),
    Mutant(
        "sqlite: a listener to another queue costs", "sqlite/transaction.py",
        'may_want = "*" in names or f",{name}," in names', "may_want = True",
        (f"{BUDGET}::test_a_listener_to_other_events_costs_nothing",),
    ),
    Mutant(
        "sqlite: a listener that has left still costs", "sqlite/event_feed.py",
        "                await self._submit(lambda tx: waiters.remove_listener(tx, waiter), True)\n",
        "                pass\n",
        (f"{BUDGET}::test_a_listener_that_has_left_costs_nothing",),
    ),
    Mutant(
        "redis: a second cancel request emits its event again", "redis/lua/_cancelling.lua",
        "if not already then emit('cancel_requested', q, id, j and",
        "if true then emit('cancel_requested', q, id, j and",
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
        "redis: a completed job is always revived", "redis/lua/_reviving.lua",
        "(state == 'completed' and not completed) or ", "",
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
        "known[2] or known[4] or", "known[2] or",
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
        "    store(q, id, replaced)\n", "",
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
        "redis: a completed run keeps its hold", "redis/lua/_run_ends.lua",
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
        "redis: a completed run forgets its successor", "redis/lua/_run_ends.lua",
        "if string.find(run, GROUP_RUN, 17, true) == 17 then", "if byte(run, 17) == 0 then",
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
        "sqlite: a lane goes on over a head that is not known", "sqlite/claim_rows.py",
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
        "redis: an update begins a backoff again after the clock was set back", "redis/lua/_shared.lua",
        "  j.retried = false -- its backoff is over, and stays so if the clock is set back\n", "",
        ("test_clock.py::test_an_update_after_the_clock_was_set_back_begins_no_backoff_again",),
    ),
    Mutant(
        "redis: a page of several states has jobs of any length", "redis/__init__.py",
        "int(newest), MAX_BYTES - size", "int(newest), MAX_BYTES",
        ("test_bounds.py::test_a_page_of_several_states_ends_at_the_bytes",),
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
        "free = {new.id for new in jobs if (new.queue, new.id) not in taken}", "free = {new.id for new in jobs}",
        (f"{MAX_QUEUED}::test_a_put_that_adds_no_waiting_job_is_not_refused",),
    ),
    Mutant(
        "sqlite: a job that replaces a finished one does not count", "sqlite/put.py",
        "if may_replace(tx, tx.job(queue, new.id), new) and", "if False and",
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
        "return ended and may_replace(ended, entry.update)", "return false",
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
    # Costs, windows and longest waits
    Mutant(
        "sqlite: a cost is lost on update", "sqlite/update.py",
        "job.payload, job.headers, job.cost = new.payload, new.headers, new.cost",
        "job.payload, job.headers = new.payload, new.headers",
        ("test_cost.py::test_an_update_of_the_payload_replaces_the_cost",),
    ),
    Mutant(
        "sqlite: a plain job may have a cost", "sqlite/fast_path.py",
        " and new.cost == 1\n", "\n", ("test_cost.py::test_a_cost_reads_back_as_it_was_put",),
    ),
    Mutant(
        "sqlite: a window is freed by completion", "sqlite/finish.py",
        "    if bucket != Bucket.COMPLETED:\n        free_window(", "    if bucket:\n        free_window(",
        (f"{WINDOWS}::test_a_successor_waits_for_the_end_of_the_window",),
    ),
    Mutant(
        "sqlite: a failed job keeps its window", "sqlite/finish.py",
        "    if bucket != Bucket.COMPLETED:\n        free_window(tx, queue, job)\n", "",
        (f"{WINDOWS}::test_a_failed_job_frees_its_id",),
    ),
    Mutant(
        "sqlite: an expired job keeps its window", "sqlite/expire.py",
        "    free_window(tx, queue, job)\n", "", (f"{WINDOWS}::test_an_expired_job_frees_its_id",),
    ),
    Mutant(
        "sqlite: a cancelled trailing job frees the window of the job before it", "sqlite/windows.py",
        "    if job.earliest is not None and job.earliest > tx.now:\n", "    if False:\n",
        (f"{WINDOWS}::test_a_trailing_job_that_is_cancelled_leaves_the_window_in_which_it_was_put",),
    ),
    Mutant(
        "sqlite: an update moves a job before the end of the window", "sqlite/update.py",
        "        due = max(due, job.earliest)\n", "        pass\n",
        (f"{WINDOWS}::test_no_update_moves_a_job_before_the_end_of_the_window",),
    ),
    Mutant(
        "sqlite: a successor runs within the window", "sqlite/damage.py",
        "        release_window(tx, queue, successor)\n", "",
        (f"{WINDOWS}::test_a_successor_waits_for_the_end_of_the_window",),
    ),
    Mutant(
        "sqlite: a window counts from acceptance, whenever its job is due", "sqlite/put.py",
        "take_window(tx, queue, new.id, new.window, max(tx.now, due))",
        "take_window(tx, queue, new.id, new.window, tx.now)",
        (f"{WINDOWS}::test_a_window_begins_when_a_job_for_later_is_due",),
    ),
    Mutant(
        "sqlite: windows stay when they have ended", "sqlite/purge.py",
        '("purge_gone", "purge_windows")', '("purge_gone",)',
        (f"{WINDOWS}::test_purge_removes_windows_that_have_ended",),
    ),
    Mutant(
        "sqlite: a put held by a window counts for max_queued", "sqlite/put.py",
        " if new.id in free and not _is_held(tx, queue, new)}", " if new.id in free}",
        (f"{WINDOWS}::test_a_put_held_by_a_window_adds_nothing_to_a_bounded_queue",),
    ),
    Mutant(
        "sqlite: the longest wait counts from the last enqueue", "sqlite/update.py",
        "requested_due(tx, new, job.created)", "requested_due(tx, new, tx.now)",
        (f"{MAX_WAIT}::test_updates_postpone_a_job_up_to_the_longest_wait",),
    ),
    Mutant(
        "redis: a cost is lost on update", "redis/lua/_transitions.lua",
        "j.payload, j.headers, j.cost = e.payload, e.headers, e.cost", "j.payload, j.headers = e.payload, e.headers",
        ("test_cost.py::test_an_update_of_the_payload_replaces_the_cost",),
    ),
    Mutant(
        "redis: a plain job may have a cost", "redis/fast_path.py",
        " or new.cost != 1\n", "\n", ("test_cost.py::test_a_cost_reads_back_as_it_was_put",),
    ),
    Mutant(
        "redis: a window is freed by completion", "redis/lua/_transitions.lua",
        "how.state ~= 'completed' and how.job and how.job.window", "how.job and how.job.window",
        (f"{WINDOWS}::test_a_put_within_the_window_of_a_forgotten_job_is_a_duplicate",),
    ),
    Mutant(
        "redis: a failed job keeps its window", "redis/lua/_transitions.lua",
        "how.state ~= 'completed' and how.job and how.job.window", "false",
        (f"{WINDOWS}::test_a_failed_job_frees_its_id",),
    ),
    Mutant(
        "redis: an expired job keeps its window", "redis/lua/_expiry.lua",
        "    if j.window then windows().free(q, id, j) end\n", "", (f"{WINDOWS}::test_an_expired_job_frees_its_id",),
    ),
    Mutant(
        "redis: a cancelled trailing job frees the window of the job before it", "redis/lua/_windows.lua",
        "  if j.earliest > now then\n", "  if false then\n",
        (f"{WINDOWS}::test_a_trailing_job_that_is_cancelled_leaves_the_window_in_which_it_was_put",),
    ),
    Mutant(
        "redis: an update moves a job before the end of the window", "redis/lua/_transitions.lua",
        "  if due and due < j.earliest then due = j.earliest end\n", "",
        (f"{WINDOWS}::test_no_update_moves_a_job_before_the_end_of_the_window",),
    ),
    Mutant(
        "redis: a successor runs within the window", "redis/lua/_transitions.lua",
        "    if replaced.window then windows().enter(q, id, replaced, windows().end_of(q, id)) end\n", "",
        (f"{WINDOWS}::test_a_successor_waits_for_the_end_of_the_window",),
    ),
    Mutant(
        "redis: windows stay when they have ended", "redis/lua/purge.lua",
        "  call('ZREM', q.windows, unpack(ended))\n", "",
        (f"{WINDOWS}::test_purge_removes_windows_that_have_ended",),
    ),
    Mutant(
        "redis: a put held by a window counts for max_queued", "redis/lua/put.lua",
        "  if e[14] and windows().refuse(entry, windows().end_of(q, e[1])) then return false end\n", "",
        (f"{WINDOWS}::test_a_put_held_by_a_window_adds_nothing_to_a_bounded_queue",),
    ),
    Mutant(
        "redis: the longest wait counts from the last enqueue", "redis/lua/_transitions.lua",
        "run_at = math.min(run_at, j.created + e.max_wait)", "run_at = math.min(run_at, now + e.max_wait)",
        (f"{MAX_WAIT}::test_updates_postpone_a_job_up_to_the_longest_wait",),
    ),
    Mutant(
        "redis: a restored job frees its id", "redis/lua/restore.lua",
        "  if not ended or state == 'completed' then windows().take(q, id, j) end\n", "",
        ("client/test_windows.py::test_an_exported_job_keeps_its_cost_and_its_window",),
    ),
    Mutant(
        "client: an enqueue of many reads no keys", "client/queue.py",
        "        handler = self._host.handlers.get(name)\n", "        handler = None\n",
        ("client/test_keys.py::test_every_way_to_enqueue_reads_the_keys",),
    ),
    Mutant(
        "client: keys of a task forget the defaults of its arguments", "client/task_parameters.py",
        "        bound.apply_defaults()\n", "", ("client/test_keys.py::test_names_of_a_task_count_their_defaults",),
    ),
    Mutant(
        "client: a key wins over the option that is given", "client/keys.py",
        "        if by is not None and given.get(name) is None:\n", "        if by is not None:\n",
        ("client/test_keys.py::test_options_that_are_given_win",),
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
        "redis: a due member is removed before its job is moved", "redis/lua/_promotion.lua",
        """      promote_one(q, due[last], spend(call('HGET', q.jobs, sub(due[last], 13))), retried)
      call('ZREM', line, due[last])
""",
        """      call('ZREM', line, due[last])
      promote_one(q, due[last], spend(call('HGET', q.jobs, sub(due[last], 13))), retried)
""",
        (f"{TAMPERING}::test_a_promotion_that_fails_loses_no_due_job",),
    ),
    Mutant(
        "redis: a due member may have any length", "redis/lua/_promotion.lua",
        "local drop = #member < 13 or is_placed(q, id, j)", "local drop = is_placed(q, id, j)",
        (f"{TAMPERING}::test_one_damaged_member_of_scheduled_loses_no_other_due_job",),
    ),
    Mutant(
        "redis: a run record may have any length", "redis/lua/_run_ends.lua",
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
        "local held = to_number(call('HGET', q.holds, group) or 0, false) or recount_holds(q, group)",
        "local held = to_number(call('HGET', q.holds, group) or 0)",
        (f"{TAMPERING}::test_a_group_with_a_damaged_hold_waits_for_its_run",),
    ),
    Mutant(
        "redis: a purge trusts the members of finished jobs", "redis/lua/purge.lua",
        "local fits = ended and (bad or end_member(expires, number, ids[i]) == members[i])", "local fits = true",
        (f"{TAMPERING}::test_a_damaged_member_of_a_finished_job_deletes_no_other_job",),
    ),
    Mutant(
        "redis: a damaged sequence begins at one", "redis/lua/_run_ends.lua",
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
        "if glen > 65535 or llen > 65535 or hlen > 65535 or", "if",
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
        "        except BaseException as error:\n            await self._save_cursors(run.jobs[0])\n",
        "        except Exception as error:\n            await self._save_cursors(run.jobs[0])\n",
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
        "client: encrypted jobs are compared by their bytes", "client/payload_match.py",
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
        "redis: each listener has a secret of its own", "storage/redis/listener_marks.py",
        "    if #value >= 32 then secret = string.sub(value, 1, 32) end\n", "",
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
    # Limits
    Mutant(
        "sqlite: a slot is freed by a timer", "sqlite/gates.py",
        "rule.concurrency - runs_of(tx, queue)",
        "rule.concurrency - runs_of(tx, queue) + len(tx.all('reap_late', queue.k, tx.now, 9))",
        (f"{LIMITS}::test_the_slots_of_a_dead_worker_are_free_when_its_leases_are_reaped",),
    ),
    Mutant(
        "sqlite: a slot is not freed by a reap", "sqlite/reap.py",
        "                job = requeue(tx, queue, job, \"stalled\", tx.now)\n",
        "                job = requeue(tx, queue, job, \"stalled\", tx.now)\n                queue.count(3, 1)\n",
        (f"{LIMITS}::test_the_slots_of_a_dead_worker_are_free_when_its_leases_are_reaped",),
    ),
    Mutant(
        "sqlite: a stale settlement frees a slot", "sqlite/settle.py",
        "    state: State | None = None\n", "    state: State | None = None\n    queue.count(RUNNING, -1)\n",
        (f"{LIMITS}::test_a_slot_is_free_when_its_run_has_ended_in_any_way",),
    ),
    Mutant(
        "sqlite: the capacity of a queue is that of each claim", "sqlite/gates.py",
        "min(room, rule.concurrency - runs_of(tx, queue))", "min(room, rule.concurrency)",
        (f"{LIMITS}::test_a_claim_gives_as_many_jobs_as_the_limit_of_the_queue_allows",),
    ),
    Mutant(
        "sqlite: a lowered limit ends runs", "sqlite/limits.py",
        "    tx.forget_rules()\n",
        "    tx.forget_rules()\n    tx.execute(\"UPDATE jobs SET token = 'none' WHERE place = 3\", ())\n",
        (f"{LIMITS}::test_a_limit_that_is_lowered_touches_no_run",),
    ),
    Mutant(
        "sqlite: a rate is charged by a put", "sqlite/put.py",
        "    shared = (queue.k, queue.time, tx.now, tx.format)\n",
        "    shared = (queue.k, queue.time, tx.now, tx.format)\n"
        "    from penstock.storage.sqlite.gates import charge_start\n    charge_start(tx, queue, 1)\n",
        (f"{LIMITS}::test_a_rate_is_charged_by_starts_and_not_by_puts",),
    ),
    Mutant(
        "sqlite: a closed group stays in the rotation", "sqlite/gates.py",
        "lane.turn, lane.opens, lane.epoch = None, opens, gates.epoch", "lane.opens, lane.epoch = opens, gates.epoch",
        (GROUP_LIMITS,),
    ),
    Mutant(
        "sqlite: a group enters the rotation only when none of its runs is left", "sqlite/gates.py",
        "    elif lane.turn_time is None:\n", "    elif lane.turn_time is None and lane.holds == 0:\n",
        (f"{GROUP_LIMITS}::test_a_group_enters_the_rotation_again_when_one_of_several_runs_ends",),
    ),
    Mutant(
        "sqlite: a backoff takes a slot of a group without order", "sqlite/gates.py",
        "else lane.runs >= max(rule.concurrency, 1)", "else lane.holds >= max(rule.concurrency, 1)",
        (f"{GROUP_LIMITS}::test_a_group_without_order_does_not_wait_for_a_backoff",),
    ),
    Mutant(
        "sqlite: a group keeps its turn for one start", "sqlite/limited_claim.py",
        "turn[:2] if used <", "turn[:2] if False and used <",
        ("test_limits_weights.py::test_groups_share_starts_by_their_weights",),
    ),
    Mutant(
        "sqlite: closed groups are not looked at after a change", "sqlite/gates.py",
        "        gates.epoch += 1\n", "",
        (f"{GROUP_LIMITS}::test_a_raised_limit_opens_full_groups_at_once",),
    ),
    Mutant(
        "sqlite: a first limit does not find the groups that are held", "sqlite/gates.py",
        "        tx.run(\"gates_begin\", queue.k, gates_of(tx, queue).epoch)\n", "",
        (f"{GROUP_LIMITS}::test_the_first_limit_of_a_queue_finds_the_groups_that_are_held",),
    ),
    Mutant(
        "sqlite: runs of fail queues count for their family", "sqlite/gates.py",
        "        if isinstance(name, str) and not name.endswith(FAIL_SUFFIX):\n", "        if isinstance(name, str):\n",
        (f"{LIMITS}::test_a_fail_queue_has_no_limit_of_its_family",),
    ),
    Mutant(
        "a rate is not rescaled when it changes", "model/gate.py",
        "    if step != 0 and rule.step_us != 0 and step != rule.step_us:\n", "    if step < 0:\n",
        ("conformance/test_limits_queue.py::test_a_changed_rate_keeps_what_was_used_in_starts",),
    ),
    Mutant(
        "redis: a slot is freed by a timer", "redis/lua/_gated_claim.lua",
        "call('HLEN', q.runs)", "call('HLEN', q.runs) - call('ZCOUNT', q.leases, 0, now)",
        (f"{LIMITS}::test_the_slots_of_a_dead_worker_are_free_when_its_leases_are_reaped",),
    ),
    Mutant(
        "redis: the runs of a family are not counted down", "redis/lua/_families.lua",
        "      if count == before then return end\n", "      if count <= (before or 0) then return end\n",
        (f"{LIMITS}::test_a_limit_of_a_family_is_shared_by_its_queues",),
    ),
    Mutant(
        "redis: the capacity of a queue is that of each claim", "redis/lua/_gated_claim.lua",
        "own.concurrency - running - #ids", "own.concurrency - #ids",
        (f"{LIMITS}::test_a_claim_gives_as_many_jobs_as_the_limit_of_the_queue_allows",),
    ),
    Mutant(
        "redis: a start is not charged", "redis/lua/_gated_claim.lua",
        "    if own and G.charge(own_gate, own, cost_of(rec)) then changed.own = true end\n", "",
        (f"{LIMITS}::test_a_rate_spaces_starts_evenly",),
    ),
    Mutant(
        "redis: a rate is not rescaled", "redis/lua/_gates.lua",
        "rule.step ~= 0 and step ~= rule.step then", "step < 0 then",
        (f"{LIMITS}::test_a_changed_rate_keeps_what_was_used_in_starts",),
    ),
    Mutant(
        "redis: fail queues have the limit of their family", "redis/lua/_new_queue.lua",
        "sub(name, -9) == '/failures' or ", "",
        (f"{LIMITS}::test_a_fail_queue_has_no_limit_of_its_family",),
    ),
    Mutant(
        "redis: a group has room only when none of its runs is left", "redis/lua/_gates.lua",
        "      return running < max(rule.concurrency, 1)\n", "      return running == 0\n",
        (f"{GROUP_LIMITS}::test_a_group_enters_the_rotation_again_when_one_of_several_runs_ends",),
    ),
    Mutant(
        "redis: a group is not freed by completions together", "redis/lua/settle.lua",
        "    if #plain.groups > 0 then gates().look_at_all(q, plain.groups) end\n", "",
        (f"{GROUP_LIMITS}::test_completions_of_one_call_free_their_groups",),
    ),
    Mutant(
        "redis: a backoff takes a slot of a group without order", "redis/lua/_gates.lua",
        "      return held - call('ZLEXCOUNT', q.backoffs, '[' .. prefix, '(' .. prefix .. '\\255'), held\n",
        "      return held, held\n",
        (f"{GROUP_LIMITS}::test_a_group_without_order_does_not_wait_for_a_backoff",),
    ),
    Mutant(
        "redis: closed groups are not looked at after a change", "redis/lua/_limits.lua",
        "        G.recheck_all(q)\n", "        call('EXISTS', q.closed)\n",
        (f"{GROUP_LIMITS}::test_a_raised_limit_opens_full_groups_at_once",),
    ),
    Mutant(
        "redis: a first limit does not find the groups that are held", "redis/lua/_families.lua",
        "if group ~= '' and lane_head", "if group == '' and lane_head",
        (f"{GROUP_LIMITS}::test_the_first_limit_of_a_queue_finds_the_groups_that_are_held",),
    ),
    Mutant(
        "redis: a group keeps its turn for one start", "redis/lua/_gated_claim.lua",
        "if rest and g.used < rule.weight then", "if false then",
        ("test_limits_weights.py::test_groups_share_starts_by_their_weights",),
    ),
    # Bounds
    Mutant(
        "sqlite: a claim takes jobs of any length", "sqlite/claim.py",
        "        rows.append(row)\n        room -= row[-1]\n", "        rows.append(row)\n",
        (f"{BOUNDS}::test_a_claim_ends_with_the_job_that_reaches_the_bytes",),
    ),
    Mutant(
        "sqlite: a claim of groups takes jobs of any length", "sqlite/claim_rows.py",
        "            self.bytes -= row[SIZE]\n", "",
        (f"{BOUNDS}::test_groups_are_served_in_turn_across_the_bound",),
    ),
    Mutant(
        "sqlite: a page has jobs of any length", "sqlite/reads.py",
        "_key(statement, row), room - job.size", "_key(statement, row), room",
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
        "redis: due jobs behind long ones are lost", "redis/lua/_promotion.lua",
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
        "redis: a claim that has ended stays in the listing of runs", "redis/lua/_run_ends.lua",
        "call('ZREM', q.leases, token, '!' .. token)", "call('ZREM', q.leases, token)",
        ("test_reads.py::test_a_listing_of_runs_leaves_nothing_behind",),
    ),
    Mutant(
        "redis: a failed job that leaves stays in its error group", "redis/lua/_transitions.lua",
        "  if state == 'failed' then errors().drop(q, id, number, value) end\n", "",
        (f"{ERROR_GROUPS}::test_a_group_has_the_failed_jobs_and_no_others_after_every_verb",),
    ),
    Mutant(
        "redis: purge leaves failed jobs in their error groups", "redis/lua/purge.lua",
        "    if fits and state == 'failed' then errors().drop(q, ids[i], number, value) end\n", "",
        (f"{ERROR_GROUPS}::test_a_group_has_the_failed_jobs_and_no_others_after_every_verb",),
    ),
    Mutant(
        "redis: error groups are not bounded", "redis/lua/_errors.lua",
        "call('ZCARD', q.error_order) > MAX_GROUPS", "call('ZCARD', q.error_order) > 9999",
        (f"{ERROR_GROUPS}::test_the_group_seen_longest_ago_makes_room_and_old_ones_are_forgotten",),
    ),
    Mutant(
        "redis: a retry is not counted", "redis/lua/settle.lua", "  count_total(q, 'retried')\n", "",
        (f"{RECORD_STATS}::test_each_transition_is_counted_once",),
    ),
    Mutant(
        "redis: a claim has no time", "redis/lua/claim.lua", "pack('>I6', now) .. worker", "pack('>I6', 0) .. worker",
        (f"{ERROR_GROUPS}::test_the_start_of_a_run_is_known_while_it_runs_and_when_it_has_ended_the_job",),
    ),
    Mutant(
        "redis: a forgotten queue loses its totals", "redis/lua/purge.lua",
        "    call('HSET', q.history, 'b', cmsgpack.pack(totals))\n", "",
        (f"{RECORD_STATS}::test_totals_go_on_when_a_queue_was_forgotten",),
    ),
    Mutant(
        "redis: every call takes the minute", "redis/lua/take_minute.lua",
        "== tostring(minute) then return { now, 0 } end", "== 'no minute' then return { now, 0 } end",
        (f"{RECORD_STATS}::test_a_minute_is_sampled_once_by_the_call_that_comes_first",),
    ),
    Mutant(
        "redis: the last look at an idle queue is forgotten", "redis/lua/_ring.lua",
        "        keep(key, looked, newest)\n", "",
        (f"{RECORD_STATS}::test_a_queue_in_which_nothing_changes_stores_nothing_and_a_gap_is_known",),
    ),
    Mutant(
        "a failed job has no error group", "sqlite/finish.py",
        "        note_error(tx, queue, job.id, error)\n", "        pass\n",
        (f"{ERROR_GROUPS}::test_jobs_that_failed_alike_are_a_group",),
    ),
    Mutant(
        "error groups are not bounded", "sqlite/error_groups.py",
        '        tx.run("error_group_cap", tx.namespace, queue.name, MAX_ERROR_GROUPS)\n', "        pass\n",
        (f"{ERROR_GROUPS}::test_the_group_seen_longest_ago_makes_room_and_old_ones_are_forgotten",),
    ),
    Mutant(
        "a stall that is reaped is not counted", "sqlite/reap.py", '            queue.count_total("stalled")\n', "",
        (f"{RECORD_STATS}::test_each_transition_is_counted_once",),
    ),
    Mutant(
        "each call takes samples", "sqlite/stats.py",
        "    if last is None or last[0] // 60_000 != tx.now // 60_000:\n",
        "    if last is None or last[0] != tx.now:\n",
        (f"{RECORD_STATS}::test_a_minute_is_sampled_once_by_the_call_that_comes_first",),
    ),
    Mutant(
        "the last look at an idle queue is forgotten", "sqlite/stats.py",
        "            _store(tx, name, _repeated(newest, row.looked))\n", "            pass\n",
        (f"{RECORD_STATS}::test_a_queue_in_which_nothing_changes_stores_nothing_and_a_gap_is_known",),
    ),
    Mutant(
        "a forgotten queue loses its totals", "sqlite/purge.py", "            keep_totals(tx, queue)\n", "",
        (f"{RECORD_STATS}::test_totals_go_on_when_a_queue_was_forgotten",),
    ),
    Mutant(
        "a measured run counts for itself alone", "worker/stats.py",
        "job, weight, before = jobs[before], after - before, after", "job, weight, before = jobs[before], 1, after",
        ("worker/test_stats.py",),
    ),
    Mutant(
        "times that could not be sent are lost", "worker/stats.py",
        "            self._add(counted)\n", "            pass\n",
        ("worker/test_stats.py",),
    ),
    Mutant(
        "the fingerprint has the message", "model/fingerprint.py",
        "_digest(record.path, *places)", "_digest(record.path, record.message, *places)",
        ("unit/test_fingerprint.py",),
    ),
    Mutant(
        "redis: the first attempt goes like the others",
        "redis/lua/_histories.lua",
        "table.remove(entries, 2)",
        "table.remove(entries, 1)",
        (f"{HISTORIES}::test_of_many_attempts_the_first_and_the_last_19_are_kept",),
    ),
    Mutant(
        "redis: an error that equals the first is lost",
        "redis/lua/read.lua",
        "e[7] or entries[1][7] or ''",
        "e[7] or ''",
        (f"{HISTORIES}::test_of_many_attempts_the_first_and_the_last_19_are_kept",),
    ),
    Mutant(
        "redis: lines that are reported again are stored again",
        "redis/lua/_histories.lua",
        "head.token ~= token or number > head.number",
        "true",
        (f"{HISTORIES}::test_lines_that_are_reported_again_are_stored_once",),
    ),
    Mutant(
        "redis: a stale run may log",
        "redis/lua/report.lua",
        "if not held or sub(held, 1, 16) ~= token then return 0 end",
        "if not held then return 0 end",
        (f"{HISTORIES}::test_a_run_that_has_lost_its_claim_logs_nothing",),
    ),
    Mutant(
        "redis: a log has no bound of its bytes",
        "redis/lua/_histories.lua",
        "head.count <= MAX_LINES and head.bytes <= MAX_LOG",
        "head.count <= MAX_LINES",
        (f"{HISTORIES}::test_a_log_keeps_its_last_256_kib",),
    ),
    Mutant(
        "redis: the histories of a job that is not kept stay",
        "redis/lua/_transitions.lua",
        "    call('HDEL', q.jobs, id)\n    forget_histories(q, { id })",
        "    call('HDEL', q.jobs, id)",
        (f"{HISTORIES}::test_histories_go_with_the_record_of_their_job",),
    ),
    Mutant(
        "redis: the histories of a purged job stay",
        "redis/lua/purge.lua",
        "      forget_histories(q, ids)\n",
        "",
        (f"{HISTORIES}::test_histories_go_with_the_record_of_their_job",),
    ),
    Mutant(
        "redis: the attempts of a job have a claim that called no handler",
        "redis/lua/settle.lua",
        "if kind == 'c' or run.attempt == 0 or",
        "if kind == 'c' or",
        (f"{HISTORIES}::test_a_claim_that_called_no_handler_adds_no_attempt",),
    ),
    Mutant(
        "redis: a taken-back run is no attempt",
        "redis/lua/reap.lua",
        "  if j then\n    histories().add_attempt",
        "  if false then\n    histories().add_attempt",
        (f"{HISTORIES}::test_each_failed_attempt_is_kept_with_its_times_worker_and_error",),
    ),
    Mutant(
        "redis: a request is for the next worker of the id too",
        "redis/lua/beat.lua",
        "<= now then\n    call('HDEL', requests, worker)",
        "<= now then",
        (f"{OPERATORS}::test_a_worker_gets_a_request_with_its_heartbeats_for_a_minute",),
    ),
    Mutant(
        "redis: a bulk action is changed without its version",
        "redis/lua/put_bulk.lua",
        "if parse_bulk(call('HGET', bulk, id)) ~= version then return 0 end",
        "",
        (f"{OPERATORS}::test_a_bulk_action_is_changed_by_one_who_knows_its_version",),
    ),
    Mutant(
        "sqlite: the first attempt goes like the others",
        "sqlite/histories.sql",
        "AND kind = 0 AND n > 1 AND n <= ?",
        "AND kind = 0 AND n <= ?",
        (f"{HISTORIES}::test_of_many_attempts_the_first_and_the_last_19_are_kept",),
    ),
    Mutant(
        "sqlite: lines that are reported again are stored again",
        "sqlite/histories.py",
        "given.lines[max(0, known - given.first + 1) :]",
        "given.lines",
        (f"{HISTORIES}::test_lines_that_are_reported_again_are_stored_once",),
    ),
    Mutant(
        "sqlite: histories stay when their job goes",
        "sqlite/schema.sql",
        "DELETE FROM histories WHERE queue = old.queue AND id = old.id;",
        "SELECT 1;",
        (f"{HISTORIES}::test_histories_go_with_the_record_of_their_job",),
    ),
    Mutant(
        "sqlite: a repeated error is stored as none",
        "sqlite/histories.py",
        "data = first if data is None else data",
        "data = b'' if data is None else data",
        (f"{HISTORIES}::test_of_many_attempts_the_first_and_the_last_19_are_kept",),
    ),
    Mutant(
        "the last lines of a run are sent after its outcome",
        "worker/settler.py",
        "            await self._logs.end([job.claim for job in batch])",
        "            pass",
        (f"{JOB_LOG}::test_lines_of_a_run_are_there_when_it_has_ended",),
    ),
    Mutant(
        "a bulk action takes jobs that are newer than its preview",
        "client/bulk.py",
        "as_of=action.as_of, max_looked",
        "max_looked",
        (f"{BULK}::test_jobs_newer_than_the_preview_are_left_out",),
    ),
    Mutant(
        "a bulk action of a dead process is resumed",
        "client/bulk.py",
        "        if action.state_at(now) not in",
        "        if action.state not in",
        (f"{BULK}::test_an_action_of_a_dead_process_is_not_resumed",),
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
