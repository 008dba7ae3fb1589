"""Pictures read for prediction, and the command that classifies them."""

from __future__ import annotations

import json
import os

import keras
import numpy as np
import pytest
from PIL import Image

from unstall.benchmarks import cli as command
from unstall.models import predict
from unstall.models.predict import Classified, PictureError, classify, printable, probabilities_of, read_picture
from unstall.models.saved import finish, save
from unstall.pipeline.sources import headers


def a_picture(path, mode="RGB", size=(5, 4), **options):
    pixels = np.random.default_rng(0).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    if str(path).endswith(".ico"):
        options["sizes"] = [size]  # of its own accord Pillow 11 writes square ones alone, and no smaller picture at all
    Image.fromarray(pixels).convert(mode).save(path, **options)
    return str(path)


@pytest.fixture(scope="module")
def model_file(tmp_path_factory):
    """Says "bright" of what is bright, by the mean of all pixels: sigmoid(20 * (mean - 0.5))."""
    network = keras.Sequential(
        [keras.Input((4, 4, 3)), keras.layers.Flatten(), keras.layers.Dense(1, activation="sigmoid")]
    )
    network.layers[-1].set_weights([np.full((48, 1), 20 / 48, np.float32), np.array([-10], np.float32)])
    path = tmp_path_factory.mktemp("model") / "model.keras"
    save(finish(network, ("dark", "bright"), interpolation="bilinear", antialias=False), path, overwrite=False)
    return path


def test_the_limit_of_pixels_is_the_pipeline_s():
    assert predict.MAX_PIXELS == headers.MAX_PIXELS


@pytest.mark.parametrize("name", ["a.png", "a.bmp", "a.gif", "a.webp", "a.tiff", "a.jpg", "a.ppm", "a.ico"])
def test_pictures_of_many_formats_are_read(tmp_path, name):
    pixels = read_picture(a_picture(tmp_path / name, size=(16, 12)))
    assert (pixels.shape, pixels.dtype) == ((12, 16, 3), np.uint8)


@pytest.mark.parametrize("mode", ["L", "1", "P", "RGBA", "LA", "CMYK"])
def test_pictures_of_any_mode_have_three_channels(tmp_path, mode):
    path = a_picture(tmp_path / ("a.tiff" if mode in ("CMYK", "LA") else "a.png"), mode)
    assert read_picture(path).shape == (4, 5, 3)


def test_the_high_byte_stands_for_16_bits(tmp_path):
    Image.fromarray(np.array([[0, 256, 65535]], np.uint16)).save(tmp_path / "a.png")
    assert read_picture(str(tmp_path / "a.png"))[0, :, 0].tolist() == [0, 1, 255]


def test_exif_orientation_is_ignored_as_in_training(tmp_path):
    exif = Image.Exif()
    exif[274] = 6  # Orientation: to be turned by 90 degrees
    assert read_picture(a_picture(tmp_path / "a.jpg", exif=exif)).shape == (4, 5, 3)


def test_a_picture_that_is_too_large_is_refused_before_it_is_decoded(tmp_path, monkeypatch):
    monkeypatch.setattr(predict, "MAX_PIXELS", 19)
    monkeypatch.setattr(Image.Image, "convert", lambda *_: pytest.fail("decoded"))
    with pytest.raises(PictureError, match="5x4 pixels, over the limit of 0 megapixels"):
        read_picture(a_picture_unconverted(tmp_path / "a.png"))


def a_picture_unconverted(path):
    Image.fromarray(np.zeros((4, 5, 3), np.uint8)).save(path)
    return str(path)


def test_what_is_no_picture_is_refused(tmp_path):
    (tmp_path / "text.jpg").write_text("hello")
    os.mkfifo(tmp_path / "pipe.jpg")
    whole = (tmp_path / "a.png", tmp_path / "half.png")
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)).save(whole[0])
    whole[1].write_bytes(whole[0].read_bytes()[:2000])
    (tmp_path / "a.eps").write_text("%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\n")
    for name, match in (
        ("text.jpg", "^not a picture$"),
        ("pipe.jpg", "^not a regular file$"),
        ("missing.jpg", "^does not exist$"),
        ("half.png", "^not a readable picture: image file is truncated"),
        ("a.eps", "^not a picture$"),
    ):
        with pytest.raises(PictureError, match=match):
            read_picture(str(tmp_path / name))


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_picture_that_may_not_be_read_is_refused(tmp_path):
    path = a_picture(tmp_path / "a.png")
    os.chmod(path, 0)
    with pytest.raises(PictureError, match="cannot be read: Permission denied"):
        read_picture(path)


def test_one_output_is_the_probability_of_the_second_class():
    np.testing.assert_allclose(probabilities_of(np.array([0.25])), [0.75, 0.25])
    np.testing.assert_allclose(probabilities_of(np.array([0.0])), [1.0, 0.0])


def test_several_outputs_are_made_to_sum_to_one():
    np.testing.assert_allclose(probabilities_of(np.array([0.5, 0.25, 0.25])), [0.5, 0.25, 0.25])
    np.testing.assert_allclose(probabilities_of(np.array([0.9, 0.9])), [0.5, 0.5])


@pytest.mark.parametrize("outputs", [[np.nan], [1.5], [-0.1, 1.1], [0.0, 0.0]])
def test_outputs_that_are_not_probabilities_give_none(outputs):
    assert probabilities_of(np.array(outputs)) is None


def test_a_result_names_the_most_probable_class_with_its_probability():
    result = Classified(picture="a", probabilities={"dark": 0.2, "bright": 0.8})
    assert (result.class_name, result.probability) == ("bright", 0.8)


def test_paths_that_are_not_printable_are_escaped():
    assert printable("a\nb\x1b[31m\udcff") == "a\\nb\\x1b[31m\\udcff"


def test_every_picture_gets_a_line_and_bad_ones_exit_code_1(model_file, tmp_path, capfd):
    bright, dark = tmp_path / "bright.png", tmp_path / "d.png"
    Image.new("RGB", (20, 10), (255, 255, 255)).save(bright)
    Image.new("RGB", (7, 30), (0, 0, 0)).save(dark)
    (tmp_path / "bad.png").write_text("no")
    paths = [str(tmp_path / name) for name in ("bright.png", "bad.png", "d.png", "gone.png")]
    assert command.main(["predict", str(model_file), *paths]) == 1
    printed = capfd.readouterr()
    # sigmoid(10), and 1 - sigmoid(-10): both 0.99995.
    assert printed.out == f"{paths[0]}  bright  100.0%\n{paths[2]:<{len(paths[0])}}  dark  100.0%\n"
    assert printed.err == f"{paths[1]}: not a picture.\n{paths[3]}: does not exist.\n"


def test_json_holds_every_probability_and_every_error(model_file, tmp_path, capfd):
    Image.new("RGB", (8, 8), (153, 153, 153)).save(tmp_path / "a.png")
    paths = [str(tmp_path / "a.png"), str(tmp_path / "gone.png")]
    assert command.main(["predict", "--json", str(model_file), *paths]) == 1
    good, bad = json.loads(capfd.readouterr().out)
    # 153 / 255 = 0.6, and sigmoid(20 * 0.1) = 0.8808.
    assert good["class"] == "bright" and good["probability"] == pytest.approx(0.8808, abs=1e-4)
    assert good["probabilities"] == pytest.approx({"dark": 0.1192, "bright": 0.8808}, abs=1e-4)
    assert bad == {"picture": paths[1], "error": "does not exist"}


def test_all_good_is_exit_code_0(model_file, tmp_path, capfd):
    assert command.main(["predict", str(model_file), a_picture(tmp_path / "a.png")]) == 0


def test_a_picture_without_probabilities_is_left_unclassified(tmp_path):
    network = keras.Sequential([keras.Input((4, 4, 3)), keras.layers.Flatten(), keras.layers.Dense(1)])
    network.layers[-1].set_weights([np.zeros((48, 1), np.float32), np.array([7], np.float32)])
    save(finish(network, ("a", "b"), interpolation="bilinear", antialias=False), tmp_path / "m.keras", overwrite=False)
    from unstall.models.saved import open_finished

    (result,) = classify(open_finished(str(tmp_path / "m.keras")), [a_picture(tmp_path / "a.png")])
    assert result.error == "the model gives no probabilities for it"
