"""The augmentation table: that all libraries do the same, its arithmetic, and a small run of the command."""

from __future__ import annotations

import io
import json
import math
import os
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image, ImageOps
from rich.console import Console

from benchmarks.augmentation import __main__ as augmentation
from benchmarks.augmentation.feeds import graph_has_loop, has_loop, open_feed
from benchmarks.augmentation.libraries import LIBRARIES, Row, rows
from benchmarks.augmentation.measure import REFERENCE_LIBRARY, interior_difference
from benchmarks.augmentation.operations import GEOMETRIC, OPERATIONS, crop_box
from benchmarks.augmentation.report import (
    DIFFERENCE_BOUND,
    cautions,
    effective_parallelism,
    legend,
    render,
    summarise,
    table,
)
from benchmarks.augmentation.workers import RowFailed, Worker, WorkerLost, measure, peak_memory_bytes
from pipeline.sources import photographs
from tests import PROJECT_ROOT
from tests.builders import a_measured_augmentation as a_measured
from tests.builders import an_augmentation_document as a_document
from tests.builders import an_augmentation_row as a_row
from tests.builders import an_augmentation_sample as a_sample

SIZE = 64
ALL = rows(tuple(OPERATIONS), tuple(LIBRARIES))


@pytest.fixture(scope="module")
def pair() -> np.ndarray:
    """Two photographs, as the command prepares them."""
    photos = [Image.open(io.BytesIO(photographs.encode_photo(index, 0))) for index in range(2)]
    return np.stack([np.asarray(ImageOps.fit(photo.convert("RGB"), (SIZE, SIZE))) for photo in photos])


def pictured(row: Row, images: np.ndarray) -> np.ndarray:
    return np.asarray(next(open_feed(row, images, batch_size=len(images), calls=1, pinned=True)))


@pytest.mark.parametrize("operation", OPERATIONS)
def test_every_library_does_the_same_wherever_it_is_put(operation, pair):
    reference = pictured(a_row(operation, REFERENCE_LIBRARY, "element"), pair)
    side = crop_box(SIZE)[2] if operation == "crop" else SIZE
    differences = {}
    for row in rows((operation,), tuple(LIBRARIES)):
        made = pictured(row, pair)
        assert (made.shape, made.dtype) == ((2, side, side, 3), np.float32), row.label
        assert made.min() >= 0 and made.max() <= 255, row.label
        differences[row.label] = interior_difference(made, reference)
    assert {label: off for label, off in differences.items() if not off < DIFFERENCE_BOUND} == {}


@pytest.mark.parametrize("operation", [name for name in OPERATIONS if name not in ("none", "crop")])
def test_every_operation_is_seen_in_the_difference(operation, pair):
    changed = pictured(a_row(operation, REFERENCE_LIBRARY, "element"), pair)
    assert interior_difference(changed, pair) > 2 * DIFFERENCE_BOUND


@pytest.mark.parametrize("operation", ["shear", "rotation"])
def test_a_turn_to_the_other_side_is_seen_in_the_difference(operation, pair):
    mirrored = pair[:, :, ::-1].copy()
    other_side = pictured(a_row(operation, REFERENCE_LIBRARY, "element"), mirrored)[:, :, ::-1]
    this_side = pictured(a_row(operation, REFERENCE_LIBRARY, "element"), pair)
    assert interior_difference(other_side, this_side) > 2 * DIFFERENCE_BOUND


def test_the_crop_is_the_box_of_the_original(pair):
    top, left, side = crop_box(SIZE)
    box = pair[:, top : top + side, left : left + side]
    assert np.array_equal(pictured(a_row("crop", "keras_layers", "element"), pair), box)


def test_a_shift_goes_right_and_down(pair):
    shifted = pictured(a_row("shift", "keras_generator", "element"), pair)
    assert np.array_equal(shifted[:, 5:, 10:], pair[:, :-5, :-10])


def test_a_draw_of_a_geometric_operation_is_a_map():
    assert {len(OPERATIONS[name].draw(SIZE)) for name in GEOMETRIC} == {6}
    turn = OPERATIONS["rotation"].draw(3)
    # The middle stays; what was right of it comes from the lower right.
    assert np.reshape(turn, (2, 3)) @ (1, 1, 1) == pytest.approx((1, 1))
    assert np.reshape(turn, (2, 3)) @ (2, 1, 1) == pytest.approx((1 + math.cos(math.pi / 6), 1.5))


def test_the_difference_leaves_an_eighth_at_each_edge_out():
    black = np.zeros((1, 16, 16, 3))
    edged = black.copy()
    edged[:, :2] = edged[:, :, -2:] = 255
    assert interior_difference(edged, black) == 0.0
    assert interior_difference(edged + 3, black) == 3.0


def test_images_that_differ_in_shape_are_refused():
    with pytest.raises(ValueError, match=r"Images differ in shape. Received: \(1, 16, 16, 3\) and \(1, 8, 8, 3\)"):
        interior_difference(np.zeros((1, 16, 16, 3)), np.zeros((1, 8, 8, 3)))


def test_combinations_that_do_not_exist_are_no_rows():
    assert len(ALL) == len(set(ALL))
    generator = [row for row in ALL if row.library == "keras_generator"]
    assert {row.placement for row in generator} == {"element"}
    assert {"crop", "contrast"}.isdisjoint(row.operation for row in generator)
    assert {row.library for row in ALL if row.placement == "model"} == {"keras_layers"}


def test_a_feed_gives_the_same_batches_with_parallel_calls(pair):
    images = np.concatenate([pair, 255 - pair, pair // 2])
    for row in (a_row("flip", "keras_generator", "element"), a_row("flip"), a_row("flip", "tf_ops", "element")):
        alone, together = (open_feed(row, images, batch_size=4, calls=calls) for calls in (1, 3))
        for _ in range(4):
            assert np.array_equal(np.asarray(next(alone)), np.asarray(next(together))), row.label


def graph_of(function):
    import tensorflow as tf

    return tf.function(function).get_concrete_function(tf.TensorSpec((None, 2), tf.float32)).graph.as_graph_def()


def test_a_loop_is_found_however_deep_it_lies():
    import tensorflow as tf

    def looping(x):
        return tf.map_fn(lambda row: row * 2, x)

    def hidden(x):
        return tf.cond(tf.reduce_sum(x) > 0, lambda: tf.function(looping)(x), lambda: x)

    assert graph_has_loop(graph_of(looping))
    assert graph_has_loop(graph_of(hidden))


def test_no_loop_is_found_where_there_is_none():
    import tensorflow as tf

    def called(x):
        return tf.cond(tf.reduce_sum(x) > 0, lambda: tf.function(lambda y: y * 2)(x), lambda: x)

    assert not graph_has_loop(graph_of(lambda x: x * 2))
    assert not graph_has_loop(graph_of(called))


def test_a_library_without_a_graph_has_no_answer_about_loops():
    assert has_loop(a_row("flip", "opencv"), side=SIZE, batch_size=2) is None
    assert has_loop(a_row("flip", "tf_ops"), side=SIZE, batch_size=2) is False


def test_parallelism_is_cpu_time_over_wall_time():
    assert effective_parallelism([a_sample(wall_ms=10, cpu_ms=25), a_sample(wall_ms=10, cpu_ms=5)]) == [2.5, 0.5]


def test_a_row_is_summed_up_by_its_medians():
    alone = [a_sample(cpu_ms=cpu_ms, wall_ms=cpu_ms + 1) for cpu_ms in (2, 4, 90)]
    together = [a_sample(cores=2, cpu_ms=cpu_ms) for cpu_ms in (12, 19, 20)]
    found = summarise(a_measured(samples=[*alone, *together]))
    assert found["cpu_us_per_image"] == 40.0
    assert found["wall_us_per_image"] == 50.0
    assert found["effective_parallelism"] == 1.9
    assert found["spread_ratio"] == pytest.approx(np.std(np.log([2, 4, 90]), ddof=1))
    assert len(found["samples"]) == 6


def test_on_one_core_there_is_no_parallelism_to_show():
    assert summarise(a_measured(samples=[a_sample()]))["effective_parallelism"] is None


def test_a_row_that_failed_has_no_numbers_but_a_reason():
    document = a_document([a_measured(failed="ValueError: no such thing", samples=[a_sample()])])
    (found,) = document["results"]
    assert (found["cpu_us_per_image"], found["spread_ratio"], found["effective_parallelism"]) == (None, None, None)
    assert cautions(document) == ["shear, opencv, batch failed: ValueError: no such thing."]


def test_a_row_that_does_something_else_is_named():
    said = cautions(a_document([a_measured(difference_levels=5.9), a_measured(difference_levels=6.0)]))
    assert said == ["shear, opencv, batch does not do the same: 6.0 off."]


def test_a_machine_that_others_use_is_named():
    quiet = a_measured(samples=[a_sample(others_ms=0.5)])
    busy = a_measured(samples=[a_sample(others_ms=9.0)])
    assert cautions(a_document([quiet])) == []
    assert "Other processes took 0.9 of 2 cores" in cautions(a_document([busy]))[0]


def test_the_table_fits_eighty_columns():
    slow = [a_sample(round_=number, cpu_ms=cpu_ms) for number, cpu_ms in enumerate((1234.5, 1790.0, 2345.6))]
    slow.append(a_sample(cores=2, wall_ms=1, cpu_ms=31.9))
    measured = [
        a_measured(a_row("brightness", "keras_generator", "element"), samples=slow, peak_memory_bytes=12_345_678_901),
        a_measured(a_row("brightness", "keras_layers", "model"), graph_loop=True, difference_levels=255.0),
        a_measured(a_row("contrast", "tf_ops", "batch"), graph_loop=False, failed="ValueError: no"),
    ]
    console = Console(width=80, file=io.StringIO())
    console.print(table([summarise(one) for one in measured]))
    assert console.file.getvalue().splitlines() == [
        "operation  library         placement     us   ± cores loop      MB   off",
        "brightness keras_generator element   17,900 32%  31.9    - 12345.7   0.2",
        "           keras_layers    model        100   -   1.8  yes    12.3 255.0",
        "contrast   tf_ops          batch     failed   -     -   no    12.3   0.2",
    ]


def test_the_page_escapes_what_it_is_given_and_needs_no_network():
    evil = "<script>alert(1)</script>"
    measured = [a_measured(), a_measured(a_row("flip"), failed=evil, image=None)]
    document = a_document(measured)
    document["dataset"]["name"] = evil
    page = render(document, measured, np.zeros((4, 4, 3), np.uint8))
    assert evil not in page
    assert page.count("&lt;script&gt;") == 3  # the data's name; the reason, as a caution and in its row
    assert "Content-Security-Policy" in page and "default-src 'none'" in page
    assert page.count('src="data:image/png;base64,') == page.count(" src=") == 3  # two originals, one result


def test_the_legend_explains_the_row_that_does_nothing_only_where_it_is():
    assert not any("none:" in line for line in legend(a_document([a_measured()])))
    assert any("none:" in line for line in legend(a_document([a_measured(a_row("none"))])))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--rounds", "0"], "--rounds must be at least 1. Received: 0."),
        (["--batch-size", "0"], "--batch-size must be at least 1. Received: 0."),
        (["--image-size", "8"], "--image-size must be at least 32. Received: 8."),
        (["--operations", "sheer"], "--operations: 'sheer' is not known. Did you mean 'shear'?"),
        (["--operations", ","], "--operations needs at least one name."),
        (["--libraries", "open-cv"], "--libraries: 'open-cv' is not known. Did you mean 'opencv'?"),
        (["--operations", "crop", "--libraries", "keras_generator"], "No library of keras_generator has crop."),
        (["--data", "nowhere"], "nowhere does not exist"),
        (["--out", "/proc/nowhere"], "results cannot be written there"),
    ],
)
def test_bad_words_get_one_line_and_exit_code_2(words, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert augmentation.main(words) == 2
    shown = capsys.readouterr()
    assert message in shown.err
    assert len(shown.err.strip().splitlines()) == 1
    assert shown.out == ""


def test_results_of_an_earlier_run_are_not_overwritten(tmp_path, capsys):
    (tmp_path / "augmentation.json").touch()
    assert augmentation.main(["--out", str(tmp_path)]) == 2
    assert "holds augmentation.json already" in capsys.readouterr().err


def test_the_command_starts_without_the_libraries():
    code = (
        "import sys, benchmarks.augmentation; print({'tensorflow', 'keras', 'cv2', 'albumentations'} & {*sys.modules})"
    )
    shown = subprocess.run([sys.executable, "-c", code], cwd=PROJECT_ROOT, capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "set()"


def die(bench: object) -> None:
    os._exit(3)


def test_a_worker_that_fails_or_dies_says_why_and_is_replaced(pair):
    worker = Worker(pair, 2, cores=1)
    try:
        with pytest.raises(RowFailed, match="KeyError: 'crop'"):
            worker.ask(measure, a_row("crop", "keras_generator", "element"), 0)
        with pytest.raises(WorkerLost, match="its process ended"):
            worker.ask(die)
        assert worker.ask(measure, a_row("flip"), 0).cores == 1
    finally:
        worker.close()


def test_the_memory_that_a_row_takes_is_seen(pair):
    images = np.tile(pair, (16, 4, 4, 1))  # 32 of 256 px: a float32 batch has 25 MB
    worker = Worker(images, 32, cores=1)
    try:
        assert worker.ask(peak_memory_bytes, a_row("none", "tf_ops")) > 20e6
    finally:
        worker.close()


def test_a_small_run_leaves_its_table_and_its_pictures(photos, tmp_path, capsys):
    out = tmp_path / "out"
    words = ["--data", str(photos), "--operations", "flip", "--libraries", "keras_generator,tf_ops"]
    assert augmentation.main([*words, "--rounds", "1", "--batch-size", "4", "--out", str(out)]) == 0
    document = json.loads((out / "augmentation.json").read_text(), parse_constant=pytest.fail)
    chosen = rows(("flip",), ("keras_generator", "tf_ops"))
    assert [(one["library"], one["placement"]) for one in document["results"]] == [
        (row.library, row.placement) for row in chosen
    ]
    for one in document["results"]:
        assert one["failed"] is None
        for name in ("cpu_us_per_image", "wall_us_per_image", "difference_levels", "peak_memory_bytes"):
            assert math.isfinite(one[name]), name
        assert one["cpu_us_per_image"] > 0
        assert all(sample["images"] > 0 for sample in one["samples"])
    page = (out / "augmentation.html").read_text()
    assert page.count("data:image/png;base64,") == 3  # the original, and one of each library
    shown = capsys.readouterr().out
    assert "keras_generator" in shown
    assert max(map(len, shown.splitlines()[: len(chosen) + 1])) <= 80
