"""Follow-ups

What one job leads to is stored in the same step as its result, or not at all.
"""

from __future__ import annotations

from penstock import Job, Penstock, State, Worker


async def test_one_thing_leads_to_another(app: Penstock) -> None:
    """`job.then` adds a job that begins when this one has completed."""
    steps: list[str] = []

    @app.handler("library/import")
    async def load(name: str, job: Job) -> None:
        steps.append(f"load {name}")
        job.then("library/index", name)

    app.listen("library/index", lambda name: steps.append(f"index {name}"))
    await app.queue("library/import").enqueue("books")
    await Worker(app).drain()
    assert steps == ["load books", "index books"]


async def test_only_if_this_completes(app: Penstock) -> None:
    """A run that fails has no follow-ups, however many it asked for before; so a retry does not double them."""

    @app.handler("library/import", min_backoff=0)
    async def load(name: str, job: Job) -> None:
        job.then("library/index", name)
        if job.attempt < 3:
            raise ConnectionError("the library is closed")

    await app.queue("library/import").enqueue("books")
    await Worker(app).drain(scheduled=True)
    assert (await app.queue("library/index").counts())[State.QUEUED] == 1


async def test_with_all_the_options(app: Penstock) -> None:
    """A follow-up takes what `enqueue` takes, and its id is known at once."""
    ids: list[str] = []

    @app.handler("shop/orders")
    async def order(what: str, job: Job) -> None:
        ids.append(job.then("shop/reminders", what, delay=3600, headers={"order": job.id}))

    await app.queue("shop/orders").enqueue("tea", id="o")
    await Worker(app).drain()
    status = await app.queue("shop/reminders").status(ids[0])
    assert status is not None
    assert (status.state, status.headers) == ("scheduled", {"order": "o"})
