"""Send webhooks: each customer's in order, with retries."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from penstock import Failure, Job, Penstock, PermanentError, Retry

SECRET = os.environ.get("WEBHOOK_SECRET", "only for this example").encode()
DEAD_LETTERS = Path(os.environ.get("DATA", ".")) / "dead-letters.jsonl"

#: Client errors (4xx) that may succeed at the next attempt.
TRANSIENT = {408, 425, 429}

app = Penstock()


@dataclass
class Event:
    """Something that happened to a customer, and the URL to send it to."""

    url: str
    customer: str
    number: int
    kind: str


def keep(failure: Failure) -> None:
    """Write an undeliverable event to a file; the customer's next events are sent meanwhile."""
    letter = {"id": failure.job.id, "customer": failure.job.group, "error": failure.error.message}
    with DEAD_LETTERS.open("a") as letters:
        letters.write(json.dumps(letter) + "\n")
    print(f"gave up {failure.payload.customer} #{failure.payload.number}: {failure.error.message}")


@app.handler("webhooks", timeout=10, max_retries=12, min_backoff=0.2, max_backoff=3600, on_failure=keep)
def deliver(event: Event, job: Job) -> int:
    """POST one event. A plain function runs in a thread, so it may block."""
    body = json.dumps({"number": event.number, "kind": event.kind}).encode()
    request = Request(event.url, body, method="POST")
    request.add_header("Content-Type", "application/json")
    request.add_header("Webhook-Id", job.id)  # the same in each attempt, so that the receiver can drop duplicates
    request.add_header("Webhook-Signature", "sha256=" + hmac.new(SECRET, body, hashlib.sha256).hexdigest())
    try:
        with urlopen(request, timeout=5) as answer:
            return answer.status
    except HTTPError as error:
        if error.code in TRANSIENT and (pause := error.headers.get("Retry-After", "")).isdigit():
            raise Retry(f"{error.code}: come back later", delay=int(pause)) from error
        if 400 <= error.code < 500 and error.code not in TRANSIENT:
            raise PermanentError(f"{error.code} {error.reason}") from error
        raise
    except (URLError, HTTPException) as error:
        raise ConnectionError(f"{event.url} does not answer: {error}") from error
