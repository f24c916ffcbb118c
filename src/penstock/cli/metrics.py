"""`penstock metrics`: serve the metrics of all workers and queues for Prometheus; print a dashboard for Grafana."""

from __future__ import annotations

import os
import signal
import threading

import click

from penstock.cli.base import EXIT_USAGE, Command, CommandError
from penstock.cli.output import echo
from penstock.cli.target import Target, check_location, target_options
from penstock.cli.values import IntegerType
from penstock.telemetry.endpoints import fleet_routes
from penstock.telemetry.fleet import FleetReader
from penstock.telemetry.grafana import dashboard_json, rules_text
from penstock.telemetry.http_server import HttpServer
from penstock.telemetry.on_demand import MISSING, load_prometheus

__all__ = ["metrics"]

#: The variable with the token that requests must have.
TOKEN = "PENSTOCK_METRICS_TOKEN"


@click.command(
    cls=Command,
    examples="""
        penstock metrics --url redis://localhost:6379     # http://127.0.0.1:9717/metrics
        penstock metrics --host 0.0.0.0 --port 9717       # for a Prometheus on another machine
        penstock metrics --grafana > penstock.json        # a dashboard to import
        penstock metrics --rules > penstock.rules.yml     # alert rules
    """,
)
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--port", type=IntegerType(0, 65535), default=9717, show_default=True, help="The port, 0 for a free one.")
@click.option("--grafana", is_flag=True, help="Print a Grafana dashboard as JSON, and exit.")
@click.option("--rules", is_flag=True, help="Print alert rules for Prometheus as YAML, and exit.")
@target_options
def metrics(target: Target, host: str, port: int, grafana: bool, rules: bool) -> None:
    """Serve the metrics of all queues and workers, read from the storage, for Prometheus.

    /metrics is for Prometheus, /scale?queue=NAME&target=SECONDS for autoscalers, /healthz and /readyz for probes. With
    PENSTOCK_METRICS_TOKEN set, the first two need `Authorization: Bearer TOKEN`.
    """
    if grafana or rules:
        for line in (dashboard_json() if grafana else rules_text()).splitlines():
            echo(line)
        return
    if load_prometheus() is None:
        raise CommandError(MISSING, EXIT_USAGE)
    app = target.build()
    check_location(app, create=False)
    reader = FleetReader(app)
    try:
        server = HttpServer(host, port, fleet_routes(app, reader), os.environ.get(TOKEN) or None)
    except OSError as error:
        raise CommandError(f"--port {port} cannot be used on {host}: {error.strerror}") from error
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, frame: ended.set())
    shown = f"[{host}]" if ":" in host else host
    echo(f"serving http://{shown}:{server.port}/metrics", err=True)
    server.start()
    try:
        ended.wait()
    finally:
        server.close()
        reader.close()
