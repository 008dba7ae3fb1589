"""The catalogue: every network's parameters and shapes, counted by hand, and what it says of itself."""

import dataclasses

import keras
import numpy as np
import pytest

from tests.checks import passes_on_jax
from unstall.models import MODELS, compiled
from unstall.models.layers import Cifar10Tutorial, ConvNet, DenseNet, TextNet
from unstall.models.network import DATA, INPUT_DTYPES, Training

PHOTOS = [name for name, network in MODELS.items() if network.data == "photos"]
FAST = [name for name in MODELS if name != "cats-dogs-very-deep"]
CLASSES = {name: network.classes or 2 for name, network in MODELS.items()}


def conv(channels: int, filters: int, side: int = 3) -> int:
    return (side * side * channels + 1) * filters


def dense(inputs: int, units: int) -> int:
    return (inputs + 1) * units


PARAMETERS = {
    # 64 -> conv 62 -> pool 31 -> conv 29 -> pool 14.
    "cats-dogs-64": conv(3, 32) + conv(32, 32) + dense(14 * 14 * 32, 128) + dense(128, 1),
    # ... -> conv 12 -> pool 6.
    "cats-dogs-64-deeper": conv(3, 32) + conv(32, 32) + conv(32, 64) + dense(6 * 6 * 64, 128) + dense(128, 1),
    "cats-dogs-64-dropout": conv(3, 32) + conv(32, 32) + conv(32, 64) + dense(6 * 6 * 64, 128) + dense(128, 1),
    # 128 -> 126, 63 -> 61, 30 -> 28, 14 -> 12, 6.
    "cats-dogs-128": conv(3, 64) + 3 * conv(64, 64) + dense(6 * 6 * 64, 128) + dense(128, 1),
    "cats-dogs-very-deep": conv(3, 64) + 33 * conv(64, 64) + dense(6 * 6 * 64, 128) + dense(128, 1),
    "cifar10-mlp": dense(32 * 32 * 3, 3000) + dense(3000, 1000) + dense(1000, 10),
    # 24 -> pool 12 -> pool 6.
    "cifar10-cnn": conv(3, 64, 5) + conv(64, 64, 5) + dense(6 * 6 * 64, 384) + dense(384, 192) + dense(192, 10),
    # 28 -> 26, 13 -> 11, 5.
    "mnist-digits": conv(1, 32) + conv(32, 64) + dense(5 * 5 * 64, 10),
    "text-classifier": 20_000 * 50 + (3 * 50 + 1) * 250 + dense(250, 250) + dense(250, 1),
    "feed-forward": dense(1000, 512) + dense(512, 256) + dense(256, 2),
}
# As the publications print them, or the brief that asked for them.
PRINTED = [813_217, 323_809, 323_809, 407_745, 1_515_585, 12_230_010, 1_068_298, 34_826, 1_100_751, 644_354]
SHAPES = {
    "cats-dogs-64": [(62, 62, 32), (31, 31, 32), (29, 29, 32), (14, 14, 32), (6272,), (128,), (1,)],
    "cats-dogs-64-deeper": [
        *[(62, 62, 32), (31, 31, 32), (29, 29, 32), (14, 14, 32), (12, 12, 64), (6, 6, 64)],
        *[(2304,), (128,), (1,)],
    ],
    "cats-dogs-64-dropout": [
        *[(62, 62, 32), (31, 31, 32), (29, 29, 32), (14, 14, 32), (12, 12, 64), (6, 6, 64)],
        *[(2304,), (128,), (128,), (1,)],
    ],
    "cats-dogs-128": [
        *[(126, 126, 64), (63, 63, 64), (61, 61, 64), (30, 30, 64), (28, 28, 64), (14, 14, 64), (12, 12, 64)],
        *[(6, 6, 64), (2304,), (128,), (128,), (1,)],
    ],
    "cats-dogs-very-deep": [
        *[(126, 126, 64), (63, 63, 64)],
        *[(63, 63, 64)] * 30,
        *[(61, 61, 64), (30, 30, 64), (28, 28, 64), (14, 14, 64), (12, 12, 64)],
        *[(6, 6, 64), (2304,), (128,), (128,), (1,)],
    ],
    "cifar10-mlp": [(3072,), (3000,), (1000,), (10,)],
    # Convolution, pool, normalisation; convolution, normalisation, pool.
    "cifar10-cnn": [
        *[(24, 24, 64), (12, 12, 64), (12, 12, 64), (12, 12, 64), (12, 12, 64), (6, 6, 64)],
        *[(2304,), (384,), (192,), (10,)],
    ],
    "mnist-digits": [(26, 26, 32), (13, 13, 32), (11, 11, 64), (5, 5, 64), (1600,), (1600,), (10,)],
    "text-classifier": [(200, 50), (200, 50), (198, 250), (250,), (250,), (250,), (1,)],
    "feed-forward": [(512,), (256,), (2,)],
}
LAST = {"cifar10-mlp": "sigmoid", "cifar10-cnn": "softmax", "mnist-digits": "softmax", "feed-forward": "softmax"}


def examples(name: str, count: int) -> np.ndarray:
    network, random = MODELS[name], np.random.default_rng(0)
    if network.input_dtype == "int32":
        return random.integers(0, network.words, (count, *network.input_shape), np.int32)
    return random.random((count, *network.input_shape), np.float32)


@pytest.fixture(scope="module")
def built():
    return {name: network.build(CLASSES[name]) for name, network in MODELS.items()}


@pytest.mark.parametrize(("name", "printed"), list(zip(MODELS, PRINTED, strict=True)))
def test_a_network_has_the_parameters_and_shapes_counted_by_hand(name, printed, built):
    model = built[name]
    assert model.count_params() == PARAMETERS[name] == printed
    assert [layer.output.shape for layer in model.layers] == [(None, *shape) for shape in SHAPES[name]]
    assert model.input_shape == (None, *MODELS[name].input_shape)
    assert model.inputs[0].dtype == MODELS[name].input_dtype
    assert not model.compiled
    assert model.layers[-1].activation.__name__ == LAST.get(name, "sigmoid")


@pytest.mark.parametrize("name", PHOTOS)
def test_a_network_of_photos_is_made_of_what_its_description_says(name, built):
    network, layers = MODELS[name], built[name].layers
    kinds = [type(layer).__name__ for layer in layers]
    assert kinds.count("Conv2D") == len(network.filters) + network.extra
    assert kinds.count("MaxPooling2D") == len(network.filters)
    assert [layer.rate for layer in layers if type(layer).__name__ == "Dropout"] == [0.5] * (network.dropout > 0)
    assert {layer.activation.__name__ for layer in layers if type(layer).__name__ == "Conv2D"} == {"relu"}
    assert [layer.activation.__name__ for layer in layers if type(layer).__name__ == "Dense"] == ["relu", "sigmoid"]


@pytest.mark.parametrize("name", MODELS)
def test_a_network_says_all_of_itself(name):
    network = MODELS[name]
    assert network.source and network.data in DATA and network.input_dtype in INPUT_DTYPES
    assert (network.classes is None) == (network.data == "photos")
    assert network.published or name == "feed-forward"  # published without figures
    assert network.training.epochs and network.training.metrics == ("accuracy",)


@pytest.mark.parametrize("name", MODELS)
def test_a_network_is_compiled_as_it_was_published(name):
    network = MODELS[name]
    model = compiled(network, CLASSES[name])
    assert model.loss == network.training.loss
    assert type(model.optimizer).__name__.lower() == network.training.optimizer
    rates = {"sgd": 0.01, "adam": 0.001}  # Keras' own
    expected = network.training.learning_rate or rates[network.training.optimizer]
    assert float(model.optimizer.learning_rate) == pytest.approx(expected)


def test_the_classes_are_those_of_the_published_data_unless_given():
    assert compiled(MODELS["feed-forward"]).output_shape == (None, 2)
    assert compiled(MODELS["feed-forward"], 3).output_shape == (None, 3)
    with pytest.raises(ValueError, match="`classes` must be given for a network of photos. Received: classes=None."):
        compiled(MODELS["cats-dogs-64"])


def test_the_published_training_of_the_photos_is_6_4_million_images():
    for name in PHOTOS:
        training = MODELS[name].training
        assert training.epochs * training.steps_per_epoch * training.batch_size == 6_400_000


@pytest.mark.parametrize("name", FAST)
def test_a_network_predicts_what_its_last_layer_says(name, built):
    predicted = np.asarray(built[name](examples(name, 3)))
    assert predicted.shape == (3, SHAPES[name][-1][0]) and predicted.dtype == np.float32
    assert np.all((predicted > 0) & (predicted < 1))
    if LAST.get(name) == "softmax":
        np.testing.assert_allclose(predicted.sum(1), 1.0, rtol=1e-5)


@pytest.mark.parametrize("name", FAST)
def test_more_classes_get_an_output_each(name):
    model = MODELS[name].build(7)
    before = SHAPES[name][-2][-1]
    assert model.output_shape == (None, 7)
    assert model.layers[-1].activation.__name__ == ("sigmoid" if name == "cifar10-mlp" else "softmax")
    assert model.count_params() == PARAMETERS[name] - dense(before, SHAPES[name][-1][0]) + dense(before, 7)


LEARNING = ("cifar10-mlp", "mnist-digits", "text-classifier", "feed-forward", "cifar10-cnn")
# Of the networks of photos, which are one class, the one with most kinds of layers stands for all.
ALIKE = [name for name in PHOTOS if name != "cats-dogs-64-dropout"]


@pytest.fixture(scope="module")
def learning():
    """A function that trains a network for some epochs of one step more, since most of the time goes into the first."""
    models = {}

    def trained(name: str, epochs: int) -> tuple[dict[str, list[float]], keras.Model]:
        if name not in models:
            keras.utils.set_random_seed(0)
            models[name] = compiled(MODELS[name], CLASSES[name])
        count = 16 if name in LEARNING else 2
        labels = np.arange(count) % CLASSES[name]
        fitted = models[name].fit(examples(name, count), labels, batch_size=count, epochs=epochs, verbose=0)
        return fitted.history, models[name]

    return trained


@pytest.mark.long
@pytest.mark.parametrize("name", LEARNING)
def test_a_network_learns_a_few_examples_by_heart(name, learning):
    history, _ = learning(name, 8)
    assert history["loss"][-1] < history["loss"][0]
    assert sorted(history) == ["accuracy", "loss"]


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name in ALIKE else ()) for name in MODELS]
)
def test_a_network_trains_one_step(name, learning):
    history, model = learning(name, 1)
    assert np.isfinite(history["loss"]).all()
    before = model.get_weights()
    learning(name, 1)
    after = model.get_weights()
    assert not all(np.array_equal(weights, old) for weights, old in zip(after, before, strict=True))


@pytest.mark.claims
@pytest.mark.needs("jax")
@pytest.mark.skipif(keras.backend.backend() == "jax", reason="the child of this very test")
def test_every_network_is_built_and_trains_on_jax():
    passes_on_jax(__file__, "counted_by_hand or trains_one_step")


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("classes", [1, 0, -1])
def test_fewer_than_two_classes_are_refused(name, classes):
    with pytest.raises(ValueError) as caught:
        MODELS[name].build(classes)
    assert str(caught.value) == f"`classes` must be at least 2. Received: classes={classes}."


def test_every_network_is_counted():
    assert list(MODELS) == list(PARAMETERS) == list(SHAPES)


@pytest.mark.parametrize("name", MODELS)
def test_only_networks_of_images_with_3_channels_have_an_image_size(name):
    network = MODELS[name]
    if name in ("mnist-digits", "text-classifier", "feed-forward"):
        with pytest.raises(AttributeError, match="has no `image_size`"):
            _ = network.image_size
    else:
        assert (*network.image_size, 3) == network.input_shape


def test_the_catalogue_cannot_be_changed():
    with pytest.raises(TypeError, match="does not support item assignment"):
        MODELS["mine"] = MODELS["mnist-digits"]


def test_a_network_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'dense'"):
        MODELS["cats-dogs-64"].dense = 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"input_shape": ()}, r"`input_shape` must be whole numbers above 0. Received: input_shape=\(\)."),
        ({"input_shape": (0, 8, 3)}, r"Received: input_shape=\(0, 8, 3\)."),
        ({"input_dtype": "int8"}, "`input_dtype` must be one of float32, int32. Received: input_dtype='int8'."),
        ({"data": "imagenet"}, "`data` must be one of photos, .*, features. Received: data='imagenet'."),
        ({"classes": 1}, "`classes` must be at least 2. Received: classes=1."),
    ],
)
def test_a_network_that_cannot_be_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(MODELS["cats-dogs-64"], **changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"batch_size": 0}, "`batch_size` must be at least 1. Received: batch_size=0."),
        ({"epochs": 0}, "`epochs` must be at least 1. Received: epochs=0."),
        ({"steps_per_epoch": 0}, "`steps_per_epoch` must be at least 1. Received: steps_per_epoch=0."),
        ({"learning_rate": 0.0}, "`learning_rate` must be above 0. Received: learning_rate=0.0."),
    ],
)
def test_a_training_that_cannot_be_is_refused(changes, message):
    values = {"optimizer": "sgd", "batch_size": None, "epochs": 1, "loss": "mse", **changes}
    with pytest.raises(ValueError, match=message):
        Training(**values)


BASE = {"training": MODELS["cats-dogs-64"].training, "source": "a test"}


def test_extra_convolutions_keep_the_size_of_the_image():
    network = ConvNet(input_shape=(20, 30, 3), data="photos", filters=(4, 5), extra=2, extra_after=2, dense=3, **BASE)
    shapes = [layer.output.shape[1:] for layer in network.build(2).layers]
    assert shapes == [(18, 28, 4), (9, 14, 4), (7, 12, 5), (3, 6, 5), (3, 6, 5), (3, 6, 5), (90,), (3,), (1,)]


def test_weight_decay_is_half_the_factor_times_the_squares():
    network = Cifar10Tutorial(input_shape=(8, 8, 3), data="photos", filters=2, dense=(3,), weight_decay=0.5, **BASE)
    model = network.build(2)
    weights = model.layers[-2].kernel
    assert float(sum(model.losses)) == pytest.approx(0.25 * float(keras.ops.sum(keras.ops.square(weights))))


def test_the_cifar10_network_starts_with_the_loss_that_the_tutorial_prints():
    # "step 0, loss = 4.68": ln(10), and half of 0.004 times the squares of 960,000 weights of deviation 0.04.
    keras.utils.set_random_seed(0)
    model = compiled(MODELS["cifar10-cnn"])
    loss = model.evaluate(examples("cifar10-cnn", 128), np.arange(128) % 10, verbose=0)[0]
    assert loss == pytest.approx(4.68, abs=0.02)


def test_features_and_text_of_any_size_are_taken():
    features = DenseNet(input_shape=(5,), data="features", hidden=(4,), **BASE).build(3)
    assert [type(layer).__name__ for layer in features.layers] == ["Dense", "Dense"]  # nothing to flatten
    settings = {"words": 9, "embedding": 2, "filters": 3, "dense": 4, "dropout": 0.5}
    text = TextNet(input_shape=(6,), input_dtype="int32", data="text", **settings, **BASE).build(3)
    assert text(np.full((2, 6), 8, np.int32)).shape == (2, 3)
