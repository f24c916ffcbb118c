"""Tasks for tests of flows: they note their calls, and fail as often as a test wants."""

from __future__ import annotations

from typing import Any

from penstock import Ended, Inputs, JobError, Penstock, Worker


class Calls:
    """Tasks that fail as often as a test wants, and the calls that were made."""

    def __init__(self, app: Penstock) -> None:
        self.made: list[Any] = []
        self.broken: set[Any] = set()

        @app.task(max_retries=0)
        async def double(number: int) -> int:
            self.made.append(number)
            if number in self.broken:
                raise ValueError(f"{number} is broken")
            return 2 * number

        @app.task(max_retries=0)
        async def total(numbers: list[int], title: str = "") -> str:
            self.made.append(("total", numbers))
            return f"{title}{sum(numbers)}"

        @app.task(max_retries=0)
        async def count(numbers: Inputs[int]) -> list[int]:
            found = [number async for number in numbers]
            assert len(found) == len(numbers)
            return [len(found), sum(found), *found[:2]]

        @app.task(max_retries=0)
        async def ends(outcomes: list[Ended[int]]) -> list[Any]:
            return [each.value if each.ok else each.error.message if each.error else None for each in outcomes]

        @app.task(max_retries=0)
        async def alert(title: str, why: JobError) -> str:
            self.made.append(("alert", why.type))
            return title

        self.double, self.total, self.count, self.ends, self.alert = double, total, count, ends, alert


async def drain(app: Penstock) -> None:
    """Run all jobs that are due."""
    await Worker(app).drain()
