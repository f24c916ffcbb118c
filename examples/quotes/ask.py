"""Ask the service from another process: answers, kept answers, errors, and patience."""

from __future__ import annotations

import asyncio
import os
import time

from jobs import Parcel, Quote, app, quote
from penstock import CallTimeout, JobFailed


def show(country: str, answer: Quote) -> None:
    print(f"{country}: {answer.price} in {answer.days} days")


async def main() -> None:
    today = f"ask-{os.getpid()}-{time.time_ns()}"  # so that each demonstration asks anew
    async with app:
        # A call looks like a call: typed arguments, a typed answer, in another process.
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

        # The caller's patience is not the run's: the job goes on, and its answer can be fetched later.
        japan = quote.options(id=f"{today}/japan")
        try:
            await japan.options(timeout=0.5).call(Parcel("JP", 400))
        except CallTimeout:
            print("Japan: no answer yet, the service goes on")
        answer = await quote.wait(f"{today}/japan")
        show("Japan", answer)

        # The same id again: the answer is kept, nobody works twice.
        assert await japan.call(Parcel("JP", 400)) == answer
        print("Japan again: the answer that was kept")


if __name__ == "__main__":
    asyncio.run(main())
