"""Measures generated photos beside real ones: their sizes, and the rates at which decoders read them."""

from __future__ import annotations

import io
from collections.abc import Callable, Generator
from pathlib import Path

import cv2
import numpy as np
from PIL import Image
from rich.console import Console
from rich.progress import Progress

from unstall.benchmarks.lab.command import read_files, say_noise
from unstall.benchmarks.lab.options import UserError
from unstall.benchmarks.truth.measure import Run
from unstall.benchmarks.truth.plan import Plan
from unstall.benchmarks.truth.promises import DECODERS
from unstall.benchmarks.truth.samples import Figure, Group
from unstall.pipeline import ImageSource, open_source
from unstall.pipeline.commands import decoders_unheard
from unstall.profiles import clock

# Blocks of the one kind and the other in turn, so that both meet the same machine.
_BLOCK_PHOTOS = 50


def open_run(plan: Plan, progress: Progress, errors: Console) -> Run:
    """Reads the real photos, generates as many, and gets ready to decode them.

    Raises:
      UserError: if the photos are not files.
    """
    real = read_files(plan.against, progress, errors, skip_list=plan.skip_list)
    generated = open_source(f"generated:{max(real.images, 4)}")
    groups = measure(real, generated, plan.number("rounds"), errors)
    return Run(plan, progress, groups, dataset=real.to_dict())


def measure(real: ImageSource, generated: ImageSource, rounds: int, errors: Console) -> Generator[Group, None, None]:
    """Yields sizes at first, and with them the rates of all decoders after each round.

    Raises:
      UserError: at a photo that cannot be decoded.
    """
    sizes = tuple(
        _figure(name, of_real, of_generated)
        for (name, of_real), of_generated in zip(_sizes(real).items(), _sizes(generated).values(), strict=True)
    )
    contents = [[Path(path).read_bytes() for path in source.paths] for source in (real, generated)]
    rates: dict[str, list[tuple[float, float]]] = {name: [] for name in DECODERS}
    cv2.setNumThreads(0)
    with decoders_unheard() as noise:
        for _ in range(rounds):
            for name, decode in _decoders().items():
                rates[name].append(_rates(contents, name, decode))
            decoded = tuple(_figure(name, *zip(*pairs, strict=True)) for name, pairs in rates.items())
            yield Group(name="photos", figures=(*sizes, *decoded))
    say_noise(errors, noise)


def _figure(name: str, real: tuple[float, ...], generated: tuple[float, ...]) -> Figure:
    return Figure(case="generated photos", name=name, truth=real, measured=generated)


def _sizes(source: ImageSource) -> dict[str, tuple[float]]:
    sizes_bytes, pixels = [], []
    for path in source.paths:
        sizes_bytes.append(Path(path).stat().st_size)
        with Image.open(path) as image:
            pixels.append(image.width * image.height)
    return {
        "photos": (len(pixels),),
        "mean bytes": (float(np.mean(sizes_bytes)),),
        "mean pixels": (float(np.mean(pixels)),),
        "bits per pixel": (8 * sum(sizes_bytes) / sum(pixels),),
    }


def _decoders() -> dict[str, Callable[[bytes], object]]:
    full, quarter, pillow = DECODERS
    return {
        full: lambda encoded: cv2.imdecode(np.frombuffer(encoded, np.uint8), cv2.IMREAD_COLOR),
        quarter: lambda encoded: cv2.imdecode(np.frombuffer(encoded, np.uint8), cv2.IMREAD_REDUCED_COLOR_4),
        pillow: lambda encoded: Image.open(io.BytesIO(encoded)).load(),
    }


def _rates(contents: list[list[bytes]], name: str, decode: Callable[[bytes], object]) -> tuple[float, float]:
    """Returns the photos/sec of both kinds, decoded block by block in turn."""
    elapsed_ns = [0, 0]
    for start in range(0, max(map(len, contents)), _BLOCK_PHOTOS):
        for kind, photos in enumerate(contents):
            began_ns = clock.now_ns()
            for encoded in photos[start : start + _BLOCK_PHOTOS]:
                try:
                    decode(encoded)
                except OSError as error:
                    problem = f"a photo cannot be decoded by {name.partition(',')[0]}: {error}"
                    raise UserError(f"{problem}. unstall doctor names it.") from error
            elapsed_ns[kind] += clock.now_ns() - began_ns
    of_real, of_generated = (len(photos) / (ns / 1e9) for photos, ns in zip(contents, elapsed_ns, strict=True))
    return of_real, of_generated
