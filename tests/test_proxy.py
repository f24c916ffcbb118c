"""Tests of the proxy that other tests use: each of its faults does what its name claims."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.proxy import Proxy, _Frames
from tests.servers import Server, Servers


@pytest.fixture
def server(servers: Servers) -> Server:
    server = servers.get("redis")
    assert isinstance(server, Server)
    return server


@pytest.fixture
def proxy(server: Server) -> Iterator[Proxy]:
    before = threading.active_count()
    with Proxy(server.port) as proxy:
        yield proxy
    assert threading.active_count() == before


def connect(proxy: Proxy, timeout: float = 30) -> redis.Redis:
    """Return a client with one connection that retries nothing by itself."""
    return redis.Redis(
        port=proxy.port, socket_timeout=timeout, single_connection_client=True, retry=Retry(NoBackoff(), 0)
    )


@pytest.fixture
def client(proxy: Proxy) -> Iterator[redis.Redis]:
    with connect(proxy) as client:
        yield client
        client.delete("proxied")


def test_it_passes_everything(client: redis.Redis) -> None:
    """Without a fault, a client gets the server's answers of any length."""
    long = b"\r\n$3\r\n" * 100_000
    client.set("proxied", long)
    assert client.get("proxied") == long
    pipe = client.pipeline(transaction=False)
    pipe.get("proxied")
    pipe.ping()
    assert pipe.execute() == [long, True]


def test_a_lost_reply_was_run(proxy: Proxy, client: redis.Redis, server: Server) -> None:
    """The server has run the command whose reply is lost; the connection is cut, and the next one works."""
    lost = proxy.lose_reply("INCR")
    with pytest.raises(redis.ConnectionError):
        client.incr("proxied")
    assert lost.happened
    with server.client() as direct:
        assert direct.get("proxied") == b"1"
    assert client.incr("proxied") == 2


def test_a_lost_request_was_not_run(proxy: Proxy, client: redis.Redis) -> None:
    """The server never gets the command whose request is lost."""
    lost = proxy.lose_request("INCR")
    with pytest.raises(redis.ConnectionError):
        client.incr("proxied")
    assert lost.happened
    assert client.incr("proxied") == 1


def test_only_the_nth_is_lost(proxy: Proxy, client: redis.Redis, server: Server) -> None:
    """In a pipeline the replies before the lost one arrive, and those behind it are lost with it."""
    proxy.lose_reply("INCR", nth=3)
    assert client.incr("proxied") == 1
    pipe = client.pipeline(transaction=False)
    for _ in range(3):
        pipe.incr("proxied")
    with pytest.raises(redis.ConnectionError):
        pipe.execute()
    with server.client() as direct:
        assert direct.get("proxied") == b"4"


def test_a_silenced_connection_stays_open(proxy: Proxy) -> None:
    """A silenced connection stays open and carries no bytes; new ones pass, unless they are to be silent too."""
    with connect(proxy, timeout=2) as old:
        assert old.ping()
        assert proxy.silence() == 1
        with connect(proxy) as new:
            assert new.ping()
        with pytest.raises(redis.TimeoutError):
            old.ping()
    proxy.silence(new=True)
    with pytest.raises(redis.TimeoutError):
        connect(proxy, timeout=0.2)
    proxy.heal()
    with connect(proxy) as healed:
        assert healed.ping()


def test_a_silent_connection_can_be_cut(proxy: Proxy, server: Server) -> None:
    """The server keeps its end of a silent connection until that is cut."""
    with server.client() as direct, connect(proxy) as client:
        client.client_setname("silent")
        proxy.silence()
        client.close()
        assert any(c["name"] == "silent" for c in direct.client_list())
        proxy.cut()
        while any(c["name"] == "silent" for c in direct.client_list()):
            pass
    while proxy.connections:
        pass


@pytest.mark.parametrize("protocol", [2, 3])
def test_a_lost_subscription(proxy: Proxy, server: Server, protocol: int) -> None:
    """The confirmation of a subscription can be lost like any reply, in both versions of the protocol."""
    lost = proxy.lose_reply("SUBSCRIBE")
    with redis.Redis(port=proxy.port, protocol=protocol, retry=Retry(NoBackoff(), 0)) as client:
        pubsub = client.pubsub()
        pubsub.subscribe("channel")
        with pytest.raises(redis.ConnectionError):
            pubsub.get_message(timeout=30)
        pubsub.close()
    assert lost.happened


def test_a_reply_can_be_late(proxy: Proxy, client: redis.Redis) -> None:
    """A held reply arrives when it is released."""
    held = proxy.hold_reply("INCR")
    answers: list[object] = []
    thread = threading.Thread(target=lambda: answers.append(client.incr("proxied")))
    thread.start()
    held.wait()
    assert not answers
    proxy.release(held)
    thread.join(30)
    assert answers == [1]


def test_cutting_and_refusing(proxy: Proxy, client: redis.Redis) -> None:
    """Connections can be cut, with or without a reset, and new ones refused for a while."""
    for reset in (False, True):
        assert client.ping()
        assert proxy.cut(reset=reset) == 1
        with pytest.raises((redis.ConnectionError, OSError)):
            client.ping()
    proxy.refuse()
    with pytest.raises(redis.ConnectionError):
        client.ping()
    proxy.heal()
    assert client.ping()


def test_a_server_that_is_away_ends_the_connection(proxy: Proxy) -> None:
    """Behind a proxy whose server does not listen, a client is cut at once."""
    proxy.target = ("127.0.0.1", 1)
    with pytest.raises(redis.ConnectionError):
        connect(proxy)


@pytest.mark.parametrize(
    "frame",
    [
        b"+OK\r\n", b":7\r\n", b"$-1\r\n", b"$0\r\n\r\n", b"$4\r\n\r\n\r\n\r\n", b"*-1\r\n", b"*0\r\n",
        b"*2\r\n*1\r\n:1\r\n$1\r\nx\r\n", b"%1\r\n+a\r\n:1\r\n", b"_\r\n", b"#t\r\n", b"PING\r\n",
    ],
)  # fmt: skip
def test_frames_are_found_wherever_the_bytes_break(frame: bytes) -> None:
    """A value is passed on when it is whole, wherever the network has cut it."""
    for size in range(1, len(frame) + 1):
        frames = _Frames()
        data = frame * 2
        assert [f for at in range(0, len(data), size) for f in frames.feed(data[at : at + size])] == [frame, frame]


def test_it_closes_in_the_middle_of_everything(server: Server) -> None:
    """Closing ends clients that wait, hold and are silent alike, and leaves no thread."""
    outcomes: list[object] = []
    with Proxy(server.port) as proxy:
        held = proxy.hold_reply("ECHO")
        waiting = threading.Thread(target=lambda: outcomes.append(fate(lambda: connect(proxy).echo("x"))))
        waiting.start()
        held.wait()
        proxy.delay(60)
        slow = threading.Thread(target=lambda: outcomes.append(fate(lambda: connect(proxy))))
        slow.start()
        while proxy.connections < 2:
            pass
        proxy.silence()
    for thread in (waiting, slow):
        thread.join(30)
    assert outcomes == [redis.ConnectionError] * 2
    assert proxy.connections == 0


def fate(call: Callable[[], object]) -> object:
    """Return the answer of a call, or the kind of its error."""
    try:
        return call()
    except redis.RedisError as error:
        return type(error)
