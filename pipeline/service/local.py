"""A service on this host: a dispatcher in this process, and worker processes that end with it."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from typing import Any

import unstall
from unstall.pipeline.address import LOOPBACK_HOST, Address, Place
from unstall.pipeline.config import PipelineConfig
from unstall.pipeline.errors import UnavailableError
from unstall.pipeline.service import server
from unstall.pipeline.service.worker import READY, order_for
from unstall.pipeline.sources.source import ImageSource

# What a worker process runs: this package, whatever the folder that it is started in holds.
_PROGRAM = (
    "import sys; sys.path.insert(0, {folder!r}); import unstall; unstall.of_ours('pipeline.service.worker:run')()"
)
# A worker imports TensorFlow and measures its stages: some five seconds, more on a busy host.
_START_TIMEOUT_S = 120.0
_END_TIMEOUT_S = 5.0


class LocalService:
    """A dispatcher and worker processes on this host, reachable from this host only.

    Raises:
      UnavailableError: if the images are not files, or a worker does not start.
    """

    def __init__(self, source: ImageSource, config: PipelineConfig, workers: int) -> None:
        self._dispatcher = server.start_dispatcher(0)
        port = int(self._dispatcher.target.rpartition(":")[2])
        self.address = Address(host=LOOPBACK_HOST, port=port)
        place = Place(dispatcher=self.address.text)
        order = order_for(source, config, place)
        self._workers: list[WorkerProcess] = []
        try:
            for _ in range(workers):
                self._workers.append(WorkerProcess(order))
            for worker in self._workers:
                worker.wait_ready()
        except BaseException:
            self.close()
            raise

    @property
    def pids(self) -> tuple[int, ...]:
        return tuple(worker.pid for worker in self._workers)

    def close(self) -> None:
        """Ends the workers, then the dispatcher. Each is given seconds to end."""
        for worker in self._workers:
            worker.close()
        self._workers = []
        self._dispatcher = None


class WorkerProcess:
    """A worker in a process of its own, which ends when this process does.

    Args:
      order: what it serves, of `order_for`.
      prefix: words before its command, such as those that run it in another network namespace.
    """

    def __init__(self, order: str, *, prefix: Sequence[str] = ()) -> None:
        self._log = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115 - closed by `close`
        self._process = subprocess.Popen(
            [*prefix, sys.executable, "-c", _PROGRAM.format(folder=str(unstall.ROOT))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env={**os.environ, "CUDA_VISIBLE_DEVICES": "-1"},
        )
        # In a thread: the worker first imports TensorFlow, and a pipe takes no more than 64 KB until it is read.
        self._sender = threading.Thread(target=self._send, args=(order,), daemon=True)
        self._sender.start()

    def _send(self, order: str) -> None:
        with contextlib.suppress(OSError, ValueError):  # a worker that ended: `wait_ready` says why
            self._pipe(self._process.stdin).write(order + "\n")
            self._pipe(self._process.stdin).flush()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def runs(self) -> bool:
        return self._process.poll() is None

    def wait_ready(self) -> None:
        """Waits until the worker serves.

        Raises:
          UnavailableError: if it does not, with its last line.
        """
        answers = self._pipe(self._process.stdout)
        with selectors.DefaultSelector() as selector:
            selector.register(answers, selectors.EVENT_READ)
            line = answers.readline().strip() if selector.select(_START_TIMEOUT_S) else ""
        if line.startswith(READY):
            return
        self._end()
        self._log.seek(0)
        last = line or (self._log.read().strip().splitlines() or ["no reason given"])[-1]
        self.close()
        raise UnavailableError(f"a worker process of the service did not start: {last}")

    def signal(self, number: int) -> None:
        """Sends a signal to the worker, such as SIGSTOP."""
        self._process.send_signal(number)

    def close(self) -> None:
        """Ends the worker: asks it, waits some seconds, then kills it."""
        self._end()
        self._pipe(self._process.stdout).close()
        self._log.close()

    def _end(self) -> None:
        if self._sender.is_alive():  # it waits to be read, and closing would wait with it
            self._process.kill()
        self._sender.join(_END_TIMEOUT_S)
        with contextlib.suppress(OSError):
            self._pipe(self._process.stdin).close()
        try:
            self._process.send_signal(signal.SIGCONT)  # a stopped process could not end
            self._process.wait(_END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    @staticmethod
    def _pipe(pipe: Any) -> Any:
        assert pipe is not None
        return pipe
