"""Send eight events to each of three customers, and print the order in which they were accepted."""

from __future__ import annotations

import asyncio
import json
import os
import uuid
from urllib.request import urlopen

from jobs import Event, app
from penstock import Entry, JobFailed

RECEIVER = f"http://127.0.0.1:{os.environ.get('PORT', '8000')}"
CUSTOMERS = ("ann", "bob", "eve")


def entry(customer: str, number: int) -> Entry:
    """Return an entry with the event's id, so that enqueueing it again after a crash sends it once."""
    event = Event(f"{RECEIVER}/{customer}", customer, number, "order.paid")
    return Entry(event, id=f"evt_{uuid.uuid4().hex}", group=customer)


async def send() -> None:
    async with app:
        webhooks = app.queue("webhooks")
        jobs = await webhooks.enqueue_many(entry(customer, n) for n in range(1, 9) for customer in CUSTOMERS)
        for job in jobs:
            try:
                await webhooks.wait(job.id)
            except JobFailed as failed:
                print(f"one was not delivered: {failed.error.message}")


def show() -> None:
    with urlopen(RECEIVER) as answer:
        for customer, numbers in sorted(json.load(answer).items()):
            print(f"{customer} accepted {', '.join(map(str, numbers))}")


if __name__ == "__main__":
    asyncio.run(send())
    show()
