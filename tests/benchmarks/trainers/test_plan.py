"""What several trainers are asked to do: every refusal in one line before anything starts, and what a plan holds."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from unstall.benchmarks.lab.options import UserError
from unstall.benchmarks.trainers.parser import VARIANT, parser
from unstall.benchmarks.trainers.plan import Plan, read_plan
from unstall.benchmarks.trainers.subjects import SUBJECTS
from unstall.pipeline import VARIANTS
from unstall.pipeline.config import config_to_toml


def a_plan(*words: str) -> Plan:
    return read_plan(parser().parse_args(["--data", "photos", *words]), Path("out"))


REFUSED = {
    ("--rounds", "0"): "--rounds must be at least 1. Received: 0.",
    ("--processes", "1"): "--processes must be from 2 to 8. Received: 1.",
    ("--processes", "9"): "--processes must be from 2 to 8. Received: 9.",
    ("--model", "cats"): "--model 'cats' is not a model.",
    ("--only", "mirror"): "--only: 'mirror' is not known. Did you mean 'mirrored'?",
    ("--only", ","): "--only needs at least one name. Received: ','.",
    ("--config", "nowhere.toml"): "--config nowhere.toml cannot be read: No such file or directory.",
    ("--batch-size", "0"): "`batch_size` must be",
    ("--set", "workers"): "--set needs FIELD=VALUE, such as workers=4. Received: 'workers'.",
    ("--set", "service=local:1"): "service must be none. Received: local:1.",
    ("--set", "cache=memory"): "cache must be none. Received: memory.",
    ("--set", "output_dtype=uint8"): "output_dtype must be float32, and augment_at not device. Received: uint8 and",
    (
        "--set",
        "augment_with=keras_layers",
        "--set",
        "augment_at=device",
    ): "augment_at not device. Received: float32 and",
}


@pytest.mark.parametrize("words", REFUSED, ids=" ".join)
def test_what_is_wrong_is_refused_in_one_line(words):
    with pytest.raises(UserError, match=re.escape(REFUSED[words])) as refused:
        a_plan(*words)
    assert "\n" not in str(refused.value)
    assert refused.value.exit_code == 2


def test_a_file_with_another_loader_is_refused(tmp_path):
    (tmp_path / "other.toml").write_text(config_to_toml(VARIANTS["py-dataset"]))
    with pytest.raises(UserError, match=r"loader must be tf_data\. Received: py_dataset\."):
        a_plan("--config", str(tmp_path / "other.toml"))


def test_a_place_of_augmentation_that_nothing_uses_is_taken():
    words = ("--set", "augment_with=keras_layers", "--set", "augment_at=device", "--set", "augmentation=false")
    assert a_plan(*words).asked.config.augmentation is None


def test_a_plan_without_options_has_all_subjects_and_two_trainers():
    asked = a_plan().asked
    assert asked.subjects == tuple(SUBJECTS)
    assert (asked.trainers, asked.rounds) == (2, 5)
    assert asked.config == VARIANTS[VARIANT]


def test_options_are_in_the_plan():
    words = ("--only", "one-jax,jax-processes", "--batch-size", "8", "--processes", "3")
    asked = a_plan(*words, "--set", "decode=scaled").asked
    assert asked.subjects == ("one-jax", "jax-processes")
    assert (asked.config.batch_size, asked.config.decode, asked.trainers) == (8, "scaled", 3)


def test_a_plan_keeps_the_file_of_a_model_without_its_folder(tmp_path):
    net = tmp_path / "net.keras"
    net.touch()
    plan = a_plan("--model", str(net))
    assert (plan.model, plan.asked.model) == (str(net), "net.keras")


def test_one_iterator_for_all_epochs_is_not_taken_as_its_images_are_of_no_epoch():
    assert not a_plan("--set", "one_iterator=true").asked.config.one_iterator


def test_every_subject_with_several_trainers_is_compared_with_one_on_its_backend():
    for subject in SUBJECTS.values():
        assert subject.several == bool(subject.baseline)
        if subject.baseline:
            assert SUBJECTS[subject.baseline].backend == subject.backend


@pytest.mark.parametrize(("name", "devices"), [("one-jax", 1), ("jax-devices", 3), ("jax-processes", 1)])
def test_a_process_on_jax_has_its_devices_and_none_of_the_users_hosts(name, devices, monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla_mine=1")
    assert SUBJECTS[name].environment(3) == {
        "KERAS_BACKEND": "jax",
        "TF_CONFIG": "{}",
        "XLA_FLAGS": f"--xla_mine=1 --xla_force_host_platform_device_count={devices}",
    }
