"""Failures: the payload of a fail job, and what its handler gets."""

from __future__ import annotations

import pytest

from penstock import Failure, JobError
from penstock.model.failure import FailureSerde, failure_payload
from penstock.model.formats import JsonSerde
from penstock.model.headers import encode_headers
from penstock.model.job import Claim
from penstock.model.serde import Codec

CLAIM = Claim(
    queue="q", id="a", token="t", payload=b"[1]", group="g", headers=encode_headers({"h": "1"}),
    created=1000, run_at=2000, attempts=3, retries=1, stalls=1, timeouts=0,
)  # fmt: skip
CODEC = Codec(JsonSerde(), JsonSerde())


def test_a_failure_survives_the_trip() -> None:
    """A fail handler gets the payload decoded, the job and the error; bad bytes are shown as they are."""
    error = JobError("ValueError", "no")
    failure = FailureSerde("q", CODEC).loads(failure_payload(CLAIM, error), Failure)
    assert (failure.payload, failure.job.id, failure.job.attempt, failure.error) == ([1], "a", 3, error)
    assert FailureSerde("q", CODEC, str).loads(failure_payload(CLAIM, error), Failure).payload == b"[1]"
    with pytest.raises(ValueError, match="not a stored Failure"):
        FailureSerde("q", CODEC).loads(b"{}", Failure)
