"""`simulate`: the handlers of an app under seeded faults, in virtual time."""

from __future__ import annotations

import asyncio
import time
from collections import Counter

import pytest

from penstock import Entry, Job, Penstock
from penstock.model.job import State
from penstock.testing import simulate


def make_app(charged: Counter[str], *, fenced: bool) -> Penstock:
    """Return an app that charges orders; a fenced one passes the job's id on, so that a second charge is refused."""
    app = Penstock("memory:")

    @app.handler("orders", max_stalls=None)
    async def charge(name: str, job: Job) -> None:
        await asyncio.sleep(0.1)
        if not (fenced and charged[name]):
            charged[name] += 1
        await asyncio.sleep(0.5)

    return app


def charge_ten(app: Penstock, charged: Counter[str], seed: int) -> bool:
    """Simulate ten orders; returns whether each was charged once."""

    async def scenario() -> None:
        await app.queue("orders").enqueue_many([f"order{number}" for number in range(10)])

    charged.clear()
    report = simulate(app, scenario, seed=seed, lease=2)
    assert report.counts["orders"][State.COMPLETED] == 10
    return set(charged.values()) == {1}


def test_a_handler_that_is_not_repeatable_is_found() -> None:
    """Within a few seeds a worker dies or freezes after the charge, and the order is charged twice."""
    charged: Counter[str] = Counter()
    app = make_app(charged, fenced=False)
    assert not all(charge_ten(app, charged, seed) for seed in range(20))


def test_a_repeatable_handler_passes_every_seed() -> None:
    """With the same seeds a handler that remembers the charge makes it once."""
    charged: Counter[str] = Counter()
    app = make_app(charged, fenced=True)
    assert all(charge_ten(app, charged, seed) for seed in range(20))


def test_the_same_seed_gives_the_same_run() -> None:
    """Digest and history are equal; another seed has others. The app has its own storage again afterwards."""
    charged: Counter[str] = Counter()
    app = make_app(charged, fenced=False)
    storage = app.storage

    async def scenario() -> None:
        await app.queue("orders").enqueue("order")

    first, again, other = (simulate(app, scenario, seed=seed) for seed in (3, 3, 4))
    assert first.digest == again.digest != other.digest
    assert str(first) == str(again)
    assert app.storage is storage
    assert not app.is_open


def test_time_is_virtual_for_sleeps_and_retries() -> None:
    """Hours of backoff, and the sleeps of a plain handler, take no real time."""
    app = Penstock("memory:")
    tries: list[float] = []

    @app.handler("slow", min_backoff=1000, max_backoff=5000, max_retries=2)
    def slow(name: str, job: Job) -> None:
        time.sleep(50)
        tries.append(job.attempt)
        if job.attempt < 3:
            raise ConnectionError("not yet")

    async def scenario() -> None:
        await app.queue("slow").enqueue("a")

    report = simulate(app, scenario, faults=[], limit=10_000)
    assert tries == [1, 2, 3]
    assert report.seconds > 3_000


def test_a_scenario_waits_for_results_and_a_handler_enqueues() -> None:
    """The app works as usual in every process: calls, results, and enqueues inside of handlers."""
    app = Penstock("memory:")
    mailed: list[str] = []

    @app.handler("orders")
    async def order(name: str) -> str:
        await app.queue("mail").enqueue(name, id=name)
        return f"thank you, {name}"

    @app.handler("mail")
    async def mail(name: str) -> None:
        mailed.append(name)

    async def scenario() -> None:
        assert await app.queue("orders").call("ann", timeout=None) == "thank you, ann"

    simulate(app, scenario, faults=["lost_reply", "hint_lost"], seed=5)
    assert mailed == ["ann"]


def test_a_killed_worker_starts_again_after_the_faults() -> None:
    """A restart that falls due when no node runs, between two steps of the virtual time, starts the worker."""
    app = Penstock("memory:")

    @app.handler("orders")
    async def pass_on(name: str) -> str:
        return name

    async def scenario() -> None:
        entries = [Entry(f"order{number}", delay=number) for number in range(60)]
        await app.queue("orders").enqueue_many(entries)

    report = simulate(app, scenario, seed=23)
    assert report.counts["orders"][State.COMPLETED] == 60


def test_a_failing_scenario_names_its_seed() -> None:
    """The exception of a scenario is raised, with a note that has the seed."""
    app = Penstock("memory:")

    async def scenario() -> None:
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine") as caught:
        simulate(app, scenario, seed=42)
    assert "seed=42" in caught.value.__notes__[0]


def test_jobs_that_do_not_end_are_an_error() -> None:
    """A job without a handler waits for ever; the error names it."""
    app = Penstock("memory:")

    async def scenario() -> None:
        await app.queue("void").enqueue("a", id="lonely")

    with pytest.raises(AssertionError, match=r"void/lonely \(queued\)"):
        simulate(app, scenario, faults=[], seconds=1, limit=30)


def test_wrong_arguments_are_refused() -> None:
    """An unknown fault, another object than an app, and a running event loop are refused by name."""
    app = Penstock("memory:")

    async def scenario() -> None: ...

    with pytest.raises(ValueError, match="there is no 'comet'"):
        simulate(app, scenario, faults=["comet"])
    with pytest.raises(TypeError, match=r"app must be a penstock\.Penstock, not str"):
        simulate("app", scenario)  # type: ignore[arg-type]

    async def inside() -> None:
        simulate(app, scenario)

    with pytest.raises(RuntimeError, match="event loops of its own"):
        asyncio.run(inside())
