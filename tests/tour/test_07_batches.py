"""Batches

With `batch_size` a handler gets several jobs in one call.
"""

from __future__ import annotations

from penstock import Entry, Outcome, Penstock, Worker


async def test_a_list_of_payloads(app: Penstock) -> None:
    """The handler gets lists, in order, and a list that it returns has a result for each job."""
    sizes: list[int] = []

    @app.handler("words", batch_size=3)
    async def lengths(words: list[str]) -> list[int]:
        sizes.append(len(words))
        return [len(word) for word in words]

    jobs = await app.queue("words").enqueue_many(["a", "bb", "ccc", "dddd"])
    await Worker(app).drain()
    assert sizes == [3, 1]
    assert [await app.queue("words").result(job.id) for job in jobs] == [1, 2, 3, 4]


async def test_an_outcome_for_each(app: Penstock) -> None:
    """With an `Outcome` for each job, some of a batch complete, and others fail or are retried."""

    @app.handler("words", batch_size=10, max_retries=0)
    async def check(words: list[str]) -> list[Outcome]:
        return [Outcome.complete(word) if word.isalpha() else Outcome.fail("no word") for word in words]

    await app.queue("words").enqueue_many(["tea", "42"])
    await Worker(app).drain()
    [good] = await app.queue("words").find("completed")
    [bad] = await app.queue("words").find("failed")
    assert (good.result, bad.payload) == ("tea", "42")


async def test_one_bad_job_does_not_take_its_neighbours_down(app: Penstock) -> None:
    """When a batch raises, its jobs run again one by one, so that only the one that raises fails in the end."""

    @app.handler("rows", batch_size=10, max_retries=1, min_backoff=0)
    async def invert(rows: list[int]) -> list[float]:
        return [1 / row for row in rows]

    await app.queue("rows").enqueue_many([1, 2, 0, 3])
    await Worker(app).drain(scheduled=True)
    assert [job.payload for job in await app.queue("rows").find("failed")] == [0]
    assert sorted(job.payload for job in await app.queue("rows").find("completed")) == [1, 2, 3]


async def test_a_batch_is_of_one_group(app: Penstock) -> None:
    """Jobs with groups are batched with their own kind, in order."""
    batches: list[list[str]] = []
    app.listen("letters", batches.append, batch_size=10, concurrency=1)
    await app.queue("letters").enqueue_many(Entry(f"{name} {n}", group=name) for n in (1, 2) for name in ("ann", "bob"))
    await Worker(app).drain()
    assert batches == [["ann 1", "ann 2"], ["bob 1", "bob 2"]]
