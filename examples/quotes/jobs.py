"""A service that answers calls: the price of sending a parcel."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

from penstock import Penstock, PermanentError

Speed = Literal["normal", "express"]

RATES = {"AT": Decimal("4.20"), "FR": Decimal("6.50"), "JP": Decimal("19.90")}

app = Penstock()


@dataclass(frozen=True)
class Parcel:
    country: str
    grams: int


@dataclass(frozen=True)
class Quote:
    price: Decimal
    days: int
    answered_by: int


@app.task(queue="quotes", timeout=60, max_retries=3, min_backoff=0.2, result_ttl=600)
async def quote(parcel: Parcel, speed: Speed = "normal") -> Quote:
    """Return a carrier's price; the one for Japan takes a few seconds."""
    if parcel.country not in RATES:
        raise PermanentError(f"no carrier for {parcel.country}")
    if parcel.country == "JP":
        await asyncio.sleep(3)
    price = RATES[parcel.country] * (1 + parcel.grams // 1000) * (2 if speed == "express" else 1)
    return Quote(price, 2 if speed == "express" else 5, os.getpid())
