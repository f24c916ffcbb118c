"""error_groups, group_jobs, groups: failed jobs by the key of their error, and the groups in which jobs wait."""

from __future__ import annotations

import pytest

from penstock.errors import ErrorKind, JobError
from penstock.model.job import State
from penstock.model.storage_info import Restorable
from penstock.storage.base import Storage
from penstock.storage.observing import MAX_ERROR_GROUPS, STATS_MS, ErrorGroup, QueueGroup, need_observing
from tests.support import (
    HOUR,
    SECOND,
    T0,
    Clock,
    claim1,
    claim_all,
    complete,
    fail,
    find_all,
    get1,
    ids,
    new,
    put1,
    retried,
    settle1,
    update,
)

pytestmark = pytest.mark.one_per_engine

ONE, TWO = "0123456789abcdef", "fedcba9876543210"


def error(key: str = ONE, message: str = "host 1 not reachable") -> bytes:
    return JobError(
        "ConnectionError", message, ErrorKind.RETRIABLE, "a traceback", "builtins.ConnectionError", key
    ).encode()


async def fail_jobs(storage: Storage, count: int, key: str = ONE, ttl: int | None = HOUR, start: int = 0) -> list[str]:
    names = [f"{key[0]}{i}" for i in range(start, start + count)]
    await storage.put([new("q", id) for id in names])
    await storage.settle([fail(claim, error(key), ttl) for claim in await claim_all(storage)])
    return names


async def open_jobs(storage: Storage, key: str = ONE) -> list[str]:
    """Return the ids of a group, which must be as many as its `open`."""
    observing = need_observing(storage)
    jobs = ids((await observing.group_jobs("q", key)).jobs)
    [group] = [group for group in (await observing.error_groups("q")).groups if group.key == key]
    assert group.open == len(jobs)
    return jobs


async def test_jobs_that_failed_alike_are_a_group(storage: Storage, clock: Clock) -> None:
    """A group has its first and last failure, a count, the open jobs, and the text of its first error."""
    await fail_jobs(storage, 2)
    clock.advance(seconds=1)
    await fail_jobs(storage, 1, TWO)
    clock.advance(seconds=1)
    await put1(storage, "q", "later")
    await settle1(storage, fail(await claim1(storage), error(message="host 2 not reachable"), 0))
    observing = need_observing(storage)
    page = await observing.error_groups("q")
    assert page.groups == [
        ErrorGroup(
            key=ONE, type="ConnectionError", message="host 1 not reachable", kind=ErrorKind.RETRIABLE, first=T0,
            last=T0 + 2 * SECOND, count=3, open=2, sample="later",
        ),
        ErrorGroup(
            key=TWO, type="ConnectionError", message="host 1 not reachable", kind=ErrorKind.RETRIABLE,
            first=T0 + SECOND, last=T0 + SECOND, count=1, open=1, sample="f0",
        ),
    ]  # fmt: skip
    assert ids((await observing.group_jobs("q", ONE)).jobs) == ["01", "00"]
    assert (await observing.group_jobs("q", "no key")).jobs == []


@pytest.mark.beyond_model
async def test_groups_and_their_jobs_come_in_pages(storage: Storage, clock: Clock) -> None:
    """Each page goes on after the one before, also when the jobs of that one have left the group."""
    names = await fail_jobs(storage, 7)
    await fail_jobs(storage, 1, TWO)
    observing = need_observing(storage)
    found: list[str] = []
    cursor: str | None = None
    while True:
        page = await observing.group_jobs("q", ONE, cursor, 3)
        found += ids(page.jobs)
        await storage.revive("q", ids(page.jobs))
        cursor = page.cursor
        if cursor is None:
            break
    assert found == names[::-1]
    first = await observing.error_groups("q", limit=1)
    assert first.cursor is not None
    second = await observing.error_groups("q", first.cursor, 1)
    assert {first.groups[0].key, second.groups[0].key} == {ONE, TWO}
    assert second.cursor is None


async def test_a_group_has_the_failed_jobs_and_no_others_after_every_verb(storage: Storage, clock: Clock) -> None:
    """Whatever removes a failed job removes it from its group: the jobs are those that are found as failed (S22)."""
    names = await fail_jobs(storage, 7)
    assert await open_jobs(storage) == names[::-1]
    await storage.revive("q", ["00"])
    await storage.discard("q", ["01"])
    await storage.set_ttl("q", "02", 0)
    await storage.set_ttl("q", "03", 2 * HOUR)
    await storage.put([update("q", "04", b"again")])
    assert await open_jobs(storage) == ["06", "05", "03"]
    clock.advance(ms=HOUR)
    await storage.purge(["q"])
    assert await open_jobs(storage) == ["03"]
    assert ids(await find_all(storage, state=State.FAILED)) == ["03"]
    [stats] = await need_observing(storage).stats(["q"])
    assert stats.damaged == 0
    await storage.delete_queue("q")
    assert (await need_observing(storage).error_groups("q")).groups == []
    assert (await need_observing(storage).group_jobs("q", ONE)).jobs == []


async def test_the_group_seen_longest_ago_makes_room_and_old_ones_are_forgotten(storage: Storage, clock: Clock) -> None:
    """A queue has at most 200 groups, each for two weeks after its last failure."""
    for i in range(MAX_ERROR_GROUPS + 1):
        await fail_jobs(storage, 1, f"{i:016x}", start=i)
        clock.advance(ms=1)
    observing = need_observing(storage)
    keys = [group.key for group in (await observing.error_groups("q", limit=1000)).groups]
    assert keys == [f"{i:016x}" for i in range(MAX_ERROR_GROUPS, 0, -1)]
    clock.advance(ms=STATS_MS - 10)
    assert len((await observing.error_groups("q", limit=1000)).groups) == 9
    clock.advance(ms=10)
    await storage.purge(["q"])
    assert (await observing.error_groups("q")).groups == []


async def test_an_error_without_a_key_has_no_group(storage: Storage) -> None:
    """Bytes that no worker wrote, and errors without a fingerprint, are in no group."""
    await storage.put([new("q", str(i)) for i in range(3)])
    claims = await claim_all(storage)
    records = [b"e", JobError("A", "b").encode(), JobError("A", "b", key="XYZ4567890abcdef").encode()]
    await storage.settle([fail(claim, record) for claim, record in zip(claims, records, strict=True)])
    assert (await need_observing(storage).error_groups("q")).groups == []


@pytest.mark.beyond_model
async def test_a_restored_failed_job_is_in_its_group_with_the_start_of_its_run(storage: Storage) -> None:
    """A job that another storage has exported counts here, too."""
    await fail_jobs(storage, 1)
    job = await get1(storage, "00")
    assert job.started == T0
    await storage.delete_queue("q")
    assert isinstance(storage, Restorable)
    assert await storage.restore([job]) == [True]
    assert await open_jobs(storage) == ["00"]
    assert (await get1(storage, "00")).started == T0


async def test_the_start_of_a_run_is_known_while_it_runs_and_when_it_has_ended_the_job(
    storage: Storage, clock: Clock
) -> None:
    """A waiting job has none, nor one that was cancelled while it waited."""
    await put1(storage, "q", "a")
    clock.advance(seconds=1)
    claim = await claim1(storage)
    assert (await get1(storage)).started == T0 + SECOND
    await settle1(storage, retried(claim, delay=SECOND))
    assert (await get1(storage)).started is None
    clock.advance(seconds=2)
    await settle1(storage, complete(await claim1(storage)))
    assert (await get1(storage)).started == T0 + 3 * SECOND
    await put1(storage, "q", "b")
    await settle1(storage, retried(await claim1(storage), delay=HOUR))
    await storage.cancel("q", ["b"], ttl=HOUR)
    assert (await get1(storage, "b")).started is None


async def test_groups_are_listed_with_the_job_that_the_others_wait_for(storage: Storage, clock: Clock) -> None:
    """A group is free, held by a run, or held by a job in backoff, which then is its head."""
    await storage.put([new("q", f"{group}{i}", group=group) for group in ("a", "b", "c\0d") for i in range(3)])
    claims = {claim.id: claim for claim in await claim_all(storage)}
    await storage.settle([complete(claims["a0"]), retried(claims["b0"], delay=HOUR)])
    page = await need_observing(storage).groups("q")
    assert page.groups == [
        QueueGroup(name="a", head="a1", state=State.QUEUED, due=T0, waiting=2, rotates=True),
        QueueGroup(name="b", head="b0", state=State.RETRYING, due=T0 + HOUR, waiting=2, held=1),
        QueueGroup(name="c\0d", head=None, state=State.RUNNING, waiting=2, held=1),
    ]


async def test_groups_in_the_rotation_are_listed_by_their_turns_before_held_ones(
    storage: Storage, clock: Clock
) -> None:
    """A group that has started a job takes its next turn after the others, and a held one has none."""
    await storage.put([new("q", f"{group}{i}", group=group) for group in "dcba" for i in range(3)])
    assert await groups_of(storage) == ["d", "c", "b", "a"]
    clock.advance(seconds=1)
    first, second = await claim_all(storage, limit=2)
    assert await groups_of(storage) == ["b", "a", "c", "d"]
    clock.advance(seconds=1)
    await settle1(storage, complete(second))
    assert await groups_of(storage) == ["b", "a", "c", "d"]
    clock.advance(seconds=1)
    await settle1(storage, retried(first, delay=HOUR))
    await claim_all(storage, limit=1)
    assert await groups_of(storage) == ["a", "c", "b", "d"]


async def test_groups_are_found_by_the_beginning_of_their_names(storage: Storage) -> None:
    """They come by name, whether they are in the rotation or held."""
    await storage.put([new("q", f"{group}{i}", group=group) for group in ("bb", "b", "a", "b\0", "c") for i in "01"])
    await claim_all(storage, limit=1)
    assert [group.name for group in (await need_observing(storage).groups("q", prefix="b")).groups] == [
        "b",
        "b\0",
        "bb",
    ]
    assert (await need_observing(storage).groups("q", prefix="bc")).groups == []


@pytest.mark.parametrize("newest", [False, True])
async def test_queued_jobs_are_found_by_their_group(storage: Storage, newest: bool) -> None:
    """They come in the order of the group, in pages of any length; those of groups with similar names do not."""
    names = ["g", "g\0", "gg", "f", "h"]
    await storage.put([new("q", f"{name}{i}", group=name) for i in range(5) for name in names])
    await storage.put([new("q", "plain"), new("q", "later", group="g", run_at=T0 + HOUR)])
    observing = need_observing(storage)
    for name in names:
        wanted = [f"{name}{i}" for i in range(5)]
        for limit in (1, 2, 5, 9):
            listed, cursor = list[str](), None
            while True:
                page = await observing.find("q", State.QUEUED, cursor, limit, newest, name)
                listed += [job.id for job in page.jobs]
                cursor = page.cursor
                if cursor is None:
                    break
            assert listed == (wanted[::-1] if newest else wanted), (name, limit)
    assert (await observing.find("q", State.QUEUED, group="none")).jobs == []
    for state in (None, State.RETRYING):
        with pytest.raises(ValueError, match="only queued jobs"):
            await observing.find("q", state, group="g")


@pytest.mark.parametrize("prefix", ["", "c"])
@pytest.mark.beyond_model
async def test_groups_come_in_pages(storage: Storage, prefix: str) -> None:
    """Pages of any length list each group once: those with a turn, then held ones; with a prefix all by name."""
    names = ["c9", "c", "cb", "c\0", "a", "cb\0", "ca"]
    await storage.put([new("q", f"{group} {i}", group=group) for group in names for i in "01"])
    await claim_all(storage, limit=3)
    found = sorted(name for name in names if name.startswith(prefix))
    if not prefix:
        found = ["c\0", "a", "cb\0", "ca", "c", "c9", "cb"]
    for limit in range(1, 8):
        assert await all_groups(storage, prefix, limit) == found


@pytest.mark.beyond_model
async def test_more_groups_than_a_call_sorts_come_by_their_turns_too(storage: Storage) -> None:
    """Jobs without a group lie between them, and a page may be shorter for that."""
    names = [f"g{i * 7919 % 1100:04}" for i in range(1_100)]
    await storage.put([new("q", f"plain{i}") for i in range(600)])
    await storage.put([new("q", f"{name} {i}", group=name) for name in names for i in range(2)])
    await storage.put([new("q", "first", priority=5)])
    assert await all_groups(storage) == names
    await claim_all(storage, limit=610)
    held = sorted(names[:9])
    assert await all_groups(storage) == names[9:] + held
    assert await all_groups(storage, "g09") == sorted(name for name in names if name.startswith("g09"))


@pytest.mark.parametrize("after", ["", "x", "t", "dA==", "t.1", "n.%", "é", "t.1.2.3", "A" * 99])
@pytest.mark.beyond_model
async def test_groups_refuse_a_cursor_that_is_none(storage: Storage, after: str) -> None:
    """The text comes from a URL."""
    await storage.put([new("q", "a", group="g")])
    with pytest.raises(ValueError, match="after must be the cursor"):
        await need_observing(storage).groups("q", after)


async def groups_of(storage: Storage, prefix: str = "") -> list[str]:
    """Return the names of the groups of a queue, in their order."""
    return [group.name for group in (await need_observing(storage).groups("q", prefix=prefix)).groups]


async def all_groups(storage: Storage, prefix: str = "", limit: int = 100) -> list[str]:
    """Return the names of the groups on all pages, in their order."""
    names, cursor = list[str](), None
    while True:
        page = await need_observing(storage).groups("q", cursor, limit, prefix)
        assert len(page.groups) <= limit
        names += [group.name for group in page.groups]
        cursor = page.cursor
        if cursor is None:
            return names
