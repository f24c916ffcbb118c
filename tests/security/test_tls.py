"""TLS to every server: single ones, Sentinels and the primary that they name, all nodes of a Cluster."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import ipaddress
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from redis.backoff import NoBackoff
from redis.retry import Retry

from penstock import Penstock, StorageError, Worker, sync
from tests.servers import (
    SLOTS,
    START_SECONDS,
    NoServerError,
    Server,
    die_with_parent,
    free_port,
    redis_program,
    start_or_skip,
)
from tests.support import eventually

SECRETS = ("pa55word-of-the-app", "pa55word-of-the-sentinel")

#: Every form of URL with TLS; {} stands for the address.
FORMS = [
    f"rediss://app:{SECRETS[0]}@{{}}/0",
    f"valkeys://app:{SECRETS[0]}@{{}}/0",
    f"redis+sentinel://app:{SECRETS[0]}@{{}}/main?tls=1&sentinel_username=eye&sentinel_password={SECRETS[1]}",
    f"redis+cluster://app:{SECRETS[0]}@{{}}?tls=1",
]


# a listener without TLS ----------------------------------------------------------------------------


class PlainListener:
    """A server without TLS that keeps the first bytes of each connection and closes it."""

    def __init__(self) -> None:
        self.received: list[bytes] = []
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._socket.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            connection, _ = self._socket.accept()
            with connection:
                connection.settimeout(10)
                data = connection.recv(65536)
                if data == b"stop":
                    return
                self.received.append(data)
                with contextlib.suppress(OSError):
                    connection.sendall(b"+OK\r\n" * 3)  # a client without TLS goes on, and sends its password
                    self.received[-1] += connection.recv(65536)

    def close(self) -> None:
        with socket.create_connection(self._socket.getsockname()) as last:
            last.sendall(b"stop")
        self._thread.join()
        self._socket.close()


@pytest.fixture
def listener() -> Iterator[PlainListener]:
    """A listener, closed after the test."""
    listener = PlainListener()
    yield listener
    listener.close()


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.partition(":")[0])
async def test_a_server_without_tls_gets_a_client_hello_and_no_password(listener: PlainListener, form: str) -> None:
    """Where the URL demands TLS, a server that has none receives no command, from both kinds of clients."""
    url = form.format(listener.address)
    with pytest.raises(StorageError):
        await Penstock(url, timeout=2).open()
    with pytest.raises(StorageError):
        await asyncio.to_thread(lambda: sync.Penstock(url, timeout=2).queue("q").enqueue(1))
    assert len(listener.received) >= 2
    for data in listener.received:
        assert data[:2] == b"\x16\x03", data  # a handshake record
        assert not any(secret.encode() in data for secret in SECRETS)


# servers with TLS ----------------------------------------------------------------------------------


class Certificates:
    """A private CA, a key with a certificate of it for the address 127.0.0.1, and a certificate for another address."""

    def __init__(self, directory: Path) -> None:
        names = ("ca", "certificate", "other", "key")
        self.ca, self.certificate, self.other, self.key = (directory / f"{name}.pem" for name in names)
        ca_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
        pem = serialization.Encoding.PEM
        ca = _builder("CA of the tests", ca_key).add_extension(x509.BasicConstraints(True, None), critical=True)
        self.ca.write_bytes(ca.sign(ca_key, hashes.SHA256()).public_bytes(pem))
        for path, address in ((self.certificate, "127.0.0.1"), (self.other, "127.0.0.9")):
            host = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))])
            certificate = _builder("server", key).add_extension(host, critical=False).sign(ca_key, hashes.SHA256())
            path.write_bytes(certificate.public_bytes(pem))
        self.key.write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))

    def options(self, port: int) -> tuple[str, ...]:
        """Return the options of a server that also listens with TLS, and asks its clients for a certificate."""
        return (
            "--tls-port", str(port), "--tls-cert-file", str(self.certificate), "--tls-key-file", str(self.key),
            "--tls-ca-cert-file", str(self.ca),
        )  # fmt: skip

    @property
    def query(self) -> str:
        """Options of a URL: the CA, and the certificate and key of the client."""
        return f"ssl_ca_certs={self.ca}&ssl_certfile={self.certificate}&ssl_keyfile={self.key}"


def _builder(name: str, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    subject, issuer = (x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)]) for text in (name, "CA of the tests"))
    now, day = datetime.datetime.now(datetime.UTC), datetime.timedelta(days=1)
    return x509.CertificateBuilder(issuer, subject, key.public_key(), x509.random_serial_number(), now - day, now + day)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """The certificates of the servers."""
    return Certificates(tmp_path_factory.mktemp("certificates"))


class TlsServers:
    """A server, a Cluster of one node, and a Sentinel that watches the former; each asks for a password."""

    def __init__(self, certificates: Certificates, directory: Path) -> None:
        port, self.sentinel_port, cluster_port = free_port(), free_port(), free_port()
        self.certificates = certificates
        self.single = Server(redis_program(), *certificates.options(port)).start()
        cluster = ("--cluster-enabled", "yes", "--tls-cluster", "yes")
        self.node = Server(redis_program(), *certificates.options(cluster_port), *cluster).start()
        with self.node.client() as client:
            client.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, SLOTS - 1)
        for server in (self.single, self.node):
            with server.client() as client:
                client.execute_command("ACL", "SETUSER", "app", "on", f">{SECRETS[0]}", "~*", "&*", "+@all")
        config = directory / "sentinel.conf"
        config.write_text(
            f"sentinel monitor main 127.0.0.1 {port} 1\nuser eye on >{SECRETS[1]} ~* &* +@all\ntls-replication yes\n"
        )
        self.sentinel = subprocess.Popen(
            [redis_program(), str(config), "--sentinel", "--port", "0", "--bind", "127.0.0.1",
             *certificates.options(self.sentinel_port)],
            stdout=subprocess.DEVNULL, preexec_fn=die_with_parent,
        )  # fmt: skip
        addresses = (f"127.0.0.1:{port}",) * 2 + (f"127.0.0.1:{self.sentinel_port}", f"127.0.0.1:{cluster_port}")
        self.urls = [form.format(address) for form, address in zip(FORMS, addresses, strict=True)]

    def wait_until_ready(self) -> None:
        """Wait until the Cluster serves its slots and the Sentinel answers."""
        own = self.certificates
        sentinel = redis.Redis(
            host="127.0.0.1", port=self.sentinel_port, username="eye", password=SECRETS[1], ssl=True,
            ssl_ca_certs=str(own.ca), ssl_certfile=str(own.certificate), ssl_keyfile=str(own.key),
            retry=Retry(NoBackoff(), 0),
        )  # fmt: skip
        until = time.monotonic() + START_SECONDS
        with sentinel, self.node.client() as node:
            while time.monotonic() < until:
                state: Any = node.execute_command("CLUSTER INFO")
                with contextlib.suppress(redis.ConnectionError):
                    if state["cluster_state"] == "ok" and sentinel.ping():
                        return
                time.sleep(0.02)
        raise NoServerError("the Cluster or the Sentinel did not start")

    def remove(self) -> None:
        self.sentinel.kill()
        self.sentinel.wait()
        self.single.remove()
        self.node.remove()


@pytest.fixture(scope="module")
def tls_servers(certificates: Certificates, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsServers]:
    """Servers with TLS, removed after the tests of this module."""
    servers = start_or_skip(lambda: TlsServers(certificates, tmp_path_factory.mktemp("sentinel")))
    try:
        start_or_skip(servers.wait_until_ready)
        yield servers
    finally:
        servers.remove()


def with_options(url: str, options: str) -> str:
    return f"{url}{'&' if '?' in url else '?'}{options}"


@pytest.mark.parametrize("number", range(len(FORMS)), ids=lambda number: FORMS[number].partition(":")[0])
async def test_a_private_ca_and_a_client_certificate_reach_every_server(tls_servers: TlsServers, number: int) -> None:
    """With the CA and the certificate in the URL, jobs run, calls are answered, events arrive, cancels too."""
    url = with_options(tls_servers.urls[number], tls_servers.certificates.query)
    app = Penstock(url)
    gate = asyncio.Event()

    @app.handler("q")
    async def handle(payload: int) -> int:
        if not payload:
            await gate.wait()
        return payload

    async with asyncio.timeout(30), app, app.events() as events, Worker(app):
        assert await app.queue("q").call(1, timeout=60) == 1
        assert await anext(events)
        await app.queue("q").enqueue(0, id="a")
        await eventually(lambda: app.queue("q").find("running"))
        await app.queue("q").cancel("a", running="kill")
        await eventually(lambda: app.queue("q").find("cancelled"))

        def without_await() -> None:
            with sync.Penstock(url) as blocking:
                assert blocking.queue("q").call(2, timeout=60) == 2

        await asyncio.to_thread(without_await)
        await app.queue("q").delete()


async def test_subscriptions_to_the_nodes_of_a_cluster_use_tls(tls_servers: TlsServers) -> None:
    """The client that a Cluster makes for messages logs in with TLS."""
    async with Penstock(with_options(tls_servers.urls[3], tls_servers.certificates.query)) as app:
        storage: Any = app.storage
        client = storage._connection.subscriber()
        try:
            assert await client.ping()
        finally:
            await client.aclose()


@pytest.mark.parametrize("number", range(len(FORMS)), ids=lambda number: FORMS[number].partition(":")[0])
async def test_a_certificate_of_an_unknown_ca_is_refused(tls_servers: TlsServers, number: int) -> None:
    """Without `ssl_ca_certs` the certificate of a private CA is not accepted, by both kinds of clients."""
    certificates = tls_servers.certificates
    own = f"ssl_certfile={certificates.certificate}&ssl_keyfile={certificates.key}"
    url = with_options(tls_servers.urls[number], own)
    with pytest.raises(StorageError):
        await Penstock(url, timeout=2).open()
    with pytest.raises(StorageError):
        await asyncio.to_thread(lambda: sync.Penstock(url, timeout=2).queue("q").enqueue(1))


@pytest.mark.parametrize("number", range(len(FORMS)), ids=lambda number: FORMS[number].partition(":")[0])
async def test_a_certificate_for_another_address_is_refused(tls_servers: TlsServers, number: int) -> None:
    """The certificate must be for the address of the server, unless `ssl_check_hostname=0`."""
    certificates = tls_servers.certificates
    url = with_options(tls_servers.urls[number], certificates.query)
    server = tls_servers.node if "cluster" in url else tls_servers.single
    with server.client() as client:
        client.config_set("tls-cert-file", str(certificates.other))
        try:
            with pytest.raises(StorageError):
                await Penstock(url, timeout=2).open()
            with pytest.raises(StorageError):
                await asyncio.to_thread(lambda: sync.Penstock(url, timeout=2).queue("q").enqueue(1))
            async with Penstock(f"{url}&ssl_check_hostname=0") as app:
                assert await app.queue("q").counts()
        finally:
            client.config_set("tls-cert-file", str(certificates.certificate))
