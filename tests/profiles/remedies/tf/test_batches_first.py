"""Which functions of elements take batches as well."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tests.planted import planted
from tests.profiles.remedies.tf.pipelines import source, taken_apart
from unstall.profiles.stages import nodes, tf_stages
from unstall.profiles.stages.tf_stages import tfdata_table


def test_a_function_of_batches_is_found_and_one_of_elements_is_not():
    def halve(index):
        return tf.cast(index, tf.float32)[..., None] / 2

    def of_one(index):
        return tf.ensure_shape(tf.cast(index, tf.float32), ())

    data, remedies = taken_apart(source().map(halve).batch(8))
    assert remedies["batches-first"].code == ".batch(8).map(halve)"
    assert data.compared(("batches-first",)).effect == "identical"
    assert [node.kind for node in nodes(data.built(("batches-first",), 25))][-2:] == ["batch", "map"]
    assert "batches-first" not in taken_apart(source().map(of_one).batch(8))[1]


def csv_lines(folder):
    def parse(line):
        fields = tf.io.decode_csv(line, [0.0] * 4)
        return tf.stack(fields[:-1], axis=-1), fields[-1]

    (folder / "rows.csv").write_text("".join(f"{n},{n + 1},{n + 2},{n % 2}\n" for n in range(256)))
    return tf.data.TextLineDataset(str(folder / "rows.csv")).map(parse)


def records(folder):
    def parse(record):
        parsed = tf.io.parse_single_example(record, {"value": tf.io.FixedLenFeature([], tf.float32)})
        return parsed["value"]

    with tf.io.TFRecordWriter(str(folder / "rows.tfrecord")) as file:
        for number in range(256):
            value = tf.train.Feature(float_list=tf.train.FloatList(value=[number]))
            file.write(tf.train.Example(features=tf.train.Features(feature={"value": value})).SerializeToString())
    return tf.data.TFRecordDataset(str(folder / "rows.tfrecord")).map(parse)


def texts(folder):
    def clean(text):
        return tf.strings.regex_replace(tf.strings.lower(text), "[^a-z ]", "")

    (folder / "reviews.txt").write_text("".join(f"Review, number {n}!\n" for n in range(256)))
    return tf.data.TextLineDataset(str(folder / "reviews.txt")).map(clean)


def arrays(folder):
    return tf.data.Dataset.from_tensor_slices(np.arange(512.0).reshape(256, 2)).map(lambda row: row / 255.0)


@planted
@pytest.mark.parametrize(
    ("make", "function", "takes_batches"),
    [
        pytest.param(csv_lines, "parse", True, id="CSV"),
        pytest.param(records, "parse", False, id="TFRecord"),  # parse_example would
        pytest.param(texts, "clean", True, id="text"),
        pytest.param(arrays, "<lambda>", True, id="arrays"),
    ],
)
def test_small_elements_of_any_kind_show_what_their_calls_cost_and_come_in_batches(
    make, function, takes_batches, tmp_path, monkeypatch
):
    monkeypatch.setattr(tf_stages, "RUN_S", 0.03)
    dataset = make(tmp_path).batch(32)
    data, remedies = taken_apart(dataset, needs=["waiting"])
    assert ("batches-first" in remedies) is takes_batches
    if takes_batches:
        assert data.compared(("batches-first",)).effect == "identical"
    [stage] = [one for one in tfdata_table(dataset, cores=2.0).stages if one.name == function]
    assert stage.call_us_per_image is not None and stage.call_us_per_image > 0
