"""The way in: authenticators, sessions, origins, hosts, headers, and the rate of tries."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from penstock import Penstock
from penstock.dashboard import Dashboard, Viewer, anyone, basic, hash_password, token

TOKEN, READER = "0123456789abcdef-admin", "0123456789abcdef-reader"
SAME = {"sec-fetch-site": "same-origin"}


@pytest.fixture
def app(runner: asyncio.Runner) -> Iterator[Penstock]:
    """An app in memory."""
    app = Penstock("memory:")
    runner.run(app.open())
    yield app
    runner.run(app.close())


@asynccontextmanager
async def client_of(app: Penstock, host: str = "localhost", **options: Any) -> AsyncGenerator[httpx.AsyncClient]:
    """Yield a client of a dashboard with these options."""
    dashboard = Dashboard(app, **options)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=dashboard), base_url=f"http://{host}") as client:
        yield client
    await dashboard.close()


def test_a_dashboard_without_auth_is_an_error() -> None:
    """There is no default that lets anyone in, and wrong arguments are named."""
    app: Any = Penstock("memory:")
    with pytest.raises(TypeError, match="auth"):
        Dashboard(app)  # pyright: ignore[reportCallIssue]
    with pytest.raises(TypeError, match="auth must be"):
        Dashboard(app, auth="open")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="16 characters"):
        token("short")
    with pytest.raises(ValueError, match="role"):
        anyone("root")  # pyright: ignore[reportArgumentType]


async def test_a_link_with_a_token_becomes_a_session(app: Penstock) -> None:
    """The token leaves the address; the cookie is strict and not for scripts, and a new token ends the session."""
    async with client_of(app, auth=token(TOKEN, name="ann")) as client:
        assert "Log in" in (await client.get("/")).text
        answer = await client.get(f"/jobs?filter=x&token={TOKEN}")
        assert (answer.status_code, answer.headers["location"]) == (303, "/jobs?filter=x")
        cookie = answer.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=strict" in cookie
        assert TOKEN not in cookie
        assert "Secure" not in cookie
        page = await client.get("/")
        assert page.status_code == 200
        assert "ann" in page.text
        kept = dict(client.cookies)
    async with client_of(app, auth=token(TOKEN[::-1])) as client:
        client.cookies.update(kept)
        assert (await client.get("/")).status_code == 401
    async with client_of(app, auth=token(TOKEN), host="localhost") as client:
        forged = kept["penstock_session"].replace("admin", "reader")
        client.cookies.set("penstock_session", forged)
        assert (await client.get("/")).status_code == 401


async def test_a_secure_cookie_is_set_on_https(app: Penstock) -> None:
    """On HTTPS the cookie is not sent over plain HTTP."""
    dashboard = Dashboard(app, auth=token(TOKEN))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=dashboard), base_url="https://localhost") as client:
        answer = await client.post("/login", data={"token": TOKEN}, headers=SAME)
        assert answer.status_code == 303
        assert "Secure" in answer.headers["set-cookie"]


async def test_five_wrong_tries_a_minute_block_an_address(app: Penstock) -> None:
    """The sixth try is refused, also with the right token; sessions go on."""
    async with client_of(app, auth=token(TOKEN)) as client:
        for _ in range(5):
            assert (await client.post("/login", data={"token": "wrong"}, headers=SAME)).status_code == 401
        assert (await client.post("/login", data={"token": TOKEN}, headers=SAME)).status_code == 429
        assert (await client.get("/", headers={"authorization": f"Bearer {TOKEN}"})).status_code == 429
        assert (await client.get(f"/?token={TOKEN}")).status_code == 429


async def test_tokens_passwords_and_functions_find_the_viewer(app: Penstock) -> None:
    """Each way in gives the role that it names; a function may be async and return None."""
    async with client_of(app, auth=token(TOKEN, reader=READER)) as client:
        for given, status in ((TOKEN, 200), (READER, 403)):
            answer = await client.get("/new", headers={"authorization": f"Bearer {given}"})
            assert answer.status_code == status
    users = {"ann": hash_password("correct horse"), "bob": hash_password("battery staple")}
    async with client_of(app, auth=basic(users, role={"ann": "admin"})) as client:
        assert (await client.get("/", auth=("ann", "wrong"))).headers["www-authenticate"].startswith("Basic")
        assert (await client.get("/new", auth=("ann", "correct horse"))).status_code == 200
        assert (await client.get("/new", auth=("bob", "battery staple"))).status_code == 403
        assert (await client.get("/", auth=("eve", "correct horse"))).status_code == 401

    async def who(request: Any) -> Viewer | None:
        return Viewer("ann", "reader") if request.headers.get("x-user") else None

    async with client_of(app, auth=who) as client:
        assert (await client.get("/")).status_code == 401
        assert (await client.get("/", headers={"x-user": "1"})).status_code == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"sec-fetch-site": "same-origin"}, 303),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-site"}, 403),
        ({"sec-fetch-site": "none"}, 403),
        ({"sec-fetch-site": "cross-site", "origin": "http://localhost"}, 403),
        ({"origin": "http://localhost"}, 303),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://localhost@evil.example"}, 403),
        ({}, 403),
        ({"authorization": f"Bearer {TOKEN}"}, 303),
    ],
)
async def test_an_unsafe_request_must_come_from_the_same_origin(
    app: Penstock, headers: dict[str, str], status: int
) -> None:
    """By `Sec-Fetch-Site`, else by `Origin`, else only with a bearer token."""
    async with client_of(app, auth=token(TOKEN)) as client:
        await client.get(f"/?token={TOKEN}")
        answer = await client.post("/act?verb=pause&queue=mail", headers=headers)
        assert answer.status_code == status


@pytest.mark.parametrize(
    ("host", "options", "status"),
    [
        ("localhost:8717", {"auth": anyone("reader")}, 200),
        ("127.0.0.1", {"auth": anyone("reader")}, 200),
        ("[::1]:8717", {"auth": anyone("reader")}, 200),
        ("evil.example", {"auth": anyone("reader")}, 400),
        ("jobs.example.org", {"auth": anyone("reader"), "allow_hosts": ["jobs.example.org"]}, 200),
        ("localhost", {"auth": anyone("reader"), "allow_hosts": ["jobs.example.org"]}, 400),
        ("jobs.example.org", {"auth": token(TOKEN)}, 401),
    ],
)
async def test_the_host_must_be_known(app: Penstock, host: str, options: dict[str, Any], status: int) -> None:
    """A name that another site points at this machine is refused where no proof is needed."""
    async with client_of(app, **options) as client:
        assert (await client.get("/", headers={"host": host})).status_code == status


async def test_every_answer_has_the_headers(app: Penstock) -> None:
    """Pages, errors, JSON, static files and redirects have the content policy; only static files may be kept."""
    async with client_of(app, auth=anyone("admin")) as client:
        page = (await client.get("/")).text
        static = page.partition('rel="stylesheet" href="')[2].partition('"')[0]
        for path in ("/", "/nothing", "/history", "/healthz", static, "/job?queue=a&id=b"):
            answer = await client.get(path)
            policy = answer.headers["content-security-policy"]
            assert "default-src 'none'; script-src 'self'; style-src 'self'" in policy
            assert "frame-ancestors 'none'" in policy
            assert "unsafe" not in policy
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["referrer-policy"] == "no-referrer"
            kept = "immutable" if path == static else "no-store"
            assert kept in answer.headers["cache-control"]
    async with client_of(app, auth=anyone("reader"), frame_ancestors="https://intranet.example") as client:
        policy = (await client.get("/")).headers["content-security-policy"]
        assert policy.endswith("frame-ancestors https://intranet.example")
