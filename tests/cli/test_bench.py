"""`penstock bench`: figures, and a storage that is unchanged afterwards."""

from __future__ import annotations

from penstock import Penstock
from tests.cli.conftest import Cli, on_redis, on_sqlite
from tests.servers import Server, redis_program


@on_redis
def test_a_bench_leaves_no_key(cli: Cli) -> None:
    """After a bench, an empty server has no key without a short TTL."""
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
    """A bench on a file neither counts nor changes the jobs in it."""
    cli.do(lambda app: app.queue("mail").enqueue(1))
    text = cli.ok("bench", "--url", cli.url, "--jobs", "100")
    assert "jobs/s" in text
    assert cli.do(Penstock.queues) == ["mail"]


@on_sqlite
def test_a_bench_needs_no_storage(cli: Cli) -> None:
    """Without a URL a bench measures a temporary file; an unreachable server is an error of one line."""
    assert cli.json("bench", "--jobs", "100")["where"].startswith("sqlite:")
    assert list(cli.directory.iterdir()) == []
    assert "cannot reach" in cli.fails("bench", "--url", "redis://127.0.0.1:1")
