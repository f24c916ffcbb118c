"""Limits of queues, groups and families through the public API: what starts, what waits, and the answers of `why`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import pytest

from penstock import EVERY, Entry, Limit, LimitInfo, Penstock, Queue, Rate, Reason, Reservation, State, Why
from penstock.model.clock import as_datetime
from penstock.testing import Clock

LEASE = 3600


async def take(queue: Queue, limit: int) -> list[Reservation]:
    return await queue.reserve(limit=limit, lease=LEASE)


def ids(reservations: Sequence[Reservation]) -> list[str]:
    return [each.id for each in reservations]


async def fill(queue: Queue, *names: str) -> None:
    """Put jobs; a name such as `a1` is of the group `a`, one such as `1` of none."""
    await queue.enqueue_many(
        [Entry(name, id=name, group=name[0] if name[0].isalpha() else None) for name in names]
    )  # fmt: skip


async def why(queue: Queue, id: str) -> Why:
    found = await queue.why(id)
    assert found is not None
    return found


async def complete(reservations: Sequence[Reservation]) -> None:
    for each in reservations:
        await each.complete()


# concurrency ---------------------------------------------------------------------------------------


async def test_a_limited_queue_runs_as_many_as_its_limit(app: Penstock) -> None:
    """With `concurrency=3` three of ten jobs are given, and one more when one has completed; `why` has the numbers."""
    queue = app.queue("q")
    await queue.set_limit(Limit(concurrency=3))
    await fill(queue, *map(str, range(10)))
    first = await take(queue, 10)
    assert ids(first) == ["0", "1", "2"]
    await first[0].complete()
    second = await take(queue, 10)
    assert ids(second) == ["3"]
    reason = await why(queue, "4")
    assert (reason.reason, reason.scope, reason.used, reason.limit) == (
        Reason.LIMIT_REACHED,
        "queue",
        3,
        Limit(concurrency=3),
    )
    assert sorted(reason.holders) == ["1", "2", "3"]
    assert str(reason) == "Limit of queue 'q' is reached: 3 of 3 run."
    await complete([*first[1:], *second])
    await queue.delete(settings=True)


async def test_every_group_may_have_several_runs(app: Penstock) -> None:
    """With `group=EVERY, concurrency=2` two jobs of each group are given, those of each group in order."""
    queue = app.queue("q")
    await queue.set_limit(Limit(concurrency=2), group=EVERY)
    await fill(queue, *(f"{group}{n}" for group in "ab" for n in range(5)))
    given = ids(await take(queue, 10))
    assert [id for id in given if id[0] == "a"] == ["a0", "a1"]
    assert [id for id in given if id[0] == "b"] == ["b0", "b1"]
    reason = await why(queue, "a2")
    assert (reason.reason, reason.scope, reason.group, reason.used) == (Reason.LIMIT_REACHED, "group", "a", 2)
    assert sorted(reason.holders) == ["a0", "a1"]
    behind = await why(queue, "a3")
    assert (behind.reason, behind.behind) == (Reason.BEHIND_GROUP, "a2")
    assert behind.head is not None
    assert behind.head.reason is Reason.LIMIT_REACHED
    await queue.delete(settings=True)


async def test_the_limit_of_one_group_wins_over_that_of_every_group(app: Penstock) -> None:
    """A group with a limit of its own follows it; the others follow that of every group."""
    queue = app.queue("q")
    await queue.set_limit(Limit(concurrency=2), group=EVERY)
    await queue.set_limit(Limit(concurrency=4), group="a")
    await fill(queue, *(f"{group}{n}" for group in "ab" for n in range(5)))
    given = ids(await take(queue, 10))
    assert sorted(given) == ["a0", "a1", "a2", "a3", "b0", "b1"]
    await queue.delete(settings=True)


async def test_an_ordered_group_waits_through_a_backoff_and_a_mutex_does_not(app: Penstock, clock: Clock) -> None:
    """A group without a limit is held by a failing first job; with `ordered=False` the second is given at once."""
    queue = app.queue("q")
    await fill(queue, "g1", "g2", "g3")
    [first] = await take(queue, 10)
    await first.retry(delay=60)
    assert await take(queue, 10) == []
    assert (await why(queue, "g2")).reason is Reason.BEHIND_GROUP
    await queue.set_limit(Limit(concurrency=1, ordered=False), group="g")
    second = await take(queue, 10)
    assert ids(second) == ["g2"]
    reason = await why(queue, "g3")
    assert (reason.reason, reason.used, reason.holders) == (Reason.LIMIT_REACHED, 1, ["g2"])
    await complete(second)
    clock.advance(60)
    third = await take(queue, 10)
    assert ids(third) == ["g1"]
    await complete(third)
    await queue.delete(settings=True)


async def test_a_lowered_limit_touches_no_run(app: Penstock) -> None:
    """After the limit was lowered from 4 to 2, nothing starts until one job runs; no run is lost."""
    queue = app.queue("q")
    await queue.set_limit(Limit(concurrency=4))
    await fill(queue, *map(str, range(6)))
    held = await take(queue, 10)
    await queue.set_limit(Limit(concurrency=2))
    assert str(await why(queue, "4")) == "Limit of queue 'q' is reached: 4 of 2 run."
    for count, expected in ((3, []), (2, []), (1, ["4"])):
        await held.pop(0).complete()
        assert len(held) == count
        given = await take(queue, 10)
        assert ids(given) == expected
        held += given
    await complete(held)
    await queue.delete(settings=True)


async def test_a_family_is_limited_as_a_whole(app: Penstock) -> None:
    """The limit of a family holds for all its queues together, but not for fail queues."""
    ask, embed, fails = app.queue("llm/ask"), app.queue("llm/embed"), app.queue("llm/ask/failures")
    await app.set_limit("llm", Limit(concurrency=3))
    for queue in (ask, embed, fails):
        await fill(queue, "1", "2", "3")
    assert ids(await take(ask, 2)) == ["1", "2"]
    assert ids(await take(embed, 10)) == ["1"]
    assert await take(ask, 10) == []
    assert len(await take(fails, 10)) == 3
    reason = await why(ask, "3")
    assert (reason.reason, reason.scope, reason.used, reason.here) == (Reason.LIMIT_REACHED, "family", 3, 2)
    assert str(reason) == "Limit of family 'llm' is reached: 3 of 3 run, 2 of them in 'llm/ask'."
    await app.reset_limit("llm")
    assert ids(await take(ask, 10)) == ["3"]
    for queue in (ask, embed, fails):
        await queue.delete(settings=True)


# rates ---------------------------------------------------------------------------------------------


async def test_a_rate_spaces_starts_and_saves_nothing_up(app: Penstock, clock: Clock) -> None:
    """`rate="10/s"` gives one job, one more after 0.1 s, and one after 10 s: with burst 1 nothing is saved up."""
    queue = app.queue("q")
    await queue.set_limit(Limit(rate="10/s"))
    await fill(queue, *map(str, range(30)))
    assert len(await take(queue, 30)) == 1
    assert await take(queue, 30) == []
    clock.advance(0.1)
    assert len(await take(queue, 30)) == 1
    clock.advance(10)
    assert len(await take(queue, 30)) == 1
    await queue.delete(settings=True)


async def test_a_burst_is_saved_up(app: Penstock, clock: Clock) -> None:
    """`rate="10/s", burst=5` gives five jobs, one more after 0.1 s, and five after 10 s."""
    queue = app.queue("q")
    await queue.set_limit(Limit(rate="10/s", burst=5))
    await fill(queue, *map(str, range(30)))
    counts = [len(await take(queue, 30))]
    for seconds in (0.1, 10):
        clock.advance(seconds)
        counts.append(len(await take(queue, 30)))
    assert counts == [5, 1, 5]
    await queue.delete(settings=True)


async def test_each_group_has_its_own_rate(app: Penstock, clock: Clock) -> None:
    """With `group=EVERY, rate="1/s"` each group starts one job a second; `why` has the time of the next."""
    queue = app.queue("q")
    await queue.set_limit(Limit(rate="1/s"), group=EVERY)
    await fill(queue, *(f"{group}{n}" for n in (1, 2, 3) for group in "abc"))
    first = await take(queue, 9)
    assert ids(first) == ["a1", "b1", "c1"]
    await complete(first)
    clock.advance(1)
    second = await take(queue, 9)
    assert ids(second) == ["a2", "b2", "c2"]
    await complete(second)
    reason = await why(queue, "a3")
    now = as_datetime(round(clock.time() * 1000))
    assert (reason.reason, reason.scope, reason.group) == (Reason.RATE_LIMITED, "group", "a")
    assert reason.until == now + timedelta(seconds=1)
    assert reason.limit == Limit(rate="1/s")
    assert "group 'a' may start 1 in 1 s" in str(reason)
    await queue.delete(settings=True)


async def test_a_raised_rate_opens_at_once(app: Penstock, clock: Clock) -> None:
    """A queue that waits an hour by its rate waits for the new step when the rate is raised."""
    queue = app.queue("q")
    await queue.set_limit(Limit(rate="1/h"))
    await fill(queue, "1", "2", "3")
    assert len(await take(queue, 3)) == 1
    await queue.set_limit(Limit(rate="100/s"))
    clock.advance(0.01)
    assert ids(await take(queue, 3)) == ["2"]
    await queue.delete(settings=True)


async def test_a_rate_by_cost_takes_the_cost_of_a_job(app: Penstock, clock: Clock) -> None:
    """With `by="cost"` a job of cost 30 is paid for 3 s at 10/s; others wait, and none overtakes."""
    queue = app.queue("q")
    await queue.set_limit(Limit(rate="10/s", by="cost", burst=10))
    for id, cost in (("dear", 30), ("cheap", 1), ("next", 1)):
        await queue.enqueue(id, id=id, cost=cost)
    assert ids(await take(queue, 10)) == ["dear"]
    clock.advance(1.9)
    assert await take(queue, 10) == []
    clock.advance(0.2)
    assert ids(await take(queue, 10)) == ["cheap"]
    await queue.delete(settings=True)


# shares --------------------------------------------------------------------------------------------


async def test_shares_are_the_weights(app: Penstock) -> None:
    """With weights 3 and 1 and one slot, 40 starts are 30 of `a` and 10 of `b`, in runs of at most 3."""
    queue = app.queue("q")
    await queue.set_limit(Limit(concurrency=1))
    await queue.set_limit(Limit(weight=3), group="a")
    await fill(queue, *(f"{group}{n}" for group in "ab" for n in range(40)))
    started: list[str] = []
    for _ in range(40):
        [given] = await take(queue, 10)
        started.append(given.id[0])
        await given.complete()
    assert (started.count("a"), started.count("b")) == (30, 10)
    assert "aaaa" not in "".join(started)
    await queue.delete(settings=True)


# reading and changing ------------------------------------------------------------------------------


async def test_limits_are_read_and_reset(app: Penstock) -> None:
    """`limit` reads one, `limits` lists all that hold for the queue, and `reset_limit` forgets the change."""
    queue = app.queue("q")
    assert await queue.limit() == LimitInfo(scope="queue", name="q")
    five, ten = Limit(concurrency=5), Limit(rate=Rate(10, 60), weight=2)
    assert await queue.set_limit(five)
    assert not await queue.set_limit(five)
    assert await queue.set_limit(ten, group=EVERY)
    assert await queue.set_limit(Limit(concurrency=2), group="b")
    assert await app.set_limit("q", Limit(concurrency=9))
    await queue.pause("a")
    found = await queue.limits()
    assert [(each.scope, each.name, each.group) for each in found] == [
        ("family", "q", None),
        ("queue", "q", None),
        ("groups", "q", None),
        ("group", "q", "a"),
        ("group", "q", "b"),
    ]
    assert [each.limit for each in found] == [Limit(concurrency=9), five, ten, None, Limit(concurrency=2)]
    assert all(each.changed == each.limit and each.declared is None for each in found)
    assert found[3].paused_since is not None
    assert found.cursor is None
    page = await queue.limits(limit=2)
    assert (len(page), len(await queue.limits(page.cursor, 3))) == (2, 3)
    assert await queue.reset_limit()
    assert not await queue.reset_limit()
    assert (await queue.limit()).limit is None
    await app.reset_limit("q")
    await queue.delete(settings=True)
    assert await queue.limits() == []


async def test_a_gate_shows_its_runs_and_jobs(app: Penstock) -> None:
    """`limit` has the number of runs and of waiting jobs, and when a rate opens."""
    queue = app.queue("q")
    await queue.set_limit(Limit(concurrency=2, rate="1/min"))
    await fill(queue, "a1", "a2", "b1")
    held = await take(queue, 10)
    info = await queue.limit()
    assert (len(held), info.running, info.waiting) == (1, 1, 2)
    assert info.opens_at is not None
    group = await queue.limit("a")
    assert (group.running, group.waiting, group.opens_at) == (1, 1, None)
    await queue.delete(settings=True)


async def test_a_deleted_queue_keeps_its_limits(app: Penstock) -> None:
    """`delete` leaves limits, `delete(settings=True)` takes them; a queue with limits is listed."""
    queue = app.queue("q")
    await queue.set_limit(Limit(concurrency=1))
    await fill(queue, "1", "2")
    await queue.delete()
    assert await app.queues() == ["q"]
    await fill(queue, "1", "2")
    assert len(await take(queue, 10)) == 1
    await queue.delete(settings=True)
    assert (await queue.limit()).limit is None
    assert await app.queues() == []


async def test_a_change_is_an_event(app: Penstock) -> None:
    """`limit_changed` names the queue, or the family, and the group; a call that changes nothing emits none."""
    seen: list[tuple[str, str]] = []
    app.on("limit_changed")(lambda event: seen.append((event.queue, event.id)))
    queue = app.queue("q")
    for _ in range(2):
        await queue.set_limit(Limit(concurrency=1))
        await queue.set_limit(Limit(concurrency=1), group="a")
        await queue.set_limit(Limit(concurrency=1), group=EVERY)
        await app.set_limit("fam", Limit(concurrency=1))
    assert seen == [("q", ""), ("q", "a"), ("q", ""), ("fam", "")]
    await app.reset_limit("fam")
    await queue.delete(settings=True)


# pauses --------------------------------------------------------------------------------------------


async def test_a_group_is_paused_and_resumed(app: Penstock) -> None:
    """Jobs of a paused group wait, those of others go on; order is kept when it is resumed."""
    queue = app.queue("q")
    await fill(queue, "a1", "a2", "b1")
    assert await queue.pause("a", by="ops")
    assert not await queue.pause("a", by="ops")
    assert ids(await take(queue, 10)) == ["b1"]
    reason = await why(queue, "a1")
    assert (reason.reason, reason.group, reason.until, reason.by) == (Reason.PAUSED, "a", None, "ops")
    assert (await why(queue, "a2")).reason is Reason.BEHIND_GROUP
    assert await queue.resume("a")
    assert not await queue.resume("a")
    assert ids(await take(queue, 10)) == ["a1"]
    await queue.delete(settings=True)


@pytest.mark.parametrize("group", [None, "a"])
async def test_a_pause_ends_by_itself(app: Penstock, clock: Clock, group: str | None) -> None:
    """A pause with `until` ends then, without a call."""
    queue = app.queue("q")
    await fill(queue, "a1")
    until = clock.time() + 60
    assert await queue.pause(group, until)
    assert await take(queue, 10) == []
    reason = await why(queue, "a1")
    assert (reason.reason, reason.group, reason.until) == (Reason.PAUSED, group, as_datetime(round(until * 1000)))
    clock.advance(59)
    assert await take(queue, 10) == []
    clock.advance(1)
    assert ids(await take(queue, 10)) == ["a1"]
    assert not await queue.resume(group)
    await queue.delete(settings=True)


async def test_a_retry_pauses_its_group(app: Penstock, clock: Clock) -> None:
    """`retry(pause="group")` holds the group until the retry is due; others go on, and the retried job is first."""
    queue = app.queue("q")
    await queue.set_limit(Limit(concurrency=2), group=EVERY)
    await fill(queue, "a1", "a2", "a3", "b1")
    held = await take(queue, 1)
    assert ids(held) == ["a1"]
    await held[0].retry(delay=60, pause="group")
    assert ids(await take(queue, 10)) == ["b1"]
    reason = await why(queue, "a2")
    assert (reason.reason, reason.group) == (Reason.PAUSED, "a")
    assert reason.until == as_datetime(round(clock.time() * 1000)) + timedelta(seconds=60)
    clock.advance(60)
    assert ids(await take(queue, 10)) == ["a1", "a2"]
    await queue.delete(settings=True)


async def test_a_retry_pauses_its_queue(app: Penstock, clock: Clock) -> None:
    """`retry(pause="queue")` holds the queue until the retry is due; a job without a group does so with "group"."""
    for pause in ("queue", "group"):
        queue = app.queue(f"of {pause}")
        await fill(queue, "1", "2", "a1")
        held = await take(queue, 1)
        await held[0].retry(delay=60, pause=pause)  # type: ignore[arg-type]
        assert await take(queue, 10) == []
        assert (await why(queue, "2")).reason is Reason.PAUSED
        clock.advance(60)
        assert sorted(ids(await take(queue, 10))) == ["1", "2", "a1"]
        await queue.delete(settings=True)


async def test_peek_gives_the_job_that_reserve_would_give(app: Penstock, clock: Clock) -> None:
    """`peek` obeys the gates: it gives the first job that may start, and None if none may."""
    queue = app.queue("q")
    await queue.set_limit(Limit(rate="1/s"), group=EVERY)
    await fill(queue, "a1", "a2", "b1")
    for expected in ("a1", "b1", None):
        found = await queue.peek()
        assert (found and found.id) == expected
        await complete(await take(queue, 1))
    clock.advance(1)
    found = await queue.peek()
    assert found is not None
    assert (found.id, found.state) == ("a2", State.QUEUED)
    await queue.delete(settings=True)
