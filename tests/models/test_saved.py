"""A finished model: what is around the network, that it survives Keras, and that a script of anybody's can use it."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys

import keras
import numpy as np
import pytest

from unstall.models.opening import ModelError
from unstall.models.saved import check_classes, decode_names, encode_names, finish, foreign_layers, open_finished, save

ODD = ("cats", "große Hunde", "a.b/c", "x>2E", "~tilde", "日本", "%41")


def a_network(classes: int = 2) -> keras.Model:
    keras.utils.set_random_seed(0)
    units = 1 if classes == 2 else classes
    return keras.Sequential(
        [
            keras.Input((8, 6, 3)),
            keras.layers.Conv2D(2, 3, activation="relu"),
            keras.layers.Flatten(),
            keras.layers.Dense(units, activation="sigmoid" if units == 1 else "softmax"),
        ]
    )


def a_finished(classes: tuple[str, ...] = ("cats", "dogs"), interpolation: str = "bilinear") -> keras.Model:
    return finish(a_network(len(classes)), classes, interpolation=interpolation, antialias=False)


def photos(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).integers(0, 256, shape, dtype=np.uint8)


def test_a_finished_model_rescales_what_the_network_takes_in_0_to_1():
    network = a_network()
    finished = finish(network, ("cats", "dogs"), interpolation="bilinear", antialias=False)
    images = photos(4, 8, 6, 3)
    expected = network.predict_on_batch(images / np.float32(255))
    np.testing.assert_allclose(finished.predict_on_batch(images), expected, atol=1e-6)


@pytest.mark.parametrize("interpolation", ["bilinear", "nearest"])
def test_a_finished_model_resizes_as_the_pipeline_does(interpolation):
    import tensorflow as tf

    network = a_network()
    finished = finish(network, ("cats", "dogs"), interpolation=interpolation, antialias=False)
    images = photos(3, 31, 40, 3)
    resized = tf.cast(tf.image.resize(images, (8, 6), method=interpolation), tf.float32) / 255
    np.testing.assert_allclose(finished.predict_on_batch(images), network.predict_on_batch(resized), atol=1e-6)


def test_smoothing_changes_what_is_made_smaller():
    images = photos(2, 64, 64, 3)
    sharp, smooth = (
        finish(a_network(), ("cats", "dogs"), interpolation="bilinear", antialias=antialias).predict_on_batch(images)
        for antialias in (False, True)
    )
    assert np.abs(sharp - smooth).max() > 1e-3


@pytest.mark.parametrize("names", [("cats", "dogs"), ODD])
def test_class_names_come_back_from_a_name_that_tensorflow_takes(names):
    encoded = encode_names(names)
    assert decode_names(encoded) == names
    assert encoded.replace(".", "").replace(">", "").replace("_", "").replace("-", "").isascii()


def test_plain_names_can_be_read_in_the_layer_s_name():
    assert encode_names(("cats", "dogs")) == "classes.cats.dogs"
    assert decode_names(encode_names(("caf\udce9", "dogs"))) == ("caf\udce9", "dogs")  # a folder that is no UTF-8


def test_another_layer_s_name_holds_no_classes():
    assert decode_names("dense_1") == ()


def test_names_survive_a_file_and_being_saved_again_by_somebody_else(tmp_path):
    save(a_finished(ODD), tmp_path / "a.keras", overwrite=False)
    keras.models.load_model(tmp_path / "a.keras", safe_mode=True).save(tmp_path / "b.keras")
    for name in ("a.keras", "b.keras"):
        assert open_finished(str(tmp_path / name)).class_names == ODD


@pytest.mark.long
def test_a_script_that_imports_nothing_of_ours_predicts_from_uint8(tmp_path):
    finished = a_finished()
    images = photos(3, 20, 30, 3)
    save(finished, tmp_path / "a.keras", overwrite=False)
    np.save(tmp_path / "images.npy", images)
    script = tmp_path / "script.py"
    script.write_text(
        "import json, sys, keras, numpy as np\n"
        "model = keras.models.load_model('a.keras', safe_mode=True)\n"
        "print(json.dumps(model.predict(np.load('images.npy'), verbose=0).tolist()))\n"
        "assert not {'models', 'pipeline', 'benchmarks', 'profiles'} & set(sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=300
    )
    np.testing.assert_allclose(json.loads(done.stdout), finished.predict_on_batch(images), atol=1e-6)


def test_a_file_that_is_there_is_not_replaced_unasked(tmp_path):
    path = tmp_path / "a.keras"
    path.write_text("precious")
    with pytest.raises(FileExistsError):
        save(a_finished(), path, overwrite=False)
    assert path.read_text() == "precious"
    assert [file.name for file in tmp_path.iterdir()] == ["a.keras"]
    save(a_finished(), path, overwrite=True)
    assert open_finished(str(path)).class_names == ("cats", "dogs")


def test_a_file_system_without_links_is_no_reason_to_replace_a_file(tmp_path, monkeypatch):
    def refuse(*_: object) -> None:
        raise PermissionError("links are not supported")

    monkeypatch.setattr("os.link", refuse)
    path = tmp_path / "a.keras"
    save(a_finished(), path, overwrite=False)
    assert open_finished(str(path)).class_names == ("cats", "dogs")
    with pytest.raises(FileExistsError, match="File exists"):
        save(a_finished(), path, overwrite=False)


def test_saving_that_fails_leaves_nothing(tmp_path, monkeypatch):
    def fail(self: object, path: str) -> None:
        pathlib.Path(path).write_text("half")
        raise OSError("no room")

    monkeypatch.setattr(keras.Model, "save", fail)
    with pytest.raises(OSError, match="no room"):
        save(a_finished(), tmp_path / "a.keras", overwrite=False)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("classes", "names"), [(2, ("a", "b", "c")), (3, ("a", "b")), (5, ("a", "b", "c"))])
def test_a_network_of_other_classes_is_refused(classes, names):
    with pytest.raises(ModelError, match=rf"as many units as there are classes \({len(names)}\)"):
        check_classes(a_network(classes), names)


def test_a_model_without_its_preprocessing_is_refused(tmp_path):
    a_network().save(tmp_path / "bare.keras")
    with pytest.raises(ModelError, match="does not hold its preprocessing.*unstall train"):
        open_finished(str(tmp_path / "bare.keras"))


@pytest.mark.parametrize(
    ("name", "content", "match"),
    [
        ("a.h5", b"", "must be a .keras file"),
        ("missing.keras", None, "does not exist"),
        ("text.keras", b"hello", "cannot be opened as a Keras model"),
    ],
)
def test_a_file_that_is_no_model_is_refused(tmp_path, name, content, match):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(ModelError, match=match):
        open_finished(str(tmp_path / name))


def test_layers_that_keras_has_not_are_named_wherever_they_are():
    class Ours(keras.layers.Layer):
        def call(self, inputs):
            return inputs

    network = keras.Sequential(
        [keras.Input((8, 6, 3)), Ours(), keras.layers.Flatten(), keras.layers.Dense(1, activation="sigmoid")]
    )
    finished = finish(network, ("cats", "dogs"), interpolation="bilinear", antialias=False)
    assert foreign_layers(finished) == ("Ours",)
    assert foreign_layers(a_finished()) == ()
