"""Histories made by hand that break a promise about limits or schedules; each function adds one to a builder."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.chaos.history_builder import MS, HistoryBuilder

Scenario = Callable[[HistoryBuilder], None]
Scope = tuple[str, str, str | None]

#: Queue and name of the schedule of the scenarios.
S = ("tick", "s")


# limits -------------------------------------------------------------------------------------------


def set_limit(
    history: HistoryBuilder, scope: Scope, concurrency: int = 0, step: int = 0, burst: int = 1, by_cost: bool = False
) -> None:
    """Add a change of a limit and its answer; `step` is in microseconds."""
    history.numbers += 1
    rule = [concurrency, step, burst, by_cost]
    history.add("set_limit", "w1", 1, s=history.numbers, scope=list(scope), rule=rule, v=0)
    history.add("set_limit_answer", "w1", 1, s=history.numbers, v=1)


def put_and_claim(history: HistoryBuilder, queue: str, *ids: str, group: str | None = None) -> None:
    """Add puts and claims of jobs that stay claimed."""
    for id in ids:
        history.put(queue, id, group=group)
    for id in ids:
        history.claim(queue, id, token=f"t-{id}", group=group)


def complete(history: HistoryBuilder, queue: str, *ids: str) -> None:
    for id in ids:
        history.settle(queue, id, f"t-{id}")
        history.final(queue, id, tok=f"t-{id}")


def over_the_limit_of_a_queue(history: HistoryBuilder) -> None:
    set_limit(history, ("queue", "cap", None), 2)
    put_and_claim(history, "cap", "a", "b", "c")
    complete(history, "cap", "a", "b", "c")


def over_the_limit_of_a_family(history: HistoryBuilder) -> None:
    set_limit(history, ("family", "fam", None), 1)
    put_and_claim(history, "fam/a", "a")
    put_and_claim(history, "fam/b", "b")
    complete(history, "fam/a", "a")
    complete(history, "fam/b", "b")


def over_the_limit_of_every_group(history: HistoryBuilder) -> None:
    set_limit(history, ("groups", "caps", None), 2)
    put_and_claim(history, "caps", "a", "b", "c", group="g")
    complete(history, "caps", "a", "b", "c")


def over_the_limit_of_one_group(history: HistoryBuilder) -> None:
    set_limit(history, ("groups", "caps", None), 3)
    set_limit(history, ("group", "caps", "g"), 1)
    put_and_claim(history, "caps", "a", "b", group="g")
    complete(history, "caps", "a", "b")


def over_a_limit_that_was_lowered(history: HistoryBuilder) -> None:
    """Three run when the limit becomes 2; the next may start when one runs, and starts when two do."""
    set_limit(history, ("queue", "cap", None), 3)
    put_and_claim(history, "cap", "a", "b", "c")
    set_limit(history, ("queue", "cap", None), 2)
    complete(history, "cap", "a")
    put_and_claim(history, "cap", "d")
    complete(history, "cap", "b", "c", "d")


def over_the_rate_of_a_queue(history: HistoryBuilder) -> None:
    set_limit(history, ("queue", "cap", None), step=100_000, burst=1)
    put_and_claim(history, "cap", "a", "b")
    complete(history, "cap", "a", "b")


def over_a_rate_by_cost(history: HistoryBuilder) -> None:
    """Add a job that costs 8, so that the next one may start 0.7 s later, and starts after 0.02 s."""
    set_limit(history, ("queue", "cost", None), step=100_000, burst=2, by_cost=True)
    for id, cost in (("a", 8), ("b", 1)):
        history.put("cost", id)
        next(each for each in reversed(history.records) if each["k"] == "put")["jobs"][0].append(cost)
    history.claim("cost", "a", token="t-a")
    history.claim("cost", "b", token="t-b")
    complete(history, "cost", "a", "b")


def started_out_of_order(history: HistoryBuilder) -> None:
    set_limit(history, ("groups", "caps", None), 2)
    history.put("caps", "a", group="g")
    history.put("caps", "b", group="g")
    history.claim("caps", "b", token="t-b", group="g")
    history.claim("caps", "a", token="t-a", group="g")
    complete(history, "caps", "a", "b")


def slot_not_freed(history: HistoryBuilder) -> None:
    """Kill a worker, and claim its job again 8 seconds later, with a lease of 2 seconds."""
    set_limit(history, ("queue", "cap", None), 1)
    put_and_claim(history, "cap", "a")
    history.add("fault", "runner", 7, name="kill_worker", number=0)
    history.add("fault_over", "runner", 7, name="kill_worker", number=0, pids=[1])
    history.wait(8)
    history.run("cap", "a", "t2", pid=2)
    history.final("cap", "a", tok="t2")


OF_LIMITS: dict[str, list[Scenario]] = {
    "over_limit": [
        over_the_limit_of_a_queue,
        over_the_limit_of_a_family,
        over_the_limit_of_every_group,
        over_the_limit_of_one_group,
        over_a_limit_that_was_lowered,
    ],
    "over_rate": [over_the_rate_of_a_queue, over_a_rate_by_cost],
    "out_of_order": [started_out_of_order],
    "slot_not_freed": [slot_not_freed],
}


# schedules ----------------------------------------------------------------------------------------


class Ticks:
    """Builder of the records of one schedule with a tick every second; times are seconds of the history's clock."""

    def __init__(self, history: HistoryBuilder) -> None:
        self.history = history
        self.version = 0
        self.cursor = history.now // MS
        self.change()

    def change(self, *, fires: bool = True, start: int | None = None) -> None:
        """Add the creation or a change of the schedule, and its answer; `start` is the cursor before, if it moves."""
        self.history.numbers += 1
        start = start or (self.cursor if self.version else None)
        self.history.add(
            "set_schedule", "w1", 1, s=self.history.numbers, q=S[0], name=S[1], v=self.version, start=start,
            cursor=self.cursor, when="every 1", fires=fires, firing=None,
        )  # fmt: skip
        self.version += 1
        self.history.add("set_schedule_answer", "w1", 1, s=self.history.numbers, v=self.version)

    def due(self) -> list[int]:
        """Return the nominal times (ms) that are due."""
        return list(range((self.cursor // 1000 + 1) * 1000, self.history.now // MS + 1, 1000))

    def fire(self, times: list[int], *, skipped: int = 0, missed: int = 0, version: int | None = None) -> None:
        """Add a firing of these nominal times, and its answer; `skipped` of them get no job."""
        self.history.numbers += 1
        expected = self.version if version is None else version
        ticks: list[list[Any]] = [[at, f"{S[1]}@{at}", "ok", None, 1] for at in times]
        firing: dict[str, Any] = {
            "q": S[0], "name": S[1], "v": expected, "start": self.cursor, "when": "every 1", "ticks": ticks,
            "missed": missed, "overlap": "skip", "cursor": max(times), "manual": False,
        }  # fmt: skip
        self.history.add("fire", "w1", 1, s=self.history.numbers, firings=[firing])
        self.version += 1
        self.cursor = max(times)
        ids = [str(tick[1]) for tick in ticks[: len(ticks) - skipped]]
        fired = [self.version, False, len(ids), skipped, 0, 0, ids]
        self.history.add("fire_answer", "w1", 1, s=self.history.numbers, fired=[fired])
        for id in ids:
            self.history.run(S[0], id, f"t-{id}")
            self.history.final(S[0], id, tok=f"t-{id}")

    def final(self, fired: int, skipped: int = 0, missed: int = 0) -> None:
        """Add the schedule as it is stored at the end."""
        counts = [fired, skipped, missed, 0]
        self.history.add(
            "final_schedule", "runner", 7, q=S[0], name=S[1], v=self.version, cursor=self.cursor, counts=counts
        )


def tick_with_two_jobs(history: HistoryBuilder) -> None:
    """Fire a tick again, from the next version, as if its id were free."""
    ticks = Ticks(history)
    history.wait(1)
    due = ticks.due()
    ticks.fire(due)
    ticks.fire(due)


def two_firings_from_one_version(history: HistoryBuilder) -> None:
    ticks = Ticks(history)
    history.wait(1)
    version = ticks.version
    ticks.fire(ticks.due())
    history.wait(1)
    ticks.fire(ticks.due(), version=version)


def tick_left_out_by_a_firing(history: HistoryBuilder) -> None:
    ticks = Ticks(history)
    history.wait(3)
    ticks.fire(ticks.due()[1:])


def cursor_moved_without_a_firing(history: HistoryBuilder) -> None:
    ticks = Ticks(history)
    history.wait(1)
    ticks.fire(ticks.due())
    history.wait(1)
    ticks.cursor += 1000
    history.wait(1)
    ticks.fire(ticks.due())


def counters_that_do_not_add_up(history: HistoryBuilder) -> None:
    ticks = Ticks(history)
    history.wait(2)
    ticks.fire(ticks.due())
    ticks.final(fired=1)


def fired_tick_without_a_job(history: HistoryBuilder) -> None:
    """Count two ticks as fired, of which one has a job."""
    ticks = Ticks(history)
    history.wait(2)
    ticks.fire(ticks.due(), skipped=1)
    ticks.final(fired=2)


def tick_before_its_time(history: HistoryBuilder) -> None:
    ticks = Ticks(history)
    history.wait(1)
    ticks.fire([*ticks.due(), ticks.due()[-1] + 1000])


def tick_in_a_pause(history: HistoryBuilder) -> None:
    ticks = Ticks(history)
    ticks.change(fires=False)
    history.wait(1)
    ticks.fire(ticks.due())


OF_SCHEDULES: dict[str, list[Scenario]] = {
    "duplicated_tick": [tick_with_two_jobs, two_firings_from_one_version],
    "uncounted_tick": [
        tick_left_out_by_a_firing,
        cursor_moved_without_a_firing,
        counters_that_do_not_add_up,
        fired_tick_without_a_job,
    ],
    "wrong_tick": [tick_before_its_time, tick_in_a_pause],
}
