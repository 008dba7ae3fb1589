"""Local response normalisation against TensorFlow's own."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from unstall.models.normalization import LocalResponseNormalization

SETTINGS = [(4, 1.0, 0.001 / 9, 0.75), (1, 2.0, 0.5, 0.5)]
VALUES = np.random.default_rng(0).normal(0, 9, (2, 3, 4, 16)).astype(np.float32)


@pytest.mark.parametrize(("radius", "bias", "alpha", "beta"), SETTINGS)
def test_it_computes_what_tensorflow_does(radius, bias, alpha, beta):
    layer = LocalResponseNormalization(radius, bias=bias, alpha=alpha, beta=beta)
    expected = tf.nn.local_response_normalization(VALUES, radius, bias, alpha, beta)
    np.testing.assert_allclose(np.asarray(layer(VALUES)), expected, rtol=1e-5)


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="compared by TensorFlow's own gradients")
@pytest.mark.parametrize(("radius", "bias", "alpha", "beta"), SETTINGS)
def test_its_gradients_are_those_of_tensorflow(radius, bias, alpha, beta):
    layer = LocalResponseNormalization(radius, bias=bias, alpha=alpha, beta=beta)
    values = tf.constant(VALUES)
    results = []
    for normalise in (layer, lambda inputs: tf.nn.local_response_normalization(inputs, radius, bias, alpha, beta)):
        with tf.GradientTape() as tape:
            tape.watch(values)
            total = tf.reduce_sum(tf.square(normalise(values)))
        results.append(tape.gradient(total, values).numpy())
    np.testing.assert_allclose(results[0], results[1], rtol=1e-4, atol=1e-5)


def test_it_has_no_weights_and_keeps_the_shape():
    layer = LocalResponseNormalization()
    assert layer(np.ones((1, 2, 2, 3), np.float32)).shape == (1, 2, 2, 3)
    assert layer.weights == []
    assert layer.compute_output_shape((None, 2, 2, 3)) == (None, 2, 2, 3)


def test_it_survives_being_saved(tmp_path):
    layers = [keras.Input((2, 2, 3)), LocalResponseNormalization(1, bias=2.0, alpha=0.5, beta=0.25)]
    model = keras.Sequential(layers)
    model.save(tmp_path / "model.keras")
    opened = keras.models.load_model(tmp_path / "model.keras")
    values = np.random.default_rng(0).random((1, 2, 2, 3), np.float32)
    np.testing.assert_array_equal(np.asarray(opened(values)), np.asarray(model(values)))
    assert (opened.layers[0].radius, opened.layers[0].beta) == (1, 0.25)
