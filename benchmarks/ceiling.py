"""How near loaders come to the decode ceiling: all cores doing nothing but decoding the same JPEG files.

python -m benchmarks.ceiling --data photos/train
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.command import exit_code_of, say_left_out, say_noise
from benchmarks.options import DATA, MODEL, UserError
from models import MODELS
from pipeline.arguments import ArgumentParser
from pipeline.cache import cache_root
from pipeline.composed import ComposedBatches
from pipeline.config import PipelineConfig
from pipeline.decoder_noise import decoders_unheard
from pipeline.epochs import maps_of
from pipeline.opencv_decode import OpenCVDecoder
from pipeline.python_batches import PythonBatches
from pipeline.skip_list import add_skip_list_option, read_skip_list
from pipeline.sources import ImageSource, SourceError, open_source
from pipeline.variants import VARIANTS
from profiles import clock
from profiles.devices import parse_device
from profiles.provenance import usable_cores
from profiles.statistics import median, ratio_interval
from profiles.terminal import Terminal

_IMAGE_SIZE = MODELS[MODEL].image_size
ROUNDS = 9
# Those that are the tutorial's work, one after the other nearer to the ceiling.
_VARIANTS = (
    "generator",
    "py-dataset",
    "py-dataset-composed",
    "tf-data-autotune",
    "tf-data-scaled-decode",
    "tf-data-composed",
)
# The last one without tf.data: by processes, in a loop in Python.
PYTHON = "python-composed"
_EPOCH_S = 1.0
CEILING = "decode only"


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command. Returns 0, or 2 for bad input, 128 + signal if stopped."""
    parser = ArgumentParser(prog="python -m benchmarks.ceiling", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", default=DATA, metavar="DIR|generated:N", help=f"JPEG photos (default: {DATA})")
    add_skip_list_option(parser)
    known = f"of the main job's, or {PYTHON}"
    parser.add_argument("--variants", default=",".join((*_VARIANTS, PYTHON)), metavar="NAME,...", help=known)
    parser.add_argument("--rounds", type=int, default=ROUNDS, metavar="N", help=f"of all in turn (default: {ROUNDS})")
    arguments = parser.parse_args(argv)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    errors = Terminal(stderr=True)
    # Files of its own it has in the cache alone.
    return exit_code_of(lambda: _run(arguments, errors), errors, cache_root())


def _run(arguments: argparse.Namespace, errors: Console) -> int:
    configs = _configs(arguments)
    source = open_source(arguments.data, skip_list=read_skip_list(arguments.skip_list))
    say_left_out(errors, source)
    if source.formats != ("JPEG",):
        raise UserError(f"--data {arguments.data} must hold JPEG files only. Received: {', '.join(source.formats)}.")
    with decoders_unheard() as noise:
        rates = measure(configs, source, arguments.rounds)
    say_noise(errors, noise)
    _print(rates, source, arguments.rounds)
    return 0


def _configs(arguments: argparse.Namespace) -> dict[str, PipelineConfig]:
    if arguments.rounds < 2:
        raise UserError(f"--rounds must be at least 2. Received: {arguments.rounds}.")
    chosen = {}
    known = {name: config for name, config in VARIANTS.items() if not config.use_multiprocessing}
    known[PYTHON] = VARIANTS["tf-data-composed"]
    for name in arguments.variants.split(","):
        if name not in known:
            raise UserError(f"--variants: {name!r} is no variant without worker processes. Known: {', '.join(known)}.")
        chosen[name] = replace(known[name], image_size=_IMAGE_SIZE)
    return chosen


def measure(configs: dict[str, PipelineConfig], source: ImageSource, rounds: int) -> dict[str, list[float]]:
    """Measures decoding alone and every loader in turn, round by round.

    Returns:
      Images per second by round: of `CEILING` and what else `_ALONE` holds, of each variant in its steady steps, and of
      `PYTHON` in whole epochs.
    """
    from models import open_model
    from pipeline.loaders import build
    from profiles.windows import Windows

    windows = Windows(open_model(MODEL, classes=2), parse_device("emulated:1000000"))
    windows.prepare([(np.zeros((1, *_IMAGE_SIZE, 3), np.float32), np.zeros(1))])
    loaders: dict[str, Any] = {}
    try:
        runs = {name: alone(source, _IMAGE_SIZE) for name, alone in _ALONE.items()}
        for name, config in configs.items():
            if name == PYTHON:
                loaders[name] = PythonBatches(source, config, workers=2 * _cores())
                runs[name] = _epochs(loaders[name])
            else:
                loaders[name] = build(config, source)
                runs[name] = _loader(windows, loaders[name])
        rates: dict[str, list[float]] = {name: [] for name in runs}
        errors = Terminal(stderr=True)
        for number in track(range(rounds), description="rounds", console=errors, transient=True, auto_refresh=False):
            for name, run in runs.items():
                rates[name].append(run(number))
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
        return 1 / sample.s_per_image

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


def _print(rates: dict[str, list[float]], source: ImageSource, rounds: int) -> None:
    title = f"loading {source.images:,} JPEG photos on {usable_cores():g} cores, {rounds} rounds"
    table = Table(box=None, title=title, title_justify="left", title_style="bold")
    table.add_column("")
    for column in ("img/s", "of the ceiling", "95 % interval"):
        table.add_column(column, justify="right")
    for name, measured in rates.items():
        row = [name, f"{median(measured):,.0f}"]
        if name != CEILING:
            ratio, low, high = ratio_interval(measured, rates[CEILING])
            row += [f"{ratio:.0%}", f"{low:.0%} to {high:.0%}"]
        table.add_row(*row)
    Terminal().print(table)


if __name__ == "__main__":
    sys.exit(main())
