"""The main job's command line, before anything is opened."""

from __future__ import annotations

import dataclasses

import pytest
from rich.console import Console
from rich.progress import Progress

from unstall.benchmarks.accuracy import __main__ as accuracy
from unstall.benchmarks.lab.options import UserError, config_from_file
from unstall.benchmarks.pipeline.measure import Run
from unstall.benchmarks.pipeline.parser import parser
from unstall.benchmarks.pipeline.plan import read_plan
from unstall.benchmarks.train import __main__ as train
from unstall.pipeline import from_folder
from unstall.pipeline.config import config_to_toml
from unstall.pipeline.variants import DEFAULT, GENERATORS, TF_DATA, THOROUGH, VARIANTS
from unstall.profiles.devices import CPU, Device


def read(tmp_path, *words):
    return read_plan(parser().parse_args(words), tmp_path / "out")


def test_no_arguments_ask_for_the_default_set_on_generated_photos(tmp_path):
    request = read(tmp_path)
    assert tuple(request.variants) == DEFAULT
    assert request.data == "generated:2000"
    assert request.models == {"cats-dogs-64": "cats-dogs-64"}
    assert request.devices is None
    assert request.rounds == 5
    assert request.cold is False
    assert request.out == tmp_path / "out"


@pytest.mark.parametrize(
    ("word", "names"),
    [("all", tuple(VARIANTS)), ("generators", GENERATORS), ("all-tf-data", TF_DATA), ("default", DEFAULT)],
)
def test_a_set_stands_for_its_variants(tmp_path, word, names):
    assert tuple(read(tmp_path, "--variants", word).variants) == names


def test_the_name_of_a_variant_is_no_set(tmp_path):
    assert tuple(read(tmp_path, "--variants", "generator,tf-data").variants) == ("generator", "tf-data")
    assert tuple(read(tmp_path, "--variants", "tf-data").variants) == ("tf-data",)


def test_a_thorough_run_has_more_pipelines_and_all_rounds(tmp_path):
    plan = read(tmp_path, "--thorough")
    assert tuple(plan.variants) == THOROUGH and set(DEFAULT) < set(THOROUGH)
    assert (plan.rounds, plan.ends_early) == (5, False)
    assert read(tmp_path).ends_early and not read(tmp_path, "--rounds", "4").ends_early


def test_cold_rows_are_asked_for(tmp_path):
    assert read(tmp_path, "--cold").cold is True


def test_names_and_sets_mix_without_repeats(tmp_path):
    request = read(tmp_path, "--variants", "tf-data-cache,generators,generator")
    assert tuple(request.variants) == ("tf-data-cache", *GENERATORS)


def test_set_and_batch_size_change_every_variant(tmp_path):
    request = read(tmp_path, "--variants", "generator,py-dataset", "--set", "workers=3", "--batch-size", "7")
    assert [config.workers for config in request.variants.values()] == [3, 3]
    assert [config.batch_size for config in request.variants.values()] == [7, 7]


@pytest.mark.parametrize(
    ("pair", "field", "value"),
    [
        ("augmentation=false", "augmentation", None),
        ("interpolation=nearest", "interpolation", "nearest"),
        ("prefetch=auto", "prefetch", "auto"),
        ("deterministic=false", "deterministic", False),
    ],
)
def test_set_reads_toml_values_and_bare_words(tmp_path, pair, field, value):
    config = read(tmp_path, "--variants", "tf-data-autotune", "--set", pair).variants["tf-data-autotune"]
    assert getattr(config, field) == value


def test_a_config_file_is_one_more_variant_beside_the_baseline(tmp_path):
    mine = dataclasses.replace(VARIANTS["tf-data-autotune"], workers=3, image_size=(10, 10))
    (tmp_path / "mine.toml").write_text(config_to_toml(mine))
    request = read(tmp_path, "--config", str(tmp_path / "mine.toml"))
    assert tuple(request.variants) == ("generator", "mine")
    # The size is the model's, whatever the file says.
    assert request.variants["mine"] == dataclasses.replace(mine, image_size=(64, 64))
    asked = read(tmp_path, "--variants", "default", "--config", str(tmp_path / "mine.toml"))
    assert tuple(asked.variants) == (*DEFAULT, "mine")


def test_a_model_is_named_without_its_folder_which_results_do_not_keep(tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "net.keras").touch()
    net, other = str(tmp_path / "a" / "net.keras"), str(tmp_path / "b" / "net.keras")
    assert read(tmp_path, "--model", f"cats-dogs-64,{net}").models == {"cats-dogs-64": "cats-dogs-64", "net.keras": net}
    with pytest.raises(UserError, match=r"^--model: two files are called net\.keras, .* Rename one\.$"):
        read(tmp_path, "--model", f"{net},{other}")


def test_devices_are_read(tmp_path):
    devices = read(tmp_path, "--device", "cpu,emulated:400").devices
    assert devices == (CPU, Device(kind="emulated", name="emulated:400", images_per_sec=400.0))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--variants", "tf-dat"], r"'tf-dat' is not a variant. Did you mean 'tf-data'\?"),
        (["--variants", ","], r"--variants needs at least one name. Received: ','"),
        (["--model", "cat-dogs-64"], r"'cat-dogs-64' is not a model. Did you mean 'cats-dogs-64'\?"),
        (["--model", "net.h5"], "HDF5 models are not opened"),
        (["--model", "none.keras"], "none.keras does not exist"),
        (["--set", "wokers=3"], r"variant generator: `wokers` is not a setting. Did you mean 'workers'\?"),
        (["--set", "workers"], "--set needs FIELD=VALUE"),
        (["--set", "image_size=[32,32]"], "the size is the model's"),
        (["--set", "cache=memory"], "variant generator: `cache` must be 'none'"),
        (["--set", "workers='many'"], "variant generator: `workers` must be at least 1"),
        (["--batch-size", "0"], "--batch-size must be at least 1. Received: 0."),
        (["--rounds", "0"], "--rounds must be at least 1. Received: 0"),
        (["--device", "tpu"], "A device must be auto, cpu, gpu or emulated:RATE. Received: 'tpu'"),
        (["--config", "nowhere.toml"], "nowhere.toml cannot be read: No such file or directory"),
    ],
)
def test_bad_words_are_refused_in_one_line(tmp_path, words, message):
    with pytest.raises(UserError, match=message) as caught:
        read(tmp_path, *words)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 2


def test_a_file_is_refused_by_the_option_that_named_it(tmp_path, capsys):
    words = ["--data", "d", "--config", str(tmp_path / "none.toml")]
    for main, more in ((train.main, ["--out", str(tmp_path / "a.keras")]), (accuracy.main, ["--out", str(tmp_path)])):
        assert main([*words, *more]) == 2
        assert capsys.readouterr().err.startswith(f"--config {tmp_path / 'none.toml'} cannot be read")
    (tmp_path / "bad.toml").write_text("worker = 3")
    with pytest.raises(UserError, match=r"^--config .*bad\.toml: `worker` is not a setting"):
        config_from_file(tmp_path / "bad.toml", "--config")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"workers = ", "bad.toml: not a TOML file"),
        (b"worker = 3", r"`worker` is not a setting. Did you mean 'workers'\?"),
        (b"\xff\xfe", "bad.toml cannot be read: not UTF-8"),
        (b"model = 'os:system'", "`model` is not a setting"),
    ],
)
def test_a_bad_config_file_is_refused(tmp_path, content, message):
    (tmp_path / "bad.toml").write_bytes(content)
    with pytest.raises(UserError, match=message):
        read(tmp_path, "--config", str(tmp_path / "bad.toml"))


def test_a_run_on_a_cpu_and_a_gpu_names_the_gpu(photos, tmp_path):
    """The CPU's process sees no GPU: two runs on different GPUs would be compared as if on one machine."""
    plan = read_plan(parser().parse_args(["--data", str(photos), "--variants", "tf-data"]), tmp_path / "out")
    plan.out.mkdir()
    devices = CPU, Device(kind="gpu", name="gpu")
    run = Run(plan, from_folder(photos), devices, Progress(disable=True), Console())
    assert run.document(complete=False).provenance.get("gpus") in (None, [])
    for group, gpus in zip(run._groups, ([], ["NVIDIA H100"]), strict=True):
        group.backend = {"keras_backend": "jax", "gpus": gpus}
    assert run.document(complete=False).provenance["gpus"] == ["NVIDIA H100"]
