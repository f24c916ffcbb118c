"""`penstock bench` and `penstock demo`: they measure and show, and leave nothing behind."""

from __future__ import annotations

from penstock import Penstock
from tests.cli.conftest import Cli, on_redis, on_sqlite
from tests.servers import Server, redis_program


@on_redis
def test_a_bench_leaves_no_key(cli: Cli) -> None:
    """A server that held nothing holds nothing afterwards that stays."""
    server = Server(redis_program()).start()
    try:
        found = cli.json("bench", "--url", f"redis://:@{server.address}/0", "--jobs", "200")
        with server.client() as client:
            assert [key for key in client.scan_iter() if not 0 <= client.ttl(key) <= 300] == []
    finally:
        server.remove()
    assert found["jobs"] == 200
    assert min(found[name] for name in ("enqueue_many", "enqueue_one", "drain", "call_p50_ms", "call_p99_ms")) > 0


@on_sqlite
def test_a_bench_leaves_a_file_as_it_was(cli: Cli) -> None:
    """Jobs of others in the same file are neither counted nor touched."""
    cli.do(lambda app: app.queue("mail").enqueue(1))
    text = cli.ok("bench", "--url", cli.url, "--jobs", "100")
    assert "jobs/s" in text
    assert cli.do(Penstock.queues) == ["mail"]


@on_sqlite
def test_a_bench_needs_no_storage(cli: Cli) -> None:
    """Without a URL it measures a file that is gone afterwards; a dead server is one line."""
    assert cli.json("bench", "--jobs", "100")["where"].startswith("sqlite:")
    assert list(cli.directory.iterdir()) == []
    assert "cannot reach" in cli.fails("bench", "--url", "redis://127.0.0.1:1")


def test_the_demo_shows_what_happened(cli: Cli) -> None:
    """Jobs of three kinds end as they must, in order, and the storage is empty again."""
    text = cli.ok("demo", "--url", cli.url, "--jobs", "60")
    assert "60 of 60 jobs finished" in text
    assert "group order: exact in every group" in text
    assert cli.json("queue", "ls", "--url", cli.url, "--namespace", "penstock-demo") == []
    assert "cannot reach" in cli.fails("demo", "--url", "redis://127.0.0.1:1")
