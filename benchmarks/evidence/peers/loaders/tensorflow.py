"""tf.data on a TFRecord file of raw pixels.

Configured after TensorFlow's "Better performance with the tf.data API": records that fit in memory are cached there, a
vectorised map follows the batch, and AUTOTUNE chooses parallel calls and prefetching.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from unstall.benchmarks.evidence.peers.loaders.work import (
    BATCH,
    CROP_AREA,
    CROP_ASPECT,
    FLIP_PROBABILITY,
    SIDE,
    AllEpochs,
    Job,
    Loader,
)

_FEATURES = {"image": tf.io.FixedLenFeature([], tf.string), "label": tf.io.FixedLenFeature([], tf.int64)}


def prepared(job: Job) -> Loader:
    path = Path(job.folder) / "images.tfrecord"
    if not path.exists():
        _write(path, job)

    def make(records: Any) -> tuple[Any, Any]:
        parsed = tf.io.parse_example(records, _FEATURES)
        images = tf.reshape(tf.io.decode_raw(parsed["image"], tf.uint8), (-1, SIDE, SIDE, 3))
        count = tf.shape(images)[0]
        images = tf.image.crop_and_resize(images, _boxes(count), tf.range(count), (SIDE, SIDE))
        images = images / 255.0 if job.dtype == "float32" else tf.cast(tf.round(images), tf.uint8)
        return images, parsed["label"]

    dataset = tf.data.TFRecordDataset(str(path)).cache().shuffle(job.images).batch(BATCH)
    dataset = dataset.map(make, num_parallel_calls=tf.data.AUTOTUNE)
    return AllEpochs(lambda epochs: dataset.repeat(epochs).prefetch(tf.data.AUTOTUNE))


def _boxes(count: Any) -> Any:
    """Draws (count, 4) boxes (y1, x1, y2, x2), each a random crop; a box with x1 above x2 flips the image.

    A side longer than the image's is cut to the image's, which 2 of 100 draws need for a square image; torchvision
    draws again instead.
    """
    area = tf.random.uniform([count], *CROP_AREA)
    aspect = tf.exp(tf.random.uniform([count], math.log(CROP_ASPECT[0]), math.log(CROP_ASPECT[1])))
    height, width = tf.minimum(1.0, tf.sqrt(area / aspect)), tf.minimum(1.0, tf.sqrt(area * aspect))
    top = tf.random.uniform([count]) * (1 - height)
    left = tf.random.uniform([count]) * (1 - width)
    flip = tf.random.uniform([count]) < FLIP_PROBABILITY
    x1, x2 = tf.where(flip, left + width, left), tf.where(flip, left, left + width)
    return tf.stack([top, x1, top + height, x2], axis=1)


def _write(path: Path, job: Job) -> None:
    with tf.io.TFRecordWriter(str(path)) as writer:
        for image, label in zip(np.load(job.array, mmap_mode="r"), job.labels, strict=True):
            features = {
                "image": tf.train.Feature(bytes_list=tf.train.BytesList(value=[image.tobytes()])),
                "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
            }
            writer.write(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())
