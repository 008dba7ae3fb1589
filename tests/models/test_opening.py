"""Whatever model a user names: what is opened, what is refused, and layers put in front of it."""

import dataclasses
import subprocess
import sys
import textwrap

import keras
import numpy as np
import pytest

from tests import PROJECT_ROOT
from unstall.models import MODELS, ModelError, behind, check_name, compiled, image_size, open_model
from unstall.models.opening import compile_for

IMAGE_MODELS = [name for name, network in MODELS.items() if hasattr(network, "image_size")]
KNOWN = ", ".join(IMAGE_MODELS)


def small(units: int = 1, size: tuple[int | None, ...] = (8, 10, 3)) -> keras.Model:
    activation = "sigmoid" if units == 1 else "softmax"
    return keras.Sequential(
        [keras.Input(size), keras.layers.GlobalAveragePooling2D(), keras.layers.Dense(units, activation=activation)]
    )


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Writes a module of the user's and returns its name."""

    def write(code: str, name: str = "my_models") -> str:
        (tmp_path / f"{name}.py").write_text("import keras\n" + textwrap.dedent(code))
        monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
        monkeypatch.delitem(sys.modules, name, raising=False)
        return name

    yield write
    sys.modules.pop("my_models", None)


def refusal(text: str, classes: int = 2) -> str:
    with pytest.raises(ModelError) as caught:
        open_model(text, classes=classes)
    return str(caught.value)


MODULE = """
    def net(classes):
        units = 1 if classes == 2 else classes
        return keras.Sequential([keras.Input((8, 10, 3)), keras.layers.Flatten(), keras.layers.Dense(units)])

    def fixed():
        model = net(2)
        model.compile(optimizer="sgd", loss="hinge")
        return model

    def keyword(*, units=1):
        return net(2)

    def nothing():
        return None

    def broken():
        raise RuntimeError("no weights here")

    def grey():
        return keras.Sequential([keras.Input((8, 10, 1)), keras.layers.Flatten(), keras.layers.Dense(1)])

    class Namespace:
        @staticmethod
        def net():
            return net(2)

    number = 3
"""


# By name


@pytest.mark.parametrize("name", IMAGE_MODELS)
def test_our_models_are_opened_by_name_and_compiled(name):
    check_name(name)
    model = open_model(name, classes=2)
    one_output = MODELS[name].data == "photos"
    assert model.compiled and model.output_shape == (None, 1 if one_output else 2)
    assert model.loss == ("binary_crossentropy" if one_output else "sparse_categorical_crossentropy")
    assert image_size(model) == MODELS[name].image_size


@pytest.mark.parametrize(
    ("name", "shape"), [("mnist-digits", "(28, 28, 1)"), ("text-classifier", "(200,)"), ("feed-forward", "(1000,)")]
)
def test_a_network_that_takes_no_colour_images_is_refused(name, shape):
    expected = f"{name} takes {shape}, not images of 3 channels. To measure it, use unstall devices."
    assert refusal(name) == expected
    with pytest.raises(ModelError) as caught:
        check_name(name)
    assert str(caught.value) == expected


def test_many_classes_are_compiled_for_the_sparse_loss():
    model = open_model("cats-dogs-64", classes=5)
    assert (model.output_shape, model.loss) == ((None, 5), "sparse_categorical_crossentropy")


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("cats-dog-64", " Did you mean 'cats-dogs-64'?"),
        ("cats-dogs-12", " Did you mean 'cats-dogs-128'?"),
        ("resnet", ""),
        ("", ""),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest_one(text, hint):
    expected = f"{text!r} is not a model.{hint} Known: {KNOWN}; or module:function, or a .keras file."
    assert refusal(text) == expected
    with pytest.raises(ModelError) as caught:
        check_name(text)
    assert str(caught.value) == expected


def test_checking_a_name_imports_no_keras():
    code = "import sys, models; models.check_name('my:net'); print({'keras', 'tensorflow'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=PROJECT_ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


# module:function


def test_a_function_is_called_with_the_number_of_classes(module):
    name = module(MODULE)
    assert open_model(f"{name}:net", classes=2).output_shape == (None, 1)
    model = open_model(f"{name}:net", classes=4)
    assert (model.output_shape, model.compiled, model.loss) == ((None, 4), True, "sparse_categorical_crossentropy")


def test_a_function_without_arguments_is_called_with_none(module):
    model = open_model(f"{module(MODULE)}:fixed", classes=2)
    assert (model.loss, type(model.optimizer).__name__) == ("hinge", "SGD")  # compiled by its author, and left so


def test_a_function_with_keyword_arguments_only_is_called_with_none(module):
    assert open_model(f"{module(MODULE)}:keyword", classes=2).output_shape == (None, 1)


def test_a_module_in_the_current_folder_is_found(tmp_path, monkeypatch):
    (tmp_path / "here_models.py").write_text("import keras\n" + textwrap.dedent(MODULE))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    monkeypatch.delitem(sys.modules, "here_models", raising=False)
    assert open_model("here_models:net", classes=2).output_shape == (None, 1)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("my_models:gone", "module 'my_models' has no attribute 'gone'"),
        ("no_such_module:net", "No module named 'no_such_module'"),
        ("my_models.sub:net", "No module named 'my_models.sub'; 'my_models' is not a package"),
        (":net", "Empty module name"),
        ("my_models:", "module 'my_models' has no attribute ''"),
        ("models:build_model", "there is no models here but unstall's own"),
    ],
)
def test_a_function_that_is_not_there_is_refused(module, text, reason):
    module(MODULE)
    assert refusal(text) == f"{text}: {reason}. Give module:function, importable from here."


def test_a_function_that_returns_no_model_is_refused(module):
    assert refusal(f"{module(MODULE)}:nothing") == "my_models:nothing must return a keras.Model. Received: NoneType."


def test_what_is_no_function_is_refused(module):
    with pytest.raises(ModelError, match="^my_models:number must be a function"):
        open_model(f"{module(MODULE)}:number", classes=2)


def test_a_function_that_fails_is_refused_with_its_reason(module):
    with pytest.raises(ModelError, match="^my_models:broken.*no weights here"):
        open_model(f"{module(MODULE)}:broken", classes=2)


def test_a_module_that_cannot_be_run_is_refused_with_its_reason(module):
    module("def net(:\n", name="bad_syntax")
    with pytest.raises(ModelError, match="^bad_syntax:net.*syntax"):
        open_model("bad_syntax:net", classes=2)


def test_a_function_that_takes_other_images_is_refused(module):
    assert refusal(f"{module(MODULE)}:grey") == (
        "my_models:grey must take images of shape (batch, height, width, 3). Received: input_shape=(None, 8, 10, 1)."
    )


# Files


def test_a_keras_file_is_opened_as_it_was_saved(tmp_path):
    model = small()
    model.compile(optimizer="sgd", loss="hinge")
    path = str(tmp_path / "own.keras")
    model.save(path)
    check_name(path)
    opened = open_model(path, classes=2)
    assert (image_size(opened), opened.loss, type(opened.optimizer).__name__) == ((8, 10), "hinge", "SGD")
    images = np.random.default_rng(0).random((4, 8, 10, 3), np.float32)
    np.testing.assert_array_equal(opened(images), model(images))


@pytest.mark.long
def test_a_keras_file_of_the_network_with_a_layer_of_ours_is_opened(tmp_path):
    path = str(tmp_path / "own.keras")
    model = compiled(MODELS["cifar10-cnn"])
    model.save(path)
    code = f"import models; model = models.open_model({path!r}, classes=10); print(model.count_params(), model.loss)"
    done = subprocess.run([sys.executable, "-c", code], cwd=PROJECT_ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1068298", "sparse_categorical_crossentropy"]


def test_a_keras_file_that_was_not_compiled_is(tmp_path):
    path = str(tmp_path / "own.keras")
    small(3).save(path)
    opened = open_model(path, classes=3)
    assert opened.compiled and opened.loss == "sparse_categorical_crossentropy"


def test_a_missing_file_is_refused(tmp_path):
    path = str(tmp_path / "gone.keras")
    assert refusal(path) == f"{path} does not exist."


@pytest.mark.parametrize("suffix", [".h5", ".hdf5"])
def test_an_hdf5_file_is_refused_because_it_can_run_code(tmp_path, suffix):
    path = tmp_path / f"old{suffix}"
    path.touch()
    assert refusal(str(path)) == (
        f"{path}: HDF5 models are not opened, since they can run code. Save it as a .keras file."
    )


@pytest.mark.parametrize("content", [b"", b"not a zip file"])
def test_a_file_that_is_no_model_is_refused_in_one_line(tmp_path, content):
    path = tmp_path / "broken.keras"
    path.write_bytes(content)
    message = refusal(str(path))
    assert message.startswith(f"{path} cannot be opened as a Keras model: ")
    assert "\n" not in message


def test_code_in_a_keras_file_is_not_run(tmp_path):
    path = str(tmp_path / "lambda.keras")
    layers = [keras.Input((8, 10, 3)), keras.layers.Lambda(lambda images: images[:, 0, 0, :1])]
    keras.Sequential(layers).save(path)
    message = refusal(path)
    assert message.startswith(f"{path} cannot be opened as a Keras model: ")
    assert "Lambda" in message or "lambda" in message or "deserialization" in message


# Shapes


@pytest.mark.parametrize(
    "shape", [(None, None, 3), (8, None, 3), (8, 10, 1), (8, 10, 4), (8, 3), (2, 8, 10, 3)], ids=str
)
def test_a_model_that_does_not_take_rgb_images_of_one_size_is_refused(shape):
    inputs = keras.Input(shape)
    model = keras.Model(inputs, keras.layers.Dense(1)(inputs))
    with pytest.raises(ModelError) as caught:
        image_size(model)
    assert str(caught.value) == (
        f"the model must take images of shape (batch, height, width, 3). Received: input_shape={(None, *shape)}."
    )


def test_a_model_with_two_inputs_is_refused():
    inputs = [keras.Input((8, 10, 3)), keras.Input((8, 10, 3))]
    model = keras.Model(inputs, keras.layers.Add()(inputs))
    with pytest.raises(ModelError, match=r"^net must take images of shape .* Received: input_shape=\[\(None, 8"):
        image_size(model, "net")


def test_a_model_without_a_known_input_is_refused():
    with pytest.raises(ModelError, match=r"Received: input_shape=None\.$"):
        image_size(keras.Sequential([keras.layers.Dense(1)]))


@pytest.mark.parametrize(
    ("units", "classes"),
    [(1, 3), (2, 3), (3, 4)],
)
def test_a_model_with_too_few_outputs_is_refused(tmp_path, units, classes):
    path = str(tmp_path / "own.keras")
    small(units).save(path)
    assert refusal(path, classes) == (
        f"{path} must end in one unit for 2 classes, or at least as many as there are classes ({classes}). "
        f"Received: output_shape=(None, {units})."
    )


@pytest.mark.parametrize(("units", "classes"), [(1, 2), (2, 2), (3, 3), (1000, 2)])
def test_a_model_with_enough_outputs_is_taken(tmp_path, units, classes):
    path = str(tmp_path / "own.keras")
    small(units).save(path)
    assert open_model(path, classes=classes).output_shape == (None, units)


def test_a_model_that_gives_a_picture_is_refused(tmp_path):
    path = str(tmp_path / "own.keras")
    keras.Sequential([keras.Input((8, 10, 3)), keras.layers.Conv2D(1, 3)]).save(path)
    assert refusal(path).endswith("Received: output_shape=(None, 6, 8, 1).")


@pytest.mark.parametrize(("units", "loss"), [(1, "binary_crossentropy"), (2, "sparse_categorical_crossentropy")])
def test_an_uncompiled_model_is_compiled_for_its_outputs(units, loss):
    model = small(units)
    compile_for(model)
    assert (model.loss, type(model.optimizer).__name__) == (loss, "Adam")
    history = model.fit(np.zeros((4, 8, 10, 3), np.float32), np.array([0, 1, 0, 1]), verbose=0).history
    assert sorted(history) == ["accuracy", "loss"]


def test_the_sparse_loss_is_the_published_one_of_one_hot_labels():
    # The CIFAR-10 MLP: sigmoid outputs and `categorical_crossentropy`. Both losses divide by the outputs' sum.
    random = np.random.default_rng(0)
    outputs, labels = random.uniform(1e-6, 1 - 1e-6, (500, 10)).astype(np.float32), random.integers(0, 10, 500)
    one_hot = np.eye(10, dtype=np.float32)[labels]
    sparse = np.asarray(keras.losses.sparse_categorical_crossentropy(labels, outputs))
    np.testing.assert_allclose(sparse, keras.losses.categorical_crossentropy(one_hot, outputs), rtol=1e-5, atol=1e-6)
    by_hand = -np.log(outputs[np.arange(500), labels] / outputs.sum(1))
    np.testing.assert_allclose(sparse, by_hand, rtol=1e-4, atol=1e-6)


def test_training_with_the_sparse_loss_moves_the_weights_as_the_published_one():
    random = np.random.default_rng(0)
    images, labels = random.random((32, 32, 32, 3), np.float32), np.arange(32) % 10
    network = dataclasses.replace(MODELS["cifar10-mlp"], hidden=(30, 20))
    sparse = compiled(network)
    published = network.build(10)
    published.set_weights(sparse.get_weights())
    published.compile(optimizer="sgd", loss="categorical_crossentropy", metrics=["accuracy"])
    for step in range(5):
        ours = sparse.train_on_batch(images, labels)
        theirs = published.train_on_batch(images, np.eye(10, dtype=np.float32)[labels])
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, err_msg=f"step {step}")
    for ours, theirs in zip(sparse.get_weights(), published.get_weights(), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6)


# Layers in front


@pytest.fixture
def bare():
    model = small()
    compile_for(model)
    return model


def test_bytes_behind_a_rescale_are_predicted_as_the_bare_model_predicts_floats(bare):
    images = np.random.default_rng(0).integers(0, 256, (5, 8, 10, 3), np.uint8)
    wrapped = behind((keras.layers.Rescaling(1 / 255),), bare, dtype="uint8")
    assert wrapped.inputs[0].dtype == "uint8"
    assert wrapped.input_shape == bare.input_shape and wrapped.output_shape == bare.output_shape
    np.testing.assert_allclose(wrapped(images), bare(images / np.float32(255)), rtol=1e-6)


def test_the_weights_are_shared_and_trained_through_the_wrapper(bare):
    wrapped = behind((keras.layers.Rescaling(1 / 255),), bare, dtype="uint8")
    assert [id(weight) for weight in wrapped.trainable_weights] == [id(weight) for weight in bare.trainable_weights]
    before = [weight.numpy().copy() for weight in bare.trainable_weights]
    wrapped.fit(np.full((4, 8, 10, 3), 200, np.uint8), np.array([0, 1, 1, 1]), verbose=0)
    assert all(np.any(weight.numpy() != old) for weight, old in zip(bare.trainable_weights, before, strict=True))


def test_the_wrapper_is_compiled_as_the_model_is_with_an_optimizer_of_its_own():
    model = small()
    model.compile(optimizer=keras.optimizers.SGD(0.25), loss="hinge", metrics=["accuracy"])
    wrapped = behind((), model, dtype="float32")
    assert wrapped.loss == "hinge"
    assert wrapped.optimizer is not model.optimizer
    assert (type(wrapped.optimizer).__name__, float(wrapped.optimizer.learning_rate)) == ("SGD", 0.25)
    history = wrapped.fit(np.zeros((2, 8, 10, 3), np.float32), np.array([0, 1]), verbose=0).history
    assert sorted(history) == ["accuracy", "loss"]


def distance(labels, outputs):
    return keras.ops.mean(keras.ops.abs(keras.ops.cast(labels, outputs.dtype) - outputs), axis=-1)


class Distance(keras.losses.Loss):
    """Has a setting that its configuration lacks, as people write losses."""

    def __init__(self, times=1.0, **options):
        super().__init__(**options)
        self.times = times

    def call(self, y_true, y_pred):
        return self.times * distance(y_true, y_pred)


@pytest.mark.parametrize("loss", [distance, Distance(times=5.0)], ids=["function", "class"])
def test_the_wrapper_has_a_loss_of_the_users(loss):
    model = small()
    model.compile(optimizer="sgd", loss=loss, metrics=["accuracy"])
    wrapped = behind((), model, dtype="float32")
    assert wrapped.loss is loss
    history = wrapped.fit(np.zeros((2, 8, 10, 3), np.float32), np.array([0, 1]), verbose=0).history
    assert sorted(history) == ["accuracy", "loss"]


def test_two_losses_of_one_name_are_refused():
    heads = keras.layers.Dense(1, name="a"), keras.layers.Dense(1, name="b")
    inputs = keras.Input((8, 10, 3))
    flat = keras.layers.Flatten()(inputs)
    model = keras.Model(inputs, [head(flat) for head in heads])
    model.compile(optimizer="sgd", loss=[Distance(times=1.0), Distance(times=2.0)])
    with pytest.raises(ModelError, match="^two losses of the model are called Distance: give them different names$"):
        behind((), model, dtype="float32")


def test_a_metric_of_the_users_that_keras_does_not_know_is_refused_with_the_cure():
    model = small()
    model.compile(optimizer="sgd", loss="hinge", metrics=[distance])
    expected = r"^decorate your own metrics and optimizers with .*: no second model can be compiled like .*'distance'"
    with pytest.raises(ModelError, match=expected):
        behind((), model, dtype="float32")


def test_augmentation_in_front_works_in_training_only(bare):
    flip = keras.layers.RandomFlip("horizontal", seed=0)
    wrapped = behind((flip,), bare, dtype="float32")
    images = np.random.default_rng(0).random((5, 8, 10, 3), np.float32)
    np.testing.assert_allclose(wrapped(images, training=False), bare(images), rtol=1e-6)
    assert [layer for layer in wrapped.layers if layer is flip] == [flip]
