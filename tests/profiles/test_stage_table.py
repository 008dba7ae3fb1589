"""The stage table as data: shares, culprit, flags."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from unstall.profiles.stage_table import ImageTail, SlowImage, Stage, StageTable, image_name, tail_of
from unstall.profiles.unit import IMAGE, SAMPLE


def stage(name: str, cpu_us: float, wait_us: float | None = 0.0) -> Stage:
    return Stage(name=name, kind="map", cpu_us_per_image=cpu_us, wait_us_per_image=wait_us)


def table(*stages: Stage, **more: object) -> StageTable:
    return StageTable(stages=stages, cores=2, **more)  # type: ignore[arg-type]


def test_shares_are_of_cpu_and_waiting_together() -> None:
    one, two = stage("decode", 60, 20), stage("batch", 20, None)
    assert [table(one, two).share(each) for each in (one, two)] == [0.8, 0.2]


def test_noise_below_zero_takes_nothing_from_the_others() -> None:
    one, two = stage("decode", 50), stage("batch", -10, -5)
    assert [table(one, two).share(each) for each in (one, two)] == [1.0, 0.0]


def test_noise_of_a_stage_in_opposite_directions_takes_nothing_from_the_others() -> None:
    decode, augment, shuffle = stage("decode", 60), stage("augment", 40), stage("shuffle", -300, 300)
    assert [table(decode, augment, shuffle).share(each) for each in (decode, augment, shuffle)] == [0.6, 0.4, 0.0]


def test_the_culprit_takes_more_than_half() -> None:
    decode = stage("decode", 51)
    assert table(decode, stage("augment", 49)).culprit is decode
    assert table(stage("decode", 50), stage("augment", 50)).culprit is None


def test_images_per_sec_is_what_the_cores_could_give() -> None:
    assert stage("decode", 500).images_per_sec(2) == 4000
    assert stage("range", 0.1).images_per_sec(2) is None


@pytest.mark.parametrize(("loader_us", "flagged"), [(100, False), (110, False), (91, False), (112, True), (90, True)])
def test_stages_that_miss_the_loaders_cpu_time_by_a_tenth_are_flagged(loader_us: float, flagged: bool) -> None:
    stages = table(stage("decode", 70), stage("batch", 30), loader_cpu_us_per_image=loader_us)
    assert bool(stages.remarks(IMAGE)) is flagged


def test_a_flag_says_what_the_rest_is_where_there_is_more() -> None:
    more = table(stage("decode", 70), loader_cpu_us_per_image=100, rest="the queue").remarks(IMAGE)
    less = table(stage("decode", 130), loader_cpu_us_per_image=100, rest="the queue").remarks(IMAGE)
    assert more == (
        "stages: their CPU time sums to 70 us per image, the loader's own is 100 us (-30%); the rest is the queue",
    )
    assert less == ("stages: their CPU time sums to 130 us per image, the loader's own is 100 us (+30%)",)
    rows = table(stage("decode", 130), loader_cpu_us_per_image=100)
    assert rows.remarks(SAMPLE)[0].startswith("stages: their CPU time sums to 130 us per sample, ")


def test_a_loader_that_cannot_be_cut_says_why() -> None:
    empty = StageTable(cores=2, reason="it is read once")
    assert (empty.stages, empty.reason, empty.remarks(IMAGE), empty.culprit) == ((), "it is read once", (), None)


def test_the_tail_names_the_slowest_first() -> None:
    tail = tail_of([(f"{number}.jpg", float(number)) for number in range(101)], count=2)
    assert tail == ImageTail(
        images=101,
        p50_us=50.0,
        p99_us=99.0,
        slowest=(SlowImage(name="100.jpg", us=100.0), SlowImage(name="99.jpg", us=99.0)),
    )


def test_a_table_survives_strict_json() -> None:
    tail = tail_of([("a.jpg", 1.0), ("b.jpg", 3.0)])
    measured = table(stage("decode", 100, None), loader_cpu_us_per_image=100, tail=tail)
    document = json.loads(json.dumps(measured.to_dict(IMAGE), allow_nan=False))
    assert document["stages"][0]["name"] == "decode"
    assert document["stages"][0]["share"] == 1
    assert document["stages"][0]["images_per_sec"] == 20000
    assert document["stages"][0]["wait_us_per_image"] is None
    assert document["tail"]["slowest"][0] == {"name": "b.jpg", "us": 3.0}


def test_an_image_is_named_by_its_folder_and_file_and_a_link_by_where_it_leads(tmp_path: Path) -> None:
    (tmp_path / "dogs").mkdir()
    (tmp_path / "links").mkdir()
    (tmp_path / "dogs" / "dog.1.jpg").write_bytes(b"")
    (tmp_path / "links" / "00000559.jpg").symlink_to(tmp_path / "dogs" / "dog.1.jpg")
    assert image_name(str(tmp_path / "links" / "00000559.jpg")) == "dogs/dog.1.jpg"
    assert image_name("/not/there/cats/1.jpg") == "cats/1.jpg"
