"""Without await

`penstock.sync` is the same surface for threads, scripts and frameworks that do not await.
"""

from __future__ import annotations

from pathlib import Path

from penstock.sync import Penstock, Worker


def test_the_same_names(tmp_path: Path) -> None:
    """Everything is called the same, answers the same, and blocks the thread that asks."""
    with Penstock(f"sqlite:{tmp_path / 'penstock.db'}") as app:
        mail = app.queue("mail")
        assert mail.enqueue("hello", id="h")
        assert mail.enqueue("hello", id="h").status == "duplicate"
        [job] = mail.reserve()
        job.complete("sent")
        assert mail.result("h") == "sent"


def test_calling_from_a_thread(tmp_path: Path) -> None:
    """`call` waits for a worker's answer, wherever that worker is; here it is on a thread beside."""
    app = Penstock(f"sqlite:{tmp_path / 'penstock.db'}")

    @app.task
    def add(a: int, b: int) -> int:
        return a + b

    with app, Worker(app):
        assert add.call(1, 2) == 3
