"""Call the service from another process: results, kept results, errors, and timeouts."""

from __future__ import annotations

import asyncio
import os
import time

from jobs import Parcel, Quote, app, quote
from penstock import CallTimeout, JobFailed


def show(country: str, answer: Quote) -> None:
    print(f"{country}: {answer.price} in {answer.days} days")


async def main() -> None:
    today = f"ask-{os.getpid()}-{time.time_ns()}"  # a new id for each run of this example
    async with app:
        # A call of a task in another process looks like a function call: typed arguments, a typed result.
        answer = await quote.call(Parcel("AT", 900), speed="express")
        show("Austria", answer)
        assert answer.answered_by != os.getpid()

        # Many at once.
        parcels = [Parcel("FR", grams) for grams in range(0, 20_000, 1000)]
        answers = await asyncio.gather(*(quote.call(parcel) for parcel in parcels))
        print(f"France: {len(answers)} answers, {answers[0].price} to {answers[-1].price}")

        # An error there is an exception here.
        try:
            await quote.call(Parcel("XX", 100))
        except JobFailed as failed:
            print(f"Nowhere: {failed.error.type}, {failed.error.message}")

        # The timeout of the caller does not end the run: the job goes on, and its result can be fetched later.
        japan = quote.options(id=f"{today}/japan")
        try:
            await japan.options(timeout=0.5).call(Parcel("JP", 400))
        except CallTimeout:
            print("Japan: no answer yet, the service goes on")
        answer = await quote.wait(f"{today}/japan")
        show("Japan", answer)

        # The same id again: the kept result is returned, and the job is not run again.
        assert await japan.call(Parcel("JP", 400)) == answer
        print("Japan again: the answer that was kept")


if __name__ == "__main__":
    asyncio.run(main())
