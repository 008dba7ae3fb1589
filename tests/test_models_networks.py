"""The networks: their parameters and shapes, counted by hand."""

import dataclasses

import numpy as np
import pytest

from models import MODELS, ConvNet


def conv(channels: int, filters: int) -> int:
    return (3 * 3 * channels + 1) * filters


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
}
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
}


@pytest.fixture(scope="module")
def built():
    return {name: network.build(2) for name, network in MODELS.items()}


def test_the_tutorials_network_has_813217_parameters(built):
    assert built["cats-dogs-64"].count_params() == PARAMETERS["cats-dogs-64"] == 813_217


@pytest.mark.parametrize("name", MODELS)
def test_a_network_has_the_parameters_and_shapes_counted_by_hand(name, built):
    model = built[name]
    assert model.count_params() == PARAMETERS[name]
    assert [layer.output.shape for layer in model.layers] == [(None, *shape) for shape in SHAPES[name]]
    assert model.input_shape == (None, *MODELS[name].image_size, 3)
    assert model.output_shape == (None, 1)
    assert not model.compiled


@pytest.mark.parametrize("name", MODELS)
def test_a_network_is_made_of_what_its_description_says(name, built):
    network, layers = MODELS[name], built[name].layers
    kinds = [type(layer).__name__ for layer in layers]
    assert kinds.count("Conv2D") == len(network.filters) + network.extra
    assert kinds.count("MaxPooling2D") == len(network.filters)
    assert kinds.count("Dropout") == (1 if network.dropout else 0)
    assert [layer.rate for layer in layers if type(layer).__name__ == "Dropout"] == [network.dropout] * bool(
        network.dropout
    )
    assert {layer.activation.__name__ for layer in layers if type(layer).__name__ == "Conv2D"} == {"relu"}
    assert [layer.activation.__name__ for layer in layers if type(layer).__name__ == "Dense"] == ["relu", "sigmoid"]
    assert network.source


@pytest.mark.parametrize("name", [name for name in MODELS if name != "cats-dogs-very-deep"])
def test_a_network_gives_one_probability_an_image(name, built):
    images = np.random.default_rng(0).random((3, *MODELS[name].image_size, 3), np.float32)
    predicted = np.asarray(built[name](images))
    assert predicted.shape == (3, 1) and predicted.dtype == np.float32
    assert np.all((predicted > 0) & (predicted < 1))


@pytest.mark.parametrize("classes", [3, 10])
@pytest.mark.parametrize("name", [name for name in MODELS if name != "cats-dogs-very-deep"])
def test_more_than_two_classes_get_a_softmax(name, classes):
    model = MODELS[name].build(classes)
    assert model.output_shape == (None, classes)
    assert model.layers[-1].activation.__name__ == "softmax"
    assert model.count_params() == PARAMETERS[name] - dense(128, 1) + dense(128, classes)
    predicted = np.asarray(model(np.random.default_rng(0).random((2, *MODELS[name].image_size, 3), np.float32)))
    np.testing.assert_allclose(predicted.sum(1), 1.0, rtol=1e-5)


@pytest.mark.parametrize("classes", [1, 0, -1])
def test_fewer_than_two_classes_are_refused(classes):
    with pytest.raises(ValueError) as caught:
        MODELS["cats-dogs-64"].build(classes)
    assert str(caught.value) == f"`classes` must be at least 2. Received: classes={classes}."


def test_the_names_are_those_of_the_design():
    assert list(MODELS) == list(PARAMETERS) == list(SHAPES)


def test_a_network_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'dense'"):
        MODELS["cats-dogs-64"].dense = 1


def test_extra_convolutions_keep_the_size_of_the_image():
    network = ConvNet(image_size=(20, 30), filters=(4, 5), extra=2, extra_after=2, dense=3, source="a test")
    shapes = [layer.output.shape[1:] for layer in network.build(2).layers]
    assert shapes == [(18, 28, 4), (9, 14, 4), (7, 12, 5), (3, 6, 5), (3, 6, 5), (3, 6, 5), (90,), (3,), (1,)]
