"""Batches by their numbers hold what the same config without a service serves."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from unstall.pipeline import VARIANTS, PipelineConfig, from_folder
from unstall.pipeline.draws import drawn
from unstall.pipeline.loaders.python_batches import PythonBatches
from unstall.pipeline.service.numbered import BatchMaker, chunks, numbered_batches, rest_of
from unstall.pipeline.sources.names import FileNames
from unstall.pipeline.sources.source import ImageSource
from unstall.pipeline.stages import output

COMPOSED = dataclasses.replace(VARIANTS["tf-data-composed"], batch_size=16, output_dtype="uint8")


def batches_of(maker: BatchMaker, count: int) -> list[tuple[int, Any, Any]]:
    dataset = numbered_batches(chunks(0).take(count), maker)
    return [(int(number), images.numpy(), labels.numpy()) for number, images, labels, _ in dataset]


@pytest.mark.parametrize("long_epoch", [5, 1 << 16])
def test_composed_batches_are_those_of_python_batches(photos, long_epoch, monkeypatch):
    """Two epochs and a part of the third, over the edges of epochs and of chunks."""
    monkeypatch.setattr("unstall.pipeline.stages.epochs.LONG_EPOCH", long_epoch)
    source = from_folder(photos)
    maker = BatchMaker(source, COMPOSED)
    served = batches_of(maker, 8)
    expected = PythonBatches(source, COMPOSED)
    for epoch in range(2):
        for number, (images, labels) in enumerate(expected):
            at, its_images, its_labels = served[epoch * 3 + number]
            assert at == epoch * 3 + number
            np.testing.assert_array_equal(its_images, images)
            np.testing.assert_array_equal(its_labels, labels)
    assert [len(labels) for _, _, labels in served] == [16, 16, 8, 16, 16, 8, 16, 16]


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("tf-data-autotune", {}),
        ("tf-data-scaled-decode", {"augment_at": "batch"}),
        ("tf-data-albumentations", {}),
        ("tf-data-no-augment", {}),
        ("tf-data-autotune", {"augment_with": "opencv", "augment_at": "batch"}),
    ],
)
def test_other_batches_are_the_same_photos_and_draws(photos, name, changes):
    """The order of an epoch is another than tf.data's own shuffle, so that single images are compared by their draw."""
    config = dataclasses.replace(VARIANTS[name], batch_size=16, workers=2, **changes)
    source = from_folder(photos)
    maker = BatchMaker(source, config)
    plain = dataclasses.replace(config, augmentation=None)
    for number, images, labels in batches_of(maker, 4):
        assert images.dtype == np.uint8
        assert images.shape == (maker.size_of(number), *config.image_size, 3)
        assert len(labels) == maker.size_of(number)
    order = [int(label) for _, _, labels in batches_of(maker, 3) for label in labels]
    unaugmented = [int(label) for _, _, labels in batches_of(BatchMaker(source, plain), 3) for label in labels]
    assert order == unaugmented
    assert sorted(order) == sorted(source.labels.tolist())
    first, again = (np.concatenate([images for _, images, _ in batches_of(maker, 3)]) for _ in range(2))
    np.testing.assert_array_equal(first, again)


@pytest.mark.parametrize("name", ["tf-data-composed", "tf-data-autotune"])
def test_images_keep_their_order_where_single_ones_pass_through_maps(photos, monkeypatch, name):
    """In another order, images would come into a neighbouring batch: some would be lost, and others served twice."""
    config = dataclasses.replace(VARIANTS[name], batch_size=16, workers=2, deterministic=False)
    in_order = []

    def mapped(dataset: tf.data.Dataset, function: Any, config: PipelineConfig) -> tf.data.Dataset:
        in_order.append(config.deterministic)
        return dataset.map(function)

    monkeypatch.setattr(output, "mapped", mapped)
    dataset = numbered_batches(chunks(0).take(1), BatchMaker(from_folder(photos), config))
    assert {*in_order, dataset.options().deterministic} == {not config.composed}


def test_native_draws_are_those_of_an_image_alone(photos):
    """An image of a batch is the decoded, resized photo under the draw of its place in the epoch."""
    config = dataclasses.replace(VARIANTS["tf-data-autotune"], batch_size=16)
    source = from_folder(photos)
    maker = BatchMaker(source, config)
    _, images, _ = batches_of(maker, 1)[0]
    _, plain, _ = batches_of(BatchMaker(source, dataclasses.replace(config, augmentation=None)), 1)[0]
    matrices = drawn(config.augmentation, source.images, seed=config.seed, epoch=0).affine(*config.image_size)[:16]
    transforms = np.concatenate([matrices.reshape(-1, 6), np.zeros((16, 2), np.float32)], axis=1)
    expected = tf.raw_ops.ImageProjectiveTransformV3(
        images=plain.astype(np.float32),
        transforms=transforms,
        output_shape=config.image_size,
        fill_value=0.0,
        interpolation="BILINEAR",
        fill_mode=config.augmentation.fill_mode.upper(),
    )
    assert np.abs(images.astype(np.float32) - np.asarray(expected)).max() <= 1.5  # rounded to whole levels twice


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("tf-data-autotune", {}),
        ("tf-data-autotune", {"augment_with": "opencv", "augment_at": "batch"}),
        ("tf-data-scaled-decode", {"output_dtype": "uint8"}),
        ("tf-data-no-augment", {}),
    ],
)
@pytest.mark.parametrize("served", ["files", "images"])
def test_what_workers_leave_is_done_behind_the_cut(photos, served, name, changes):
    """Whole batches are rounded once: a pixel differs by half a level from one that the trainer made of files.

    Of decoded images it differs by up to a level, as each is rounded before it is augmented.
    """
    config = dataclasses.replace(VARIANTS[name], batch_size=16, workers=2, **changes)
    source = from_folder(photos)
    whole = batches_of(BatchMaker(source, config), 4)
    maker = BatchMaker(source, dataclasses.replace(config, served=served))
    sent = numbered_batches(chunks(0).take(4), maker)
    assert sent.element_spec[1].dtype == (tf.string if served == "files" else tf.uint8)
    rest = rest_of(sent.map(lambda number, payload, labels, account: (number, payload, labels)), maker)
    batches = [(images.numpy(), labels.numpy()) for images, labels in rest]
    assert len(batches) == 4
    for (_, expected, its_labels), (images, labels) in zip(whole, batches, strict=True):
        np.testing.assert_array_equal(labels, its_labels)
        assert images.shape == expected.shape
        farthest = np.abs(images.astype(np.float32) - expected.astype(np.float32)).max()
        assert farthest <= (0.501 if served == "files" else 1.001)


def test_the_digest_is_of_what_changes_a_pixel(photos):
    source = from_folder(photos)

    def digest(**changes: Any) -> str:
        return BatchMaker(source, dataclasses.replace(COMPOSED, **changes)).service_digest

    assert digest() == digest(workers=7, prefetch=3, service="local:3", output_dtype="float32", deterministic=False)
    for changes in ({"seed": 1}, {"batch_size": 8}, {"decode": "full"}, {"image_size": (32, 32)}):
        assert digest() != digest(**changes)
    separate = {"resample": "separate", "augment_at": "batch"}
    assert digest(**separate) != digest(**separate, served="files")


def test_nor_of_the_folder_but_of_its_files(photos, tmp_path):
    source = from_folder(photos)
    elsewhere = dataclasses.replace(source, root=tmp_path)
    digest = BatchMaker(source, COMPOSED).service_digest
    assert BatchMaker(elsewhere, COMPOSED).service_digest == digest
    assert BatchMaker(source.take(10), COMPOSED).service_digest != digest


def test_paths_are_not_in_the_graph(photos):
    """A graph is sent to the dispatcher: with a million paths in it, it would be too large."""

    def graph_bytes(source: ImageSource) -> int:
        dataset = numbered_batches(chunks(0), BatchMaker(source, VARIANTS["tf-data-autotune"]))
        return len(dataset._as_serialized_graph().numpy())

    source = from_folder(photos)
    long = dataclasses.replace(
        source,
        labels=np.tile(source.labels, 100),
        files=FileNames.of(list(source.files) * 100),
        jpeg_sizes=np.tile(source.jpeg_sizes, (100, 1)),
    )
    assert graph_bytes(long) < graph_bytes(source) + 1000
