"""`why` with limits: removing the reason that it names starts the job, or gives the next reason."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import EVERY, Limit, Penstock, Queue, Reason, Reservation, Why
from penstock.testing import Clock
from tests.support import share_of

#: More steps than any of these examples needs: each job may wait for each limit, each pause and each other job.
MOST_STEPS = 300

LIMITS = st.builds(
    Limit,
    concurrency=st.sampled_from([None, 1, 2, 3]),
    rate=st.sampled_from([None, "1/s", "5/min", "2/h"]),
)
GROUP_LIMITS = st.one_of(LIMITS, st.just(Limit(concurrency=1, ordered=False)), st.just(Limit(concurrency=2, weight=3)))
SCOPES = st.sampled_from([None, EVERY, "a", "b", "family"])
STEPS = st.one_of(
    st.tuples(st.just("put"), st.sampled_from([None, "a", "b"]), st.sampled_from([0, 0, 30])),
    st.tuples(st.just("limit"), SCOPES, LIMITS, GROUP_LIMITS),
    st.tuples(st.just("pause"), st.sampled_from([None, "a", "b"]), st.sampled_from([None, 10, 100])),
    st.tuples(st.just("take"), st.integers(1, 3), st.sampled_from(["hold", "complete", "retry", "group", "queue"])),
)


class Example:
    """An app in memory, its held reservations, and the actions that remove a reason."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.app = Penstock("memory:", clock=self.clock)
        self.queue: Queue = self.app.queue("fam/q")
        self.held: dict[str, Reservation] = {}
        self.ids: list[str] = []

    async def step(self, step: tuple[Any, ...]) -> None:
        match step:
            case ("put", group, delay):
                id = str(len(self.ids))
                await self.queue.enqueue(id, id=id, group=group, delay=delay)
                self.ids.append(id)
            case ("limit", "family", limit, _):
                await self.app.set_limit("fam", limit)
            case ("limit", None, limit, _):
                await self.queue.set_limit(limit)
            case ("limit", group, _, limit):
                await self.queue.set_limit(limit, group=group)
            case ("pause", group, seconds):
                await self.queue.pause(group, None if seconds is None else self.clock.time() + seconds)
            case ("take", limit, then):
                for each in await self.queue.reserve(limit=limit, lease=10**6):
                    await self.end(each, then)
            case _:
                raise AssertionError(step)

    async def end(self, reservation: Reservation, how: str) -> None:
        if how == "hold":
            self.held[reservation.id] = reservation
        elif how == "complete":
            await reservation.complete()
        else:
            await reservation.retry(delay=20, pause=None if how == "retry" else how)  # type: ignore[arg-type]

    async def remove(self, why: Why) -> str | None:
        """Remove a reason; returns the id of a job that was started, completed at once, if that was the way."""
        match why.reason:
            case Reason.PAUSED if why.until is None:
                assert await self.queue.resume(why.group)
            case Reason.PAUSED | Reason.RATE_LIMITED | Reason.SCHEDULED | Reason.RETRYING:
                self.move_to(why.until)
            case Reason.LIMIT_REACHED:
                assert why.holders
                await self.held.pop(why.holders[0]).complete()
            case Reason.RUNNING:
                await self.held.pop(why.id).complete()
            case Reason.BEHIND_GROUP:
                assert why.head is not None
                return await self.remove(why.head)
            case Reason.NO_WORKER | Reason.READY:
                [next_one] = await self.queue.reserve(limit=1, lease=10**6)
                await next_one.complete()
                return next_one.id
            case _:
                raise AssertionError(why)
        return None

    def move_to(self, moment: datetime | None) -> None:
        assert moment is not None
        ahead = moment.timestamp() - self.clock.time()
        assert ahead > 0
        self.clock.advance(ahead)


async def follow(steps: list[tuple[Any, ...]], chosen: int) -> None:
    """Take the steps, then remove one reason after the other until a chosen job has started."""
    example = Example()
    async with example.app:
        for step in steps:
            await example.step(step)
        if not example.ids:
            return
        id = example.ids[chosen % len(example.ids)]
        why = None
        for _ in range(MOST_STEPS):
            why = await example.queue.why(id)
            assert why is not None
            if why.reason in (Reason.FINISHED, Reason.RUNNING):
                return
            assert str(why)
            if await example.remove(why) == id:
                return
        raise AssertionError(f"{id} has not started; the last reason is {why}")


@settings(max_examples=share_of(200), deadline=None)
@given(steps=st.lists(STEPS, max_size=25), chosen=st.integers(0, 30))
def test_removing_the_reason_starts_the_job_or_gives_the_next_reason(steps: list[Any], chosen: int) -> None:
    """Whatever limits, pauses and runs there are, a job starts when what `why` names is removed, reason by reason."""
    asyncio.run(follow(steps, chosen))
