"""What must not come before a cache: stages that draw, and Python code that may."""

import numpy as np
import pytest
import tensorflow as tf

from pipeline import ConfigError, PipelineConfig, stages


def flipped(image):
    return tf.image.random_flip_left_right(image)


def branched(image):
    return tf.cond(tf.reduce_sum(image) > 0, lambda: image + tf.random.uniform(()), lambda: image)


def stateless(image):
    return tf.image.stateless_random_flip_left_right(image, (1, 2))


def drawn(image):
    return image + tf.random.Generator.from_seed(1).normal(())


def by_numpy(image):
    return tf.numpy_function(lambda one: one + np.float32(np.random.random()), [image], tf.float32)


def by_python(image):
    return tf.py_function(lambda one: one, [image], tf.float32)


REFUSED = {
    flipped: r"^`RandomUniform` in flipped draws, and a cache would keep the first epoch's draws for all that follow\. "
    r"Put it behind the cache\.$",
    branched: "^`RandomUniform` in branched draws",
    stateless: r"^`StatelessRandom\w+` in stateless draws",
    by_numpy: r"^by_numpy runs Python code \(`PyFunc`\), which may draw, .*stateful=False\)\.$",
    by_python: r"^by_python runs Python code \(`EagerPyFunc`\), which may draw",
}


@pytest.fixture
def dataset():
    return tf.data.Dataset.from_tensor_slices(np.ones((4, 6, 6, 3), np.float32))


@pytest.mark.parametrize("function", REFUSED)
def test_a_random_stage_before_a_cache_is_refused(function, dataset):
    with pytest.raises(ConfigError, match=REFUSED[function]):
        stages.cached(dataset.map(function).batch(2))


def test_random_layers_and_numbers_are_refused(dataset):
    import keras

    flip = keras.layers.RandomFlip(seed=1)
    with pytest.raises(ConfigError, match=r"`Stateless\w+` in .* draws"):
        stages.cached(dataset.batch(2).map(lambda images: flip(images, training=True)))
    with pytest.raises(ConfigError, match=r"^`tf\.data\.Dataset\.random` draws"):
        stages.cached(tf.data.Dataset.zip((dataset, tf.data.Dataset.random(seed=1))))


@pytest.mark.parametrize("augment_with", ["tf_ops", "opencv", "keras_layers"])
def test_our_own_augmentation_is_refused_before_a_cache(augment_with, dataset):
    config = PipelineConfig(augment_with=augment_with, augment_at="batch", image_size=(6, 6))
    labelled = dataset.map(lambda image: (image, 0)).batch(2)
    with pytest.raises(ConfigError, match="a cache would keep the first epoch's draws"):
        stages.cached(stages.augment(labelled, 4, config))


def test_a_shuffle_and_python_that_draws_nothing_are_not_refused(dataset):
    shuffled = dataset.shuffle(4, seed=1, reshuffle_each_iteration=True)
    doubled = shuffled.map(lambda image: tf.numpy_function(lambda one: 2 * one, [image], tf.float32, stateful=False))
    assert sum(float(image.numpy().sum()) for image in stages.cached(doubled)) == 4 * 6 * 6 * 3 * 2
