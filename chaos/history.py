"""The history of a run, built from its records: the puts, claims, handler runs and settlements of each job.

An operation took effect in the storage at some moment between `asked` and `answered`. One that was never answered may
have taken effect or not: its `answered` is None. The checks decide what is a violation, not this module.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from chaos.history_model import (
    Call,
    Cancel,
    Claim,
    ClockJump,
    FaultSpan,
    FinalState,
    HandlerRun,
    Job,
    Key,
    PauseChange,
    Put,
    Settlement,
)
from chaos.log import Record
from chaos.settings_history import FiredTicks, SettingsHistory, SettingsReader

__all__ = ["History"]

SECOND = 1_000_000
#: Longest time (µs) after which a request whose sender got no answer may still take effect.
LATE = SECOND
#: The same for a request whose sender was killed, which may wait for a stopped server.
VERY_LATE = 10 * SECOND
#: Time (µs) before the kill of a server with `appendfsync everysec` in which its acknowledged writes may be lost.
EVERYSEC = 5 * SECOND // 2


class History:
    """Jobs, handler runs and pauses of a run, and the times in which acknowledged writes may be lost."""

    def __init__(self, records: Iterable[Record]) -> None:
        self.jobs: dict[Key, Job] = {}
        self.runs: list[HandlerRun] = []
        self.pause_changes: list[PauseChange] = []
        #: Puts without an id and without an answer, by queue and number: their jobs may exist.
        self.unidentified_puts: dict[tuple[str, int], Put] = {}
        #: Times (first and last µs) in which writes that the storage acknowledged may be lost.
        self.loss_windows: list[tuple[int, int]] = []
        #: Whether the apps had a `durability` option, so that no acknowledged enqueue may be lost.
        self.durable = False
        self.leftovers: list[str] = []
        self.wrong_exits: list[str] = []
        self.wrong_refusals: list[str] = []
        #: Whether the runner has read the storage at the end of the run.
        self.storage_read = False
        #: The fail jobs of each failed job.
        self.fail_jobs: defaultdict[Key, list[Key]] = defaultdict(list)
        #: All jobs that a settle was to put.
        self.follow_ups: set[Key] = set()
        #: When (µs) answers to reap named a job.
        self.reaps: defaultdict[Key, list[int]] = defaultdict(list)
        self.faults: dict[int, FaultSpan] = {}
        self.clock_jumps: list[ClockJump] = []
        self.settings = SettingsHistory()
        #: Seconds of a lease, 0 if no settings were recorded.
        self.lease = 0.0
        self._claims: dict[tuple[str, str, str], Claim] = {}
        _Reader(self).read(records)

    def job(self, queue: str, id: str) -> Job:
        key = (queue, id)
        if key not in self.jobs:
            self.jobs[key] = Job(key)
        return self.jobs[key]

    def claim_of(self, queue: str, id: str, token: str) -> Claim | None:
        return self._claims.get((queue, id, token))

    def add_claim(self, claim: Claim) -> None:
        self._claims[claim.queue, claim.id, claim.token] = claim
        self.job(claim.queue, claim.id).claims.append(claim)

    def groups(self) -> dict[tuple[str, str], list[Job]]:
        """Return the jobs of each group, by queue and name."""
        found: defaultdict[tuple[str, str], list[Job]] = defaultdict(list)
        for job in self.jobs.values():
            names = {each.group for each in (*job.puts, *job.claims) if each.group is not None}
            for name in names:
                found[job.key[0], name].append(job)
        return found

    def clock_jumped(self, first: int, last: int) -> bool:
        """Return whether the clock of all processes jumped between two moments."""
        return any(jump.by >= first and jump.asked <= last for jump in self.clock_jumps)

    def latest_time(self, first: int, last: int) -> float:
        """Return the latest time (ms of the wall clock) that a process may have read between two moments."""
        ahead = 0
        found: list[int] = []
        for jump in self.clock_jumps:
            if jump.asked > last:
                break
            if jump.by >= first:
                found.append(ahead)
            ahead = jump.ahead
        return self.settings.wall_ms(last) + max([*found, ahead])

    def may_be_lost(self, job: Job) -> bool:
        """Return whether the server may have lost a job, or an update of it, after acknowledging it."""
        return not self.durable and self.touches_loss_window(job)

    def touches_loss_window(self, *jobs: Job) -> bool:
        """Return whether an answer about one of these jobs was given in a loss window."""
        if not self.loss_windows:
            return False
        for job in jobs:
            moments = [each.answered for each in (*job.puts, *job.claims, *job.settlements, *job.cancels)]
            if any(at is not None and first <= at <= last for at in moments for first, last in self.loss_windows):
                return True
        return False


class _Reader:
    """Reader of the records, which matches the requests of each process with their answers."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.puts: dict[tuple[str, int], Record] = {}
        self.settlements: dict[tuple[int, int], list[Settlement]] = {}
        self.runs: dict[tuple[int, int], HandlerRun] = {}
        self.pause_changes: dict[tuple[str, int], PauseChange] = {}
        self.calls: dict[tuple[str, int], list[Call]] = {}
        self.settings = SettingsReader(history.settings, VERY_LATE, LATE)

    def read(self, records: Iterable[Record]) -> None:
        for record in records:
            method = getattr(self, f"_{record['k']}", None) or getattr(self.settings, record["k"], None)
            if method is not None:
                method(record)
        self.history.settings.forget_answers(self.history.loss_windows)
        self._shorten_leases()
        self._take_ticks()
        for record in self.puts.values():
            self._accept(record, [(job[0], None) for job in record["jobs"]], None, record["t"] + VERY_LATE)
        for job in self.history.jobs.values():
            job.claims.sort(key=lambda claim: claim.asked)
            if not job.puts:
                self._identify(job)

    def _shorten_leases(self) -> None:
        """End leases at the next jump of the clock ahead, when they may have expired."""
        for ahead in (jump for jump in self.history.clock_jumps if jump.jump > 0):
            for claim in (claim for job in self.history.jobs.values() for claim in job.claims):
                if claim.valid - claim.lease * 1000 <= ahead.by and ahead.asked < claim.valid:
                    claim.valid = max(ahead.asked, claim.answered)

    def _take_ticks(self) -> None:
        """Take the jobs of ticks for such that were put; those of a change are known to exist only by themselves."""
        settings = self.history.settings
        for firing in settings.firings:
            self._put_ticks(firing)
        for change in (each for changes in settings.schedule_changes.values() for each in changes):
            if change.firing is not None and not change.refused:
                self._put_ticks(change.firing)

    def _put_ticks(self, firing: FiredTicks) -> None:
        queue, _ = firing.key
        status, answered = ("queued", firing.by) if firing.sure else (None, None)
        for at, id, behaviour, group, cost in firing.ticks:
            if firing.refused or (firing.sure and id not in firing.ids):
                continue
            number = at // 1000
            put = Put(firing.asked, answered, status, number, group, None, behaviour, 0, False, False, firing.by, cost)
            self.history.job(queue, id).puts.append(put)

    def _identify(self, job: Job) -> None:
        """Find the put of a job by its number, if its producer never got the id."""
        for number in {each.number for each in (*job.claims, *job.finals)}:
            name = (job.key[0], number or 0)
            if name in self.history.unidentified_puts:
                job.puts.append(self.history.unidentified_puts.pop(name))
                job.calls += self.calls.pop(name, [])

    # producers ------------------------------------------------------------------------------------

    def _put(self, record: Record) -> None:
        self.puts[record["role"], record["s"]] = record

    def _put_answer(self, record: Record) -> None:
        asked = self.puts.pop((record["role"], record["s"]), None)
        if asked is None:
            return
        if "put" in record:
            self._accept(asked, [(id, status) for id, status in record["put"]], record["t"], record["t"])
        else:
            self._accept(asked, [(job[0], None) for job in asked["jobs"]], None, record["t"] + LATE)

    def _accept(self, asked: Record, answers: list[tuple[str | None, str | None]], at: int | None, by: int) -> None:
        for (_, number, group, delay, behaviour, times, *more), (id, status) in zip(
            asked["jobs"], answers, strict=True
        ):
            put = Put(
                asked["t"],
                at,
                status,
                number,
                group,
                delay,
                behaviour,
                times,
                asked["update"],
                asked.get("call", False),
                by,
                *more,
            )
            if id is None:
                self.history.unidentified_puts[asked["q"], number] = put
            else:
                self.history.job(asked["q"], id).puts.append(put)

    def _call_answer(self, record: Record) -> None:
        """Take the answer of a call as that of its put: there is no other."""
        asked = self.puts.pop((record["role"], record["s"]), None)
        if asked is None:
            return
        state = record.get("state")
        status = "called" if state is not None or record.get("error") == "CallTimeout" else None
        at, call = record["t"] if status else None, Call(record["t"], state, record.get("tok"))
        if record["id"] is None:
            self._accept(asked, [(None, None)], None, record["t"] + LATE)
            put = self.history.unidentified_puts[record["q"], record["n"]]
            put.status, put.answered = status, at
            self.calls[record["q"], record["n"]] = [call]
            return
        self._accept(asked, [(record["id"], status)], at, record["t"] + LATE)
        self.history.job(record["q"], record["id"]).calls.append(call)

    def _cancel(self, record: Record) -> None:
        cancel = Cancel(
            record["a"], record["t"], record["mode"], record.get("status"), bool(record.get("running"))
        )  # fmt: skip
        self.history.job(record["q"], record["id"]).cancels.append(cancel)

    def _set_pause(self, record: Record) -> None:
        at = record["t"]
        change = PauseChange(record["q"], record["paused"], at, at + VERY_LATE, False)
        self.pause_changes[record["role"], record["s"]] = change
        self.history.pause_changes.append(change)

    def _set_pause_answer(self, record: Record) -> None:
        change = self.pause_changes.pop((record["role"], record["s"]), None)
        if change is not None:
            change.sure = "error" not in record
            change.by = record["t"] if change.sure else record["t"] + LATE

    # workers --------------------------------------------------------------------------------------

    def _claim(self, record: Record) -> None:
        for queue, id, batch, group, attempts, _retries, _stalls, _timeouts, number in record["claims"]:
            valid = record["a"] + record["lease"] * 1000
            claim = Claim(
                queue, id, record["tok"], record["a"], record["t"], record["lease"], record["w"], record["pid"], batch,
                group, attempts, number, valid,
            )  # fmt: skip
            self.history.add_claim(claim)

    def _renew(self, record: Record) -> None:
        for queue, id, token in record["kept"]:
            claim = self.history.claim_of(queue, id, token)
            if claim is not None:
                claim.valid = max(claim.valid, record["a"] + record["lease"] * 1000)

    def _settle(self, record: Record) -> None:
        settlements: list[Settlement] = []
        for queue, id, token, kind, follow_ups, delay in record["settlements"]:
            settlement = Settlement(queue, id, token, kind, follow_ups, delay, record["t"], None, None, record["pid"])
            self.history.follow_ups.update((new_queue, new_id) for new_queue, new_id in follow_ups)
            settlements.append(settlement)
            self.history.job(queue, id).settlements.append(settlement)
            claim = self.history.claim_of(queue, id, token)
            if claim is not None:
                claim.settlements.append(settlement)
        self.settlements[record["pid"], record["s"]] = settlements

    def _settle_answer(self, record: Record) -> None:
        settlements = self.settlements.pop((record["pid"], record["s"]), ())
        for settlement, state in zip(settlements, record.get("states", ())):  # noqa: B905 - an error has no states
            settlement.answered, settlement.state = record["t"], state

    def _run_start(self, record: Record) -> None:
        run = HandlerRun(
            record["pid"], record["q"], record["u"], record["t"], None, None, record["jobs"], record.get("of")
        )  # fmt: skip
        self.runs[record["pid"], record["r"]] = run
        self.history.runs.append(run)
        for id, *_ in run.jobs:
            self.history.job(run.queue, id).runs.append(run)

    def _run_end(self, record: Record) -> None:
        run = self.runs.get((record["pid"], record["r"]))
        if run is not None:
            run.ended, run.how = record["t"], record["how"]

    # runner and event watcher ---------------------------------------------------------------------

    def _event(self, record: Record) -> None:
        if record["id"]:
            self.history.job(record["q"], record["id"]).events.append((record["name"], record["t"]))

    def _final(self, record: Record) -> None:
        final = FinalState(
            record["q"], record["id"], record["state"], record["n"], record.get("tok"), record["group"],
            record["counts"], record.get("of"), record.get("kind"),
        )  # fmt: skip
        self.history.job(final.queue, final.id).finals.append(final)
        if final.of is not None:
            self.history.fail_jobs[final.of[0], final.of[1]].append((final.queue, final.id))

    def _settings(self, record: Record) -> None:
        self.history.durable = bool(record.get("durability"))
        self.history.lease = record.get("lease", 0.0)

    def _reap(self, record: Record) -> None:
        for queue, id, *_ in record["jobs"]:
            self.history.reaps[queue, id].append(record["t"])

    def _clock(self, record: Record) -> None:
        self.history.clock_jumps.append(ClockJump(record["a"], record["t"], record["jump"], record["ahead"]))

    def _fault(self, record: Record) -> None:
        self.history.faults[record["number"]] = FaultSpan(record["name"], record["t"])

    def _fault_over(self, record: Record) -> None:
        fault = self.history.faults.get(record["number"])
        if fault is not None:
            fault.over, fault.pids = record["t"], frozenset(record.get("pids", ()))

    def _server(self, record: Record) -> None:
        if record["did"] == "killed" and record.get("fsync") == "everysec":
            self.history.loss_windows.append((record["t"] - EVERYSEC, record["t"]))

    def _loss_window(self, record: Record) -> None:
        self.history.loss_windows.append((record["first"], record["last"]))

    def _exits(self, record: Record) -> None:
        self.history.wrong_exits += record["wrong"]

    def _full(self, record: Record) -> None:
        self.history.wrong_refusals += record["wrong"]

    def _leftovers(self, record: Record) -> None:
        self.history.storage_read = True
        self.history.leftovers += record["what"]
