"""What follows from the samples of augmentations: arithmetic and the table."""

from __future__ import annotations

import numpy as np
import pytest

from tests.benchmarks.evidence.augmentation.builders import a_document, a_measured, a_sample, a_subject
from tests.benchmarks.evidence.documents import printed
from unstall.benchmarks.evidence.augmentation.view import AugmentationDocument, row_of, view_of
from unstall.profiles.report import LeftOut


def said(document: AugmentationDocument) -> str:
    return printed(document, view_of(document))


def test_a_subject_is_summed_up_by_its_medians():
    alone = [a_sample(cpu_ms=cpu_ms, wall_ms=cpu_ms + 1) for cpu_ms in (2, 4, 90)]
    together = [a_sample(cores=2, cpu_ms=cpu_ms) for cpu_ms in (12, 19, 20)]
    [row] = view_of(a_document(a_measured(samples=(*alone, *together)))).rows
    assert row["cpu_us_per_image"] == 40.0
    assert row["wall_us_per_image"] == 50.0
    assert row["effective_parallelism"] == 1.9
    assert row["spread_ratio"] == pytest.approx(np.std(np.log([2, 4, 90]), ddof=1))


def test_on_one_core_there_is_no_parallelism_to_show():
    [row] = view_of(a_document(a_measured(samples=(a_sample(),)))).rows
    assert row["effective_parallelism"] is None


def failed(reason, *labels):
    return tuple(LeftOut(who=label, reason=reason) for label in labels)


def test_a_subject_that_failed_has_no_times_but_a_reason():
    row = row_of(a_measured(), failed=True)
    assert (row["cpu_us_per_image"], row["spread_ratio"], row["effective_parallelism"]) == (None, None, None)
    document = a_document(a_measured(), left_out=failed("ValueError: no such thing", "shear, opencv, batch"))
    assert view_of(document).rows == []
    assert said(document).endswith("left out shear, opencv, batch: ValueError: no such thing")


def test_a_machine_that_others_use_is_named():
    quiet = a_measured(samples=(a_sample(others_ms=0.5),))
    busy = a_measured(samples=(a_sample(others_ms=9.0),))
    assert view_of(a_document(quiet)).sentences == []
    assert "Other processes took 0.9 of 2 cores" in view_of(a_document(busy)).sentences[0]


def test_the_table_fits_eighty_columns():
    slow = [a_sample(round_=number, cpu_ms=cpu_ms) for number, cpu_ms in enumerate((1234.5, 1790.0, 2345.6))]
    slow.append(a_sample(cores=2, wall_ms=1, cpu_ms=31.9))
    generator = a_subject("brightness", "keras_generator", "element")
    document = a_document(
        a_measured(generator, samples=tuple(slow), peak_memory_bytes=12_345_678_901),
        a_measured(a_subject("brightness", "keras_layers", "model"), graph_loop=True),
        a_measured(a_subject("contrast", "tf_ops", "batch"), graph_loop=False),
        left_out=failed("ValueError: no", "contrast, tf_ops, batch"),
    )
    assert said(document).splitlines()[:4] == [
        "operation  library         placement     us   ± cores loop      MB",
        "brightness keras_generator element   17,900 32%  31.9    - 12345.7",
        "           keras_layers    model        100   -   1.8  yes    12.3",
        "contrast   tf_ops          batch     failed   -     -   no    12.3",
    ]


def test_the_legend_explains_the_operation_that_does_nothing_only_where_it_is():
    assert "none:" not in said(a_document(a_measured(), operations=("shear",)))
    assert "none:" in said(a_document(a_measured(a_subject("none"))))
