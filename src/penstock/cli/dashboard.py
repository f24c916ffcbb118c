"""`penstock dashboard`: pages about queues, jobs, workers and failures, for a browser."""

from __future__ import annotations

import getpass
import os
import secrets
import webbrowser
from importlib.util import find_spec
from typing import NamedTuple

import click

from penstock.cli.base import EXIT_USAGE, Command, CommandError, run
from penstock.cli.output import echo
from penstock.cli.target import Target, describe_location, open_app, target_options
from penstock.cli.values import IntegerType

#: The packages of the extra: without one of them the dashboard cannot be imported.
PACKAGES = ("starlette", "jinja2", "python_multipart", "uvicorn", "a2wsgi")

LOOPBACK = ("localhost", "127.0.0.1", "::1")

__all__ = ["dashboard"]

TOKEN, READER_TOKEN = "PENSTOCK_DASHBOARD_TOKEN", "PENSTOCK_DASHBOARD_READER_TOKEN"


@click.command(
    cls=Command,
    examples="""
        penstock dashboard jobs:app                    # prints a link to open
        penstock dashboard --url redis://localhost:6379
        penstock dashboard jobs:app --read-only --open
        PENSTOCK_DASHBOARD_TOKEN=… penstock dashboard jobs:app --host 0.0.0.0
    """,
)
@click.argument("module_app", metavar="[MODULE:APP]", required=False)
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--port", type=IntegerType(0, 65535), default=8717, show_default=True, help="The port; 0 for a free one.")
@click.option("--read-only", is_flag=True, help="Show everything, and let no one change anything.")
@click.option("--open", "open_browser", is_flag=True, help="Open the link in a browser.")
@target_options(serde=True)
def dashboard(
    target: Target, module_app: str | None, host: str, port: int, read_only: bool, open_browser: bool
) -> None:
    """Serve pages about queues, jobs, workers and failures: a link with a token is printed.

    With --url it works on any storage, without your code; with an app, payloads are decoded by its serdes and new
    jobs are checked. On an address that other machines reach, it starts only with PENSTOCK_DASHBOARD_TOKEN, the
    token of admins; PENSTOCK_DASHBOARD_READER_TOKEN is that of readers.
    """
    if any(find_spec(name) is None for name in PACKAGES):
        raise CommandError('the dashboard needs more packages: pip install "penstock[dashboard]"', EXIT_USAGE)
    if module_app is not None:
        if target.app is not None or target.url is not None:
            raise CommandError("give MODULE:APP, --app or --url, and not two of them", EXIT_USAGE)
        target = target._replace(app=module_app)
    given = os.environ.get(TOKEN)
    if host not in LOOPBACK and not given:
        raise CommandError(
            f"{host} may be reached from other machines: set {TOKEN} to a secret of 16 characters or more first",
            EXIT_USAGE,
        )
    run(serve(Serving(target, host, port, given or secrets.token_urlsafe(24), not given, read_only, open_browser)))


class Serving(NamedTuple):
    """The options of a server; the token is printed if it was made here."""

    target: Target
    host: str
    port: int
    token: str
    prints_token: bool
    read_only: bool
    open_browser: bool


async def serve(options: Serving) -> None:
    """Open the app and serve its dashboard until a signal."""
    from penstock.dashboard import Dashboard, token
    from penstock.dashboard.server import bind, serve_on

    secret, only = options.token, options.read_only
    reader = secret if only else os.environ.get(READER_TOKEN)
    auth = token(None if only else secret, reader=reader, name=user_name())
    async with open_app(options.target.build()) as app:
        try:
            listener = bind(options.host, options.port)
        except OSError as error:
            where = f"{options.host}:{options.port}"
            raise CommandError(f"cannot listen on {where}: {error.strerror}; --port names another") from error
        shown = f"[{options.host}]" if ":" in options.host else options.host
        link = f"http://{shown}:{listener.getsockname()[1]}/{f'?token={secret}' if options.prints_token else ''}"

        def ready() -> None:
            echo(f"dashboard: {link}")
            if options.open_browser:
                webbrowser.open(link)

        pages = Dashboard(app, auth=auth, allow_hosts=LOOPBACK if options.host in LOOPBACK else None)
        echo(f"storage: {describe_location(app)}")
        with listener:
            await serve_on(pages, listener, ready)


def user_name() -> str:
    """Return the name of the user of this process, which the activity records."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return "admin"
