"""URLs with passwords of any characters: no piece of a password is in an error, a log line or a `repr`."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from fuzz.targets import CANARY, canary_urls
from penstock import Penstock, sync
from penstock.cli.secrets import redact_secrets
from penstock.storage import redact
from tests.support import share_of

PIECES = st.sampled_from([*"?#/@:%&=;+ \\[]{}", "//", "%2", "%40", "%zz", "\t", "\n", "é", "password=", "?tls=1&"])
PASSWORDS = st.lists(st.one_of(PIECES, st.just(CANARY), st.sampled_from("ab1")), max_size=6).map(
    lambda pieces: "".join([*pieces, CANARY])
)
BEFORE = st.sampled_from(["", "user", ":", "user:", "user:1"])
AFTER = st.sampled_from(
    ["", "host", "host:6379", "host:6379/0", "host/main", "host:x", "[::1]:7", "a:1,b:2/main", "/s"]
)


@contextmanager
def log_lines() -> Generator[list[str]]:
    """Collect all log lines as text."""
    lines: list[str] = []

    class Collector(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(self.format(record))

    handler, root = Collector(), logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    try:
        yield lines
    finally:
        root.removeHandler(handler)
        root.setLevel(level)


def shown_for(kind: Any, url: str) -> str:
    """Return every text that an app with this URL shows: that of its error, or of its objects."""
    try:
        app = kind(url)
    except ValueError as error:
        return "".join([repr(error), *traceback.format_exception(error)])
    storage = app.storage if isinstance(app, Penstock) else None
    return repr(app) + repr(app.queue("q")) + repr(storage) + str(getattr(storage, "where", ""))


@given(st.builds(canary_urls, BEFORE, PASSWORDS, AFTER).flatmap(st.sampled_from))
@settings(max_examples=share_of(150))
def test_no_piece_of_a_password_is_shown(url: str) -> None:
    """Whatever the password, and wherever it ends, neither kind of app shows it; `redact` neither."""
    with log_lines() as lines:
        for kind in (Penstock, sync.Penstock):
            text = shown_for(kind, url)
            assert CANARY not in text, text
        assert CANARY not in redact_secrets(f"cannot open {redact(url)}")
    assert not any(CANARY in line for line in lines)


def test_a_password_with_percent_encoded_characters_is_decoded() -> None:
    """Characters that have a meaning in URLs are written percent-encoded, and the server gets them decoded."""
    storage: Any = Penstock("redis://us%40er:p%2Fa%3Fs%23s%25@host").storage
    assert storage._connection._server.login == {"username": "us@er", "password": "p/a?s#s%"}
