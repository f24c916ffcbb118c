"""Removal of passwords from printed text."""

from __future__ import annotations

import pytest

from penstock.cli.secrets import redact_secrets, register_secrets


@pytest.mark.parametrize(
    "url",
    [
        "redis://user:sesame@host/0",
        "rediss://:sesame@host",
        "redis+sentinel://host/main?sentinel_password=sesame",
        "redis://:%73esame@host",
        "redis://:se@sa/me@host",
    ],
)
def test_passwords_are_redacted(url: str) -> None:
    """A password is removed from its URL, and on its own, encoded or decoded."""
    register_secrets(url)
    assert "sesame" not in redact_secrets(f"cannot use {url}: sesame is wrong")
    assert "se@sa/me" not in redact_secrets(url)
