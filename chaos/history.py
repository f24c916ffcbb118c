"""The records of a run, put together again: what was asked for, claimed, run and recorded, job by job.

An operation happened in the storage at some moment between `asked` and `answered`. One that was never answered may
have happened, or not: `answered` is None. Nothing here decides what is right; the checks do.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from chaos.facts import Call, Cancel, Claim, End, Final, Job, Key, Put, Run, Switch
from chaos.log import Record

__all__ = ["History"]

SECOND = 1_000_000
#: A request whose sender heard no answer may still be carried out so much later (µs), not more.
LATE = SECOND
#: One whose sender was killed may have to wait for a server that stands still.
VERY_LATE = 10 * SECOND
#: With `appendfsync everysec` a server that is killed may lose what it said in the last two seconds.
EVERYSEC = 5 * SECOND // 2


class History:
    """All jobs, runs and switches of a run, and the moments at which the server may have forgotten something."""

    def __init__(self, records: Iterable[Record]) -> None:
        self.jobs: dict[Key, Job] = {}
        self.runs: list[Run] = []
        self.switches: list[Switch] = []
        #: Numbers asked for in puts of fresh ids that were never answered: jobs that may exist.
        self.possible: dict[tuple[str, int], Put] = {}
        #: From when to when (µs) what the storage said may have been lost.
        self.shaky: list[tuple[int, int]] = []
        #: Whether enqueues were acknowledged only when they could not be lost any more.
        self.durable = False
        self.left: list[str] = []
        self.wrong_exits: list[str] = []
        #: Whether the storage was looked at in the end.
        self.looked = False
        #: For each failed job the fail jobs there are, and every job that a run put with its end.
        self.fail_jobs: defaultdict[Key, list[Key]] = defaultdict(list)
        self.then: set[Key] = set()
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
        """The jobs of each group, by queue and name."""
        found: defaultdict[tuple[str, str], list[Job]] = defaultdict(list)
        for job in self.jobs.values():
            names = {each.group for each in (*job.puts, *job.claims) if each.group is not None}
            for name in names:
                found[job.key[0], name].append(job)
        return found

    def losable(self, job: Job) -> bool:
        """Whether the server may have forgotten that it accepted a job, or an update of it."""
        return not self.durable and self.doubtful(job)

    def doubtful(self, *jobs: Job) -> bool:
        """Whether the server may have forgotten something that it had said about these jobs."""
        if not self.shaky:
            return False
        for job in jobs:
            moments = [each.answered for each in (*job.puts, *job.claims, *job.ends, *job.cancels)]
            if any(at is not None and first <= at <= last for at in moments for first, last in self.shaky):
                return True
        return False


class _Reader:
    """Matches questions with answers, process by process."""

    def __init__(self, history: History) -> None:
        self.h = history
        self.puts: dict[tuple[str, int], Record] = {}
        self.ends: dict[tuple[int, int], list[End]] = {}
        self.runs: dict[tuple[int, int], Run] = {}
        self.switches: dict[tuple[str, int], Switch] = {}
        self.calls: dict[tuple[str, int], list[Call]] = {}

    def read(self, records: Iterable[Record]) -> None:
        for record in records:
            reading = getattr(self, f"_{record['k']}", None)
            if reading is not None:
                reading(record)
        for record in self.puts.values():
            self._accept(record, [(job[0], None) for job in record["jobs"]], None, record["t"] + VERY_LATE)
        for job in self.h.jobs.values():
            job.claims.sort(key=lambda claim: claim.asked)
            if not job.puts:
                self._recognise(job)

    def _recognise(self, job: Job) -> None:
        """A job whose id its producer never heard is known by its number."""
        for number in {each.number for each in (*job.claims, *job.finals)}:
            name = (job.key[0], number or 0)
            if name in self.h.possible:
                job.puts.append(self.h.possible.pop(name))
                job.calls += self.calls.pop(name, [])

    # producers ------------------------------------------------------------------------------------

    def _put(self, record: Record) -> None:
        self.puts[record["role"], record["s"]] = record

    def _answer(self, record: Record) -> None:
        asked = self.puts.pop((record["role"], record["s"]), None)
        if asked is None:
            return
        if "put" in record:
            self._accept(asked, [(id, status) for id, status in record["put"]], record["t"], record["t"])
        else:
            self._accept(asked, [(job[0], None) for job in asked["jobs"]], None, record["t"] + LATE)

    def _accept(self, asked: Record, answers: list[tuple[str | None, str | None]], at: int | None, by: int) -> None:
        for (_, number, group, delay, mood, times), (id, status) in zip(asked["jobs"], answers, strict=True):
            put = Put(
                asked["t"], at, status, number, group, delay, mood, times, asked["update"], asked.get("call", False), by
            )
            if id is None:
                self.h.possible[asked["q"], number] = put
            else:
                self.h.job(asked["q"], id).puts.append(put)

    def _called(self, record: Record) -> None:
        """The answer of a call is that of its put, too, as far as anybody knows."""
        asked = self.puts.pop((record["role"], record["s"]), None)
        if asked is None:
            return
        heard = record.get("state")
        status = "called" if heard is not None or record.get("error") == "CallTimeout" else None
        at, call = record["t"] if status else None, Call(record["t"], heard, record.get("tok"))
        if record["id"] is None:
            self._accept(asked, [(None, None)], None, record["t"] + LATE)
            put = self.h.possible[record["q"], record["n"]]
            put.status, put.answered = status, at
            self.calls[record["q"], record["n"]] = [call]
            return
        self._accept(asked, [(record["id"], status)], at, record["t"] + LATE)
        self.h.job(record["q"], record["id"]).calls.append(call)

    def _cancel(self, record: Record) -> None:
        cancel = Cancel(
            record["a"], record["t"], record["mode"], record.get("status"), bool(record.get("running"))
        )  # fmt: skip
        self.h.job(record["q"], record["id"]).cancels.append(cancel)

    def _switch(self, record: Record) -> None:
        at = record["t"]
        switch = Switch(record["q"], record["paused"], at, at + VERY_LATE, False)
        self.switches[record["role"], record["s"]] = switch
        self.h.switches.append(switch)

    def _switched(self, record: Record) -> None:
        switch = self.switches.pop((record["role"], record["s"]), None)
        if switch is not None:
            switch.sure = "error" not in record
            switch.by = record["t"] if switch.sure else record["t"] + LATE

    # workers --------------------------------------------------------------------------------------

    def _claim(self, record: Record) -> None:
        for queue, id, batch, group, attempts, _retries, _stalls, _timeouts, number in record["claims"]:
            valid = record["a"] + record["lease"] * 1000
            claim = Claim(
                queue, id, record["tok"], record["a"], record["t"], record["lease"], record["w"], record["pid"], batch,
                group, attempts, number, valid,
            )  # fmt: skip
            self.h.add_claim(claim)

    def _renew(self, record: Record) -> None:
        for queue, id, token in record["kept"]:
            claim = self.h.claim_of(queue, id, token)
            if claim is not None:
                claim.valid = max(claim.valid, record["a"] + record["lease"] * 1000)

    def _settle(self, record: Record) -> None:
        ends: list[End] = []
        for queue, id, token, kind, then, delay in record["ends"]:
            end = End(queue, id, token, kind, then, delay, record["t"], None, None, record["pid"])
            self.h.then.update((new_queue, new_id) for new_queue, new_id in then)
            ends.append(end)
            self.h.job(queue, id).ends.append(end)
            claim = self.h.claim_of(queue, id, token)
            if claim is not None:
                claim.ends.append(end)
        self.ends[record["pid"], record["s"]] = ends

    def _settled(self, record: Record) -> None:
        ends = self.ends.pop((record["pid"], record["s"]), ())
        for end, state in zip(ends, record.get("states", ())):  # noqa: B905 - an error has no states
            end.answered, end.state = record["t"], state

    def _start(self, record: Record) -> None:
        run = Run(
            record["pid"], record["q"], record["u"], record["t"], None, None, record["jobs"], record.get("of")
        )  # fmt: skip
        self.runs[record["pid"], record["r"]] = run
        self.h.runs.append(run)
        for id, *_ in run.jobs:
            self.h.job(run.queue, id).runs.append(run)

    def _end(self, record: Record) -> None:
        run = self.runs.get((record["pid"], record["r"]))
        if run is not None:
            run.ended, run.how = record["t"], record["how"]

    # the rest -------------------------------------------------------------------------------------

    def _event(self, record: Record) -> None:
        if record["id"]:
            self.h.job(record["q"], record["id"]).events.append((record["name"], record["t"]))

    def _final(self, record: Record) -> None:
        final = Final(
            record["q"], record["id"], record["state"], record["n"], record.get("tok"), record["group"],
            record["counts"], record.get("of"), record.get("kind"),
        )  # fmt: skip
        self.h.job(final.queue, final.id).finals.append(final)
        if final.of is not None:
            self.h.fail_jobs[final.of[0], final.of[1]].append((final.queue, final.id))

    def _run(self, record: Record) -> None:
        self.h.durable = bool(record.get("durability"))

    def _server(self, record: Record) -> None:
        if record["did"] == "killed" and record.get("fsync") == "everysec":
            self.h.shaky.append((record["t"] - EVERYSEC, record["t"]))

    def _shaky(self, record: Record) -> None:
        self.h.shaky.append((record["first"], record["last"]))

    def _exits(self, record: Record) -> None:
        self.h.wrong_exits += record["wrong"]

    def _left(self, record: Record) -> None:
        self.h.looked = True
        self.h.left += record["what"]
