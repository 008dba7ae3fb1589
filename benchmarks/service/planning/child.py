"""Measures in a child process what a cut pipeline costs on either side, and what it costs to send and to receive."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import psutil
import tensorflow as tf

from unstall.benchmarks.lab.backend import Refused
from unstall.benchmarks.lab.session import Session, noise_batch
from unstall.benchmarks.service.planning.samples import Constants, Costs, CutCosts, Trainer
from unstall.pipeline import ImageSource, PipelineConfig, build
from unstall.pipeline.errors import UnavailableError
from unstall.pipeline.prepared import bytes_of
from unstall.pipeline.service.local import LocalService
from unstall.pipeline.service.numbered import BatchMaker, numbered_batches, rest_of
from unstall.pipeline.service.tf_private import distributed
from unstall.pipeline.stages import output
from unstall.profiles import clock
from unstall.profiles.measure import LOADER_ROUNDS, TRIAL_STEPS, steps_for
from unstall.profiles.measure.windows import Windows
from unstall.profiles.provenance import usable_cores
from unstall.profiles.statistics import median

# A run lasts at least so long; the median of so many runs counts.
_RUN_NS, _RUNS = 700_000_000, 5
# Services from which batches of each size are received, and runs of each.
_RECEIVING_SERVICES, _RECEIVED_RUNS = 3, 2
# Batches whose hand-over is timed, each after so long a pause that it lies ready: at least so many nanoseconds, and so
# many times as long as a batch takes to come.
_READY_BATCHES, _READY_NS, _READY_RATIO = 20, 30_000_000, 3
# A worker that nobody reads from is watched for so long: the system counts its time in hundredths of a second. In five
# seconds one of them is 0.002 of a core.
_IDLE_NS = 5_000_000_000
# A pipeline that runs Python, and keeps fewer of the cores busy than this part, is limited by Python's lock.
_BUSY_RATIO = 0.75
_LABEL_BYTES = 4


class PlanningSession(Session):
    """Answers the parent's requests, and those of every measurement."""

    def costs(self, config: PipelineConfig, model: str, image_size: tuple[int, int] | None) -> Costs:
        """Measures all costs of a pipeline and of a model that is open.

        Args:
          image_size: of the pipeline; None for the model's.
        Raises:
          Refused: if no service can serve the pipeline.
        """
        height, width = self._models[model].input_shape[1:3]
        config = replace(config, image_size=image_size or (int(height), int(width)))
        try:
            cuts = tuple(cut_costs(self._source, config, served) for served in legal_cuts(config))
            return Costs(
                trainer=self._trainer(config, model),
                cuts=cuts,
                constants=constants(self._source, config),
                batch_size=config.batch_size,
                file_bytes=bytes_of(self._source) / self._source.images,
            )
        except UnavailableError as error:
            raise Refused(str(error)) from error

    def _trainer(self, config: PipelineConfig, model: str) -> Trainer:
        height, width = self._models[model].input_shape[1:3]
        batch = noise_batch(config.batch_size, (int(height), int(width)))
        windows = Windows(self._models[model], self._device)
        windows.prepare([batch])
        steps = steps_for(windows.resident(batch, steps=TRIAL_STEPS, round_=0))
        samples = [windows.resident(batch, steps=steps, round_=number) for number in range(LOADER_ROUNDS)]
        with build(config, self._source) as loader:
            cpu_us, busy = image_cost(loader.data, lambda element: int(element[1].shape[0]))
        return Trainer(
            device_images_per_sec=1 / median([sample.s_per_image for sample in samples]),
            model_us=0.0 if self._device.accelerator else 1e6 * median([sample.cpu_s_per_image for sample in samples]),
            loader_us=cpu_us,
            most_cores=busy if _runs_python(config) and busy < _BUSY_RATIO * usable_cores() else None,
        )


def _runs_python(config: PipelineConfig) -> bool:
    """Whether images pass Python code, whose lock may keep cores from being busy."""
    return config.augmentation is not None and config.augment_with in ("opencv", "albumentations")


def legal_cuts(config: PipelineConfig) -> tuple[str, ...]:
    """Returns where a pipeline can be cut: the values of the config's `served`."""
    if config.composed:
        return ("batches",)  # one call reads, decodes and augments
    augments = config.augmentation is not None and config.augment_at != "device"
    return ("files", "images", "batches") if augments else ("files", "batches")


def cut_costs(source: ImageSource, config: PipelineConfig, served: str, runs: int = _RUNS) -> CutCosts:
    """Measures the costs of a pipeline before a cut and after it: medians of so many runs."""
    config = replace(config, served=served)
    maker = BatchMaker(source, config)
    worker_us, bytes_per_image = worker_costs(maker, runs)
    return CutCosts(
        served=served,
        worker_us=worker_us,
        trainer_us=trainer_us(config, maker, runs),
        bytes_per_image=bytes_per_image,
    )


def worker_costs(maker: BatchMaker, runs: int) -> tuple[float, float]:
    """Measures what is before a cut. Returns the microseconds of a core, and the bytes, of an image."""
    batches = numbered_batches(tf.data.Dataset.range(maker.batches), maker)
    sizes = [(_bytes(element[1]), int(element[2].shape[0])) for element in batches]
    bytes_per_image = sum(size for size, _ in sizes) / sum(images for _, images in sizes) + _LABEL_BYTES
    return image_cost(batches, lambda element: int(element[2].shape[0]), runs)[0], bytes_per_image


def trainer_us(config: PipelineConfig, maker: BatchMaker, runs: int) -> float:
    """Measures what is after a cut, on a batch that is ready."""
    number, first, labels, _ = next(iter(numbered_batches(tf.data.Dataset.range(1), maker)))
    ready = tf.data.Dataset.from_tensors((number, first, labels)).repeat(maker.batches)
    rest = output.rescale(rest_of(ready, maker), config) if config.served != "batches" else _cast(ready, config)
    return image_cost(rest, lambda element: int(element[1].shape[0]), runs)[0]


def _cast(ready: tf.data.Dataset, config: PipelineConfig) -> tf.data.Dataset:
    return output.rescale(ready.map(lambda number, images, labels: (images, labels)), config)


def _bytes(payload: Any) -> int:
    """Returns the bytes of images, or of the contents of files."""
    array = payload.numpy()
    return sum(map(len, array)) if array.dtype == object else int(array.nbytes)


def constants(source: ImageSource, config: PipelineConfig) -> Constants:
    """Measures what sending and receiving costs: batches of two sizes, from one worker process of this host."""
    config = replace(config, served="batches")
    height, width = config.image_size
    sizes = ((height, width), (2 * height, 2 * width))
    of_sizes = [replace(config, image_size=size) for size in sizes]
    rest_us = [trainer_us(sized, BatchMaker(source, sized), _RUNS) for sized in of_sizes]
    # In one process an image costs half as much again to receive as in the next: the median of some counts.
    received = [[_Received(source, sized) for sized in of_sizes] for _ in range(_RECEIVING_SERVICES)]
    sent, worker_standing_cores = _sent_ms(source, config, sizes)
    images = min(config.batch_size, source.images)
    megabytes = [images * (height * width * 3 + _LABEL_BYTES) / 1e6 for height, width in sizes]
    ms = [
        images * (median([point.us_per_image for point in points]) - rest) / 1e3
        for points, rest in zip(zip(*received, strict=True), rest_us, strict=True)
    ]
    receive_ms_per_megabyte, receive_ms_per_batch = _line(megabytes, ms)
    send_ms_per_megabyte, send_ms_per_batch = _line(megabytes, sent)
    return Constants(
        send_ms_per_megabyte=send_ms_per_megabyte,
        send_ms_per_batch=send_ms_per_batch,
        receive_ms_per_megabyte=receive_ms_per_megabyte,
        receive_ms_per_batch=receive_ms_per_batch,
        hand_over_ms_per_batch=median([smaller.hand_over_ms for smaller, _ in received]),
        standing_cores=median([point.standing_cores for points in received for point in points]),
        worker_standing_cores=worker_standing_cores,
    )


def _line(megabytes: Sequence[float], ms: Sequence[float]) -> tuple[float, float]:
    """Returns the cost of a megabyte and of a batch, neither below 0, from those of batches of two sizes."""
    slope = max(0.0, (ms[1] - ms[0]) / (megabytes[1] - megabytes[0]))
    return slope, max(0.0, ms[0] - slope * megabytes[0])


def _sent_ms(
    source: ImageSource, config: PipelineConfig, sizes: Sequence[tuple[int, int]]
) -> tuple[list[float], float]:
    """Returns a worker's CPU time for a batch of each size that takes no time to make, and its cores while idle."""
    service = LocalService(source, config, 1)
    try:
        worker = psutil.Process(service.pids[0])
        costs = []
        for height, width in sizes:
            batch = tf.zeros((config.batch_size, height, width, 3), tf.uint8)
            ready = tf.data.Dataset.from_tensors(batch).repeat()
            batches = iter(distributed(ready, service.address.target, sharding="off"))
            runs = []
            for _ in range(_RUNS + 1):  # the first begins the job
                before_s, started_ns, taken = _cpu_s(worker), clock.now_ns(), 0
                while clock.now_ns() - started_ns < _RUN_NS:
                    next(batches)
                    taken += 1
                runs.append(1e3 * (_cpu_s(worker) - before_s) / taken)
            costs.append(median(runs[1:]))
        before_s, started_ns = _cpu_s(worker), clock.now_ns()
        clock.sleep_until_ns(started_ns + _IDLE_NS)
        idle_cores = (_cpu_s(worker) - before_s) / ((clock.now_ns() - started_ns) / 1e9)
        del batches  # the client was connected while the worker was idle, as in a pool
        return costs, idle_cores
    finally:
        service.close()


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


class _Received:
    """What it costs to receive batches of one size, from a service of its own.

    Attributes:
      us_per_image: CPU time of this process, with what is after the cut.
      hand_over_ms: time in which a device waits for a batch that is ready.
      standing_cores: cores that this process keeps busy while it receives nothing.
    """

    def __init__(self, source: ImageSource, config: PipelineConfig) -> None:
        images = min(config.batch_size, source.images)
        with build(replace(config, service="local:1"), source) as loader:
            received_us, busy = image_cost(loader.data, lambda element: int(element[1].shape[0]), _RECEIVED_RUNS)
            batch_ns = int(images * received_us / busy * 1e3)
            self.hand_over_ms = _hand_over_ms(iter(loader.data), pause_ns=max(_READY_NS, _READY_RATIO * batch_ns))
            cpu_ns, started_ns = clock.own_cpu_ns(), clock.now_ns()
            clock.sleep_until_ns(started_ns + _RUN_NS)
            self.standing_cores = (clock.own_cpu_ns() - cpu_ns) / (clock.now_ns() - started_ns)
        self.us_per_image = received_us * max(0.0, 1 - self.standing_cores / busy)


def _hand_over_ms(batches: Iterator[Any], *, pause_ns: int) -> float:
    """Returns the milliseconds in which the next batch comes, if it was ready long before: after a pause."""
    waits = []
    for _ in range(_READY_BATCHES):
        clock.sleep_until_ns(clock.now_ns() + pause_ns)
        asked_ns = clock.now_ns()
        if next(batches, None) is None:
            break
        waits.append((clock.now_ns() - asked_ns) / 1e6)
    return median(waits)


def image_cost(dataset: tf.data.Dataset, images: Callable[[Any], int], runs: int = _RUNS) -> tuple[float, float]:
    """Returns the CPU time of an image in microseconds, and how many cores were busy: medians over runs.

    The runs follow one another in one iteration over many epochs, as in a training: what an iteration costs before its
    first element is in none of them.

    Args:
      images: returns the images of an element.
    """
    elements = iter(dataset.repeat())
    _images_taken(elements, images)
    costs, busy = [], []
    for _ in range(runs):
        cpu_ns, started_ns = clock.own_cpu_ns(), clock.now_ns()
        taken = _images_taken(elements, images)
        used_ns = clock.own_cpu_ns() - cpu_ns
        costs.append(used_ns / 1e3 / taken)
        busy.append(used_ns / (clock.now_ns() - started_ns))
    return median(costs), median(busy)


def _images_taken(elements: Iterator[Any], images: Callable[[Any], int]) -> int:
    """Takes elements for the time of a run. Returns the number of their images."""
    began_ns, taken = clock.now_ns(), 0
    while clock.now_ns() - began_ns < _RUN_NS:
        taken += images(next(elements))
    return taken
