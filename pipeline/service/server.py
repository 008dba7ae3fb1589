"""Starts TensorFlow's dispatcher and worker servers in this process, for this host only unless asked otherwise.

TensorFlow's servers listen on all addresses, run any graph that comes, and ask for no password.
"""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tensorflow as tf

from pipeline.errors import UnavailableError

# The dispatcher forgets a worker that has not been heard of for so long; its tasks end. TensorFlow's own: a minute.
_WORKER_TIMEOUT_MS = 5_000
_HEARTBEAT_MS = 500
_LOOPBACK = b"lo\0"
_INTERNET = (socket.AF_INET, socket.AF_INET6)
LOOPBACK_HOST = "127.0.0.1"


def start_dispatcher(port: int, *, journal: Path | None = None, open_to_others: bool = False) -> Any:
    """Starts a dispatcher in this process; it runs as long as the object that is returned.

    Args:
      port: 0 for a free one.
      journal: a folder where the dispatcher writes what it must know to go on after a restart.
      open_to_others: whether other hosts may connect.
    Raises:
      UnavailableError: if the port is taken.
    """
    _check_free(port)
    service = tf.data.experimental.service
    before = _ports()
    try:
        server = service.DispatchServer(
            service.DispatcherConfig(
                port=port,
                work_dir=str(journal) if journal else None,
                fault_tolerant_mode=journal is not None,
                worker_timeout_ms=_WORKER_TIMEOUT_MS,
                job_gc_check_interval_ms=_WORKER_TIMEOUT_MS,
            )
        )
    except (tf.errors.OpError, RuntimeError) as error:
        raise UnavailableError(f"a dispatcher cannot listen at port {port}: {_first_line(error)}") from error
    if not open_to_others:
        _close_to_others(before)
    return server


def start_worker(
    dispatcher: str, *, host: str, port: int = 0, seen_as: str | None = None, open_to_others: bool = False
) -> Any:
    """Starts a worker in this process, which serves every dataset that the dispatcher's clients register.

    Args:
      dispatcher: HOST:PORT.
      host: the address under which clients reach this worker.
      port: 0 for a free one.
      seen_as: HOST:PORT that clients use instead, such as that of a relay.
      open_to_others: whether other hosts may connect.
    Raises:
      UnavailableError: if the port is taken.
    """
    _check_free(port)
    service = tf.data.experimental.service
    before = _ports()
    try:
        server = service.WorkerServer(
            service.WorkerConfig(
                dispatcher_address=dispatcher,
                worker_address=seen_as or f"{host}:%port%",
                port=port,
                heartbeat_interval_ms=_HEARTBEAT_MS,
            )
        )
    except (tf.errors.OpError, RuntimeError) as error:
        raise UnavailableError(f"a worker cannot serve {dispatcher}: {_first_line(error)}") from error
    if not open_to_others:
        _close_to_others(before)
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


def _ports() -> set[int]:
    return {int(waiting.getsockname()[1]) for waiting in listening()}


def _close_to_others(before: set[int]) -> None:
    """Binds the sockets that were opened since then to the loopback device: what comes in by another is refused."""
    for waiting in listening():
        if waiting.getsockname()[1] not in before:
            waiting.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, _LOOPBACK)


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0][:200]
