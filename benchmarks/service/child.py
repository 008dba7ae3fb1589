"""Reads batches in a child process, from threads and from services, as fast as a device would take them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from unstall.benchmarks.lab.backend import Refused
from unstall.benchmarks.service.plan import Asked
from unstall.benchmarks.service.samples import MeasuredService, Window, WorkerWindow
from unstall.pipeline import ImageSource, PipelineConfig, build
from unstall.pipeline.building import Loader
from unstall.pipeline.errors import UnavailableError
from unstall.pipeline.prepared import bytes_of
from unstall.pipeline.service import Account
from unstall.pipeline.service.client import Counts, ServiceClient
from unstall.profiles import clock

# A window is so many whole epochs that it takes at least so long.
_WINDOW_NS = 1_000_000_000
_QUIET_NS = 500_000_000
_LABEL_BYTES = 4


class ServiceSession:
    """Answers the parent; each request is a method."""

    def __init__(self, asked: Asked, source: ImageSource) -> None:
        self._asked, self._source = asked, source
        self._loaders: dict[str, Loader] = {}
        self._image_bytes = sent_bytes(source, asked.config)

    def start(self, service: str) -> MeasuredService:
        """Builds a loader, and reads an epoch from it.

        Raises:
          Refused: if the loader cannot be built here.
        """
        try:
            loader = build(replace(self._asked.config, service=service), self._source)
        except UnavailableError as error:
            raise Refused(str(error)) from error
        self._loaders[service] = loader
        for _ in loader.data:
            pass
        return MeasuredService(service=service, facts=loader.service.client.workers if loader.service else ())

    def window(self, service: str, number: int) -> Window:
        """Measures one window of a loader, after an epoch that is not measured: its first batches lay ready."""
        loader = self._loaders[service]
        for _ in loader.data:
            pass
        client = loader.service.client if loader.service else None
        begun = len(client.counts) if client else 0
        images = batches = wait_ns = 0
        machine_ns, _ = clock.machine_cpu_ns()
        cpu_ns, started_ns = clock.own_cpu_ns(), clock.now_ns()
        while clock.now_ns() - started_ns < _WINDOW_NS:
            for _, labels, waited_ns in self._timed(loader.data):
                images += int(labels.shape[0])
                batches += 1
                wait_ns += waited_ns
        wall_ns = clock.now_ns() - started_ns
        client_cpu_ns, machine_cpu_ns = clock.own_cpu_ns() - cpu_ns, clock.machine_cpu_ns()[0] - machine_ns
        # Workers go on until their buffers are full: that is not to be the next subject's time.
        clock.sleep_until_ns(clock.now_ns() + _QUIET_NS)
        counts = client.counts[begun:] if client else []
        return Window(
            round=number,
            images=images,
            batches=batches,
            wall_ns=wall_ns,
            wait_ns=wait_ns,
            end_wait_ns=_sum(counts, "end_wait_ns"),
            client_cpu_ns=client_cpu_ns,
            machine_cpu_ns=machine_cpu_ns,
            received_bytes=round(images * self._image_bytes) if client else 0,
            served=_sum(counts, "served"),
            repaired=_sum(counts, "repaired"),
            twice=_sum(counts, "twice"),
            workers=tuple(_worker_windows(client, started_ns)) if client else (),
        )

    def _timed(self, data: Any) -> Iterator[tuple[Any, Any, int]]:
        """Yields each batch with the time that it took to come; a device's step takes its time in between."""
        iterator = iter(data)
        while True:
            asked_ns = clock.now_ns()
            batch = next(iterator, None)
            waited_ns = clock.now_ns() - asked_ns
            if batch is None:
                return
            yield *batch, waited_ns
            if self._asked.images_per_sec is not None:
                step_ns = int(int(batch[1].shape[0]) / self._asked.images_per_sec * 1e9)
                clock.sleep_until_ns(asked_ns + waited_ns + step_ns)

    def close(self) -> None:
        for loader in self._loaders.values():
            loader.close()
        self._loaders.clear()


def sent_bytes(source: ImageSource, config: PipelineConfig) -> float:
    """Returns what workers send of an image and its label: the mean size of a file, or pixels of a byte a channel."""
    height, width = config.image_size
    payload = bytes_of(source) / source.images if config.served == "files" else height * width * 3
    return payload + _LABEL_BYTES


def _sum(counts: list[Counts], name: str) -> int:
    return sum(getattr(count, name) for count in counts)


def _worker_windows(client: ServiceClient, since_ns: int) -> Iterator[WorkerWindow]:
    """Yields the accounts of each worker that made at least two batches in the window.

    The first batches that come have lain ready since an earlier window. A worker's clock is another than ours: the
    batch that came soonest after it was made tells how far apart the two are.
    """
    accounts: dict[str, list[tuple[int, Account]]] = {}
    for received_ns, account in client.accounts:
        accounts.setdefault(account.worker, []).append((received_ns, account))
    for _, of_worker in sorted(accounts.items()):
        apart_ns = min(received_ns - account.up_ns for received_ns, account in of_worker)
        made = [account for _, account in of_worker if account.up_ns + apart_ns >= since_ns]
        if len(made) > 1:
            first, last = min(made, key=lambda account: account.up_ns), max(made, key=lambda account: account.up_ns)
            yield WorkerWindow(first=first, last=last, wall_ns=last.up_ns - first.up_ns)
