"""Generated photos against real ones: their sizes, and the rates at which decoders read them."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from PIL import Image

from tests.truth.bounds import BOUNDS, DECODERS
from tests.truth.figures import Check, Figure, check
from unstall.pipeline import from_folder, open_source
from unstall.pipeline.commands import decoders_unheard
from unstall.profiles import clock
from unstall.profiles.statistics import median

# Blocks of the one kind and the other in turn, so that both meet the same machine.
_BLOCK_PHOTOS = 50


def sizes_of(photos: list[bytes]) -> dict[str, float]:
    shapes = [Image.open(io.BytesIO(photo)).size for photo in photos]
    pixels = sum(width * height for width, height in shapes)
    total = sum(map(len, photos))
    count = len(photos)
    return {"mean bytes": total / count, "mean pixels": pixels / count, "bits per pixel": 8 * total / pixels}


def decoders() -> Mapping[str, Callable[[bytes], object]]:
    full, quarter, pillow = DECODERS
    return {
        full: lambda encoded: cv2.imdecode(np.frombuffer(encoded, np.uint8), cv2.IMREAD_COLOR),
        quarter: lambda encoded: cv2.imdecode(np.frombuffer(encoded, np.uint8), cv2.IMREAD_REDUCED_COLOR_4),
        pillow: lambda encoded: Image.open(io.BytesIO(encoded)).load(),
    }


def rates_of(contents: list[list[bytes]], decode: Callable[[bytes], object]) -> list[float]:
    """Returns the photos/sec of both kinds, decoded block by block in turn."""
    elapsed_ns = [0, 0]
    for start in range(0, max(map(len, contents)), _BLOCK_PHOTOS):
        for kind, photos in enumerate(contents):
            began_ns = clock.now_ns()
            for encoded in photos[start : start + _BLOCK_PHOTOS]:
                decode(encoded)
            elapsed_ns[kind] += clock.now_ns() - began_ns
    return [len(photos) / (ns / 1e9) for photos, ns in zip(contents, elapsed_ns, strict=True)]


def checks_of(real: list[bytes], generated: list[bytes], rounds: int) -> list[Check]:
    """Measures photos of both kinds, those that are real as the truth."""
    sizes = sizes_of(real), sizes_of(generated)
    measured = {name: [tuple(size[name] for size in sizes)] for name in sizes[0]}
    threads = cv2.getNumThreads()
    cv2.setNumThreads(0)
    try:
        with decoders_unheard():
            for _ in range(rounds):
                for name, decode in decoders().items():
                    measured.setdefault(name, []).append(tuple(rates_of([real, generated], decode)))
    finally:
        cv2.setNumThreads(threads)
    figures = []
    for name, pairs in measured.items():
        truth, found = zip(*pairs, strict=True)
        figures.append(Figure(case="", name=name, truth=truth, measured=found))
    return [check("photos", figure) for figure in figures]


@pytest.mark.claims
def test_generated_photos_cost_what_real_ones_do(real_photos: Path, repeats: Any, tabulate: Any) -> None:
    real = [Path(path).read_bytes() for path in from_folder(real_photos / "train").paths]
    generated = [Path(path).read_bytes() for path in open_source(f"generated:{len(real)}").paths]
    checks = checks_of(real, generated, repeats(7))
    rows = []
    for each in checks:
        unit = ", photos/sec on one core" if each.figure.name in DECODERS else ""
        numbers = [median(number) for number in (each.figure.truth, each.figure.measured)]
        places = 2 if each.figure.name == "bits per pixel" else 0
        rows.append((each.figure.name + unit, *(f"{number:,.{places}f}" for number in numbers), f"{1 + each.off:.3f}"))
    columns = (f"{len(generated):,} generated photos against {len(real):,} real ones", "real", "generated", "ratio")
    tabulate("photos", columns, rows)
    assert [each for each in checks if not each.holds] == []


def test_photos_of_another_size_are_found_out() -> None:
    small, large = (cv2.imencode(".jpg", np.zeros((side, side, 3), np.uint8))[1].tobytes() for side in (16, 64))
    checks = checks_of([large] * 4, [small] * 4, rounds=2)
    assert [each.figure.name for each in checks] == list(BOUNDS["photos"])
    assert [len(each.errors) for each in checks] == [1, 1, 1, 2, 2, 2]
    assert not any(each.holds for each in checks[1:3])  # a black photo has hardly any bytes beyond its head


@pytest.mark.parametrize("name", BOUNDS["photos"])
def test_rates_of_photos_are_compared_round_by_round(name: str) -> None:
    rates = Figure(case="", name=name, truth=(100.0, 200.0, 90.0), measured=(91.0, 240.0, 81.9))
    assert check("photos", rates).off == pytest.approx(-0.09)  # the median of 0.91, 1.2 and 0.91
    for ratio, holds in ((1.09, True), (0.91, True), (1.11, False), (0.89, False)):
        assert check("photos", Figure(case="", name=name, truth=(100.0,), measured=(100 * ratio,))).holds is holds
