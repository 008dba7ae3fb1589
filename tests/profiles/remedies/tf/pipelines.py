"""Pipelines whose remedies are looked for, and what is asked of those that are built again."""

from __future__ import annotations

import functools

import numpy as np
import tensorflow as tf

from unstall.profiles.measure.batches import FitData
from unstall.profiles.remedies import NEEDS
from unstall.profiles.remedies.room import Room
from unstall.profiles.remedies.tf.tf_data_rebuilt import TfData
from unstall.profiles.stages import nodes
from unstall.profiles.stages.tf_model import written

IMAGES = 200


def decode(index):
    return tf.ones((8, 8, 3)) * tf.cast(index, tf.float32), tf.cast(index % 2, tf.int32)


def augment(image, label):
    return tf.image.random_flip_left_right(image), label


def permute(index):
    return tf.random.experimental.index_shuffle(index, (1, 2), IMAGES - 1)


def both(index):
    return augment(*decode(index))


def flip(image):
    return image + np.float32(np.random.default_rng().random())


def augment_in_python(image, label):
    return tf.ensure_shape(tf.numpy_function(flip, [image], tf.float32), (8, 8, 3)), label


def augment_eagerly(image, label):
    return tf.ensure_shape(tf.py_function(flip, [image], tf.float32), (8, 8, 3)), label


def sharpen(image, label):
    image = tf.numpy_function(lambda image: image, [image], tf.float32, stateful=False)
    return tf.ensure_shape(image, (8, 8, 3)), label


def both_in_python(index):
    return augment_in_python(*decode(index))


def source():
    return tf.data.Dataset.range(IMAGES)


PIPELINES = {
    "plain": lambda: source().map(decode).map(augment).batch(8),
    "shuffled": lambda: source().shuffle(IMAGES).map(decode).map(augment).batch(8),
    "permuted": lambda: source().map(permute).map(decode).map(augment).batch(8),
    "one function": lambda: source().map(both).batch(8),
    "frozen": lambda: source().map(both).cache().batch(8),
    "autotuned": lambda: source().map(decode, num_parallel_calls=tf.data.AUTOTUNE).batch(8).prefetch(tf.data.AUTOTUNE),
    "Python draws": lambda: source().map(decode).map(augment_in_python).batch(8),
    "eager Python draws": lambda: source().map(decode).map(augment_eagerly).batch(8),
    "Python draws nothing": lambda: source().map(decode).map(sharpen).map(augment).batch(8),
    "one function in Python": lambda: source().map(both_in_python).batch(8),
    "endless": lambda: source().map(decode).repeat().batch(8),
}

# An epoch of what is built, of 8 images each: 25 are all of an epoch.
BATCHES = 5

ROOM = Room(calls=2, memory_bytes=1e9, disk_bytes=1e9)

CACHE_BYTES = IMAGES * (8 * 8 * 3 * 4 + 4)


def taken_apart(dataset, needs=NEEDS, room=ROOM, **settings):
    data = TfData(dataset, needs=needs, room=room, **settings)
    return data, {remedy.name: remedy for remedy in data.remedies}


@functools.cache
def apart(name):
    """One of the pipelines, taken apart once; tests build from it, and change nothing in it."""
    tf.random.set_seed(None)  # with a seed of another test the shuffle would have one of its own
    return taken_apart(PIPELINES[name]())


def dataset_of(built):
    return built.arguments["x"].take(built.arguments["steps_per_epoch"]) if isinstance(built, FitData) else built


def seen(built) -> list[int]:
    return sorted(int(image[0, 0, 0]) for images, _ in dataset_of(built) for image in images.numpy())


def settings(dataset):
    return [
        (node.kind, *written(node.dataset), getattr(node.dataset, "_deterministic", None))
        for node in nodes(dataset)
        if node.kind != "take"
    ]
