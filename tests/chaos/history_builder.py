"""Histories made by hand: a builder whose methods append the records that real processes would write."""

from __future__ import annotations

from typing import Any

from chaos.log import Record

MS = 1000
LEASE_MS = 2000


class HistoryBuilder:
    """Builder of the records of imaginary processes; each record is 10 ms after the previous one."""

    def __init__(self) -> None:
        self.now = 1_000_000_000
        self.records: list[Record] = []
        self.numbers = 0
        self.runs = 0

    def wait(self, seconds: float) -> None:
        self.now += round(seconds * 1_000_000)

    def add(self, kind: str, role: str = "w0", pid: int = 1, /, **fields: Any) -> Record:
        self.now += 10 * MS
        record = {"k": kind, "t": self.now, "role": role, "pid": pid, **fields}
        self.records.append(record)
        return record

    # producers ------------------------------------------------------------------------------------

    def put(
        self, queue: str, id: str | None, *, number: int | None = None, group: str | None = None,
        delay: float | None = None, behaviour: str = "ok", times: int = 0, update: bool = False,
        status: str | None = "queued", made: str = "",
    ) -> int:  # fmt: skip
        """Add the put of a job and, with a status, its answer; `made` is the id that the storage gives it."""
        self.numbers += 1
        number = number or self.numbers
        job = [id, number, group, delay, behaviour, times]
        self.add("put", "p0", 9, s=number, q=queue, jobs=[job], update=update)
        if status is not None:
            self.add("put_answer", "p0", 9, s=number, put=[[id or made, status]])
        return number

    def cancel(self, queue: str, id: str, status: str, mode: str = "refuse", running: bool = False) -> None:
        self.add("cancel", "p0", 9, a=self.now + MS, q=queue, id=id, mode=mode, status=status, running=running)

    def set_pause(self, queue: str, paused: bool) -> None:
        self.numbers += 1
        self.add("set_pause", "p0", 9, s=self.numbers, q=queue, paused=paused)
        self.add("set_pause_answer", "p0", 9, s=self.numbers)

    def call(self, queue: str, id: str, state: str, token: str | None) -> None:
        self.numbers += 1
        job = [id, self.numbers, None, None, "ok", 0]
        self.add("put", "p0", 9, s=self.numbers, q=queue, jobs=[job], update=False, call=True)
        self.add("call_answer", "p0", 9, s=self.numbers, q=queue, n=self.numbers, id=id, state=state, tok=token)

    # workers --------------------------------------------------------------------------------------

    def claim(self, queue: str, *ids: str, token: str, pid: int = 1, **more: Any) -> None:
        """Add a claim of jobs that run together."""
        group, number, batch = more.get("group"), more.get("number"), more.get("batch", 0)
        asked = self.now + MS
        claims = [[queue, id, batch, group, 1, 0, 0, 0, number] for id in ids]
        self.add("claim", f"w{pid}", pid, a=asked, w=f"w{pid}", lease=LEASE_MS, tok=token, claims=claims)

    def renew(self, queue: str, id: str, token: str, pid: int = 1) -> None:
        self.add(
            "renew", f"w{pid}", pid, a=self.now + MS, w=f"w{pid}", lease=LEASE_MS, kept=[[queue, id, token]], lost=[]
        )

    def start(self, queue: str, *ids: str, token: str, pid: int = 1, units: int = 2, of: Any = None) -> int:
        self.runs += 1
        jobs = [[id, token, 1, None, None] for id in ids]
        more = {} if of is None else {"of": of}
        self.add("run_start", f"w{pid}", pid, r=self.runs, q=queue, u=units, jobs=jobs, **more)
        return self.runs

    def end(self, run: int, how: str = "ok", pid: int = 1) -> None:
        self.add("run_end", f"w{pid}", pid, r=run, how=how)

    def settle(
        self, queue: str, id: str, token: str, kind: str = "c", state: str | None = "completed", pid: int = 1,
        then: Any = (), delay: int = 0,
    ) -> None:  # fmt: skip
        """Add a settle call and, with a state, its answer."""
        self.numbers += 1
        self.add("settle", f"w{pid}", pid, s=self.numbers, settlements=[[queue, id, token, kind, list(then), delay]])
        if state is not None:
            self.add("settle_answer", f"w{pid}", pid, s=self.numbers, states=[state])

    def run(self, queue: str, id: str, token: str, pid: int = 1, **more: Any) -> None:
        """Add a claim, a handler run and a settle that completes the job."""
        self.claim(queue, id, token=token, pid=pid, **more)
        number = self.start(queue, id, token=token, pid=pid)
        self.end(number, pid=pid)
        self.settle(queue, id, token, pid=pid)

    # event watcher and runner ---------------------------------------------------------------------

    def event(self, queue: str, id: str, name: str) -> None:
        self.add("event", "watcher", 8, name=name, q=queue, id=id, n=1)

    def final(self, queue: str, id: str, state: str = "completed", **more: Any) -> None:
        fields = {"n": None, "group": None, "counts": [1, 0, 0, 0], **more}
        self.add("final", "runner", 7, q=queue, id=id, state=state, **fields)

    def finish(self, *leftovers: str) -> list[Record]:
        """Add the reading of the storage at the end of the run; return all records."""
        self.add("leftovers", "runner", 7, count=len(leftovers), what=list(leftovers))
        return self.records

    # unrelated jobs -------------------------------------------------------------------------------

    def add_other_jobs(self, count: int = 5) -> None:
        """Add jobs that complete and break no promise."""
        for i in range(count):
            id, token = f"other-{self.numbers}-{i}", f"noise-{self.numbers}-{i}"
            self.put("plain", id)
            self.run("plain", id, token, pid=5)
            self.event("plain", id, "completed")
            self.final("plain", id, tok=token)
