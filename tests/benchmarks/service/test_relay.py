"""The relay between a client and a worker: bytes go both ways, none go while it is cut, and all arrive afterwards."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from tests.relay import Relay

# Until then something must have come.
_SOON_S = 10.0
# So long nothing may come; longer than the relay takes to see that it is cut.
_QUIET_S = 0.5


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """A server that the relay leads to."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(_SOON_S)
        yield server


@pytest.fixture
def relay(listener: socket.socket) -> Iterator[Relay]:
    relay = Relay()
    relay.lead_to(listener.getsockname()[1])
    yield relay
    relay.close()


@pytest.fixture
def ends(relay: Relay, listener: socket.socket) -> Iterator[tuple[socket.socket, socket.socket]]:
    """A client and a server that are joined by the relay."""
    with socket.create_connection(("127.0.0.1", relay.port), timeout=_SOON_S) as client:
        server, _ = listener.accept()
        with server:
            server.settimeout(_SOON_S)
            yield client, server


def read(end: socket.socket, count: int) -> bytes:
    """Returns so many bytes, or fewer where the other side has closed."""
    content = b""
    while len(content) < count and (piece := end.recv(count - len(content))):
        content += piece
    return content


def comes_within(end: socket.socket, seconds: float) -> bytes:
    """Returns what comes within a time, which may be nothing."""
    end.settimeout(seconds)
    try:
        return end.recv(1 << 10)
    except TimeoutError:
        return b""
    finally:
        end.settimeout(_SOON_S)


def cut(relay: Relay, sender: socket.socket, receiver: socket.socket) -> int:
    """Cuts the relay, and waits until it has seen that.

    The relay may still wait for bytes as it is cut: then it carries what comes next, a byte that is for it alone.

    Returns:
      How many bytes come after `mend`, 0 or 1.
    """
    relay.cut()
    sender.sendall(b"?")
    return 1 - len(comes_within(receiver, _QUIET_S))


def test_bytes_go_both_ways(ends):
    client, server = ends
    client.sendall(b"question")
    assert read(server, 8) == b"question"
    server.sendall(b"answer")
    assert read(client, 6) == b"answer"


def test_many_bytes_arrive_whole_and_in_order(ends):
    client, server = ends
    content = bytes(range(256)) * 4096
    sending = threading.Thread(target=client.sendall, args=(content,), daemon=True)
    sending.start()
    assert read(server, len(content)) == content
    sending.join(_SOON_S)
    assert not sending.is_alive()


def test_connections_are_kept_apart(relay, listener, ends):
    client, server = ends
    with socket.create_connection(("127.0.0.1", relay.port), timeout=_SOON_S) as other_client:
        other_server, _ = listener.accept()
        with other_server:
            other_server.settimeout(_SOON_S)
            other_client.sendall(b"other")
            client.sendall(b"first")
            assert (read(server, 5), read(other_server, 5)) == (b"first", b"other")


def test_nothing_is_carried_while_the_relay_is_cut_and_all_of_it_afterwards(relay, ends):
    client, server = ends
    late = cut(relay, client, server)
    client.sendall(b"to the server")
    server.sendall(b"to the client")
    assert (comes_within(server, _QUIET_S), comes_within(client, _QUIET_S)) == (b"", b"")
    relay.mend()
    assert read(client, 13) == b"to the client"
    assert read(server, 13 + late).endswith(b"to the server")


def test_a_cut_relay_takes_no_connection_until_it_is_mended(relay, listener, ends):
    cut(relay, *ends)
    # The kernel takes the connection; the relay does not pass it on.
    with socket.create_connection(("127.0.0.1", relay.port), timeout=_SOON_S) as client:
        listener.settimeout(_QUIET_S)
        with pytest.raises(TimeoutError):
            listener.accept()
        relay.mend()
        listener.settimeout(_SOON_S)
        server, _ = listener.accept()
        with server:
            server.settimeout(_SOON_S)
            client.sendall(b"late")
            assert read(server, 4) == b"late"


def test_an_end_that_closes_closes_the_other(ends):
    client, server = ends
    client.close()
    assert server.recv(1) == b""


def test_where_nobody_listens_the_client_is_turned_away(relay, listener):
    listener.close()
    with socket.create_connection(("127.0.0.1", relay.port), timeout=_SOON_S) as client:
        assert client.recv(1) == b""


def test_the_relay_can_lead_to_another_server(relay, ends):
    with socket.create_server(("127.0.0.1", 0)) as later:
        later.settimeout(_SOON_S)
        relay.lead_to(later.getsockname()[1])
        with socket.create_connection(("127.0.0.1", relay.port), timeout=_SOON_S) as client:
            server, _ = later.accept()
            with server:
                server.sendall(b"here")
                assert read(client, 4) == b"here"


@pytest.mark.parametrize("is_cut", [False, True])
def test_a_closed_relay_has_no_thread_and_no_port(is_cut):
    relay = Relay()
    if is_cut:
        relay.cut()
    closing = threading.Thread(target=relay.close, daemon=True)
    closing.start()
    closing.join(_SOON_S)
    assert not closing.is_alive()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", relay.port), timeout=_SOON_S)


@pytest.mark.long
def test_bytes_come_as_late_as_is_asked_for_and_in_order_both_ways(listener):
    relay = Relay(delay_s=3 * _QUIET_S)
    relay.lead_to(listener.getsockname()[1])
    try:
        with socket.create_connection(("127.0.0.1", relay.port), timeout=_SOON_S) as client:
            server, _ = listener.accept()
            with server:
                server.settimeout(_SOON_S)
                for sender, receiver in ((client, server), (server, client)):
                    sender.sendall(b"first,")
                    sender.sendall(b"then")
                    assert comes_within(receiver, _QUIET_S) == b""
                    receiver.settimeout(_SOON_S)
                    assert read(receiver, 10) == b"first,then"
                client.close()
                assert server.recv(1) == b""
    finally:
        relay.close()
