"""Checks of schedules: time zones, retired schedules, ticks that no worker fires."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from penstock.client.schedule_info import ScheduleInfo
from penstock.model.cron import Cron
from penstock.ops.doctor.findings import Finding, fine, warning

__all__ = ["check_schedules"]

#: A tick that has been due for longer than this gives a warning.
OVERDUE = timedelta(minutes=1)


def check_schedules(schedules: Sequence[ScheduleInfo], more: bool, now: datetime) -> list[Finding]:
    """Return the findings about schedules, of which there may be `more`; none if there is no schedule."""
    if not schedules:
        return []
    paused = sum(info.paused_since is not None for info in schedules)
    counts = f"{len(schedules):,}{' and more' if more else ''}" + (f", {paused:,} paused" if paused else "")
    return [fine("schedules", counts), *(finding for info in schedules for finding in check_schedule(info, now))]


def check_schedule(info: ScheduleInfo, now: datetime) -> Iterable[Finding]:
    """Yield the findings about one schedule."""
    about = f"schedule {info.queue}/{info.name}"
    if isinstance(info.when, str):
        yield warning(about, f"the time zone of {info.when} is not known on this machine",
                      "install the newest tzdata here; workers without it leave the schedule to others")  # fmt: skip
    elif isinstance(info.when, Cron) and info.next_at is not None and not is_tick(info.when, info.next_at):
        yield warning(about, f"its next time, {info.next_at:%Y-%m-%d %H:%M:%S}Z, is none of its times on this machine: "
                      "the rules of its time zone differ between machines",
                      "install the same tzdata wherever workers run")  # fmt: skip
    if info.retired_since is not None:
        yield warning(about, f"retired since {info.retired_since:%Y-%m-%d %H:%M:%S}Z: no live worker declares it",
                      "start a worker that declares it, or remove it: penstock schedule rm "
                      f"{shlex.quote(info.queue)} {shlex.quote(info.name)}")  # fmt: skip
    elif info.next_at is not None and now - info.next_at > OVERDUE:
        minutes = (now - info.next_at).total_seconds() / 60
        remedy = "that declares it" if info.source == "code" else "that has its handler"
        yield warning(about, f"a tick has been due for {minutes:,.0f} minutes: no worker fires it",
                      f"start a worker {remedy}")  # fmt: skip


def is_tick(when: Cron, moment: datetime) -> bool:
    """Return whether a moment is a tick by the time zones of this machine."""
    return when.after(moment - timedelta(seconds=1)) == moment
