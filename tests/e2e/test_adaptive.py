"""`--adaptive`: each process lowers its own capacity, and `app.workers()` shows it."""

from __future__ import annotations

import asyncio

from tests.e2e.conftest import Stage, until


async def test_a_process_that_is_held_up_allows_itself_less_until_it_is_done(stage: Stage) -> None:
    """Handlers that hold the interpreter lower the allowed units of their worker; afterwards all are allowed again."""
    program = stage.worker("--adaptive")
    await program.working()

    async def hold_up() -> None:
        for number in range(1000):
            id = str(number)
            await stage.enqueue("greedy", id, {"seconds": 0.5})
            await stage.state("greedy", id, "completed", seconds=30)

    holding = asyncio.create_task(hold_up())
    try:
        await until(lambda: allows(stage, range(100)), seconds=60)
    finally:
        holding.cancel()
    await until(lambda: allows(stage, range(100, 101)), seconds=60)


async def allows(stage: Stage, units: range) -> bool:
    (info,) = await stage.app.workers()
    return info.allowed in units
