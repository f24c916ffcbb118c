"""The peers: their packages, the command lines of their workers, their settings and guarantees.

Settings are the fastest that their documentation describes, at least once where they offer it, one worker
process, no log line per job, results not stored where they can be left out (ours are always kept).
"""

from __future__ import annotations

from dataclasses import replace

from bench.systems import System, producer_command

AT_LEAST, AT_MOST = "at least once", "at most once"


def _producer(module: str) -> str:
    return producer_command(f"bench.peers.{module}:Producer")


_PEERS = (
    System(
        name="repid",
        guarantee=AT_LEAST,
        settings="Redis streams, batch_size=10, tasks_limit=100, claim_interval=30, no timeout, uvloop",
        worker="{python} -m bench.peers.repid",
        producer=_producer("repid"),
        packages=("repid[redis]", "hiredis", "typing_extensions", "uvloop"),
    ),
    System(
        name="huey",
        guarantee=AT_MOST,
        settings="huey_consumer -w 2 -k thread -q, notify_result",
        worker="{bin}/huey_consumer bench.peers.huey.huey -w 2 -k thread -q",
        producer=_producer("huey"),
        packages=("huey", "redis", "hiredis"),
        jobs=10_000,
        style="sync",
        offers=("call",),
    ),
    System(
        name="taskiq",
        guarantee=AT_LEAST,
        settings="RedisStreamBroker, xread_count=100, --max-async-tasks 100 --ack-type when_executed, uvloop",
        worker="{bin}/taskiq worker bench.peers.taskiq:broker --workers 1 --max-async-tasks 100"
        " --ack-type when_executed --no-parse --log-level WARNING",
        producer=_producer("taskiq"),
        packages=("taskiq", "taskiq-redis", "hiredis", "uvloop"),
        jobs=10_000,
        offers=("call",),
    ),
    System(
        name="saq",
        guarantee=AT_LEAST,
        settings="saq -q, concurrency=50, uvloop",
        worker="{bin}/saq bench.peers.saq.settings -q",
        producer=_producer("saq"),
        packages=("saq[redis,hiredis]", "typing_extensions", "uvloop"),
        jobs=10_000,
        offers=("call",),
    ),
    System(
        name="bullmq-node",
        guarantee=AT_LEAST,
        settings="concurrency: 500, removeOnComplete, ioredis",
        worker="node {root}/bench/peers/bullmq_node.mjs worker",
        producer="node {root}/bench/peers/bullmq_node.mjs producer",
        packages=("bullmq", "ioredis"),
        language="Node",
        offers=("many", "call"),
    ),
    System(
        name="arq",
        guarantee=AT_LEAST,
        settings="max_jobs=200, queue_read_limit=1000, poll_delay=0.001, keep_result=0, uvloop",
        worker="{bin}/arq bench.peers.arq.WorkerSettings --custom-log-dict bench.peers.arq.quiet",
        producer=_producer("arq"),
        packages=("arq", "hiredis", "uvloop"),
        jobs=5_000,
        offers=("call",),
    ),
    System(
        name="dramatiq",
        guarantee=AT_LEAST,
        settings="dramatiq -p 1 -t 2, dramatiq_queue_prefetch=1000",
        worker="{bin}/dramatiq bench.peers.dramatiq -p 1 -t 2",
        producer=_producer("dramatiq"),
        packages=("dramatiq[redis]", "hiredis"),
        environment={"dramatiq_queue_prefetch": "1000"},
        jobs=5_000,
        style="sync",
        offers=("call",),
    ),
    System(
        name="celery",
        guarantee=AT_LEAST,
        settings="-P solo, task_acks_late, prefetch multiplier 128, without gossip, mingle and heartbeat",
        worker="{bin}/celery -A bench.peers.celery worker -P solo -l WARNING"
        " --without-gossip --without-mingle --without-heartbeat",
        producer=_producer("celery"),
        packages=("celery[redis]", "hiredis"),
        jobs=3_000,
        style="sync",
        offers=("call",),
    ),
    System(
        name="bullmq-python",
        guarantee=AT_LEAST,
        settings="concurrency 50, removeOnComplete, uvloop",
        worker="{python} -m bench.peers.bullmq",
        producer=_producer("bullmq"),
        packages=("bullmq", "hiredis", "uvloop"),
        jobs=5_000,
        offers=("many", "call"),
    ),
    System(
        name="streaq",
        guarantee=AT_LEAST,
        settings="default concurrency and prefetch (16), ttl=0 and silent tasks, uvloop",
        worker="{bin}/streaq run bench.peers.streaq:worker",
        producer=_producer("streaq"),
        packages=("streaq", "uvloop"),
        jobs=5_000,
        offers=("many", "call"),
    ),
    System(
        name="rq",
        guarantee=AT_LEAST,
        settings="rq worker -w rq.SimpleWorker (runs jobs in its own process), result_ttl=0",
        worker="{bin}/rq worker bench --url {url} -w rq.SimpleWorker -q",
        producer=_producer("rq"),
        packages=("rq", "hiredis"),
        jobs=1_000,
        style="sync",
        offers=("many", "call"),
    ),
)
PEERS: dict[str, System] = {system.name: system for system in _PEERS}

#: The peers that work on an SQLite file, with their fastest settings there.
ON_SQLITE: dict[str, System] = {
    "huey": replace(
        PEERS["huey"],
        settings="huey_consumer -w 1 -k thread -q, WAL, fsync=False",
        worker=PEERS["huey"].worker.replace("-w 2", "-w 1"),
        jobs=30_000,
        storages=("sqlite",),
    )
}
