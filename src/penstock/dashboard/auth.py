"""Viewers of the dashboard: their roles, and the ways in which a request proves who its viewer is."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import inspect
import os
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Literal, Protocol, TypeAlias, cast, get_args

import msgspec
from starlette.requests import Request
from starlette.responses import Response

__all__ = [
    "ROLES", "VERBS", "Authenticator", "Role", "Verb", "Viewer", "WhoFunction", "anyone", "authenticator", "basic",
    "hash_password", "token",
]  # fmt: skip

Role = Literal["reader", "operator", "admin"]
ROLES: tuple[Role, ...] = get_args(Role)

#: Every change that the dashboard offers, with the least role that may ask for it.
Verb = Literal[
    "retry", "run_now", "cancel", "pause", "resume", "trigger", "pause_schedule", "resume_schedule", "quiet_worker",
    "stop_bulk", "check", "kill", "delete", "edit", "copy", "enqueue", "delete_queue", "stop_worker", "edit_schedule",
    "remove_schedule", "set_limit", "reset_limit", "raw",
]  # fmt: skip
_OPERATOR = "retry run_now cancel pause resume trigger pause_schedule resume_schedule quiet_worker stop_bulk check"
VERBS: dict[Verb, Role] = {verb: "operator" if verb in _OPERATOR.split() else "admin" for verb in get_args(Verb)}

#: The cookie of a session, and how long (seconds) it is valid.
COOKIE, COOKIE_AGE = "penstock_session", 12 * 3600

#: scrypt: 16 MB of memory and some 50 ms for one password.
SCRYPT_N, SCRYPT_R, SCRYPT_P = 2**14, 8, 1


class Viewer(msgspec.Struct, frozen=True):
    """A person at the dashboard: the name that the activity records, a role, and single verbs beyond the role."""

    name: str
    role: Role = "reader"
    allow: Collection[Verb] = ()

    def __post_init__(self) -> None:
        if self.role not in ROLES:
            raise ValueError(f"role must be one of {', '.join(ROLES)}, not {self.role!r}")
        for verb in self.allow:
            if verb not in VERBS:
                raise ValueError(f"allow has an unknown verb, {verb!r}; known: {', '.join(VERBS)}")

    def may(self, verb: Verb) -> bool:
        """Return whether the viewer may ask for this change."""
        return verb in self.allow or ROLES.index(self.role) >= ROLES.index(VERBS[verb])


WhoFunction: TypeAlias = Callable[[Request], Viewer | Awaitable[Viewer | None] | None]


class Authenticator(Protocol):
    """A way to find the viewer of a request."""

    #: Whether the way in is a form, so that a stranger is sent to it.
    has_login: bool

    #: Whether a request without any proof has a viewer; then the `Host` of a request must be known.
    open: bool

    async def viewer(self, request: Request) -> Viewer | None:
        """Return the viewer, or None."""
        ...

    def attempted(self, request: Request) -> bool:
        """Return whether the request tries a password or token, so that a wrong one counts."""
        ...

    def challenge(self) -> dict[str, str]:
        """Return the headers of the answer to a stranger."""
        ...


class token:  # noqa: N801 - it is called like a function
    """Viewers who know a token: by a link, a form, or `Authorization: Bearer`.

    `admin`, `operator` and `reader` are the tokens of these roles; each is at least 16 characters. `name` is the name
    that the activity records, by default the role. A new token ends all sessions of the old one.
    """

    has_login, open = True, False

    def __init__(
        self, admin: str | None = None, *, operator: str | None = None, reader: str | None = None, name: str = ""
    ) -> None:
        given: dict[Role, str | None] = {"admin": admin, "operator": operator, "reader": reader}
        self._tokens: dict[Role, bytes] = {}
        for role, text in given.items():
            if text is None:
                continue
            if not isinstance(text, str):
                raise TypeError(f"{role} must be a str, not {type(text).__name__}")
            if len(text) < 16:
                raise ValueError(f"{role}: a token has at least 16 characters")
            self._tokens[role] = text.encode()
        if not self._tokens:
            raise ValueError("token needs at least one of admin, operator and reader")
        self._name = name

    async def viewer(self, request: Request) -> Viewer | None:
        """Return the viewer of a bearer token or of a session."""
        if (given := bearer(request)) is not None:
            return self.match(given)
        return self._session(request.cookies.get(COOKIE, ""))

    def attempted(self, request: Request) -> bool:
        """Return whether the request has a bearer token."""
        return bearer(request) is not None

    def challenge(self) -> dict[str, str]:
        """Return no header: browsers get the form."""
        return {}

    def match(self, text: str) -> Viewer | None:
        """Return the viewer of a token; every token is compared, each in constant time."""
        given, found = text.encode(errors="replace"), None
        for role, wanted in self._tokens.items():
            if hmac.compare_digest(given, wanted):
                found = found or role
        return None if found is None else self._named(found)

    def start_session(self, viewer: Viewer, response: Response, request: Request) -> None:
        """Set the cookie of a session, which is valid for 12 hours and only with this token."""
        until = str(int(time.time()) + COOKIE_AGE)
        value = f"{viewer.role}.{until}.{self._seal(viewer.role, until)}"
        response.set_cookie(
            COOKIE, value, max_age=COOKIE_AGE, path=request.scope.get("root_path", "") or "/",
            secure=request.url.scheme == "https", httponly=True, samesite="strict",
        )  # fmt: skip

    def end_session(self, response: Response, request: Request) -> None:
        """Remove the cookie of a session."""
        response.delete_cookie(COOKIE, path=request.scope.get("root_path", "") or "/", httponly=True, samesite="strict")

    def _session(self, cookie: str) -> Viewer | None:
        role, _, rest = cookie.partition(".")
        until, _, seal = rest.partition(".")
        if role not in self._tokens or not (until.isascii() and until.isdigit()):
            return None
        known: Role = role
        fits = hmac.compare_digest(seal.encode(errors="replace"), self._seal(known, until).encode())
        return self._named(known) if fits and int(until[:12]) >= time.time() else None

    def _seal(self, role: Role, until: str) -> str:
        return hmac.new(self._tokens[role], f"penstock session {role} {until}".encode(), "sha256").hexdigest()

    def _named(self, role: Role) -> Viewer:
        return Viewer(self._name or role, role)


class basic:  # noqa: N801 - it is called like a function
    """Viewers with a name and a password, asked for by the browser: `basic({"ann": hash_password("…")})`.

    `role` is the role of all, or a mapping of some names to theirs; a name without one is a reader.
    """

    has_login, open = False, False

    def __init__(self, users: Mapping[str, str], *, role: Role | Mapping[str, Role] = "admin") -> None:
        if not users:
            raise ValueError("users must not be empty")
        for name, stored in users.items():
            if ":" in name or len(stored.split("$")) != 3 or not stored.startswith("scrypt$"):
                raise ValueError(f"users: {name!r} must be a name without a colon, with a hash of hash_password()")
        self._users = dict(users)
        self._roles: dict[str, Role] = dict(role) if isinstance(role, Mapping) else dict.fromkeys(users, role)
        self._known: set[bytes] = set()
        self._salt = os.urandom(16)

    async def viewer(self, request: Request) -> Viewer | None:
        """Return the viewer of a name and a password."""
        given = credentials(request)
        if given is None:
            return None
        name, password = given
        stored = self._users.get(name)
        mark = hashlib.blake2b(f"{name}\0{password}".encode(errors="replace"), key=self._salt).digest()
        if mark not in self._known:  # so that one page is not one scrypt
            if not _fits(password, stored or _ABSENT) or stored is None:
                return None
            self._known.add(mark)
        return Viewer(name, self._roles.get(name, "reader"))

    def attempted(self, request: Request) -> bool:
        """Return whether the request has a name and a password."""
        return credentials(request) is not None

    def challenge(self) -> dict[str, str]:
        """Return the header that makes a browser ask."""
        return {"WWW-Authenticate": 'Basic realm="Penstock", charset="UTF-8"'}


class anyone:  # noqa: N801 - it is called like a function
    """Every request has a viewer of this role: for a host that asks for a proof itself."""

    has_login, open = False, True

    def __init__(self, role: Role, name: str = "anyone") -> None:
        self._viewer = Viewer(name, role)

    async def viewer(self, request: Request) -> Viewer | None:
        """Return the one viewer."""
        return self._viewer

    def attempted(self, request: Request) -> bool:
        """Return False: there is nothing to try."""
        return False

    def challenge(self) -> dict[str, str]:
        """Return no header."""
        return {}


class by_function:  # noqa: N801 - like the others
    """Viewers that a function of the host finds, from its session, user or network."""

    has_login, open = False, False

    def __init__(self, function: WhoFunction) -> None:
        self._function = function

    async def viewer(self, request: Request) -> Viewer | None:
        """Return the viewer that the function returns."""
        found = self._function(request)
        if inspect.isawaitable(found):
            found = await found
        if found is not None and not isinstance(found, Viewer):
            raise TypeError(f"auth must return a Viewer or None, not {type(found).__name__}")
        return found

    def attempted(self, request: Request) -> bool:
        """Return False: the host counts tries."""
        return False

    def challenge(self) -> dict[str, str]:
        """Return no header."""
        return {}


def authenticator(auth: object) -> Authenticator:
    """Return the authenticator of an argument `auth`."""
    if isinstance(auth, (token, basic, anyone)):
        return auth
    if callable(auth) and not isinstance(auth, type):
        return by_function(cast("WhoFunction", auth))
    raise TypeError(
        "auth must be token(...), basic(...), anyone(role) or a function of the request that returns a Viewer"
    )


def hash_password(password: str) -> str:
    """Return the scrypt hash of a password, for `basic`."""
    if not isinstance(password, str) or not password:
        raise ValueError("password must be a text that is not empty")
    salt = os.urandom(16)
    return f"scrypt${salt.hex()}${_scrypt(password, salt).hex()}"


def bearer(request: Request) -> str | None:
    """Return the token of `Authorization: Bearer`, or None."""
    kind, _, given = request.headers.get("authorization", "").partition(" ")
    return given.strip() if kind.lower() == "bearer" and given else None


def credentials(request: Request) -> tuple[str, str] | None:
    """Return name and password of `Authorization: Basic`, or None."""
    kind, _, given = request.headers.get("authorization", "").partition(" ")
    if kind.lower() != "basic":
        return None
    try:
        name, colon, password = base64.b64decode(given, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return None
    return (name, password) if colon else None


def _scrypt(password: str, salt: bytes) -> bytes:
    return hashlib.scrypt(password.encode(errors="replace"), salt=salt, n=SCRYPT_N, r=SCRYPT_R, p=SCRYPT_P, dklen=32)


def _fits(password: str, stored: str) -> bool:
    _, salt, wanted = stored.split("$")
    return hmac.compare_digest(_scrypt(password, bytes.fromhex(salt)), bytes.fromhex(wanted))


#: Compared with when the name is unknown, so that an unknown name takes as long as a wrong password.
_ABSENT = f"scrypt${'00' * 16}${'00' * 32}"
