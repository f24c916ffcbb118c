"""The longest wait: updates move a job later, at most to a time after its acceptance (debounce)."""

from __future__ import annotations

from penstock.model.job import NewJob, State, Update
from penstock.storage.base import Put, PutStatus, Storage
from tests.support import HOUR, SECOND, T0, Clock, claim1, claim_all, complete, get1, release, settle1, update

LATER = Update(run_at="if_later")
WAIT, MOST = 5 * SECOND, 12 * SECOND


def debounced(payload: bytes = b"x") -> NewJob:
    return update(payload=payload, flags=LATER, delay=WAIT, max_wait=MOST)


async def test_updates_postpone_a_job_up_to_the_longest_wait(storage: Storage, clock: Clock) -> None:
    """Each put moves the job to five seconds later, the last ones to twelve seconds after the first."""
    dues: list[int] = []
    for second, payload in ((0, b"0"), (4, b"1"), (8, b"2"), (11, b"3")):
        clock.advance(seconds=second - (clock.ms - T0) // SECOND)
        await storage.put([debounced(payload)])
        dues.append((await get1(storage)).run_at - T0)
    assert dues == [5 * SECOND, 9 * SECOND, 12 * SECOND, 12 * SECOND]
    clock.advance(seconds=1)
    assert (await claim1(storage)).payload == b"3"


async def test_a_put_during_the_run_has_a_longest_wait_of_its_own(storage: Storage, clock: Clock) -> None:
    """The successor is a job of its own: its wait counts from its own acceptance, and its last update is kept."""
    await storage.put([debounced()])
    clock.advance(seconds=5)
    claim = await claim1(storage)
    assert await storage.put([debounced(b"1")]) == [Put(PutStatus.BLOCKED, State.BLOCKED)]
    clock.advance(seconds=4)
    await storage.put([debounced(b"2")])
    clock.advance(seconds=4)
    await storage.put([debounced(b"3")])
    await settle1(storage, complete(claim))
    found = await get1(storage)
    assert (found.payload, found.created, found.run_at) == (b"3", T0 + 5 * SECOND, T0 + 17 * SECOND)


async def test_a_released_run_waits_as_its_successor_asked(storage: Storage, clock: Clock) -> None:
    """The time of a successor that is merged into its run was bounded by the successor's own acceptance."""
    await storage.put([debounced()])
    clock.advance(seconds=5)
    claim = await claim1(storage)
    clock.advance(seconds=20)
    await storage.put([debounced(b"1")])
    await settle1(storage, release(claim))
    found = await get1(storage)
    assert (found.payload, found.run_at) == (b"1", T0 + 30 * SECOND)


async def test_a_finished_job_that_is_replaced_starts_a_new_wait(storage: Storage, clock: Clock) -> None:
    """A put after completion makes a new job, whose longest wait counts from now."""
    await storage.put([debounced()])
    clock.advance(seconds=5)
    await settle1(storage, complete(await claim1(storage)))
    clock.advance(seconds=60)
    assert await storage.put([debounced()]) == [Put(PutStatus.SCHEDULED, State.SCHEDULED)]
    assert (await get1(storage)).run_at == clock.ms + WAIT


async def test_a_longest_wait_never_moves_a_job_back(storage: Storage, clock: Clock) -> None:
    """A job that another put has moved beyond the longest wait stays there, if the update moves only later."""
    await storage.put([update(delay=HOUR)])
    await storage.put([debounced()])
    assert (await get1(storage)).run_at == T0 + HOUR


async def test_an_update_that_moves_always_obeys_the_longest_wait(storage: Storage) -> None:
    """With `run_at=True` the time that is asked for is cut to the longest wait."""
    await storage.put([update(delay=SECOND)])
    await storage.put([update(delay=HOUR, max_wait=MOST)])
    assert (await get1(storage)).run_at == T0 + MOST


async def test_the_first_put_obeys_its_longest_wait(storage: Storage) -> None:
    """A new job is due after its longest wait if its delay is longer."""
    await storage.put([update(delay=HOUR, max_wait=MOST)])
    assert (await get1(storage)).run_at == T0 + MOST


async def test_a_put_after_the_longest_wait_does_not_move_a_job_that_is_due(storage: Storage, clock: Clock) -> None:
    """A job that no worker has run in time keeps its place however often it is put again."""
    for _ in range(4):
        await storage.put([debounced()])
        clock.advance(seconds=4)
    before = (await get1(storage)).run_at
    clock.advance(seconds=20)
    assert await storage.put([debounced(b"last")]) == [Put(PutStatus.UPDATED, State.QUEUED)]
    assert (await get1(storage)).run_at == before == T0 + MOST
    assert [claim.payload for claim in await claim_all(storage)] == [b"last"]
