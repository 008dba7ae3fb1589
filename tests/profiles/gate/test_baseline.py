"""Baselines as files: what is written is read back, and what is none is refused by name."""

from __future__ import annotations

import json
import os
from dataclasses import replace

import pytest

from unstall.profiles.gate.baseline import (
    Baseline,
    RecordedFigure,
    judge_invariants,
    machine_of,
    not_comparable_here,
    structure_note,
)
from unstall.profiles.gate.baseline_file import BaselineError, path_of, read, write
from unstall.profiles.gate.invariants import Invariants, differences, invariants_from_dict, losses

INVARIANTS = Invariants(
    images=768,
    stages=("range", "map load, 2 calls", "prefetch, AUTOTUNE"),
    decodes_per_image=1.0,
    batch="float32 (32, 64, 64, 3), int32 (32)",
    bytes_per_image=49156.0,
)
FIGURE = RecordedFigure(
    ratios={"decode": tuple((50 + number) / 100 for number in range(10)), "copy": (10.0,) * 10},
    judge="copy",
    images_per_sec=1000.0,
    floor_images_per_sec=400.0,
)
BASELINE = Baseline(
    subject="tf-data",
    measure="loader",
    reading="loop",
    figures={"steady": FIGURE, "epoch": replace(FIGURE, images_per_sec=800.0, floor_images_per_sec=320.0)},
    invariants=INVARIANTS,
    machine={"cpu": "a CPU", "usable_cores": 2.0, "keras_backend": "tensorflow", "gpus": []},
    dataset={"images": 2000, "content": "0123456789abcdef"},
)


def test_what_is_written_is_read_back(tmp_path):
    path = path_of(tmp_path / "new", "loader")
    write(BASELINE, path, overwrite=False)
    assert read(path) == BASELINE
    assert [one.name for one in path.parent.iterdir()] == ["loader.json"]


def test_the_file_is_small_and_lists_of_numbers_take_a_line(tmp_path):
    path = path_of(tmp_path, "loader")
    write(BASELINE, path, overwrite=False)
    text = path.read_text()
    assert '"samples": [0.5, 0.51, 0.52, 0.53, 0.54, 0.55, 0.56, 0.57, 0.58, 0.59]' in text
    assert '      "map load, 2 calls",\n' in text
    assert len(text) < 3000


def test_a_baseline_is_never_replaced_unasked(tmp_path):
    path = path_of(tmp_path, "loader")
    write(BASELINE, path, overwrite=False)
    with pytest.raises(BaselineError, match="is there already. Give --overwrite"):
        write(replace(BASELINE, measure="train"), path, overwrite=False)
    assert read(path) == BASELINE
    write(replace(BASELINE, measure="train"), path, overwrite=True)
    assert read(path).measure == "train"
    assert [one.name for one in tmp_path.iterdir()] == ["loader.json"]


def test_a_link_stays_a_link_when_its_baseline_is_replaced(tmp_path):
    shared, path = tmp_path / "shared.json", tmp_path / "loader.json"
    write(BASELINE, shared, overwrite=False)
    path.symlink_to(shared)
    write(replace(BASELINE, measure="train"), path, overwrite=True)
    assert path.is_symlink() and read(shared).measure == "train"


def test_a_baseline_is_written_where_there_are_no_hard_links(tmp_path, monkeypatch):
    def no_links(*_):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_links)
    path = path_of(tmp_path, "loader")
    write(BASELINE, path, overwrite=False)
    assert read(path) == BASELINE and [one.name for one in tmp_path.iterdir()] == ["loader.json"]
    with pytest.raises(BaselineError, match="is there already"):
        write(BASELINE, path, overwrite=False)


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(BaselineError, match="cannot be written: "):
        write(BASELINE, path_of(tmp_path / "file" / "inside", "loader"), overwrite=False)
    (tmp_path / "loader.json").mkdir()
    with pytest.raises(BaselineError, match="cannot be written: "):
        write(BASELINE, path_of(tmp_path, "loader"), overwrite=True)
    assert {one.name for one in tmp_path.iterdir()} == {"file", "loader.json"}


@pytest.mark.parametrize("name", ["", "../up", "a/b", ".hidden", "a b", "a\n", "x" * 101, "ä"])
def test_a_name_that_could_leave_the_folder_is_refused(tmp_path, name):
    with pytest.raises(BaselineError, match="A benchmark's name must be letters"):
        path_of(tmp_path, name)


def test_a_baseline_that_is_not_there_says_how_to_record_it(tmp_path):
    with pytest.raises(BaselineError, match=r"loader.json does not exist. Record it first"):
        read(path_of(tmp_path, "loader"))


def break_at(*keys, value):
    def broken(values):
        inner = values
        for key in keys[:-1]:
            inner = inner[key]
        inner[keys[-1]] = value
        return values

    return broken


def break_figure_at(*keys, value):
    return break_at("figures", "epoch", *keys, value=value)


@pytest.mark.parametrize(
    ("broken", "match"),
    [
        (lambda values: [], "is no baseline"),
        (lambda values: {}, "is no baseline: no 'schema_version'"),
        (break_at("schema_version", value=2), "`schema_version` must be 3. Received: 2.*Record it anew"),
        (break_at("anchors_version", value=0), "`anchors_version` must be 1. Received: 0"),
        (
            break_figure_at("ratios", "decode", "samples", value=[1.0]),
            "`ratios` must hold 10 samples each",
        ),
        (
            break_figure_at("ratios", "decode", "samples", value=[0.0] * 10),
            "A rate must be a number above 0. Received: 0.0",
        ),
        (break_figure_at("judge", value="moon"), "the judge's among them"),
        (
            break_figure_at("images_per_sec", "floor", value=-1),
            "A rate must be a number above 0. Received: -1",
        ),
        (break_at("invariants", value={}), "`invariants` must be a table of"),
        (break_at("invariants", "stages", value="all"), "`invariants.stages` must be a list of texts"),
        (break_at("figures", value={}), "`figures` must be epoch, or steady and epoch. Received: "),
        (break_at("figures", "moon", value=None), "is no baseline"),
        (break_at("machine", value=3), "is no baseline"),
        (break_at("machine", "gpus", value=None), "`machine` must hold a list of `gpus`"),
        (break_figure_at("images_per_sec", "median", value=10**400), "is no baseline"),
        (
            break_figure_at("ratios", "moon", value={"samples": [1.0] * 10}),
            "`ratios` must be to decode, copy, resident",
        ),
    ],
)
def test_a_file_that_is_no_baseline_is_refused_with_the_reason(tmp_path, broken, match):
    path = path_of(tmp_path, "loader")
    write(BASELINE, path, overwrite=False)
    path.write_text(json.dumps(broken(json.loads(path.read_text()))))
    with pytest.raises(BaselineError, match=match):
        read(path)


@pytest.mark.parametrize("text", ["", "{", '{"schema_version": NaN}', "\xff"])
def test_a_file_that_is_no_json_is_refused(tmp_path, text):
    path = path_of(tmp_path, "loader")
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(BaselineError, match="cannot be read"):
        read(path)


def test_an_unreadable_file_is_refused(tmp_path):
    path = path_of(tmp_path, "loader")
    path.mkdir()
    with pytest.raises(BaselineError, match=f"cannot be read: {os.strerror(21)}"):
        read(path)


def test_the_machine_is_what_decides_a_rate_and_no_name():
    provenance = {
        "cpu": "a CPU",
        "usable_cores": 2.0,
        "memory_bytes": 16_790_000_000,
        "platform": "Linux x86_64",
        "python": "3.11.7",
        "packages": dict.fromkeys(("tensorflow", "keras", "numpy", "opencv-python-headless", "pillow", "jax"), "1")
        | {"albumentations": "1"},
        "git_commit": "abc",
        "command": ["gate", "secret"],
    }
    machine = machine_of(provenance, "jax", ["a GPU"])
    assert machine["memory_gb"] == 16
    assert set(machine) == {
        *("cpu", "usable_cores", "memory_gb", "keras_backend", "gpus", "platform", "python"),
        *("tensorflow", "keras", "numpy", "opencv-python-headless", "pillow", "albumentations", "jax"),
    }


def test_invariants_survive_json():
    assert invariants_from_dict(json.loads(json.dumps(INVARIANTS.to_dict()))) == INVARIANTS


def test_what_changed_is_said_in_words():
    now = replace(INVARIANTS, stages=("range", "map load, 1 calls", "prefetch, AUTOTUNE"), decodes_per_image=2.0)
    assert differences(INVARIANTS, INVARIANTS) == ()
    assert differences(INVARIANTS, now) == (
        "stages: without map load, 2 calls; with map load, 1 calls",
        "decodes per image: 1.0 -> 2.0",
    )
    turned = replace(INVARIANTS, stages=INVARIANTS.stages[::-1])
    assert differences(INVARIANTS, turned) == (
        "stages: in another order, prefetch, AUTOTUNE > map load, 2 calls > range",
    )


def test_another_name_of_a_function_is_no_difference():
    renamed = replace(INVARIANTS, stages=tuple(stage.replace("load", "load_photo") for stage in INVARIANTS.stages))
    assert renamed != INVARIANTS and differences(INVARIANTS, renamed) == ()
    assert judge_invariants(BASELINE, renamed) is None and structure_note(BASELINE, renamed) == ""


def test_other_stages_are_a_note_and_other_work_is_a_regression():
    more_calls = replace(INVARIANTS, stages=("range", "map load, 1 calls", "prefetch, AUTOTUNE"))
    assert judge_invariants(BASELINE, more_calls) is None
    assert structure_note(BASELINE, more_calls) == "stages: without map load, 2 calls; with map load, 1 calls"
    twice = replace(more_calls, decodes_per_image=2.0)
    assert judge_invariants(BASELINE, twice).reason == "decodes per image: 1.0 -> 2.0"


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"images": 700}, ("images served: 768 -> 700",)),
        ({"images": 800}, ()),
        ({"decodes_per_image": 2.0}, ("decodes per image: 1.0 -> 2.0",)),
        ({"decodes_per_image": 0.0}, ()),
        ({"decodes_per_image": None}, ()),
        ({"bytes_per_image": 50000.0}, ("bytes per image: 49156.0 -> 50000.0",)),
        ({"random_before_cache": ("flip in f",)}, ("frozen by a cache: flip in f",)),
        ({"stages": ()}, ()),
    ],
)
def test_what_got_worse_is_told_from_what_is_only_different(change, expected):
    assert losses(INVARIANTS, replace(INVARIANTS, **change)) == expected


def test_workers_that_no_longer_work_side_by_side_are_a_loss():
    before = replace(INVARIANTS, workers=4, several_at_work=True)
    assert losses(before, replace(before, several_at_work=False)) == ("workers: several were busy at once, now one is",)


@pytest.mark.parametrize(
    ("reading", "anchors", "reason"),
    [
        ("loop", ("decode", "copy", "resident"), None),
        ("fit", ("decode", "copy"), "read by a plain loop when recorded, and by Keras' fit now"),
        ("loop", ("copy",), "recorded against the anchor decode, which cannot run here"),
    ],
)
def test_a_baseline_of_another_way_or_other_anchors_is_not_comparable(reading, anchors, reason):
    decision = not_comparable_here(BASELINE, reading, anchors)
    assert (decision and (decision.verdict, decision.reason)) == (reason and ("not comparable", reason))
    assert decision is None or decision.lack.cause == "elsewhere"  # to be recorded again here


@pytest.mark.parametrize(("figures", "reading"), [(("steady", "epoch"), "fit"), (("epoch",), "calls")])
def test_a_file_that_does_not_say_how_it_was_read_is_of_before_there_was_a_choice(figures, reading, tmp_path):
    path = path_of(tmp_path, "loader")
    write(replace(BASELINE, figures={name: BASELINE.figures[name] for name in figures}), path, overwrite=False)
    values = json.loads(path.read_text())
    del values["reading"]
    path.write_text(json.dumps(values))
    assert read(path).reading == reading
    path.write_text(json.dumps(values | {"reading": "aloud"}))
    with pytest.raises(BaselineError, match="`reading` must be one of fit, loop, calls. Received: 'aloud'"):
        read(path)
