"""An app whose code declares a limit, for the end-to-end tests."""

from __future__ import annotations

import os
from typing import Any

from penstock import Job, Limit, Penstock
from tests.e2e.jobs import slow

app = Penstock(namespace=os.environ.get("PENSTOCK_NAMESPACE", "penstock"))


@app.handler("limited", limit=Limit(concurrency=1))
async def limited(payload: dict[str, Any], job: Job) -> str:
    """Run as `slow`, one job at a time over all workers."""
    return await slow(payload, job)
