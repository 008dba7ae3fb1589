"""Compares generated photos with real ones: bytes, bits per pixel, and the rates at which they decode.

python -m benchmarks.truth --only photos --against photos/train
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from PIL import Image
from rich.table import Table

from benchmarks.lab.command import say, say_left_out, say_noise
from benchmarks.lab.options import UserError
from pipeline import ImageSource, SourceError, open_source, read_skip_list
from pipeline.commands import ArgumentParser, decoders_unheard
from pipeline.sources import add_skip_list_option
from profiles import clock
from profiles.text import Terminal

# Blocks of the one kind and the other in turn, so that both meet the same machine.
_BLOCK_PHOTOS = 50
# The bound within which the generated photos must stay. Source: the issue that asked for them.
_BOUND_RATIO = 0.10


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command. Returns 0 if all ratios lie within 10 % of 1, 1 if not, 2 for bad input."""
    parser = ArgumentParser(
        prog="python -m benchmarks.truth --only photos", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--against", required=True, metavar="DIR", help="a folder of class folders of real photos")
    add_skip_list_option(parser)
    parser.add_argument("--rounds", type=int, default=7, metavar="N", help="times that all are decoded (default: 7)")
    arguments = parser.parse_args(argv)
    try:
        if arguments.rounds < 1:
            raise UserError(f"--rounds must be at least 1. Received: {arguments.rounds}.")
        real = open_source(arguments.against, skip_list=read_skip_list(arguments.skip_list))
        say_left_out(Terminal(stderr=True), real)
        generated = open_source(f"generated:{max(real.images, 4)}")
        with decoders_unheard() as noise:
            rates = _rates(real, generated, arguments.rounds)
    except (UserError, SourceError) as error:
        return say(Terminal(stderr=True), error)
    say_noise(Terminal(stderr=True), noise)
    ratios = _print(_sizes(real), _sizes(generated), rates)
    return 0 if all(abs(ratio - 1) <= _BOUND_RATIO for ratio in ratios) else 1


def _sizes(source: ImageSource) -> dict[str, float]:
    sizes_bytes, pixels = [], []
    for path in source.paths:
        sizes_bytes.append(Path(path).stat().st_size)
        with Image.open(path) as image:
            pixels.append(image.width * image.height)
    return {
        "photos": len(pixels),
        "mean bytes": float(np.mean(sizes_bytes)),
        "mean pixels": float(np.mean(pixels)),
        "bits per pixel": 8 * sum(sizes_bytes) / sum(pixels),
    }


def _decoders() -> dict[str, Callable[[bytes], object]]:
    import cv2

    cv2.setNumThreads(0)
    return {
        "OpenCV, full size": lambda encoded: cv2.imdecode(np.frombuffer(encoded, np.uint8), cv2.IMREAD_COLOR),
        "OpenCV, quarter size": lambda encoded: cv2.imdecode(
            np.frombuffer(encoded, np.uint8), cv2.IMREAD_REDUCED_COLOR_4
        ),
        "Pillow": lambda encoded: Image.open(io.BytesIO(encoded)).load(),
    }


def _rates(real: ImageSource, generated: ImageSource, rounds: int) -> dict[str, tuple[float, float, float]]:
    """Returns for each decoder the photos/sec of real and of generated ones, and the median ratio of the rounds."""
    contents = [[Path(path).read_bytes() for path in source.paths] for source in (real, generated)]
    found = {}
    for name, decode in _decoders().items():
        seconds = np.zeros((rounds, 2))
        for number in range(rounds):
            for start in range(0, max(map(len, contents)), _BLOCK_PHOTOS):
                for kind, photos in enumerate(contents):
                    begin_ns = clock.now_ns()
                    for encoded in photos[start : start + _BLOCK_PHOTOS]:
                        try:
                            decode(encoded)
                        except OSError as error:
                            problem = f"a photo cannot be decoded by {name.partition(',')[0]}: {error}"
                            raise SourceError(f"{problem}. python -m benchmarks.doctor names it.") from error
                    seconds[number, kind] += (clock.now_ns() - begin_ns) / 1e9
        rates = np.array([len(photos) for photos in contents]) / seconds
        middle = np.median(rates, axis=0)
        found[name] = (float(middle[0]), float(middle[1]), float(np.median(rates[:, 1] / rates[:, 0])))
    return found


def _print(
    real: dict[str, float], generated: dict[str, float], rates: dict[str, tuple[float, float, float]]
) -> list[float]:
    table = Table(box=None, title="generated photos against real ones", title_justify="left", title_style="bold")
    table.add_column("")
    for column in ("real", "generated", "ratio"):
        table.add_column(column, justify="right")
    ratios = []
    for name, value in real.items():
        ratio = generated[name] / value
        places = 2 if name == "bits per pixel" else 0
        table.add_row(name, f"{value:,.{places}f}", f"{generated[name]:,.{places}f}", f"{ratio:.3f}")
        if name != "photos":
            ratios.append(ratio)
    for name, (theirs, ours, ratio) in rates.items():
        table.add_row(f"{name}, photos/sec on one core", f"{theirs:,.0f}", f"{ours:,.0f}", f"{ratio:.3f}")
        ratios.append(ratio)
    Terminal().print(table)
    return ratios
