"""What an example costs a model: exact on layers counted by hand, and on the networks; null where nobody counts."""

from __future__ import annotations

import collections
import contextlib
import math
import sys
from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
import pytest
from keras import layers

from tests.checks import passes_on_jax
from unstall.benchmarks.devices.flops import Work, step_bytes, work_per_example
from unstall.models import MODELS
from unstall.models.normalization import LocalResponseNormalization


def an_example(*shape: int, dtype: str = "float32") -> np.ndarray:
    return np.ones((1, *shape), dtype)


def work(*stack: Any, shape: tuple[int, ...] = (7,), dtype: str = "float32") -> Work:
    model = keras.Sequential([keras.Input(shape, dtype=dtype), *stack])
    return work_per_example(model, an_example(*shape, dtype=dtype))


@pytest.mark.parametrize(
    ("layer", "shape", "multiply_adds"),
    [
        (layers.Dense(5), (7,), 7 * 5),
        # At each of 3 places.
        (layers.Dense(5), (3, 7), 3 * 7 * 5),
        (layers.Conv2D(4, 3), (8, 9, 2), 6 * 7 * 4 * 9 * 2),
        (layers.Conv2D(4, 3, padding="same", strides=2), (8, 8, 2), 4 * 4 * 4 * 9 * 2),
        (layers.Conv1D(6, 3), (10, 4), 8 * 6 * 3 * 4),
        (layers.DepthwiseConv2D(3, depth_multiplier=2), (6, 6, 4), 4 * 4 * 8 * 9),
        # Depthwise to 2 x 4 channels, then to 5.
        (layers.SeparableConv2D(5, 3, depth_multiplier=2), (6, 6, 4), 16 * 8 * 9 + 16 * 8 * 5),
        # At each of 8 x 8 places, 4 channels are multiplied by a matrix.
        (LocalResponseNormalization(), (8, 8, 4), 8 * 8 * 4 * 4),
        (layers.BatchNormalization(), (8, 8, 3), 0),
        (layers.MaxPooling2D(2), (8, 8, 3), 0),
        (layers.Dropout(0.5), (8,), 0),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, layers.Layer) else "",
)
def test_a_layer_costs_two_operations_for_each_multiply_add(
    layer: Any, shape: tuple[int, ...], multiply_adds: int
) -> None:
    assert work(layer, shape=shape).forward_flops == 2 * multiply_adds


def test_an_embedding_looks_up_and_multiplies_nothing() -> None:
    assert work(layers.Embedding(10, 6), dtype="int32").forward_flops == 0


def test_training_is_three_times_forward_but_for_the_gradient_of_the_input() -> None:
    assert work(layers.Dense(5), layers.Dense(4)).training_flops == 2 * (2 * 7 * 5) + 3 * (2 * 5 * 4)
    # A layer without weights changes nothing; one with weights in front, and the input's gradient is needed.
    assert work(layers.ReLU(), layers.Dense(5)).training_flops == 2 * (2 * 7 * 5)
    assert work(layers.BatchNormalization(), layers.Dense(5)).training_flops == 3 * (2 * 7 * 5)


def test_a_layer_without_trained_weights_has_no_gradient_of_them() -> None:
    frozen = [layers.Dense(5, trainable=False), layers.Dense(5, trainable=False)]
    assert work(*frozen, layers.Dense(4)).training_flops == 2 * (7 * 5 + 5 * 5) + 2 * (2 * 5 * 4)
    # Behind a trained layer the gradient goes through it.
    assert work(layers.Dense(5), layers.Dense(4, trainable=False)).training_flops == 2 * (2 * 7 * 5) + 2 * (2 * 5 * 4)
    normalised = work(layers.Dense(5), LocalResponseNormalization())
    assert normalised.training_flops == 2 * (2 * 7 * 5) + 2 * (2 * 5 * 5)


def products(layer: Any) -> int:
    """Multiply-adds of a layer with a kernel or of a normalisation over channels, by the shapes of both."""
    outputs = math.prod(layer.output.shape[1:])
    if isinstance(layer, LocalResponseNormalization):
        return outputs * layer.output.shape[-1]
    return outputs * math.prod(layer.kernel.shape[:-1]) if hasattr(layer, "kernel") else 0


@pytest.mark.parametrize("name", MODELS)
def test_the_networks_cost_what_their_products_cost(name: str) -> None:
    network = MODELS[name]
    model = network.build(network.classes or 2)
    counted = work_per_example(model, an_example(*network.input_shape))
    assert counted.forward_flops == 2 * sum(map(products, model.layers)) > 0


@pytest.mark.parametrize(
    ("name", "training_flops"),
    [
        ("cifar10-mlp", 54_924_000),  # 3 times forward, less the gradient of the picture
        ("cifar10-cnn", 110_013_696),  # less that, and less the gradients of the normalisations' fixed matrices
        ("text-classifier", 44_926_500),  # 3 times forward: words are looked up in a table that is trained
    ],
)
def test_the_networks_are_trained_for_what_their_products_cost(name: str, training_flops: int) -> None:
    network = MODELS[name]
    counted = work_per_example(network.build(network.classes or 2), an_example(*network.input_shape))
    assert counted.training_flops == training_flops


def einsum(inputs: Any) -> Any:
    import tensorflow as tf

    return tf.einsum("abc,abd->acd", inputs, inputs)


@pytest.mark.parametrize(
    ("layer", "shape", "reason"),
    [
        (layers.LSTM(3), (7, 6), "TensorFlow's profiler does not count the While of LSTM"),
        (layers.Lambda(einsum), (5, 4), "TensorFlow's profiler does not count the Einsum of Lambda"),
        (layers.Conv2D(4, 3, groups=2), (5, 5, 6), "TensorFlow's profiler does not count the StatefulPartitionedCall"),
    ],
)
def test_a_layer_that_is_not_counted_makes_the_count_null_and_is_named(
    layer: Any, shape: tuple[int, ...], reason: str
) -> None:
    counted = work(layers.Identity(), layer, shape=shape)
    assert (counted.forward_flops, counted.training_flops) == (None, None)
    assert counted.reason is not None and counted.reason.startswith(reason)
    assert counted.activation_bytes > 0


def a_network() -> keras.Model:
    model = keras.Sequential(
        [
            keras.Input((12, 12, 3)),
            layers.Conv2D(8, 3, activation="relu"),
            layers.MaxPooling2D(2),
            layers.Conv2D(16, 3, padding="same", strides=2),
            layers.Flatten(),
            layers.Dense(10, activation="relu"),
            layers.Dense(2, activation="softmax"),
        ]
    )
    model.compile(optimizer="adam", loss="sparse_categorical_crossentropy")
    return model


def test_tensorflow_computes_the_same_products_in_a_step() -> None:
    import tensorflow as tf

    model = a_network()

    @tf.function
    def gradients(images: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(model(images, training=True))
        return tape.gradient(loss, model.trainable_variables)

    graph = gradients.get_concrete_function(tf.TensorSpec((1, 12, 12, 3))).graph
    needed, waiting = set(), [output.op for output in graph.outputs]  # what no output needs is not run
    while waiting:
        operation = waiting.pop()
        if operation not in needed:
            needed.add(operation)
            waiting += [tensor.op for tensor in operation.inputs] + list(operation.control_inputs)
    products = collections.Counter(operation.type for operation in needed)
    # Of two convolutions, one needs the gradient of its input; of two dense layers, both.
    expected = {"Conv2D": 2, "Conv2DBackpropFilter": 2, "Conv2DBackpropInput": 1, "MatMul": 2 + 2 + 2}
    assert {name: products[name] for name in expected} == expected
    first = 2 * 10 * 10 * 8 * 9 * 3
    counted = work_per_example(model, an_example(12, 12, 3))
    assert counted.forward_flops is not None
    assert counted.training_flops == 3 * counted.forward_flops - first


def test_jax_counts_the_products_and_what_is_done_to_each_element() -> None:
    counted = work(layers.Dense(5, activation="relu"), layers.Dense(4))
    products = 2 * 7 * 5 + 2 * 5 * 4
    assert counted.forward_flops is not None
    elements = (5 + 5 + 4) * (keras.backend.backend() == "jax")  # biases, relu
    assert counted.forward_flops == products + elements


@pytest.mark.parametrize(
    ("platforms", "cost", "expected"),
    [
        (["cpu"], {"flops": 70.0}, (70, None)),
        (["cpu"], {}, (None, "JAX's cost_analysis gives nothing for Dense")),
        ([], {"flops": 70.0}, (None, "JAX's cost_analysis needs a CPU, which JAX_PLATFORMS leaves out")),
    ],
)
def test_jax_is_asked_for_a_cpu_and_may_not_answer(
    monkeypatch: pytest.MonkeyPatch, platforms: list[str], cost: dict[str, float], expected: tuple[Any, Any]
) -> None:
    def local_devices(backend: str) -> list[str]:
        if backend not in platforms:
            raise RuntimeError("Unknown backend cpu")
        return [backend]

    def jit(function: Any) -> Any:
        return SimpleNamespace(lower=lambda *specs: SimpleNamespace(cost_analysis=lambda: cost))

    fake = SimpleNamespace(
        ShapeDtypeStruct=lambda *spec: spec, default_device=contextlib.nullcontext, jit=jit, local_devices=local_devices
    )
    monkeypatch.setitem(sys.modules, "jax", fake)
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    counted = work(layers.Dense(5))
    assert (counted.forward_flops, counted.reason) == expected


@pytest.mark.claims
@pytest.mark.needs("jax")
def test_jax_counts_on_jax() -> None:
    passes_on_jax(__file__, "jax_counts_the_products")


def test_a_step_moves_weights_gradients_state_activations_and_the_batch() -> None:
    model = keras.Sequential([keras.Input((4,)), layers.Dense(3), layers.Dense(2)])
    model.compile(optimizer="adam", loss="mse")
    model.optimizer.build(model.trainable_variables)
    counted = work_per_example(model, an_example(4))
    assert counted == Work(
        forward_flops=36, training_flops=2 * 24 + 3 * 12, reason=None, activation_bytes=4 * 5, input_bytes=16
    )
    weights_bytes = 4 * (4 * 3 + 3 + 3 * 2 + 2)
    # Weights four times, gradients twice, Adam's two moments read and written; 8 examples.
    assert step_bytes(model, counted, 8) == 6 * weights_bytes + 4 * weights_bytes + 8 * (2 * 20 + 16)


def test_another_shape_of_the_same_numbers_moves_nothing() -> None:
    counted = work(layers.Flatten(), layers.Reshape((3, 2)), layers.ReLU(), shape=(2, 3))
    assert counted.activation_bytes == 4 * 6


def test_half_precision_halves_activations_and_leaves_the_weights_whole() -> None:
    policy = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        model = keras.Sequential([keras.Input((4,)), layers.Dense(3)])
    finally:
        keras.config.set_dtype_policy(policy)
    model.compile(optimizer="sgd", loss="mse")
    model.optimizer.build(model.trainable_variables)
    counted = work_per_example(model, an_example(4))
    assert (counted.forward_flops, counted.activation_bytes) == (2 * 4 * 3, 2 * 3)
    assert step_bytes(model, counted, 1) == 6 * 4 * 15 + 2 * 6 + 16
