"""What an example costs a model: exact on layers counted by hand, as TensorFlow counts it, null where unknown."""

from __future__ import annotations

import collections
from typing import Any

import keras
import numpy as np
import pytest
from keras import layers

from benchmarks.devices.flops import Work, step_bytes, work_per_example


def an_example(*shape: int, dtype: str = "float32") -> np.ndarray:
    return np.ones((1, *shape), dtype)


def flops(layer: Any, *shape: int, dtype: str = "float32") -> int | None:
    model = keras.Sequential([keras.Input(shape, dtype=dtype), layer])
    return work_per_example(model, an_example(*shape, dtype=dtype)).forward_flops


@pytest.mark.parametrize(
    ("layer", "shape", "multiply_adds"),
    [
        (layers.Dense(5), (7,), 7 * 5),
        # At each of 3 places.
        (layers.Dense(5), (3, 7), 3 * 7 * 5),
        (layers.Conv2D(4, 3), (8, 9, 2), 6 * 7 * 4 * 9 * 2),
        (layers.Conv2D(4, 3, padding="same", strides=2), (8, 8, 2), 4 * 4 * 4 * 9 * 2),
        # Each filter sees the channels of its group only.
        (layers.Conv2D(4, 3, groups=2), (5, 5, 6), 3 * 3 * 4 * 9 * 3),
        (layers.Conv1D(6, 3), (10, 4), 8 * 6 * 3 * 4),
        (layers.Conv3D(2, 2), (3, 3, 3, 5), 8 * 2 * 8 * 5),
        (layers.Conv2DTranspose(3, 2), (4, 4, 5), 16 * 5 * 4 * 3),
        (layers.DepthwiseConv2D(3, depth_multiplier=2), (6, 6, 4), 4 * 4 * 8 * 9),
        # Depthwise to 2 x 4 channels, then to 5.
        (layers.SeparableConv2D(5, 3, depth_multiplier=2), (6, 6, 4), 16 * 8 * 9 + 16 * 8 * 5),
        # 4 gates, 7 steps, an input of 6 and a state of 3.
        (layers.LSTM(3), (7, 6), 7 * 4 * 3 * (6 + 3)),
        (layers.GRU(3), (7, 6), 7 * 3 * 3 * (6 + 3)),
        (layers.SimpleRNN(3), (7, 6), 7 * 3 * (6 + 3)),
        (layers.Bidirectional(layers.LSTM(3)), (7, 6), 2 * 7 * 4 * 3 * (6 + 3)),
        (layers.TimeDistributed(layers.Dense(2)), (6, 4), 6 * 4 * 2),
        (layers.BatchNormalization(), (8, 8, 3), 0),
        (layers.MaxPooling2D(2), (8, 8, 3), 0),
        (layers.Dropout(0.5), (8,), 0),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, layers.Layer) else "",
)
def test_a_layer_costs_two_operations_for_each_multiply_add(
    layer: Any, shape: tuple[int, ...], multiply_adds: int
) -> None:
    assert flops(layer, *shape) == 2 * multiply_adds


def test_an_embedding_looks_up_and_multiplies_nothing() -> None:
    assert flops(layers.Embedding(10, 6), 7, dtype="int32") == 0


def training_flops(*stack: Any, shape: tuple[int, ...] = (7,)) -> int | None:
    return work_per_example(keras.Sequential([keras.Input(shape), *stack]), an_example(*shape)).training_flops


def test_training_is_three_times_forward_but_for_the_gradient_of_the_input() -> None:
    assert training_flops(layers.Dense(5), layers.Dense(4)) == 2 * (2 * 7 * 5) + 3 * (2 * 5 * 4)
    # A layer without weights changes nothing; one with weights in front, and the input's gradient is needed.
    assert training_flops(layers.ReLU(), layers.Dense(5)) == 2 * (2 * 7 * 5)
    assert training_flops(layers.BatchNormalization(), layers.Dense(5)) == 3 * (2 * 7 * 5)


def test_frozen_layers_have_no_gradient_of_their_own() -> None:
    frozen = [layers.Dense(5, trainable=False), layers.Dense(5, trainable=False)]
    forward = 2 * (7 * 5 + 5 * 5)
    assert training_flops(*frozen, layers.Dense(4)) == forward + 2 * (2 * 5 * 4)
    # Behind a trained one the gradient goes through it.
    assert training_flops(layers.Dense(5), layers.Dense(4, trainable=False)) == 2 * (2 * 7 * 5) + 2 * (2 * 5 * 4)


def test_products_behind_others_of_the_same_layer_are_counted_in_full() -> None:
    # The input's part needs no gradient of the input; the state's, which comes behind it, does.
    assert training_flops(layers.LSTM(3), shape=(7, 6)) == 2 * 7 * 4 * 3 * (2 * 6 + 3 * 3)
    apart = training_flops(layers.DepthwiseConv2D(3), layers.Conv2D(4, 1), shape=(12, 12, 3))
    assert training_flops(layers.SeparableConv2D(4, 3), shape=(12, 12, 3)) == apart
    assert training_flops(layers.Dense(6), layers.LSTM(3), shape=(7, 5)) == (
        2 * (2 * 7 * 5 * 6) + 3 * 2 * 7 * 4 * 3 * (6 + 3)
    )


def test_branches_from_the_input_need_no_gradient_of_it() -> None:
    inputs, second = keras.Input((7,)), keras.Input((7,))
    forward = 2 * 7 * 5
    both = layers.Add()([layers.Dense(5)(inputs), layers.Dense(5)(inputs)])
    assert work_per_example(keras.Model(inputs, both), an_example(7)).training_flops == 2 * 2 * forward
    towers = layers.Concatenate()([layers.Dense(5)(inputs), layers.Dense(5)(second)])
    last = keras.Model([inputs, second], layers.Dense(3)(towers))
    work = work_per_example(last, [an_example(7), an_example(7)])
    assert work.training_flops == 2 * 2 * forward + 3 * (2 * 10 * 3)


def test_a_layer_counts_as_often_as_it_is_called() -> None:
    inputs = keras.Input((4,))
    shared = layers.Dense(4)
    assert work_per_example(keras.Model(inputs, shared(shared(inputs))), an_example(4)).forward_flops == 2 * 2 * 16


class HandWritten(keras.Model):
    """A model whose call says what it does."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = layers.Dense(3), layers.Dense(2)

    def call(self, inputs: Any) -> Any:
        return self.last(self.first(self.first(inputs)))


def test_nested_and_hand_written_models_are_counted_inside() -> None:
    inner = keras.Sequential([keras.Input((4,)), layers.Dense(3)])
    nested = keras.Sequential([keras.Input((4,)), inner, layers.Dense(2)])
    assert work_per_example(nested, an_example(4)).forward_flops == 2 * (12 + 6)
    written = HandWritten()
    written(an_example(3))
    assert work_per_example(written, an_example(3)).forward_flops == 2 * (9 + 9 + 6)


class Own(layers.Layer):
    """Multiplies by weights of its own."""

    def build(self, shape: Any) -> None:
        self.kernel = self.add_weight(shape=(shape[-1], 3))

    def call(self, inputs: Any) -> Any:
        return inputs @ self.kernel


class OwnModel(keras.Model):
    """A model that holds weights beside those of its layers."""

    def __init__(self) -> None:
        super().__init__()
        self.last = layers.Dense(2)

    def build(self, shape: Any) -> None:
        self.kernel = self.add_weight(shape=(shape[-1], 3))

    def call(self, inputs: Any) -> Any:
        return self.last(inputs @ self.kernel)


def attention() -> keras.Model:
    inputs = keras.Input((5, 4))
    return keras.Model(inputs, layers.MultiHeadAttention(2, 3)(inputs, inputs))


def bare_product() -> keras.Model:
    inputs = keras.Input((5, 4))
    return keras.Model(inputs, keras.ops.matmul(inputs, keras.ops.transpose(inputs, (0, 2, 1))))


def sequential(layer: Any, *shape: int) -> keras.Model:
    return keras.Sequential([keras.Input(shape), layer])


@pytest.mark.parametrize(
    ("build", "shape", "reason"),
    [
        (lambda: sequential(Own(), 4), (4,), "Own is not a layer of Keras, and has weights"),
        (OwnModel, (4,), "OwnModel is not a layer of Keras, and has weights"),
        (attention, (5, 4), "how much EinsumDense multiplies is not known here"),
        (bare_product, (5, 4), "Matmul is an operation without a layer"),
        (lambda: sequential(layers.Lambda(lambda x: x), 4), (4,), "how much Lambda multiplies is not known here"),
        (lambda: sequential(layers.ConvLSTM1D(2, 2), 3, 5, 4), (3, 5, 4), "how much ConvLSTMCell multiplies"),
    ],
)
def test_what_is_not_known_makes_the_count_null_and_says_why(build: Any, shape: tuple[int, ...], reason: str) -> None:
    model = build()
    model(an_example(*shape))
    work = work_per_example(model, an_example(*shape))
    assert work.forward_flops is None and work.training_flops is None
    assert work.reason is not None and work.reason.startswith(reason)


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


def test_the_layers_are_their_own_again_afterwards() -> None:
    model = a_network()
    work_per_example(model, an_example(12, 12, 3))
    assert [layer for layer in model.layers if "call" in vars(layer)] == []
    before = model(an_example(12, 12, 3)).numpy()
    assert (model(an_example(12, 12, 3)).numpy() == before).all()


def test_tensorflow_counts_the_same_products() -> None:
    import tensorflow as tf
    from tensorflow.python.framework import ops

    model = a_network()
    graph = tf.function(model).get_concrete_function(tf.TensorSpec((1, 12, 12, 3))).graph
    products = [node for node in graph.get_operations() if node.type in ("Conv2D", "MatMul")]
    assert len(products) == 4
    counted = sum(int(ops.get_stats_for_node_def(graph, node.node_def, "flops").value) for node in products)
    assert counted == work_per_example(model, an_example(12, 12, 3)).forward_flops


def test_tensorflow_computes_the_same_products_in_a_step() -> None:
    import tensorflow as tf

    model = a_network()

    @tf.function
    def gradients(images: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(model(images, training=True))
        return tape.gradient(loss, model.trainable_variables)

    graph = gradients.get_concrete_function(tf.TensorSpec((1, 12, 12, 3))).graph
    needed, waiting = set(), [one.op for one in graph.outputs]  # what no output needs is not run
    while waiting:
        operation = waiting.pop()
        if operation not in needed:
            needed.add(operation)
            waiting += [one.op for one in operation.inputs] + list(operation.control_inputs)
    products = collections.Counter(one.type for one in needed)
    # Of two convolutions, one needs the gradient of its input; of two dense layers, both.
    expected = {"Conv2D": 2, "Conv2DBackpropFilter": 2, "Conv2DBackpropInput": 1, "MatMul": 2 + 2 + 2}
    assert {name: products[name] for name in expected} == expected
    first = 2 * 10 * 10 * 8 * 9 * 3
    work = work_per_example(model, an_example(12, 12, 3))
    assert work.training_flops == 3 * work.forward_flops - first


def test_a_step_moves_weights_gradients_state_activations_and_the_batch() -> None:
    model = keras.Sequential([keras.Input((4,)), layers.Dense(3), layers.Dense(2)])
    model.compile(optimizer="adam", loss="mse")
    model.optimizer.build(model.trainable_variables)
    work = work_per_example(model, an_example(4))
    assert work == Work(
        forward_flops=36, training_flops=2 * 24 + 3 * 12, reason=None, activation_bytes=4 * 5, input_bytes=16
    )
    weights_bytes = 4 * (4 * 3 + 3 + 3 * 2 + 2)
    # Weights four times, gradients twice, Adam's two moments read and written; 8 examples.
    assert step_bytes(model, work, 8) == 6 * weights_bytes + 4 * weights_bytes + 8 * (2 * 20 + 16)


def test_another_shape_of_the_same_numbers_moves_nothing() -> None:
    model = keras.Sequential([keras.Input((2, 3)), layers.Flatten(), layers.Reshape((3, 2)), layers.ReLU()])
    assert work_per_example(model, an_example(2, 3)).activation_bytes == 4 * 6


def test_half_precision_halves_activations_and_leaves_the_weights_whole() -> None:
    policy = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        model = keras.Sequential([keras.Input((4,)), layers.Dense(3)])
    finally:
        keras.config.set_dtype_policy(policy)
    model.compile(optimizer="sgd", loss="mse")
    model.optimizer.build(model.trainable_variables)
    work = work_per_example(model, an_example(4))
    assert work.activation_bytes == 2 * 3
    assert step_bytes(model, work, 1) == 6 * 4 * 15 + 2 * 6 + 16
