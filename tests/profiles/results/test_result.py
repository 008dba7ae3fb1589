"""What a subject came to, and the file that it is kept in. `a_result` makes those that other tests share."""

from __future__ import annotations

import json
import math

import pytest

from tests.builders import MS, a_cold_result, a_result, a_sample, rounds_of
from unstall.profiles.code_line import CodeLine
from unstall.profiles.devices import parse_device
from unstall.profiles.report.writing_files import to_json
from unstall.profiles.results.flags import Flag, FlagKind
from unstall.profiles.results.parts import PARTS
from unstall.profiles.results.result import summarise
from unstall.profiles.results.subject import Subject

# Keys of a result that other tools rely on. Source: the design, "The results file".
RESULT_KEYS = {
    "variant",
    "model",
    "device",
    "page_cache",
    "batch_size",
    "config",
    "training",
    "images_per_sec",
    "spread_ratio",
    "epoch_images_per_sec",
    "first_epoch_images_per_sec",
    "first_batch_s",
    "loader_images_per_sec",
    "compute_images_per_sec",
    "attribution",
    "attribution_ci95",
    "loading_ratio",
    "headspace",
    "host_wait_ratio",
    "stages",
    "cpu_ms_per_image",
    "flags",
}


def test_rates_are_those_of_the_samples() -> None:
    result = a_result()
    assert result.epoch_images_per_sec == pytest.approx(100 / 0.12)
    assert result.spread_ratio == pytest.approx(0)
    assert result.images_per_sec == pytest.approx(1000)
    assert result.first_epoch_images_per_sec == pytest.approx(500)
    assert result.first_batch_s == pytest.approx(0.006)
    assert result.loader_images_per_sec == pytest.approx(10 / 0.009)
    assert result.compute_images_per_sec == pytest.approx(2500)
    assert result.cpu_ms_per_image == pytest.approx({"loader": 0.2, "model": 0.2})
    assert result.flags == ()


def test_a_rate_is_the_geometric_mean_of_its_rounds_and_has_a_spread_in_place_of_an_interval() -> None:
    result = a_result(train=rounds_of("train", 5, 10, 20))
    assert result.epoch_images_per_sec == pytest.approx(1000)
    assert result.spread_ratio == pytest.approx(math.log(2))
    assert "ci95" not in result.to_dict()


def test_of_epochs_that_were_left_before_their_end_the_whole_ones_decide() -> None:
    whole = rounds_of("train", 10, 10, 10, edge_ms=20)
    result = a_result(train=[*whole, a_sample("train", ms=90, edge_ms=500, round=3, whole=False)])
    assert result.epoch_images_per_sec == pytest.approx(100 / 0.12)
    assert [sample.round for sample in result.explained] == [0, 1, 2]


def test_headspace_is_the_compute_rate_over_the_epoch_rate() -> None:
    result = a_result()
    assert result.attribution.headspace == pytest.approx(result.compute_images_per_sec / result.epoch_images_per_sec)


def test_what_was_not_measured_is_none() -> None:
    samples = [a_sample("resident", ms=4), a_sample("train", ms=10)]
    subject = Subject(variant="v", model="m", device=parse_device("cpu"), batch_size=10)
    result = summarise(subject, samples, typical_canary_ns=5 * MS)
    assert result.loader_images_per_sec is None
    assert result.first_epoch_images_per_sec is None
    assert result.cpu_ms_per_image["loader"] is None


def test_samples_of_a_window_are_found() -> None:
    assert [sample.round for sample in a_result().of("train")] == [0, 1, 2]
    assert a_result().of("replay") == []


def test_images_of_an_epoch_in_use_spread_its_edges() -> None:
    assert a_result(images=200).attribution.seconds_per_image.epoch_overhead == pytest.approx(0.1e-3)


def test_a_cold_row_is_about_its_cold_windows() -> None:
    result = a_cold_result()
    assert result.epoch_images_per_sec == pytest.approx(100 / 0.18)
    assert result.images_per_sec == pytest.approx(625)
    assert result.first_batch_s == pytest.approx(0.012)
    assert result.attribution.shares.fetch_stall == pytest.approx(6 / 18)
    assert result.attribution.shares.prep_stall == pytest.approx(6 / 18)
    assert [sample.window for sample in result.explained] == ["cold"] * 3


def test_a_cold_row_has_no_figure_of_what_was_measured_warm_only() -> None:
    result = a_cold_result()
    assert result.loader_images_per_sec is None
    assert result.first_epoch_images_per_sec is None
    assert result.cpu_ms_per_image["loader"] is None
    assert result.compute_images_per_sec == pytest.approx(2500)
    assert {sample.window for sample in result.samples} == {"resident", "train", "cold"}


def test_cold_windows_do_not_touch_the_warm_row() -> None:
    train = rounds_of("train", 10, 10, 10, wait_ms=6, edge_ms=20)
    assert a_result(train=train + rounds_of("cold", 99, 99)) == a_result(train=train)


def test_flags_of_a_cold_row_are_those_of_its_cold_windows() -> None:
    train, cold = rounds_of("train", 10, 10, 10), rounds_of("cold", 16, 16, wait_ms=8, claimed_ns=1)
    both = [*train, *cold]
    assert a_result(train=both).flags == ()
    assert tuple(map(str, a_result(train=both, page_cache="cold").flags)) == (
        "unclaimed: 100% of the time of fit is neither step nor edge",
        "few rounds: 2, too few for an interval",
    )
    faster = [*train, *rounds_of("cold", 3, 3, 3)]
    flags = [str(flag) for flag in a_result(train=faster, page_cache="cold").flags]
    assert "not trustworthy: training was 1.33 times as fast as the model alone" in flags
    assert [flag for flag in flags if flag.startswith("negative: fetch_stall")] != []


def test_a_cold_row_can_be_told_in_the_file() -> None:
    warm, cold = a_result().to_dict(), a_cold_result().to_dict()
    assert (warm["page_cache"], warm["read_bytes_per_sec"], warm["bytes_per_image"]) == ("warm", None, None)
    assert cold["page_cache"] == "cold"
    assert cold["read_bytes_per_sec"] == {"cold": 210e6, "warm": 2e9}
    assert cold["bytes_per_image"] == 20e3
    assert cold["attribution"]["fetch_stall"] == pytest.approx(6 / 18)
    assert set(cold) == set(warm)


def test_a_cold_row_is_named_as_one() -> None:
    assert a_result("tf-data").subject.label == "tf-data"
    assert a_cold_result("tf-data").subject.label == "tf-data, cold"


def test_the_name_of_a_fit_without_its_place_is_that_of_another_run_of_the_script() -> None:
    place = CodeLine(file="train (1).py", line=7)
    assert a_result("fit 1 (train (1).py:7)", place=place).subject.label_without_place == "fit 1"
    assert a_result("generator (train.py:7)").subject.label_without_place == "generator (train.py:7)"


def test_a_cold_row_without_a_cold_window_is_refused() -> None:
    with pytest.raises(ValueError, match=r"A cold row needs the window 'cold'\. Received: resident, train\."):
        a_result(page_cache="cold")


def test_an_unknown_page_cache_is_refused() -> None:
    with pytest.raises(ValueError, match=r"`page_cache` must be one of warm, cold\. Received: page_cache='lukewarm'\."):
        a_result(page_cache="lukewarm")


def test_flags_of_a_result_are_those_of_its_checks() -> None:
    (flag,) = a_result(train=rounds_of("train", 10, 10, 10, wait_ms=6, canary_ns=50 * MS)).flags
    assert flag.kind is FlagKind.DISTURBED


def test_the_remarks_on_a_result_are_its_notes_and_its_flags_as_they_are_printed() -> None:
    doubts = (Flag(kind=FlagKind.DATA_CHANGED, text="a.jpg (deleted)"), Flag(kind=FlagKind.UNREAD, text="no graph"))
    result = a_result(notes=("fed by arrays",), doubts=doubts)
    said = ("data changed during the run: a.jpg (deleted)", "no graph")
    assert result.remarks == ("fed by arrays", *said)
    assert result.to_dict()["flags"] == list(said) and result.to_dict()["notes"] == ["fed by arrays"]


def test_a_result_has_the_keys_that_others_rely_on() -> None:
    document = a_result().to_dict()
    assert set(document) >= RESULT_KEYS
    assert set(document["attribution"]) == set(document["attribution_ci95"]) == set(PARTS)
    assert set(document["device"]) == {"kind", "name"}
    assert set(document["cpu_ms_per_image"]) == {"loader", "model"}
    assert document["page_cache"] == "warm"


@pytest.mark.parametrize(
    ("device", "key"),
    [("emulated:2500", "accelerator_utilization"), ("gpu", "accelerator_utilization"), ("cpu", "compute_ratio")],
)
def test_utilization_is_called_what_it_is_on_that_device(device: str, key: str) -> None:
    document = a_result(device=device).to_dict()
    assert document[key] == pytest.approx(0.4 / 1.2)
    assert len({"accelerator_utilization", "compute_ratio"} & set(document)) == 1


@pytest.mark.parametrize("device", ["cpu", "gpu", "emulated:2500"])
def test_a_result_is_strict_json_whose_shares_sum_to_one(device: str) -> None:
    document = json.loads(to_json(a_result(device=device, work=("no augmentation",), notes=("a note",)).to_dict()))
    shares = [share for share in document["attribution"].values() if share is not None]
    assert math.fsum(shares) == pytest.approx(1, abs=1e-12)
    assert document["work"] == ["no augmentation"]
    assert document["notes"] == ["a note"]
