"""Streams without `await`."""

from __future__ import annotations

import pytest

from penstock import Job, JobFailed
from penstock.sync import Penstock, Worker


def test_parts_of_a_plain_task_come_in_order() -> None:
    """`for part in task.stream(...)` gives the parts, then ends; `result` and `follow` read the same job."""
    app = Penstock("memory:")

    @app.task
    def count(upto: int, job: Job | None = None) -> int:
        assert job is not None
        for n in range(upto):
            job.emit(n)
        if upto < 0:
            raise ValueError("negative")
        return upto

    with app, Worker(app):
        stream = count.stream(3)
        assert [(part.value, part.first) for part in stream] == [(0, True), (1, False), (2, False)]
        assert stream.result() == 3
        assert stream.id is not None
        assert [part.value for part in app.queue("count").follow(stream.id, after=1)] == [1, 2]
        failing = app.queue("count").stream({"upto": -1}, max_retries=0)
        with pytest.raises(JobFailed, match="negative"):
            next(failing)
