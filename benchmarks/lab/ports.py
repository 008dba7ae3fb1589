"""Finds ports of this host for processes that talk to each other."""

from __future__ import annotations

import socket

from unstall.pipeline.service import LOOPBACK_HOST


def free_port() -> int:
    """Returns a port of the loopback address at which nobody listens at this moment."""
    with socket.create_server((LOOPBACK_HOST, 0)) as probe:
        return int(probe.getsockname()[1])
