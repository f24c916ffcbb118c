"""Passwords do not leave the command line: not in output, not in errors."""

from __future__ import annotations

import re
from urllib.parse import unquote

from penstock.storage import redact

__all__ = ["redact_secrets", "register_secrets"]

#: What must never be shown: the credentials of every URL that this command was given.
_secrets: set[str] = set()

#: A password of fewer letters is hidden in URLs only.
MIN_SECRET_LENGTH = 3

_LOGIN = re.compile(r"//([^/?#]*)@|//(.*)@")
_QUERY = re.compile(r"(?i)[?&][^=&#]*(?:password|secret|token|key)[^=&#]*=([^&#]+)")
_URL = re.compile(r"[a-z][a-z0-9+.-]*://\S+", re.IGNORECASE)


def register_secrets(url: str) -> str:
    """Remember the passwords in a URL, so that `hide` finds them; gives the URL back."""
    for found in _LOGIN.finditer(url):
        login = found.group(1) or found.group(2) or ""
        password = login.partition(":")[2]
        _secrets.update((password, unquote(password)))
        # A slash or an at sign in a password that is not quoted: an error may quote any piece of it.
        _secrets.update(re.split(r"[/@:?#]", password))
    _secrets.update(_QUERY.findall(url))
    # A shorter one would be found in every word; URLs are shown without any of it.
    _secrets.difference_update([secret for secret in _secrets if len(secret) < MIN_SECRET_LENGTH])
    return url


def redact_secrets(text: str) -> str:
    """A text as it may be shown: URLs without their logins, and no password that is known."""
    text = _URL.sub(lambda found: redact(found.group()), text)
    for secret in sorted(_secrets, key=len, reverse=True):
        text = text.replace(secret, "***")
    return text
