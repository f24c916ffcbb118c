"""Planted faults of limits, schedules and windows."""

from __future__ import annotations

from tests.mutants.test_mutants import Mutant

__all__ = ["PLANTED_LIMITS"]


def planted(name: str, file: str, old: str, new: str) -> Mutant:
    return Mutant(f"limits: {name}", file, old, new, ())


PLANTED_LIMITS = [
    planted(
        "a reaped run keeps the slot of its group", "sqlite/finish.py",
        "    held = job.holds_group\n    worker, job.worker",
        "    held = job.holds_group and event != \"stalled\"\n    worker, job.worker",
    ),
    planted(
        "the runs of a family are those of one queue", "sqlite/gates.py",
        "room = rule.concurrency - _family_runs(tx, family_of(queue.name))",
        "room = rule.concurrency - runs_of(tx, queue)",
    ),
    planted(
        "a queue has room for one more", "sqlite/gates.py",
        "rule.concurrency - runs_of(tx, queue))\n    return room",
        "rule.concurrency - runs_of(tx, queue) + 1)\n    return room",
    ),
    planted(
        "a limit is set whatever its version", "sqlite/limits.py",
        "    if (row[0] if row else 0) != version:\n", "    if False:\n",
    ),
    planted(
        "the time of a change of a rate is not stored", "sqlite/limits.py",
        "replace(rule, changed_at=tx.now).pack()", "rule.pack()",
    ),
    planted(
        "a start is charged twice to its group", "sqlite/limited_claim.py",
        "lane.gate = charge(lane.gate, rule, cost, tx.now * 1000)",
        "lane.gate = charge(charge(lane.gate, rule, cost, tx.now * 1000), rule, cost, tx.now * 1000)",
    ),
    planted(
        "a start costs 1 whatever its job costs", "model/limit.py",
        "return cost if self.by_cost else 1", "return 1",
    ),
    planted(
        "a start is not charged", "model/gate.py",
        "max(current(gate, rule, now).tat, now) + rule.price(cost) * rule.step_us",
        "max(current(gate, rule, now).tat, now)",
    ),
    planted(
        "a rate is not counted on after its change", "model/gate.py",
        "tat = min(since + math.ceil(starts * rule.step_us), LATEST)", "tat = since",
    ),
    planted(
        "a group with room is not looked at when a run ends", "sqlite/gates.py",
        "        _place_group(tx, queue, group, lane, first[group], None, wake=True)\n", "",
    ),
    planted(
        "a closed group stays closed after its time", "sqlite/gates.py",
        "    for group, opens in due:\n        look_at_group(tx, queue, group, (opens, None), wake)\n", "",
    ),
    planted(
        "closed groups are not looked at after a change", "sqlite/gates.py",
        "        gates.epoch += 1\n        return\n", "        return\n",
    ),
    planted(
        "the pause of a group does not end by itself", "sqlite/gate_rows.py",
        "if self.paused is None or (self.pause_until is not None and self.pause_until <= now):",
        "if self.paused is None:",
    ),
    planted(
        "a retry pauses nothing", "sqlite/settle.py",
        "        pause_until(tx, queue, job.grp if retried.pause == \"group\" else None, due)\n", "        pass\n",
    ),
    planted(
        "a tick fires whatever the version of its schedule", "sqlite/fire.py",
        "record is None or record.version != firing.version:", "record is None:",
    ),
    planted(
        "the cursor moves without the job", "sqlite/fire.py",
        "    put(tx, [replace(tick.job, fresh=old is None, update=None, waiter=None)])\n", "",
    ),
    planted(
        "the job is put and the cursor stays", "sqlite/fire.py",
        "record, cursor=firing.cursor, next=firing.next, fired=", "record, fired=",
    ),
    planted(
        "missed ticks are not counted", "sqlite/fire.py",
        "missed=record.missed + firing.missed", "missed=record.missed",
    ),
    planted(
        "a paused schedule ticks", "model/schedule_settings.py",
        "if self.fires else None", "if self.retired is None else None",
    ),
    planted(
        "an edit forgets the ticks that are due", "client/schedules.py",
        "        if old.fires:\n            firing = firing_before_change(",
        "        if False:\n            firing = firing_before_change(",
    ),
    planted(
        "a resumed schedule makes up for its pause", "ticking.py",
        "old.paused is not None and new.paused is None and not catch_up", "False",
    ),
    planted(
        "no worker takes the alarm of a dead one", "sqlite/due.py",
        "if worker and holder not in (None, worker) and tx.now < first + HELP_MS:",
        "if worker and holder not in (None, worker):",
    ),
    planted(
        "a worker looks once at its declarations", "worker/declarations.py",
        "        await self.look()\n        return LOOK",
        "        if not self.declared:\n            await self.look()\n        return LOOK",
    ),
    planted(
        "the first declaration holds", "model/settings.py",
        "    return claimant if earlier else record", "    return record",
    ),
    planted(
        "a window is freed by completion", "sqlite/finish.py",
        "    if bucket != Bucket.COMPLETED:\n        free_window(tx, queue, job)\n",
        "    free_window(tx, queue, job)\n",
    ),
    planted(
        "rates of idle groups stay", "sqlite/purge.py",
        "        purge_gates(tx, queue, limit)\n", "",
    ),
    planted(
        "the longest wait counts from the last enqueue", "sqlite/put.py",
        "min(due, created + new.max_wait)", "min(due, tx.now + new.max_wait)",
    ),
    planted(
        "windows that are over stay", "sqlite/purge.py",
        '("purge_gone", "purge_windows")', '("purge_gone",)',
    ),
]  # fmt: skip
