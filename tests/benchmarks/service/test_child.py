"""What the measuring process counts of a service's batches."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from unstall.benchmarks.service.child import sent_bytes
from unstall.pipeline import VARIANTS, from_folder


def test_what_a_worker_sends_of_an_image_is_its_file_or_its_pixels_and_its_label(photos):
    source = from_folder(photos)
    config = replace(VARIANTS["tf-data-autotune"], image_size=(48, 64))
    for served in ("images", "batches"):
        assert sent_bytes(source, replace(config, served=served)) == 48 * 64 * 3 + 4
    mean = np.mean([path.stat().st_size for path in photos.rglob("*.jpg")])
    assert sent_bytes(source, replace(config, served="files")) == pytest.approx(mean + 4)
