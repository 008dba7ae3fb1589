"""Where a pipeline can be cut, and what is measured of each cut."""

from __future__ import annotations

import os
from dataclasses import replace

import numpy as np
import pytest

from unstall.benchmarks.service.planning import child
from unstall.benchmarks.service.planning.child import cut_costs, legal_cuts
from unstall.benchmarks.service.planning.samples import CutCosts
from unstall.pipeline import VARIANTS, from_folder

CONFIG = replace(VARIANTS["tf-data-autotune"], batch_size=16)


@pytest.mark.parametrize(
    ("config", "cuts"),
    [
        (CONFIG, ("files", "images", "batches")),
        (VARIANTS["tf-data-composed"], ("batches",)),
        (replace(CONFIG, augmentation=None), ("files", "batches")),
        (replace(CONFIG, augment_with="keras_layers", augment_at="device"), ("files", "batches")),
    ],
    ids=["separate", "composed", "no augmentation", "on the device"],
)
def test_a_pipeline_is_cut_between_its_steps(config, cuts):
    assert legal_cuts(config) == cuts
    for served in cuts:
        assert replace(config, service="local:1", served=served).served == served


@pytest.fixture(scope="module")
def source(photos):
    return from_folder(photos)


@pytest.fixture(scope="module")
def measured(source) -> dict[str, CutCosts]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(child, "_RUN_NS", 50_000_000)
        return {served: cut_costs(source, CONFIG, served, 2) for served in legal_cuts(CONFIG)}


def test_what_is_sent_of_an_image_is_its_file_or_its_pixels_and_its_label(measured, source):
    for served in ("images", "batches"):
        assert measured[served].bytes_per_image == 64 * 64 * 3 + 4
    sizes = [os.path.getsize(path) for path in source.paths]
    assert len(sizes) % CONFIG.batch_size and len(set(sizes)) > 1  # the last batch weighs less
    assert measured["files"].bytes_per_image == pytest.approx(np.mean(sizes) + 4)


def test_a_cut_moves_the_work_of_decoding(measured):
    """It is the largest part: of files that are sent the trainer does it, of batches the workers."""
    files, batches = measured["files"], measured["batches"]
    assert files.trainer_us > batches.trainer_us > 0
    assert 0 < files.worker_us < batches.worker_us


@pytest.mark.parametrize(
    ("ms", "expected"),
    [((3.0, 5.0), (2.0, 1.0)), ((3.0, 2.0), (0.0, 3.0)), ((1.0, 5.0), (4.0, 0.0))],
    ids=["both", "no slope below 0", "no batch below 0"],
)
def test_the_cost_of_a_megabyte_and_of_a_batch_come_from_two_sizes(ms, expected):
    assert child._line((1.0, 2.0), ms) == expected
