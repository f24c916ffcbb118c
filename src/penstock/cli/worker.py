"""`penstock worker`: run an app's handlers, one process per core; `penstock dev`: one process, reloaded."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any, get_args

import click
from click.shell_completion import CompletionItem

from penstock import StorageError, StorageUnavailable, Worker
from penstock.cli.base import Command, CommandError, debug_option, explain_unavailable, print_traceback
from penstock.cli.output import echo
from penstock.cli.reload import ChangeDetector, restart
from penstock.cli.secrets import redact_secrets
from penstock.cli.target import find_app_source, load_app, uses_file
from penstock.cli.values import IntegerType, SpanType
from penstock.cli.workers import SUBCOMMANDS
from penstock.host import AppHost
from penstock.log_config import LogFormat, configure
from penstock.model.printing import count, escape_controls, join_names, quote_name
from penstock.ops.doctor import warnings_at_start
from penstock.telemetry.endpoints import worker_routes
from penstock.telemetry.http_server import HttpServer, parse_address
from penstock.worker.handlers import select_handlers
from penstock.worker.supervisor import CannotImport
from penstock.worker.supervisor.child import run

__all__ = ["dev", "worker"]

log = logging.getLogger("penstock.worker")

SIGNALS = (signal.SIGTERM, signal.SIGINT)

#: Seconds between two tries to reach the storage with --wait: doubled from the first to the last.
FIRST_RETRY_DELAY, MAX_RETRY_DELAY = 0.2, 5.0


def available_cores() -> int:
    """Return the number of processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class WorkerCommand(Command):
    """The command `worker`, with `worker ls`, `quiet` and `stop` as commands of their own."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Parse arguments; if the first is that of a command below, as its arguments instead of the name of an app."""
        if args and (command := SUBCOMMANDS.get(args[0])) is not None:
            return command.make_context(f"{info_name} {args[0]}", args[1:], parent, **extra)
        return super().make_context(info_name, args, parent, **extra)


def complete_app(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the first argument: the names of the commands below are the only words known in advance."""
    return [
        CompletionItem(name, help=command.get_short_help_str())
        for name, command in SUBCOMMANDS.items()
        if name.startswith(incomplete)
    ]


def worker_options(function: Callable[..., None]) -> Any:
    """Add the options that `worker` and `dev` share."""
    decorated: Any = function
    for option in reversed(
        [
            click.option("--queues", help="Serve only these queues, separated by commas.  [default: all of the app]"),
            click.option(
                "--capacity",
                type=IntegerType(1),
                default=100,
                show_default=True,
                help="Units of work that a process runs at the same time.",
            ),
            click.option(
                "--lease",
                type=SpanType(),
                help="The time until other workers take over the jobs of a worker that vanished.",
            ),
            click.option("--id", help="The worker's id.  [default: a new random one]"),
            click.option("--max-jobs", type=IntegerType(1), help="Replace a process after about this many jobs."),
            click.option(
                "--max-rss", type=IntegerType(1), metavar="MB", help="Replace a process that uses more memory."
            ),
            click.option("--adaptive", is_flag=True, help="Claim less while a process cannot keep up."),
            click.option("--wait", is_flag=True, help="If the server cannot be reached at the start, wait for it."),
            click.option("--verbose", "-v", is_flag=True, help="Log details, and every failed run with its traceback."),
            click.option(
                "--quiet", "-q", is_flag=True, help="Log failures and warnings, but not the runs that ended well."
            ),
            click.option(
                "--http",
                metavar="HOST:PORT",
                help="Serve /metrics, /healthz and /readyz of this worker there.",
            ),
            click.option(
                "--log-format",
                type=click.Choice(get_args(LogFormat)),
                default="text",
                show_default=True,
                help="Lines for people, or JSON objects with the fields of the job.",
            ),
            debug_option,
        ]
    ):
        decorated = option(decorated)
    return decorated


@click.command(
    cls=WorkerCommand,
    examples="""
        penstock worker jobs:app                       # the `app` in jobs.py, one process per core
        penstock worker jobs:app --processes 4 --queues mail,thumbnails
        penstock worker jobs:app --drain               # run all due jobs, then exit
        penstock worker                                # the app named by PENSTOCK_APP or pyproject.toml
        penstock worker ls                             # list the workers
        penstock worker stop w1                        # ask one to stop, from anywhere; `quiet`: to claim no more
    """,
)
@click.argument("app", metavar="[MODULE:APP]", required=False, shell_complete=complete_app)
@click.option("--processes", type=IntegerType(0), help="Child processes, 0 for none.  [default: one per core]")
@click.option(
    "--grace",
    type=SpanType(),
    default="30s",
    show_default=True,
    help="How long runs may go on after SIGTERM.",
)
@click.option("--drain", is_flag=True, help="Run jobs until none is due, then exit.")
@click.option("--reload", is_flag=True, help="Restart when a source file changes.")
@worker_options
def worker(**options: Any) -> None:
    """Run the handlers of an app: `penstock worker jobs:app` for the `app` in jobs.py.

    After SIGTERM or Ctrl-C, runs may go on for the time of --grace; then their jobs are released to other
    workers. A second signal releases them at once.

    The log has a line for each run: its time if it ended well, the error and its place if it failed, and
    the traceback if the job has failed for good.
    """
    run_worker(**options)


@click.command(
    cls=Command,
    examples="""
        penstock dev jobs:app
        penstock dev jobs:app --processes 0    # run handlers in this process: breakpoint() works
        penstock dev jobs:app --dashboard      # and pages about queues and jobs
    """,
)
@click.argument("app", metavar="[MODULE:APP]", required=False)
@click.option("--processes", type=IntegerType(0), default=1, show_default=True, help="Child processes, 0 for none.")
@click.option(
    "--grace",
    type=SpanType(),
    default="2s",
    show_default=True,
    help="How long runs may go on after SIGTERM.",
)
@click.option("--dashboard", is_flag=True, help="Serve the dashboard too; a reload does not close it.")
@worker_options
def dev(dashboard: bool, **options: Any) -> None:
    """Run handlers while you write them: one process, restarted when a source file changes.

    Every run is logged when it ends, a failed one with its traceback. If a file cannot be imported, the
    command prints the error and waits for a change.
    """
    if dashboard:
        sys.exit(run_beside_dashboard(options["app"]))
    run_worker(**options, drain=False, reload=True, tracebacks=True)


def run_beside_dashboard(app: str | None) -> int:
    """Run the dashboard and this command without --dashboard as two processes; returns the exit code of the latter.

    A reload replaces the second one only. A signal ends both.
    """
    program = [sys.executable, "-m", "penstock"]
    dashboard = subprocess.Popen([*program, "dashboard", *([] if app is None else [app])])
    worker = subprocess.Popen([*program, *(each for each in sys.argv[1:] if each != "--dashboard")])
    for number in SIGNALS:
        signal.signal(number, lambda number, frame: worker.send_signal(number))
    try:
        return worker.wait()
    finally:
        dashboard.terminate()
        dashboard.wait()


def run_worker(
    app: str | None,
    wait: bool,
    drain: bool,
    grace: float,
    reload: bool,
    verbose: bool,
    quiet: bool,
    log_format: LogFormat,
    http: str | None,
    tracebacks: bool = False,
    **options: Any,
) -> None:
    """Load the app and run its worker until it stops; after a change of the sources, restart the command."""
    level = logging.DEBUG if verbose else logging.WARNING if quiet else logging.INFO
    configure(level, tracebacks=tracebacks, log_format=log_format)
    source = find_app_source(app)
    if source is None:
        raise click.UsageError(
            "which app? Give it as MODULE:APP (jobs:app is the `app` in jobs.py), in PENSTOCK_APP, "
            "or as app in [tool.penstock] of pyproject.toml"
        )
    try:
        loaded = load_app(source)
        worker = build_worker(loaded, source.name, options)
    except CannotImport as error:
        if not reload:
            raise
        if click.get_current_context().meta.get("debug"):
            print_traceback(error)
        echo(f"Error: {redact_secrets(str(error))} (waiting for a change)", err=True)
        ChangeDetector(everything=True).wait()
        restart()
    worker.log_level = level
    worker.log_tracebacks = tracebacks
    worker.log_format = log_format
    server = None if http is None else serve_status(loaded, worker, http)
    session = WorkerSession(loaded, worker, grace, wait, drain, reload)
    before = {number: signal.getsignal(number) for number in SIGNALS}
    try:
        changed = run(session.run())
    except StorageUnavailable as error:
        raise CommandError(explain_unavailable(error, "--wait waits for it")) from error
    finally:
        if server is not None:
            server.close()
        for number in SIGNALS:  # after one signal the process is ending: another must not end it with a traceback
            signal.signal(number, signal.SIG_IGN if session.signals else before[number] or signal.SIG_DFL)
    if changed and not session.signals:
        restart()


def build_worker(app: AppHost, source: str, options: dict[str, Any]) -> Worker:
    """Return the worker that the options describe; wrong handlers are found here, before it starts."""
    queues = None if options["queues"] is None else [name for name in options["queues"].split(",") if name]
    processes = available_cores() if options["processes"] is None else options["processes"]
    megabytes = options["max_rss"]
    made = Worker(
        app,
        queues=queues,
        processes=processes,
        capacity=options["capacity"],
        lease=options["lease"],
        id=options["id"],
        max_jobs=options["max_jobs"],
        max_rss=None if megabytes is None else megabytes * 2**20,
        adaptive=options["adaptive"],
    )
    made.source = source
    made.warns = False  # `WorkerSession` logs these warnings, and more
    select_handlers(app, queues, options["capacity"])
    return made


def serve_status(app: AppHost, worker: Worker, address: str) -> HttpServer:
    """Serve the state of a worker on HOST:PORT; a wrong address, or one in use, is an error of the command."""
    try:
        host, port = parse_address(address)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--http") from None
    worker.watched = True
    try:
        server = HttpServer(host, port, worker_routes(app, worker.status))
    except OSError as error:
        raise CommandError(f"--http {address} cannot be used: {error.strerror}") from error
    server.start()
    log.info("serving http://%s:%d/metrics", f"[{host}]" if ":" in host else host, server.port)
    return server


def describe_stop(runs: list[tuple[str, str]], grace: float) -> str:
    """Return how a worker with these runs stops."""
    if not runs:
        return "stopping, no runs are left"
    named = f"{count(len(runs), 'run')} ({join_names(runs)})"
    if not grace:
        return f"stopping, {named} released"
    return f"stopping, waiting up to {grace:g} s for {named}; a second signal releases all at once"


class WorkerSession:
    """One run of the command, from opening the storage to the end of its worker."""

    def __init__(self, app: AppHost, worker: Worker, grace: float, wait: bool, drain: bool, reload: bool) -> None:
        self._app = app
        self._worker = worker
        self._grace = grace
        self._wait = wait
        self._drain = drain
        self._reload = reload
        #: How many signals have arrived.
        self.signals = 0
        self._finished = self._restart = False
        self._stopping: set[asyncio.Task[None]] = set()
        self._signalled = asyncio.Event()

    async def run(self) -> bool:
        """Run the worker until it stops; returns whether the command is to be restarted."""
        loop = asyncio.get_running_loop()

        def on_signal(number: int, frame: object) -> None:
            self.signals += 1
            if not self._finished:
                loop.call_soon_threadsafe(self._signal, signal.Signals(number), self.signals)

        for number in SIGNALS:  # not loop.add_signal_handler: those end with the loop, before the process does
            signal.signal(number, on_signal)
        try:
            return await self._work()
        finally:
            self._finished = True

    async def _work(self) -> bool:
        if not await self._open():
            return False
        await self._warn()
        background = [asyncio.create_task(self._watch())] if self._reload else []
        try:
            if not self.signals:
                await (self._worker.drain() if self._drain else self._worker.run())
            if self._stopping:
                await asyncio.gather(*self._stopping)
        finally:
            for task in background:
                task.cancel()
            await asyncio.gather(*background, return_exceptions=True)
            await self._app.close()
        log.info("worker %s has stopped", quote_name(self._worker.id))
        return self._restart

    async def _open(self) -> bool:
        """Open the storage; returns False if a signal came first.

        A server is waited for with --wait; a file that is locked or cannot grow always, except with --drain.
        """
        patient = self._wait or (not self._drain and uses_file(self._app))
        delay = FIRST_RETRY_DELAY
        while not self.signals:
            try:
                await self._app.open()
                return True
            except StorageUnavailable as error:
                if not patient:
                    raise
                if delay == FIRST_RETRY_DELAY:
                    log.warning("waiting for the storage: %s", escape_controls(str(error)))
            try:
                async with asyncio.timeout(delay):
                    await self._signalled.wait()
            except TimeoutError:
                delay = min(delay * 2, MAX_RETRY_DELAY)
        return False

    async def _warn(self) -> None:
        """Log settings of the storage that may lose jobs, before any job is claimed."""
        with contextlib.suppress(StorageError):  # the worker itself logs that the storage is unavailable
            for line in await warnings_at_start(self._app.storage):
                log.warning("JOBS MAY BE LOST: %s", redact_secrets(line))

    def _signal(self, number: signal.Signals, times: int) -> None:
        self._signalled.set()
        grace = self._grace if times == 1 else 0.0
        log.info("%s: %s", number.name, describe_stop(self._worker.runs, grace))
        self._stop(grace)

    def _stop(self, grace: float) -> None:
        task = asyncio.ensure_future(self._worker.stop(grace))
        self._stopping.add(task)

    async def _watch(self) -> None:
        """Stop the worker for a restart when a source file changes."""
        detector = ChangeDetector()
        changed = await asyncio.to_thread(detector.poll)
        while not changed:
            await asyncio.sleep(1.0)
            changed = await asyncio.to_thread(detector.poll)
        log.info("%s changed: starting again", ", ".join(map(quote_name, sorted(changed))))
        self._restart = True
        self._stop(self._grace)
