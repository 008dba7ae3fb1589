"""Ports at which nobody listens."""

from __future__ import annotations

import socket

from unstall.benchmarks.lab.ports import free_port


def test_a_free_port_can_be_listened_at():
    with socket.create_server(("127.0.0.1", free_port())) as taken:
        assert free_port() != taken.getsockname()[1]
