"""What all cores do with nothing but decoding, reading and warping, and loaders beside it, in rounds."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from rich.progress import track

from benchmarks.ceiling.plan import CEILING, IMAGE_SIZE, PYTHON
from benchmarks.lab.options import MODEL
from models import open_model
from pipeline import VARIANTS, ImageSource, PipelineConfig, SourceError, build
from pipeline.loaders.python_batches import PythonBatches
from pipeline.stages import maps_of
from pipeline.stages.compose import ComposedBatches
from pipeline.stages.opencv_decode import OpenCVDecoder
from profiles import clock
from profiles.devices import parse_device
from profiles.provenance import usable_cores
from profiles.text import Terminal

_EPOCH_S = 1.0


def measure(configs: dict[str, PipelineConfig], source: ImageSource, rounds: int) -> dict[str, list[float]]:
    """Measures decoding alone and every loader in turn, round by round.

    Returns:
      Images per second by round: of `CEILING` and what else `_ALONE` holds, of each variant and of `PYTHON` in whole
      epochs.
    """
    from profiles.measure.windows import Windows

    windows = Windows(open_model(MODEL, classes=2), parse_device("emulated:1000000"))
    windows.prepare([(np.zeros((1, *IMAGE_SIZE, 3), np.float32), np.zeros(1))])
    loaders: dict[str, Any] = {}
    try:
        runs = {name: alone(source, IMAGE_SIZE) for name, alone in _ALONE.items()}
        for name, config in configs.items():
            if name == PYTHON:
                loaders[name] = PythonBatches(source, config, workers=2 * _cores())
                runs[name] = _epochs(loaders[name])
            else:
                loaders[name] = build(config, source)
                runs[name] = _loader(windows, loaders[name])
        rates: dict[str, list[float]] = {name: [] for name in runs}
        errors, order = Terminal(stderr=True), random.Random()
        for number in track(range(rounds), description="rounds", console=errors, transient=True, auto_refresh=False):
            for name in order.sample(list(runs), len(runs)):
                rates[name].append(runs[name](number))
    finally:
        for loader in loaders.values():
            loader.close()
    return rates


def _loader(windows: Any, loader: Any) -> Callable[[int], float]:
    ramp_steps = loader.parallel_batches + loader.buffered_batches
    first = windows.loader(loader.data, epochs=1, ramp_steps=1, round_=0)
    epochs = max(1, round(_EPOCH_S * 1e9 / first.epoch_ns))

    def run(number: int) -> float:
        sample = windows.loader(
            loader.data, epochs=epochs, ramp_steps=min(ramp_steps, loader.batches - 2), round_=number
        )
        return 1 / sample.whole_s_per_image()

    return run


def _epochs(batches: PythonBatches) -> Callable[[int], float]:
    def run(number: int) -> float:
        for _ in batches:  # not timed: its workers start, and get as far ahead as they are when the clock stops
            pass
        images, begin_ns = 0, clock.now_ns()
        while clock.now_ns() - begin_ns < _EPOCH_S * 1e9:
            images += sum(len(labels) for _, labels in batches)
        rate = images / (clock.now_ns() - begin_ns) * 1e9
        batches.close()  # they would go on, beside whoever is next
        return rate

    return run


def _cores() -> int:
    return max(1, round(usable_cores()))


def decoding_alone(source: ImageSource, image_size: tuple[int, int]) -> Callable[[int], float]:
    """Returns a run of one thread a core, each decoding its share of the files from memory, scaled as loaders do."""
    decoder = OpenCVDecoder(source, PipelineConfig(decode="scaled", image_size=image_size))
    encoded = [np.fromfile(path, np.uint8) for path in source.paths]

    def share(indices: range) -> None:
        for index in indices:
            decoder.decode(index, encoded[index])

    return _on_all_cores(share, source.images)


def _reading_and_decoding(source: ImageSource, image_size: tuple[int, int]) -> Callable[[int], float]:
    decoder = OpenCVDecoder(source, PipelineConfig(decode="scaled", image_size=image_size))

    def share(indices: range) -> None:
        for index in indices:
            decoder(index)

    return _on_all_cores(share, source.images)


def _warping_too(source: ImageSource, image_size: tuple[int, int]) -> Callable[[int], float]:
    """Returns a run of all that an image needs: it hands nothing over, and nobody waits for anybody."""
    config = replace(VARIANTS["tf-data-composed"], image_size=image_size)
    batches, matrices = ComposedBatches(source, config), maps_of(source.images, config, epoch=0)
    plan = batches.plan(np.arange(source.images), matrices)

    def share(indices: range) -> None:
        for begin in range(0, len(indices), config.batch_size):
            rows = np.array(indices[begin : begin + config.batch_size])
            batches(rows, matrices[rows], plan[rows])

    return _on_all_cores(share, source.images)


def _on_all_cores(share: Callable[[range], None], images: int) -> Callable[[int], float]:
    """Returns a run of one thread a core, each doing its share of the images."""
    threads_wanted = _cores()
    failed: list[ValueError] = []

    def work(first: int) -> None:
        try:
            share(range(first, images, threads_wanted))
        except ValueError as error:
            failed.append(error)

    def run(number: int) -> float:
        threads = [threading.Thread(target=work, args=(first,)) for first in range(threads_wanted)]
        begin_ns = clock.now_ns()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failed:
            raise SourceError(f"{failed[0]} python -m benchmarks.doctor names all such files.")
        return images / (clock.now_ns() - begin_ns) * 1e9

    return run


# What the cores do with nothing around it: the ceiling, and how much of it reading and one warp leave.
_ALONE: dict[str, Callable[[ImageSource, tuple[int, int]], Callable[[int], float]]] = {
    CEILING: decoding_alone,
    "read, decode": _reading_and_decoding,
    "read, decode, warp": _warping_too,
}
