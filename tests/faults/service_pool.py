"""A service of real processes, to which faults are done: a dispatcher, and two workers, one of them behind a relay."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import unstall
from tests.relay import Relay
from unstall.benchmarks.lab.ports import free_port
from unstall.pipeline import ImageSource, PipelineConfig
from unstall.pipeline.service import LOOPBACK_HOST, Address, Place
from unstall.pipeline.service.handshake import check_reachable
from unstall.pipeline.service.local import WorkerProcess
from unstall.pipeline.service.worker import order_for

_DISPATCHER = (
    "import sys; sys.path.insert(0, {folder!r}); import unstall; "
    "sys.exit(unstall.of_ours('benchmarks.service.__main__:main')(sys.argv[1:]))"
)


# What is done to the service, and what happens then.
KINDS: dict[str, str] = {
    "killed": "a worker is killed, and stays away",
    "added": "a worker is added",
    "stopped": "a worker stands still for 10 s, and goes on",
    "restarted": "the dispatcher is killed, and comes back from its journal after 2 s",
    "cut off": "the link to a worker is down for 10 s",
}


class Pool:
    """The processes of a service. A fault is ended by `heal`.

    Attributes:
      address: the dispatcher's.
    """

    def __init__(self, source: ImageSource, config: PipelineConfig, journal: Path) -> None:
        self._source, self._config, self._journal = source, config, journal
        self.address = Address(host=LOOPBACK_HOST, port=free_port())
        self._relay = Relay()
        self._dispatcher = self._start_dispatcher()
        self._added: list[WorkerProcess] = []
        self._workers = [self._start_worker(relayed=True), self._start_worker(relayed=False)]
        for worker in self._workers:
            worker.wait_ready()

    def _start_dispatcher(self) -> subprocess.Popen[bytes]:
        program = _DISPATCHER.format(folder=str(unstall.ROOT))
        arguments = ("dispatcher", "--port", str(self.address.port), "--journal", str(self._journal))
        process = subprocess.Popen(
            [sys.executable, "-c", program, *arguments], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        assert process.stdout is not None
        process.stdout.readline()  # "dispatcher ready"; empty if the process ended
        check_reachable(self.address)
        return process

    def _start_worker(self, *, relayed: bool) -> WorkerProcess:
        port = free_port()
        seen_as = None
        if relayed:
            self._relay.lead_to(port)
            seen_as = f"{LOOPBACK_HOST}:{self._relay.port}"
        place = Place(dispatcher=self.address.text, port=port, seen_as=seen_as)
        return WorkerProcess(order_for(self._source, self._config, place))

    def fault(self, kind: str) -> list[tuple[float, Callable[[], None]]]:
        """Does a fault. Returns what ends it, with the seconds until then."""
        return {
            "killed": self._kill,
            "added": self._add,
            "stopped": self._stop,
            "restarted": self._restart,
            "cut off": self._cut,
        }[kind]()

    def _kill(self) -> list[tuple[float, Callable[[], None]]]:
        self._workers[0].signal(signal.SIGKILL)
        return []

    def _add(self) -> list[tuple[float, Callable[[], None]]]:
        self._added.append(self._start_worker(relayed=False))
        return []

    def _stop(self) -> list[tuple[float, Callable[[], None]]]:
        self._workers[0].signal(signal.SIGSTOP)
        return [(10.0, lambda: self._workers[0].signal(signal.SIGCONT))]

    def _restart(self) -> list[tuple[float, Callable[[], None]]]:
        self._dispatcher.kill()
        self._dispatcher.wait()

        def start() -> None:
            self._dispatcher = self._start_dispatcher()

        return [(2.0, start)]

    def _cut(self) -> list[tuple[float, Callable[[], None]]]:
        self._relay.cut()
        return [(10.0, self._relay.mend)]

    def heal(self) -> bool:
        """Ends a fault. Returns whether the service is whole again.

        A dispatcher never forgets a worker that is gone, and gives it a part of each later job.
        """
        self._relay.mend()
        for worker in self._workers:
            if worker.runs:
                worker.signal(signal.SIGCONT)
        return not self._added and all(worker.runs for worker in self._workers)

    def close(self) -> None:
        for worker in (*self._workers, *self._added):
            worker.close()
        self._dispatcher.kill()
        self._dispatcher.wait()
        self._relay.close()
