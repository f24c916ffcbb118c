"""The work that no web request should wait for."""

from __future__ import annotations

import asyncio
import os

from pydantic import BaseModel, Field

from penstock import Job, Penstock

#: Seconds that a month takes.
PACE = float(os.environ.get("PACE", "0.5"))

app = Penstock()


class Order(BaseModel):
    """A report to make."""

    customer: str = Field(min_length=1)
    months: int = Field(default=12, ge=1, le=120)


class Report(BaseModel):
    """The finished report."""

    customer: str
    revenue: list[int]
    total: int


@app.handler("reports", timeout=600, result_ttl=86_400)
async def report(order: Order, job: Job) -> Report:
    """Add up month by month, and report the progress."""
    revenue: list[int] = []
    for month in range(1, order.months + 1):
        await job.progress((month - 1) / order.months, f"month {month} of {order.months}")
        await asyncio.sleep(PACE)  # a query that takes its time
        revenue.append(100 * month)
    return Report(customer=order.customer, revenue=revenue, total=sum(revenue))
