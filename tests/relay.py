"""A relay between a client and a server on this host: carries bytes, at a rate and late, until it is to carry none.

In place of a slow network, or a network's fault, which need the rights of root.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
from collections import deque

from unstall.pipeline.service import LOOPBACK_HOST
from unstall.profiles import clock

_PIECE_BYTES = 1 << 16
_LISTEN_TIMEOUT_S = 0.05
# What a pause that took too long has cost is made up for, up to so much: pauses are never exact.
_CREDIT_NS = 20_000_000


class Relay:
    """Carries bytes between its own port and another port of this host, in a thread.

    Attributes:
      port: where it listens.

    Args:
      bytes_per_sec: the most that it carries, both ways together; None for no limit.
      delay_s: how long bytes take one way.
    """

    def __init__(self, bytes_per_sec: float | None = None, *, delay_s: float = 0.0) -> None:
        self._target, self._bytes_per_sec, self._free_ns = 0, bytes_per_sec, 0
        self._delay_ns = int(delay_s * 1e9)
        # When to send, from whom, to whom, and what; no bytes where the sender has closed.
        self._held: deque[tuple[int, socket.socket, socket.socket, bytes]] = deque()
        self._listener = socket.create_server((LOOPBACK_HOST, 0))
        self._listener.setblocking(False)
        self.port: int = self._listener.getsockname()[1]
        self._down, self._ended = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="relay", daemon=True)
        self._thread.start()

    def lead_to(self, port: int) -> None:
        """Says where the bytes go."""
        self._target = port

    def cut(self) -> None:
        """Carries nothing, and takes no connection, until `mend`."""
        self._down.set()

    def mend(self) -> None:
        self._down.clear()

    def close(self) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        with selectors.DefaultSelector() as selector, contextlib.ExitStack() as sockets:
            sockets.enter_context(self._listener)
            selector.register(self._listener, selectors.EVENT_READ, None)
            while not self._ended.is_set():
                if self._down.is_set():
                    self._ended.wait(_LISTEN_TIMEOUT_S)
                    continue
                for key, _ in selector.select(self._timeout_s()):
                    if key.data is None:
                        self._accept(selector, sockets)
                    else:
                        self._take(selector, key)
                self._send_due(selector)

    def _timeout_s(self) -> float:
        if not self._held:
            return _LISTEN_TIMEOUT_S
        return min(_LISTEN_TIMEOUT_S, max(0.0, (self._held[0][0] - clock.now_ns()) / 1e9))

    def _accept(self, selector: selectors.BaseSelector, sockets: contextlib.ExitStack) -> None:
        client, _ = self._listener.accept()
        try:
            server = socket.create_connection((LOOPBACK_HOST, self._target))
        except OSError:
            client.close()
            return
        for one_end, other_end in ((client, server), (server, client)):
            sockets.enter_context(one_end)
            selector.register(one_end, selectors.EVENT_READ, other_end)

    def _take(self, selector: selectors.BaseSelector, key: selectors.SelectorKey) -> None:
        """Reads a piece, and holds it until it is due."""
        one_end, other_end = key.fileobj, key.data
        assert isinstance(one_end, socket.socket)
        try:
            piece = one_end.recv(_PIECE_BYTES)
        except OSError:
            piece = b""
        if self._bytes_per_sec is not None:
            free_ns = max(self._free_ns, clock.now_ns() - _CREDIT_NS)
            self._free_ns = free_ns + int(len(piece) / self._bytes_per_sec * 1e9)
            clock.sleep_until_ns(self._free_ns)
        if not piece:
            selector.unregister(one_end)
        self._held.append((clock.now_ns() + self._delay_ns, one_end, other_end, piece))

    def _send_due(self, selector: selectors.BaseSelector) -> None:
        while self._held and self._held[0][0] <= clock.now_ns():
            _, one_end, other_end, piece = self._held.popleft()
            try:
                other_end.sendall(piece)
            except OSError:
                piece = b""
            if not piece:
                for end in (one_end, other_end):
                    with contextlib.suppress(KeyError, ValueError):
                        selector.unregister(end)
                    end.close()
