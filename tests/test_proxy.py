"""The proxy of the tests causes exactly the faults that it documents."""

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
    """Return a client with one connection that retries nothing."""
    return redis.Redis(
        port=proxy.port, socket_timeout=timeout, single_connection_client=True, retry=Retry(NoBackoff(), 0)
    )


@pytest.fixture
def client(proxy: Proxy) -> Iterator[redis.Redis]:
    with connect(proxy) as client:
        yield client
        client.delete("proxied")


def test_without_faults_every_byte_passes(client: redis.Redis) -> None:
    """Without a fault, a client gets the server's replies of any length."""
    long = b"\r\n$3\r\n" * 100_000
    client.set("proxied", long)
    assert client.get("proxied") == long
    pipe = client.pipeline(transaction=False)
    pipe.get("proxied")
    pipe.ping()
    assert pipe.execute() == [long, True]


def test_lose_reply_drops_the_reply_of_a_command_that_ran(proxy: Proxy, client: redis.Redis, server: Server) -> None:
    """The server has run the command whose reply is lost; the connection is cut, and the next one works."""
    lost = proxy.lose_reply("INCR")
    with pytest.raises(redis.ConnectionError):
        client.incr("proxied")
    assert lost.happened
    with server.client() as direct:
        assert direct.get("proxied") == b"1"
    assert client.incr("proxied") == 2


def test_lose_request_drops_a_command_before_the_server(proxy: Proxy, client: redis.Redis) -> None:
    """The server has never got the command whose request is lost."""
    lost = proxy.lose_request("INCR")
    with pytest.raises(redis.ConnectionError):
        client.incr("proxied")
    assert lost.happened
    assert client.incr("proxied") == 1


def test_lose_reply_drops_the_nth_reply(proxy: Proxy, client: redis.Redis, server: Server) -> None:
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


def test_silence_makes_connections_half_open(proxy: Proxy) -> None:
    """A half-open connection stays open and gives no reply; new ones pass, unless `new` is set."""
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


def test_a_half_open_connection_can_be_cut(proxy: Proxy, server: Server) -> None:
    """The server keeps its side of a half-open connection until that is cut."""
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
def test_lose_reply_of_a_subscription(proxy: Proxy, server: Server, protocol: int) -> None:
    """The confirmation of a subscription can be lost like any reply, in both versions of the protocol."""
    lost = proxy.lose_reply("SUBSCRIBE")
    with redis.Redis(port=proxy.port, protocol=protocol, retry=Retry(NoBackoff(), 0)) as client:
        pubsub = client.pubsub()
        pubsub.subscribe("channel")
        with pytest.raises(redis.ConnectionError):
            pubsub.get_message(timeout=30)
        pubsub.close()
    assert lost.happened


def test_hold_reply_delivers_at_release(proxy: Proxy, client: redis.Redis) -> None:
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


def test_cut_ends_connections_and_refuse_rejects_new_ones(proxy: Proxy, client: redis.Redis) -> None:
    """Connections can be cut, with or without a reset, and new ones refused until `heal`."""
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


def test_a_missing_server_ends_the_connection(proxy: Proxy) -> None:
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
def test_frames_are_found_at_any_split_of_the_bytes(frame: bytes) -> None:
    """A value is passed on when it is whole, at any split of the stream."""
    for size in range(1, len(frame) + 1):
        frames = _Frames()
        data = frame * 2
        assert [f for at in range(0, len(data), size) for f in frames.feed(data[at : at + size])] == [frame, frame]


def test_close_ends_waiting_held_and_half_open_clients(server: Server) -> None:
    """Closing ends clients that wait, are held or half-open, and leaves no thread."""
    outcomes: list[object] = []
    with Proxy(server.port) as proxy:
        held = proxy.hold_reply("ECHO")
        waiting = threading.Thread(target=lambda: outcomes.append(outcome_of(lambda: connect(proxy).echo("x"))))
        waiting.start()
        held.wait()
        proxy.delay(60)
        slow = threading.Thread(target=lambda: outcomes.append(outcome_of(lambda: connect(proxy))))
        slow.start()
        while proxy.connections < 2:
            pass
        proxy.silence()
    for thread in (waiting, slow):
        thread.join(30)
    assert outcomes == [redis.ConnectionError] * 2
    assert proxy.connections == 0


def outcome_of(call: Callable[[], object]) -> object:
    """Return the value of a call, or the class of its error."""
    try:
        return call()
    except redis.RedisError as error:
        return type(error)
