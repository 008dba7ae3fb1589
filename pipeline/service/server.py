"""Starts TensorFlow's dispatcher and worker servers in this process, for this host only unless asked otherwise.

TensorFlow's servers listen on all addresses, run any graph that comes, and ask for no password.
"""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import tensorflow as tf

from unstall.pipeline.address import Place, bracketed
from unstall.pipeline.errors import UnavailableError, first_line
from unstall.pipeline.service.tf_private import dispatcher_config, port_of

# The dispatcher forgets a worker that has not been heard of for so long; its tasks end. TensorFlow's own: a minute.
_WORKER_TIMEOUT_MS = 5_000
# A job whose client has not been heard of for so long is ended.
_JOB_TIMEOUT_MS = 60_000
_HEARTBEAT_MS = 500
_LOOPBACK = b"lo\0"
_INTERNET = (socket.AF_INET, socket.AF_INET6)


def start_dispatcher(port: int, *, journal: Path | None = None, open_to_others: bool = False) -> Any:
    """Starts a dispatcher in this process; it runs as long as the object that is returned.

    Args:
      port: 0 for a free one.
      journal: a folder where the dispatcher writes what it must know to go on after a restart.
      open_to_others: whether other hosts may connect.
    Raises:
      UnavailableError: if the port is taken, or cannot be closed to other hosts.
    """
    config = dispatcher_config(
        port=port,
        journal=str(journal) if journal else "",
        timeout_ms=_WORKER_TIMEOUT_MS,
        job_timeout_ms=_JOB_TIMEOUT_MS,
    )
    service = tf.data.experimental.service
    return _started(lambda: service.DispatchServer(config), port, "a dispatcher", open_to_others=open_to_others)


def start_worker(place: Place) -> Any:
    """Starts a worker in this process, which serves every dataset that the dispatcher's clients register.

    Raises:
      UnavailableError: if the port is taken, or cannot be closed to other hosts.
    """
    service = tf.data.experimental.service
    config = service.WorkerConfig(
        dispatcher_address=place.dispatcher,
        worker_address=place.seen_as or f"{bracketed(place.host)}:%port%",
        port=place.port,
        heartbeat_interval_ms=_HEARTBEAT_MS,
    )
    return _started(lambda: service.WorkerServer(config), place.port, "a worker", open_to_others=place.open_to_others)


def _started(start: Callable[[], Any], port: int, what: str, *, open_to_others: bool) -> Any:
    """Starts a server. For a moment, until it is closed to other hosts, it is open to them.

    Raises:
      UnavailableError: if it cannot start, or cannot be closed to other hosts.
    """
    _check_free(port)
    try:
        server = start()
    except (tf.errors.OpError, RuntimeError) as error:
        raise UnavailableError(f"{what} cannot listen at port {port}: {first_line(error)}") from error
    if not open_to_others:
        own_port = port_of(server)
        try:
            closed = _close_to_others(own_port)
        except OSError as error:
            raise UnavailableError(f"{what} cannot be closed to other hosts: {error.strerror}") from error
        if not closed:
            raise UnavailableError(f"{what} cannot be closed to other hosts: its port {own_port} is not there")
    return server


def _check_free(port: int) -> None:
    """Checks that nobody listens at a port. TensorFlow's servers would share it, and each get a part of the clients.

    Raises:
      UnavailableError: if somebody does.
    """
    if port:
        try:
            socket.create_server(("", port)).close()
        except OSError as error:
            raise UnavailableError(f"port {port} is taken ({error.strerror}): choose another by --port") from error


def own_address(host: str, port: int) -> str:
    """Returns the address of this host on the network that leads to another host.

    TensorFlow's default, localhost, is wrong for every client on another host.
    """
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((host, port))  # sends nothing
        return str(probe.getsockname()[0])


def listening() -> Iterator[socket.socket]:
    """Yields the sockets of this process that wait for connections, each as a copy that is closed afterwards."""
    for name in os.listdir("/proc/self/fd"):
        try:
            if not stat.S_ISSOCK(os.stat(f"/proc/self/fd/{name}").st_mode):
                continue
            copy = socket.socket(fileno=os.dup(int(name)))
        except OSError:  # closed meanwhile
            continue
        with copy:
            if copy.family in _INTERNET and copy.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                yield copy


def _close_to_others(port: int) -> bool:
    """Binds a server's socket to the loopback device, so that what comes in by another is refused.

    Returns:
      Whether there was a socket at this port.
    """
    bound = False
    for waiting in listening():
        if waiting.getsockname()[1] == port:
            waiting.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, _LOOPBACK)
            bound = True
    return bound
