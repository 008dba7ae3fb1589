"""Images/sec in a project's own tests: a floor, and no slower than recorded.

pytest test_images_per_sec.py
pytest test_images_per_sec.py --images-per-sec-record
"""

import pytest
import tensorflow as tf


def make_dataset():
    photos = tf.zeros((256, 64, 64, 3), tf.uint8)
    labels = tf.zeros((256,), tf.int32)
    dataset = tf.data.Dataset.from_tensor_slices((photos, labels))
    return dataset.map(lambda image, label: (tf.cast(image, tf.float32) / 255, label)).batch(32).prefetch(2)


@pytest.mark.images_per_sec(at_least=0.5)
def test_my_pipeline_feeds_half_of_what_all_cores_decode(images_per_sec):
    images_per_sec(make_dataset())


def test_my_pipeline_is_no_slower_than_recorded(images_per_sec):
    images_per_sec(make_dataset())
