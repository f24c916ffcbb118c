"""A server for the dashboard alone: `penstock dashboard`."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import threading
from collections.abc import Callable, Generator

import uvicorn

from penstock.dashboard.app import Dashboard

__all__ = ["bind", "serve_on"]


def bind(host: str, port: int) -> socket.socket:
    """Return a socket that listens on an address; raises `OSError` if it is taken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(128)
    except OSError:
        listener.close()
        raise
    return listener


class _Server(uvicorn.Server):
    """Server that ends the streams of live updates first: it would wait for them, and log each as an error."""

    dashboard: Dashboard

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        """End the server with SIGTERM and Ctrl-C; the inherited method would raise the signal again afterwards."""
        loop, numbers = asyncio.get_running_loop(), (signal.SIGTERM, signal.SIGINT)
        here = threading.current_thread() is threading.main_thread()
        for number in numbers if here else ():
            loop.add_signal_handler(number, self.handle_exit, number, None)
        try:
            yield
        finally:
            for number in numbers if here else ():
                loop.remove_signal_handler(number)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End streams, then connections."""
        await self.dashboard.end_streams()
        await super().shutdown(sockets)


async def serve_on(dashboard: Dashboard, listener: socket.socket, ready: Callable[[], None] = lambda: None) -> None:
    """Serve the dashboard on a socket until SIGTERM or Ctrl-C; streams end with the server."""
    config = uvicorn.Config(
        dashboard, log_level="warning", access_log=False, server_header=False, timeout_graceful_shutdown=1,
        ws="none", lifespan="on",
    )  # fmt: skip
    server = _Server(config)
    server.dashboard = dashboard
    asyncio.get_running_loop().call_soon(ready)
    await server.serve(sockets=[listener])
