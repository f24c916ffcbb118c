"""Damaged records of a queue on Redis: the verbs on other jobs answer, and a worker drains the rest."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from penstock.errors import PenstockError, StorageError
from penstock.model.job import State
from penstock.model.storage_info import Inspectable
from penstock.storage.base import Storage
from penstock.storage.redis.keys import QUEUE_KEYS
from penstock.storage.redis.listener_marks import encode_filter
from tests.flow_tampering import add_flows, drain_plain, use_flows
from tests.schedules import record, scheduling, set1
from tests.support import (
    DAY,
    HOUR,
    LEASE,
    MINUTE,
    SECOND,
    T0,
    Clock,
    RedisBackend,
    claim_all,
    complete,
    find_all,
    get1,
    ids,
    new,
    run_order,
    share_of,
    update,
)
from tests.tampering import ALL_IDS, QUEUE, Scene, build_scene, drain, use

pytestmark = [pytest.mark.beyond_model, pytest.mark.leaves_records, pytest.mark.only("redis")]

#: What becomes of a value: by the name of the damage.
DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "emptied": lambda value: b"",
    "halved": lambda value: value[: len(value) // 2],
    "without its last byte": lambda value: value[:-1],
    "with one byte more": lambda value: value + b"\x01",
    "with another first byte": lambda value: bytes([(value or b"\0")[0] ^ 1]) + value[1:],
    "0xff": lambda value: b"\xff",
    "text": lambda value: b"some text that is longer than a token, a head and an end record are",
    "negative": lambda value: b"-7",
}
#: Keys of which a damaged value is all that leads to a job, or all that there is of it: that job is the victim.
KEYS_OF_A_JOB = ("jobs", "blocked", "ready", "scheduled", "retrying", "lanes", "parked")
#: Keys of which each value has a meaning of its own. Of the others three values are damaged, one after the other.
KEYS_OF_MANY_MEANINGS = ("meta", "batches", "leases", "limit", "history")


#: Keys of limited queues only; `limit` is that of their family.
KEYS_OF_LIMITS = ("limit", "limits", "settings", "ruled", "gates", "closed", "recheck", "idle_gates")


#: Keys of queues with flows: of the queue, of one job, and of the family.
KEYS_OF_FLOWS = ("generations", "notices", "suspended", "successors")
KEYS_OF_A_FLOW = ("deps", "modes", "refs", "harm", "journal", "order", "signals", "outbox", "open_flows")


class Target(NamedTuple):
    """A value in the server: a field of a hash, a member of a set or list, or a string."""

    name: str
    key: bytes
    kind: str
    field: bytes
    value: bytes

    def damages(self) -> Iterator[tuple[str, bool]]:
        """Return the damages that change the value, and whether a damaged member is added beside the whole one."""
        for damage, change in DAMAGE.items():
            if change(self.value) != self.value and (damage != "negative" or self.value.isdigit()):
                yield damage, False
        if self.kind == "zset":
            yield from ((damage, True) for damage in ("without its last byte", "with another first byte"))

    def victims(self) -> set[str]:
        """Return the job that is lost with the value."""
        if self.name not in KEYS_OF_A_JOB:
            return set()
        return {id for id in ALL_IDS if (self.field if self.kind == "hash" else self.value[-len(id) :]) == id.encode()}


class Server:
    """The keys of one namespace, which can be saved, restored and damaged."""

    def __init__(self, backend: RedisBackend) -> None:
        self._backend = backend
        self.client: Any = backend.client()
        self.saved: dict[bytes, tuple[bytes, int]] = {}

    def save(self, name: str) -> None:
        if name == "listeners":  # it is there while events are read
            entry = b"a listener, 16 b" + b"\0\0\0\0\0\0" + encode_filter(["started", "completed"], "channel")
            key = f"{self._backend.namespace}:listeners"
            self.client.hset(key, mapping={"": b"s" * 32 + entry, QUEUE: entry})
        keys = self._backend.keys()
        self.saved = {key: (self.client.dump(key), max(self.client.pttl(key), 0)) for key in keys}

    def restore(self) -> None:
        with self.client.pipeline(transaction=False) as pipe:
            for key in set(self._backend.keys()) - self.saved.keys():
                pipe.delete(key)
            for key, (value, ttl) in self.saved.items():
                pipe.restore(key, ttl, value, replace=True)
            pipe.execute()

    def targets(self, name: str) -> Iterator[Target]:
        """Return values of the key, or of the first key with the name before a caller or request."""
        client = self.client
        key = next(key for key in self.saved if name in key.decode().split(":")[-2:])
        match client.type(key).decode():
            case "hash":
                fields = sorted(client.hgetall(key).items())
                for field, value in fields if name in KEYS_OF_MANY_MEANINGS else [*fields[:2], fields[-1]]:
                    yield Target(name, key, "hash", field, value)
            case "zset":
                members = client.zrange(key, 0, -1)
                for member in members if name in KEYS_OF_MANY_MEANINGS else sorted({*members[:2], members[-1]}):
                    yield Target(name, key, "zset", b"", member)
            case "string":
                yield Target(name, key, "string", b"", client.get(key))
            case kind:
                yield Target(name, key, kind, b"", b"a value")

    def damage(self, target: Target, new: bytes, *, beside: bool = False) -> None:
        """Replace a value; `beside` adds the damaged member to the sorted set, and the whole one stays."""
        key, client = target.key, self.client
        match target.kind:
            case "hash":
                client.hset(key, target.field, new)
            case "zset":
                client.zadd(key, {new: client.zscore(key, target.value)})
                if not beside:
                    client.zrem(key, target.value)
            case "set":
                client.sadd(key, new)
            case "list":
                client.rpush(key, new)
            case _:
                client.set(key, new, keepttl=True)


@pytest.fixture
def server(backend: RedisBackend, storage: Storage) -> Iterator[Server]:
    server = Server(backend)
    yield server
    server.client.close()


@pytest.mark.only("sqlite", "redis", "valkey", "cluster")
async def test_a_queue_without_damage_is_used_and_drained(storage: Storage, clock: Clock) -> None:
    """Without damage every verb answers, and every job ends exactly once: the other tests prove something."""
    scene = await build_scene(storage, clock)
    await use(scene)
    await drain(scene)
    assert await damage_of(storage) == 0


async def damage_of(storage: Storage) -> int:
    assert isinstance(storage, Inspectable)
    return (await storage.meters([QUEUE]))[0].damaged


#: The ids of jobs of no flow in that scene.
OTHERS = (b"plain", b"grouped", b"grouped-too")


def plain_keys() -> list[str]:
    return [name for name in QUEUE_KEYS if name not in KEYS_OF_FLOWS]


@pytest.mark.parametrize("name", [*KEYS_OF_FLOWS, *KEYS_OF_A_FLOW, "jobs", "runs", "ends", "blocked"])
async def test_a_damaged_value_of_a_flow_stops_no_other_job(
    name: str, server: Server, storage: Storage, clock: Clock
) -> None:
    """With any value of a flow damaged in any way, no verb raises, and every job of no flow ends exactly once."""
    await add_flows(storage)
    server.save(name)
    began, cases = clock.ms, 0
    for target in server.targets(name):
        if target.field in OTHERS or target.value.endswith(OTHERS):
            continue
        for damage, beside in target.damages():
            server.damage(target, DAMAGE[damage](target.value), beside=beside)
            try:
                await use_flows(storage)
                await drain_plain(storage, clock)
            except (PenstockError, AssertionError) as error:
                raise AssertionError(f"{target} {damage}{' beside it' if beside else ''}: {error}") from error
            clock.ms, cases = began, cases + 1
            server.restore()
    assert cases


@pytest.mark.parametrize("name", [*plain_keys(), "limit", "names", "listeners", "present", "puts", "requests"])
async def test_a_damaged_value_of_a_key_stops_nothing(
    name: str, server: Server, storage: Storage, clock: Clock
) -> None:
    """With any value of a key damaged in any way, no verb raises, and every other job ends exactly once."""
    built = await build_scene(storage, clock, limited=name in KEYS_OF_LIMITS)
    server.save(name)
    began, cases = clock.ms, 0
    for target in server.targets(name):
        for damage, beside in target.damages():
            server.damage(target, DAMAGE[damage](target.value), beside=beside)
            scene = Scene(storage, clock, built.live, built.dead)
            victims = set[str]() if beside else target.victims()
            try:
                await use(scene, victims)
                await drain(scene, victims)
            except (PenstockError, AssertionError) as error:
                raise AssertionError(f"{target} {damage}{' beside it' if beside else ''}: {error}") from error
            clock.ms, cases = began, cases + 1
            server.restore()
    assert cases


@pytest.mark.only("redis", "valkey", "cluster")
async def test_one_damaged_member_of_scheduled_loses_no_other_due_job(
    server: Server, storage: Storage, clock: Clock
) -> None:
    """Of 200 due jobs, one with a damaged member, the other 199 are claimed, and the damage is counted."""
    await storage.put([new(QUEUE, f"j{n:03}", delay=SECOND) for n in range(200)])
    server.save("scheduled")
    *_, last = server.targets("scheduled")
    server.damage(last, last.value[:10] + b"\xff")
    clock.advance(ms=SECOND)
    claims = await claim_all(storage, limit=1000)
    assert len(claims) == 199
    assert await damage_of(storage) == 1


@pytest.mark.only("redis")
async def test_a_promotion_that_fails_loses_no_due_job(backend: RedisBackend, storage: Storage, clock: Clock) -> None:
    """If due jobs cannot be moved, because the key of the order is of another type, they stay, and are moved later."""
    await storage.put([new(QUEUE, f"j{n}", delay=SECOND) for n in range(9)])
    clock.advance(ms=SECOND)
    with backend.clients()[0] as client:
        key = f"{backend.namespace}:{{{QUEUE}}}:{QUEUE}:ready"
        client.set(key, "another type")
        with pytest.raises(StorageError, match="is not of the type"):
            await claim_all(storage)
        client.delete(key)
    assert ids(await claim_all(storage)) == [f"j{n}" for n in range(9)]


@pytest.mark.only("redis", "valkey", "cluster")
async def test_a_run_that_cannot_be_read_is_taken_back_at_the_end_of_its_lease(
    server: Server, storage: Storage, clock: Clock
) -> None:
    """A job whose run record is damaged is lost to its worker, and queued again with a stall when its lease expires."""
    await storage.put([new(QUEUE, "a", group="g"), new(QUEUE, "b", group="h"), new(QUEUE, "next", group="g")])
    claims = await claim_all(storage)
    server.save("runs")
    server.client.hset(next(key for key in server.saved if key.endswith(b":runs")), "a", b"nonsense" * 4)
    assert [answer.lost for answer in await storage.settle([complete(claim) for claim in claims])] == [True, False]
    clock.advance(ms=LEASE)
    assert [(job.id, job.state) for job in await storage.reap([QUEUE])] == [("a", State.QUEUED)]
    assert (await get1(storage)).stalls == 1
    assert await run_order(storage) == ["a", "next"]
    assert await damage_of(storage) == 1


async def test_a_group_with_a_damaged_hold_waits_for_its_run(server: Server, storage: Storage) -> None:
    """If the number of a group's holds is damaged, its next job waits nevertheless until its run has ended."""
    await storage.put([new(QUEUE, "a", group="g"), new(QUEUE, "b", group="g")])
    first = await claim_all(storage)
    server.save("holds")
    server.damage(next(server.targets("holds")), b"text")
    await storage.put([update(QUEUE, "b", group="g")])
    assert await claim_all(storage) == []
    await storage.settle([complete(claim) for claim in first])
    assert await run_order(storage) == ["b"]


async def test_a_damaged_member_of_a_finished_job_deletes_no_other_job(
    server: Server, storage: Storage, clock: Clock
) -> None:
    """A member of `completed` that lost the end of its id names another job, which a purge does not delete."""
    await storage.put([new(QUEUE, "job1")])
    await storage.settle([complete(claim, ttl=SECOND) for claim in await claim_all(storage)])
    await storage.put([new(QUEUE, "job")])
    server.save("completed")
    target = next(server.targets("completed"))
    server.damage(target, target.value[:-1])
    clock.advance(ms=SECOND)
    await storage.purge([QUEUE])
    assert await run_order(storage) == ["job"]


async def test_a_schedule_that_cannot_be_read_is_set_aside(server: Server, storage: Storage, clock: Clock) -> None:
    """It is not listed and never due, its name is free, the other one fires, and the damage is counted."""
    for name in "ab":
        await set1(storage, name)
    server.save("schedules")
    target = next(server.targets("schedules"))
    assert target.field == b"a"
    server.damage(target, target.value[:20])
    clock.advance(ms=MINUTE)
    verbs = scheduling(storage)
    assert [each.name for each in (await verbs.schedules(QUEUE)).schedules] == ["b"]
    assert await verbs.get_schedule(QUEUE, "a") is None
    assert [each.name for each in (await verbs.due([QUEUE], "w")).schedules] == ["b"]
    assert [each.name for each in (await verbs.due([QUEUE], "w")).schedules] == ["b"]
    assert await damage_of(storage) == 1
    assert await verbs.set_schedule(record("a"), 0) is not None
    assert [each.name for each in (await verbs.schedules(QUEUE)).schedules] == ["a", "b"]


async def test_a_schedule_that_cannot_be_read_is_deleted_after_a_while(
    server: Server, storage: Storage, clock: Clock
) -> None:
    """A record that was set aside goes with a purge, and leaves no entry."""
    await set1(storage)
    server.save("schedules")
    server.damage(next(server.targets("schedules")), b"")
    clock.advance(ms=MINUTE)
    assert (await scheduling(storage).due([QUEUE], "w")).schedules == []
    clock.advance(ms=8 * DAY)
    assert await storage.purge([QUEUE]) == 1
    assert await storage.queues() == []


@pytest.mark.parametrize("first", [b"t", b"n", b"e"])
async def test_a_schedule_with_a_damaged_entry_gets_it_again(
    first: bytes, server: Server, storage: Storage, clock: Clock
) -> None:
    """After the next purge it is listed, ticks at its time, and expires."""
    await set1(storage, expires=T0 + HOUR)
    server.save("ticks")
    target = next(target for target in server.targets("ticks") if target.value.startswith(first))
    server.damage(target, first + b"other")
    await storage.purge([QUEUE])
    verbs = scheduling(storage)
    assert [each.name for each in (await verbs.schedules(QUEUE)).schedules] == ["s"]
    clock.advance(ms=MINUTE)
    assert [each.name for each in (await verbs.due([QUEUE], "w")).schedules] == ["s"]
    assert await damage_of(storage) >= 1
    clock.advance(ms=HOUR)
    assert await storage.purge([QUEUE]) == 1


@pytest.mark.parametrize("field", ["tick", "ticker"])
async def test_a_damaged_alarm_of_schedules_is_repaired(
    field: str, server: Server, storage: Storage, clock: Clock
) -> None:
    """A worker that looks gets what is due at its time."""
    await set1(storage)
    await scheduling(storage).due([QUEUE], "w")
    server.save("meta")
    server.client.hset(next(key for key in server.saved if key.endswith(b":meta")), field, b"\xff")
    await scheduling(storage).due([QUEUE], "w")
    clock.advance(ms=MINUTE + SECOND)
    assert [each.name for each in (await scheduling(storage).due([QUEUE], "w")).schedules] == ["s"]


@pytest.mark.parametrize("name", [name for name in plain_keys() if not QUEUE_KEYS[name].startswith("string")])
async def test_a_key_of_another_type_is_named(name: str, server: Server, storage: Storage, clock: Clock) -> None:
    """A whole key that other software has replaced gives a `StorageError` that names the key, or no error."""
    scene = await build_scene(storage, clock, limited=name in KEYS_OF_LIMITS)
    server.save(name)
    key = next(key for key in server.saved if key.endswith(f":{name}".encode()))
    server.client.set(key, b"another type")
    errors: list[str] = []
    for attempt in (use(scene), drain(scene), storage.put([new(QUEUE, "one")]), storage.counts(QUEUE)):
        try:
            await attempt
        except StorageError as error:
            errors.append(str(error))
        except AssertionError:
            pass  # the jobs of that key are lost
    assert errors
    assert all(f"the key {key.decode()!r} is not of the type" in error for error in errors)
    server.client.delete(key)


@pytest.mark.only("redis")
async def test_a_key_for_events_of_another_type_stops_no_job(backend: RedisBackend, storage: Storage) -> None:
    """If the key of event listeners is of another type, jobs run, and their events are not published."""
    with backend.clients()[0] as client:
        client.lpush(f"{backend.namespace}:listeners", "another type")
    await storage.put([new(QUEUE, "a")])
    assert await run_order(storage) == ["a"]


async def test_a_damaged_schema_version_is_named(backend: RedisBackend, storage: Storage) -> None:
    """A storage whose schema version is no number cannot be opened, and the error names the key."""
    with backend.clients()[0] as client:
        client.set(f"{backend.namespace}:schema", "text")
    other = backend.build()
    with pytest.raises(StorageError, match=rf"the key '{backend.namespace}:schema' holds no schema version"):
        await other.open()
    await other.close()


async def test_headers_that_do_not_fit_a_record_are_refused_before_anything_is_stored(storage: Storage) -> None:
    """A job with headers of more bytes than their 16-bit length can count is refused, and not stored."""
    with pytest.raises(StorageError, match="more than 65535 bytes"):
        await storage.put([new(QUEUE, "a", headers=b"x" * 70_000)])
    assert await storage.get(QUEUE, ["a"]) == [None]
    assert sum((await storage.counts(QUEUE)).values()) == 0


async def test_damaged_counters_go_on_above_the_numbers_in_use(server: Server, storage: Storage) -> None:
    """After the counters of a queue were overwritten, jobs run in the order of their puts and end in that order."""
    await storage.put([new(QUEUE, "a"), new(QUEUE, "b")])
    first = await claim_all(storage, limit=1)
    await storage.settle([complete(first[0], ttl=None)])
    server.save("meta")
    key = next(key for key in server.saved if key.endswith(b":meta"))
    server.client.hset(key, mapping={"seq": b"text", "finished": b"", "time": b"\xff"})
    await storage.put([new(QUEUE, "c"), new(QUEUE, "d")])
    for claim in (claims := await claim_all(storage)):
        await storage.settle([complete(claim, ttl=None)])
    assert ids(claims) == ["b", "c", "d"]
    assert ids(await find_all(storage, state=State.COMPLETED)) == ["a", "b", "c", "d"]
    assert await damage_of(storage) == 3


#: Keys in which random bytes may make a value that is wrong and can be read, such as another number of holds.
KEYS_OF_NUMBERS = ("meta", "holds", "batches", "leases", "limits", "gates")


@pytest.mark.parametrize("seed", range(share_of(30)))
async def test_random_bytes_in_random_values_stop_nothing(
    seed: int, server: Server, storage: Storage, clock: Clock
) -> None:
    """With random bytes in three random values no verb raises, claims come to an end, and the other jobs end once."""
    draw = random.Random(seed)
    scene, victims = await build_scene(storage, clock, limited=True), set[str]()
    server.save("")
    names = draw.sample([*plain_keys(), "names", "present"], 3)
    for name in names:
        target = draw.choice(list(server.targets(name)))
        value = bytearray(target.value)
        for _ in range(draw.randint(1, 3)):
            at = draw.randint(0, len(value))
            value[at : at + draw.randint(0, 3)] = draw.randbytes(draw.randint(0, 3))
        victims |= target.victims() | ({target.field.decode()} if name == "runs" else set())
        server.damage(target, bytes(value), beside=draw.random() < 0.3)
    await use(scene, victims)
    await drain(scene, ALL_IDS if set(names) & set(KEYS_OF_NUMBERS) else victims)
