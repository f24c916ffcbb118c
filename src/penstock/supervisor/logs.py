"""Logging for workers that are a program of their own."""

from __future__ import annotations

import logging
import sys

__all__ = ["configure"]


def configure(level: int) -> None:
    """Log to stderr, one line each."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(process)d %(name)s: %(message)s"))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(max(level, logging.INFO))
    logging.getLogger("penstock").setLevel(level)
