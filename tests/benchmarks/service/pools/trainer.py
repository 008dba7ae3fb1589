"""What runs in the children of a check: the trainer of a pool, and who measures what an image costs on such hosts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from tests.benchmarks.service.pools.pools import CheckedPool
from tests.benchmarks.service.pools.results import PoolWindow
from unstall.benchmarks.lab.backend import Refused
from unstall.benchmarks.service.planning import child
from unstall.benchmarks.service.planning.samples import Constants
from unstall.pipeline import ImageSource, PipelineConfig, build
from unstall.pipeline.building import Loader
from unstall.pipeline.errors import UnavailableError
from unstall.pipeline.service import Account, Place, server
from unstall.pipeline.service.local import WorkerProcess
from unstall.pipeline.service.numbered import BatchMaker
from unstall.pipeline.service.worker import order_for
from unstall.profiles import clock

# Batches that lie ready are consumed before a window begins.
_WARM_NS, _WINDOW_NS = 2_000_000_000, 4_000_000_000


class CostsSession(child.PlanningSession):
    """Measures on a host like those of a pool what its prediction is made from."""

    def constants(self, config: PipelineConfig) -> Constants:
        """Measures what sending and receiving costs, on batches of one pipeline."""
        return child.constants(self._source, config)

    def worker(self, config: PipelineConfig, runs: int) -> tuple[float, float]:
        """Measures `worker_us` and `bytes_per_image` of the cut that a config states: medians of so many runs."""
        return child.worker_costs(BatchMaker(self._source, config), runs)

    def trainer_us(self, config: PipelineConfig, runs: int) -> float:
        """Measures `trainer_us` of the cut that a config states."""
        return child.trainer_us(config, BatchMaker(self._source, config), runs)

    def loader_us(self, config: PipelineConfig, runs: int) -> float:
        """Measures the microseconds of a core that an image takes in a pipeline without a service."""
        with build(config, self._source) as loader:
            return child.image_cost(loader.data, lambda element: int(element[1].shape[0]), runs)[0]


class TrainerSession:
    """Starts a pool, and consumes its batches as an emulated device does; each request is a method."""

    def __init__(self, pool: CheckedPool, source: ImageSource) -> None:
        self._pool, self._source = pool, source
        self._dispatcher: Any = None
        self._workers: list[WorkerProcess] = []
        self._loader: Loader | None = None
        self._batches: Iterator[Any] | None = None

    def start(self, address: str, places: tuple[Place, ...], prefixes: tuple[tuple[str, ...], ...]) -> None:
        """Starts a dispatcher here and each worker at its place, and begins to read.

        Args:
          address: of this host, for the workers.
          places: of the workers; their `dispatcher` is set here.
          prefixes: the words before each worker's command.
        Raises:
          Refused: if a server does not start.
        """
        config = self._pool.config
        try:
            if places:
                elsewhere = any(place.open_to_others for place in places)
                self._dispatcher = server.start_dispatcher(0, open_to_others=elsewhere)
                dispatcher = f"{address}:{self._dispatcher.target.rpartition(':')[2]}"
                for place, prefix in zip(places, prefixes, strict=True):
                    order = order_for(self._source, config, replace(place, dispatcher=dispatcher))
                    self._workers.append(WorkerProcess(order, prefix=prefix))
                for worker in self._workers:
                    worker.wait_ready()
                config = replace(config, service=dispatcher)
            else:
                config = replace(config, served="batches")
            self._loader = build(config, self._source)
        except UnavailableError as error:
            raise Refused(str(error)) from error
        self._batches = iter(self._loader.data.repeat())
        next(self._batches)

    def window(self) -> PoolWindow:
        """Measures a window."""
        assert self._loader is not None
        self._consume(_WARM_NS)
        client = self._loader.service.client if self._loader.service else None
        seen = len(client.accounts) if client else 0
        started_ns = clock.now_ns()
        images = self._consume(_WINDOW_NS)
        return PoolWindow(
            images=images,
            wall_ns=clock.now_ns() - started_ns,
            worker_us=_worker_us([account for _, account in list(client.accounts)[seen:]]) if client else (),
        )

    def _consume(self, for_ns: int) -> int:
        """Takes batches as the emulated device does. Returns the number of images."""
        assert self._batches is not None
        begun_ns, images = clock.now_ns(), 0
        while clock.now_ns() - begun_ns < for_ns:
            _, labels = next(self._batches)
            size = int(labels.shape[0])
            images += size
            clock.sleep_until_ns(clock.now_ns() + int(size / self._pool.device_images_per_sec * 1e9))
        return images

    def close(self) -> None:
        self._batches = None
        if self._loader is not None:
            self._loader.close()
        for worker in self._workers:
            worker.close()
        self._dispatcher = None


def _worker_us(accounts: list[Account]) -> tuple[float, ...]:
    """Returns the CPU time of an image for each worker that made at least two batches."""
    by_worker: dict[str, list[Account]] = {}
    for account in accounts:
        by_worker.setdefault(account.worker, []).append(account)
    costs = []
    for _, of_worker in sorted(by_worker.items()):
        first = min(of_worker, key=lambda account: account.images)
        last = max(of_worker, key=lambda account: account.images)
        if last.images > first.images:
            costs.append((last.cpu_ns - first.cpu_ns) / 1e3 / (last.images - first.images))
    return tuple(costs)
