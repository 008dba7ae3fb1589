"""How loading grows: what is flat is no finding, what is not is one, and the user's files stay as they are.

Over 400 lines: each expectation has a planted series that breaks it and one that does not.
"""

from __future__ import annotations

import dataclasses
import io
import json
import os
import re
from types import SimpleNamespace

import numpy as np
import pytest
from rich.console import Console

from tests.builders import ONE_VARIANT, a_scaling_document
from tests.builders import a_measurement as measurement
from tests.builders import a_scaling_plan as plan
from tests.builders import a_scaling_sample as sample
from tests.builders import scaling_rows_of as rows_of
from tests.checks import Page, assert_harmless, tables_of
from tests.fakes import FakePlaceChild as FakeChild
from unstall.benchmarks.lab.child import ChildDied, JobRefused
from unstall.benchmarks.lab.command import run_plan
from unstall.benchmarks.lab.options import UserError
from unstall.benchmarks.scaling import __main__ as scaling
from unstall.benchmarks.scaling import lists, measure
from unstall.benchmarks.scaling.child import extent
from unstall.benchmarks.scaling.findings import EXPECTATIONS, NEGLIGIBLE, Series, checks, find, series_of
from unstall.benchmarks.scaling.lists import copy_photos, link_files
from unstall.benchmarks.scaling.measure import core_order
from unstall.benchmarks.scaling.parser import AXES
from unstall.benchmarks.scaling.plan import FIGURES, Plan, PointResult, cores_up_to, files_up_to
from unstall.benchmarks.scaling.report import KIND, derive
from unstall.pipeline.commands.terminal import Stopped
from unstall.pipeline.sources.folder import from_folder
from unstall.pipeline.variants import VARIANTS
from unstall.profiles.report import load, write

FILES = (1_000, 10_000, 100_000)


def series(axis, figure, values, *numbers, decode="full", disturbed=False):
    """A series with one number, or one a round, at each value."""
    rounds = tuple(dict(enumerate(number if isinstance(number, tuple) else (number,))) for number in numbers)
    return Series(
        axis=axis,
        variant="v",
        figure=figure,
        decode=decode,
        values=values,
        rounds=rounds,
        disturbed=disturbed,
    )


def flat(axis, figure, values=FILES):
    return series(axis, figure, values, *(0.5,) * len(values))


@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize("figure", FIGURES)
def test_a_flat_series_is_no_finding_but_of_cores_that_do_nothing(axis, figure):
    expected = 1 if (axis, figure) == ("cores", "images_per_sec") else 0
    assert len(find([flat(axis, figure)])) == expected


@pytest.mark.parametrize(
    ("planted", "value", "measured"),
    [
        (
            series("files", "images_per_sec", FILES, 1000.0, 990.0, 700.0),
            100_000,
            "fitted 740 at 100,000 files against 1,058 at 1,000: 0.70 times as much",
        ),
        (
            series("files", "first_batch_s", FILES, 0.05, 0.06, 0.2),
            100_000,
            "fitted 169 ms at 100,000 files against 42.2 ms at 1,000: 4.00 times as much",
        ),
        (
            series("files", "memory_bytes", FILES, 20e6, 60e6, 180e6),
            100_000,
            "fitted 180 MB at 100,000 files against 20.0 MB at 1,000: 9.00 times as much",
        ),
        (
            series("files", "listing_s", FILES, 0.1, 1.0, 40.0),
            100_000,
            "fitted 31,748 ms at 100,000 files against 79.4 ms at 1,000: 400 times for 100 times as many",
        ),
        (
            series("files", "listing_again_s", FILES, 0.1, 1.0, 40.0),
            100_000,
            "fitted 31,748 ms at 100,000 files against 79.4 ms at 1,000: 400 times for 100 times as many",
        ),
        (
            series("files", "build_s", FILES, 0.1, 1.0, 40.0),
            100_000,
            "fitted 31,748 ms at 100,000 files against 79.4 ms at 1,000: 400 times for 100 times as many",
        ),
        (
            series("cores", "images_per_sec", (1, 2, 4), 100.0, 180.0, 240.0),
            4,
            "fitted 252 at 4 cores against 105 at 1: 2.4 times for 4 times as many (efficiency 0.60)",
        ),
        (
            series("batch-size", "images_per_sec", (8, 32, 128), 200.0, 150.0, 100.0),
            128,
            "fitted 102 at 128 images a batch against 204 at 8: 0.50 times as much",
        ),
        (
            series("batch-size", "first_batch_s", (8, 32, 128), 0.01, 0.1, 0.8),
            128,
            "fitted 830 ms at 128 images a batch against 10.4 ms at 8: 80 times for 16 times as many",
        ),
        (
            series("image-size", "images_per_sec", (32, 64), 120.0, 60.0),
            64,
            "fitted 60.0 at 64 pixels a side against 120 at 32: 0.50 times as much",
        ),
        (
            series("image-size", "images_per_sec", (32, 64), 120.0, 24.0, decode="scaled"),
            64,
            "fitted 24.0 at 64 pixels a side against 120 at 32: 0.2 times for 2 times as many",
        ),
    ],
)
def test_a_planted_slope_is_exactly_that_finding(planted, value, measured):
    (finding,) = find([planted, *(flat("files", figure) for figure in FIGURES)])
    assert (finding.axis, finding.figure, finding.value) == (planted.axis, planted.figure, value)
    assert finding.measured == measured
    assert finding.line.endswith(f"; {measured}")


@pytest.mark.parametrize(
    "harmless",
    [
        series("files", "images_per_sec", FILES, 1000.0, 950.0, 901.0),
        series("files", "images_per_sec", FILES, 1000.0, 2000.0, 3000.0),
        series("files", "first_batch_s", FILES, 0.020, 0.025, 0.034),
        series("files", "memory_bytes", FILES, 20e6, 28e6, 40e6),
        series("files", "listing_s", FILES, 0.1, 1.0, 10.0),
        series("files", "build_s", FILES, 1.0, 1.9, 10.9),
        series("cores", "images_per_sec", (1, 2, 4), 100.0, 170.0, 330.0),
        series("image-size", "images_per_sec", (32, 64), 100.0, 26.0, decode="scaled"),
    ],
)
def test_what_is_allowed_is_no_finding(harmless):
    assert find([harmless]) == ()


def test_noise_within_the_spread_is_no_finding():
    noisy = series("files", "images_per_sec", (1000, 10_000), (1000.0, 800.0, 1000.0), (850.0, 860.0, 870.0))
    assert find([noisy]) == ()
    steady = series("files", "images_per_sec", (1000, 10_000), (1000.0, 990.0, 1010.0), (750.0, 760.0, 770.0))
    assert [finding.ratio for finding in find([steady])] == [pytest.approx(770 / 1010)]


def test_rounds_are_held_against_the_same_round():
    # The machine was half as fast in the second round: nothing that the number of files did.
    drifting = series("files", "images_per_sec", (1000, 10_000), (1000.0, 500.0), (990.0, 495.0))
    assert find([drifting]) == ()
    fallen = series("files", "images_per_sec", (1000, 10_000), (1000.0, 500.0), (500.0,))
    assert [finding.ratio for finding in find([fallen])] == [pytest.approx(0.5)]


def test_a_finding_drawn_from_a_slow_moment_of_the_machine_is_doubtful():
    for disturbed in (False, True):
        planted = series("files", "images_per_sec", (10, 100), 1000.0, 500.0, disturbed=disturbed)
        (finding,) = find([planted])
        assert finding.doubtful is disturbed


def test_every_expectation_names_an_axis_and_a_figure_that_there_are():
    assert {expectation.axis for expectation in EXPECTATIONS} == set(AXES)
    assert {expectation.figure for expectation in EXPECTATIONS} <= set(FIGURES) == set(NEGLIGIBLE)


def test_one_value_cannot_be_checked():
    assert checks([flat("files", "build_s", (1000,))]) == ()
    assert len(checks([flat("files", "build_s", (1000, 10_000))])) == 1


def test_axes_share_the_places_at_which_they_cross():
    points = plan(variants=ONE_VARIANT).points
    assert len(points) == 8
    crossing = [point.place for point in points if (point.axis, point.value) in {("files", 16), ("batch-size", 32)}]
    assert crossing[0] == crossing[1]
    assert len({point.place for point in points}) == 6


def test_a_number_of_workers_follows_the_cores_and_the_tuner_is_left_alone():
    on_cores = [point.place for point in plan().points if point.axis == "cores"]
    found = [(place.variant, place.cores, place.config.workers) for place in on_cores]
    assert found == [
        ("generator", 1, 1),
        ("tf-data-autotune", 1, "auto"),
        ("generator", 2, 2),
        ("tf-data-autotune", 2, "auto"),
    ]
    assert {point.place.cores for point in plan().points if point.axis != "cores"} == {None}


def test_an_axis_changes_its_own_setting_alone():
    for point in plan(variants=ONE_VARIANT).points:
        config = point.place.config
        changed = {"batch-size": config.batch_size, "image-size": config.image_size[0], "files": point.place.files}
        assert changed.get(point.axis, point.value) == point.value
        usual = dataclasses.replace(config, batch_size=32, image_size=(64, 64))
        assert usual == VARIANTS["tf-data-autotune"]


@pytest.mark.parametrize(("most", "values"), [(1_000, (1_000,)), (99_999, (1_000, 10_000)), (100_000, FILES)])
def test_lists_are_tenfolds(most, values):
    assert files_up_to(most) == values


@pytest.mark.parametrize(("most", "values"), [(0, (1,)), (1, (1,)), (2, (1, 2)), (6, (1, 2, 4, 6)), (8, (1, 2, 4, 8))])
def test_cores_are_powers_of_two_and_all(most, values):
    assert cores_up_to(most) == values


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--axes", "file"], "--axes: 'file' is not known. Did you mean 'files'? Known: files, cores,"),
        (["--variants", "generater"], "--variants: 'generater' is not known. Did you mean 'generator'?"),
        (["--variants", ","], "--variants needs at least one name. Received: ','."),
        (["--rounds", "0"], "--rounds must be at least 1. Received: 0."),
        (["--most-files", "999"], "--most-files must be at least 1000. Received: 999."),
        (["--data", "nowhere"], "nowhere does not exist"),
        (["--out", "/proc/nowhere"], "results cannot be written there"),
    ],
)
def test_bad_options_get_one_line_and_exit_code_2(monkeypatch, tmp_path, capsys, words, message):
    monkeypatch.chdir(tmp_path)
    assert scaling.main(words) == 2
    said = capsys.readouterr()
    assert message in said.err
    assert (len(said.err.strip().splitlines()), said.out) == (1, "")
    assert list(tmp_path.glob("runs/*")) == []


def test_files_are_links_and_the_users_own_stay_as_they_are(photos, tmp_path):
    source = from_folder(photos)
    before = [os.stat(path) for path in source.paths]
    made = []
    copied = copy_photos(source, 10, tmp_path / "photos")
    folder = link_files(copied, 1003, tmp_path / "files", made.append)
    assert [(one.st_nlink, one.st_ctime_ns) for one in map(os.stat, source.paths)] == [
        (one.st_nlink, one.st_ctime_ns) for one in before
    ]
    linked = from_folder(folder)
    assert (linked.images, linked.skipped, linked.class_names) == (1003, (), source.class_names)
    assert {os.stat(path).st_ino for path in linked.paths} == {path.stat().st_ino for path in copied.paths}
    assert not any(os.path.islink(path) for path in linked.paths)
    assert np.bincount(linked.labels).tolist() == [503, 500]
    assert made == [500, 1000]


def test_where_there_are_no_hard_links_the_files_are_symbolic_ones(photos, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "link", lambda *_: (_ for _ in ()).throw(PermissionError("no")))
    folder = link_files(copy_photos(from_folder(photos), 4, tmp_path / "photos"), 9, tmp_path / "files")
    linked = from_folder(folder)
    assert linked.images == 9
    assert all(os.path.islink(path) for path in linked.paths)


def test_every_class_keeps_a_photo_however_few_it_has(photos, tmp_path):
    for name in ("rare", "rarer"):
        (tmp_path / name).mkdir()
        os.link(from_folder(photos).paths[0], tmp_path / name / "one.jpg")
    (tmp_path / "common").symlink_to(photos / "discs")
    source = from_folder(tmp_path)
    assert sorted(copy_photos(source, 4, tmp_path / ".copies").labels) == [0, 0, 1, 2]
    with pytest.raises(UserError, match="at most as many classes as the shortest list has files, 2. Received: 3"):
        copy_photos(source, 2, tmp_path / ".others")


def test_large_photos_are_fewer_and_no_room_is_said(photos, tmp_path, monkeypatch):
    source = from_folder(photos)
    monkeypatch.setattr(lists, "_MOST_BYTES", 100_000)
    assert 2 <= len(copy_photos(source, 40, tmp_path / "few").paths) < 10
    monkeypatch.setattr(lists.shutil, "disk_usage", lambda _: SimpleNamespace(free=1000))
    with pytest.raises(UserError, match="MB in the cache folder, where 0 MB are free. Set UNSTALL_CACHE"):
        copy_photos(source, 40, tmp_path / "none")


def test_second_threads_of_a_core_come_last(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3, 9})
    for cpu, siblings in enumerate(("0-1", "0-1", "2-3", "2-3")):
        (tmp_path / f"cpu{cpu}" / "topology").mkdir(parents=True)
        (tmp_path / f"cpu{cpu}" / "topology" / "thread_siblings_list").write_text(f"{siblings}\n")
    assert core_order(tmp_path) == (0, 2, 9, 1, 3)


@pytest.mark.parametrize(
    ("images", "rate", "expected"),
    [
        (100_000, 1000.0, (1, 1 + 47)),  # 1,500 images are 47 batches, beside one that is not steady
        (100_000, 10.0, (1, 1 + 6)),
        (100_000, 1e6, (1, 1 + 256)),
        (320, 1000.0, (5, None)),
        (1500, 1000.0, (1, None)),
    ],
)
def test_a_window_is_some_seconds_of_a_list_of_any_length(images, rate, expected):
    loader = SimpleNamespace(images=images, batches=-(-images // 32), parallel_batches=1)
    assert extent(loader, 32, rate) == expected


@pytest.fixture
def fake_child(monkeypatch, tmp_path):
    """Children that take no time, and a cache of their own."""
    monkeypatch.setattr(measure, "Child", FakeChild)
    monkeypatch.setattr(FakeChild, "asked", [], raising=False)
    monkeypatch.setattr(FakeChild, "fails", staticmethod(lambda place: None))
    monkeypatch.setenv("UNSTALL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(measure, "core_order", lambda: (5, 7))
    yield FakeChild
    assert FakeChild.alive == 0
    assert {path.name for path in (tmp_path / "cache").iterdir()} <= {"headers"}  # what was read of the photos


def run(asked, photos, out):
    """Returns the exit code, what was printed, and the results file."""
    printed, errors = Console(file=io.StringIO(), width=80), Console(file=io.StringIO(), width=200)
    code = run_plan(scaling.COMMAND, Plan(asked=asked, data=str(photos), out=out), printed, errors)
    document = json.loads((out / "results.json").read_text(), parse_constant=lambda name: pytest.fail(name))
    return code, printed.file.getvalue(), document


def test_rounds_take_every_place_in_turn(fake_child, photos, tmp_path):
    code, _, document = run(plan(rounds=2), photos, tmp_path / "out")
    assert code == 0
    places = [place for place, _, _ in fake_child.asked]
    assert places[:12] == places[12:] == list(dict.fromkeys(point.place for point in plan().points))
    assert [round_ for _, _, round_ in fake_child.asked] == [0] * 12 + [1] * 12
    assert {(place.cores, cores) for place, cores, _ in fake_child.asked} == {(None, None), (1, (5,)), (2, (5, 7))}
    assert [len(place["measurements"]) for place in document["samples"]["places"]] == [2] * 12
    assert len(document["points"]) == 16 and document["complete"]
    assert not (tmp_path / "out" / "children.log").exists()


def test_a_place_that_fails_is_a_row_with_the_reason_and_is_not_tried_again(fake_child, photos, tmp_path):
    def fails(place):
        if place.variant == "generator" and place.cores == 2:
            return ChildDied("the process was killed")
        return JobRefused("it cannot read <b>this</b>") if place.config.batch_size == 8 else None

    fake_child.fails = staticmethod(fails)
    code, printed, document = run(plan(rounds=3), photos, tmp_path / "out")
    assert code == 0
    assert "- no result: generator at 2 cores: the process was killed" in printed
    places = document["samples"]["places"]
    assert [place["failure"] for place in places if place["failure"]] == [
        "the process was killed",
        "it cannot read <b>this</b>",
        "it cannot read <b>this</b>",
    ]
    assert len(fake_child.asked) == 3 * 9 + 3
    assert ("cores", 2, "generator") not in {
        (point["axis"], point["value"], point["variant"]) for point in document["points"]
    }
    page = (tmp_path / "out" / "report.html").read_text()
    assert "it cannot read &lt;b&gt;this&lt;/b&gt;" in page
    assert (tmp_path / "out" / "children.log").exists()


def test_nothing_measured_is_exit_code_3_and_leaves_no_results(fake_child, photos, tmp_path):
    fake_child.fails = staticmethod(lambda place: JobRefused("there is no RAM disk"))
    with pytest.raises(UserError, match="nothing could be measured. generator: 8 .*: there is no RAM disk") as refused:
        run(plan(), photos, tmp_path / "out")
    assert refused.value.exit_code == 3
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["children.log"]


def test_a_stopped_run_writes_what_it_has_and_removes_its_files(fake_child, photos, tmp_path):
    fake_child.fails = staticmethod(lambda place: Stopped(2) if len(fake_child.asked) == 3 else None)
    with pytest.raises(Stopped) as stopped:
        run(plan(), photos, tmp_path / "out")
    assert stopped.value.exit_code == 130
    document = json.loads((tmp_path / "out" / "results.json").read_text())
    assert sum(len(place["measurements"]) for place in document["samples"]["places"]) == 2
    assert not document["complete"]
    assert "This run was stopped before its end" in (tmp_path / "out" / "report.html").read_text()


def test_the_table_of_an_axis_and_its_finding():
    planted = plan(axes={"cores": (1, 2)}, variants=ONE_VARIANT, rounds=2)
    rows = rows_of(planted, {1: (1000.0, 980.0), 2: (1200.0, 1220.0)})
    assert tables_of(KIND, a_scaling_document(planted, rows)).splitlines() == [
        "",
        "cores",
        "                   tf-data-",
        "                   autotune",
        "images/sec",
        "  1                 990 ±1%",
        "  2               1,210 ±1%",
        "efficiency",
        "  1                    1.00",
        "  2                    0.61",
        "first batch, ms",
        "  1                    20.0",
        "  2                    20.0",
        "memory, MB",
        "  1                    30.0",
        "  2                    30.0",
        "listing, ms",
        "  1                    1.60",
        "  2                    1.60",
        "listing again, ms",
        "  1                    0.80",
        "  2                    0.80",
        "building, ms",
        "  1                    50.0",
        "  2                    50.0",
        "",
        "4 of 5 checks are as they should be.",
        "- cores, tf-data-autotune: images/sec should grow in proportion (efficiency 0.8",
        "  at least); fitted 1,210 at 2 cores against 990 at 1: 1.22 times for 2 times as",
        "  many (efficiency 0.61)",
    ]


def test_tables_of_every_variant_fit_80_columns():
    everything = plan(variants=VARIANTS)
    rows = rows_of(everything, {value: (123456.0, 234567.0) for values in everything.axes.values() for value in values})
    printed = tables_of(KIND, a_scaling_document(everything, rows))
    assert max(map(len, printed.splitlines())) <= 80
    assert "…" not in printed
    assert printed.count("179,012 ±31%") == 8 * len(VARIANTS)


def test_the_page_marks_each_finding_and_runs_its_own_script_alone():
    planted = plan(axes={"files": FILES, "cores": (1, 2)}, rounds=1)
    rates = {1_000: (1000.0,), 10_000: (980.0,), 100_000: (500.0,), 1: (700.0,), 2: (1400.0,)}
    rows = rows_of(planted, rates)
    document = a_scaling_document(planted, rows)
    page = KIND.page(document, derive(document))
    findings = find(series_of(rows))
    assert [(one.axis, one.variant) for one in findings] == [("files", "generator"), ("files", "tf-data-autotune")]
    assert page.count('class="wrong"') == page.count('class="bad"') == 2
    assert page.count('<figure class="chart"') == 2 * len(FIGURES)
    assert_harmless(Page(page))
    assert "default-src 'none'" in page
    assert not re.search(r"(src|href)=", page)
    assert "one round shows no spread" in page


def test_slow_moments_of_the_machine_are_told():
    planted = plan(axes={"files": (8, 16)}, variants=ONE_VARIANT, rounds=3)
    rows = [
        PointResult(
            point=point,
            measurements=tuple(
                measurement(point.place, round_, steady=sample(canary_ns=5_000_000 * (1 + (round_ == 1))))
                for round_ in range(3)
            ),
        )
        for point in planted.points
    ]
    text = tables_of(KIND, a_scaling_document(planted, rows))
    assert "disturbed: the machine was slow beside 2 of 6 measurements" in text
    assert all(figures.disturbed for figures in series_of(rows))


def test_all_that_follows_from_a_document_follows_from_its_file(tmp_path):
    planted = plan(axes={"files": FILES, "cores": (1, 2)}, rounds=2)
    rates = {1_000: (1000.0, 990.0), 10_000: (980.0, 970.0), 100_000: (500.0, 510.0), 1: (700.0,), 2: (1400.0,)}
    document = a_scaling_document(planted, rows_of(planted, rates))
    write(tmp_path, document, KIND, derive(document))
    again, kind = load(tmp_path, {"scaling": KIND})
    assert again == document
    assert kind.page(again, kind.derive(again)) == (tmp_path / "report.html").read_text()


@pytest.mark.long
def test_a_run_measures_every_image_of_a_list(photos, tmp_path, monkeypatch):
    monkeypatch.setenv("UNSTALL_CACHE", str(tmp_path / "cache"))
    config = dataclasses.replace(VARIANTS["generator"], batch_size=4)
    code, _, document = run(plan(axes={"files": (22,)}, variants={"generator": config}), photos, tmp_path / "out")
    assert code == 0
    (place,), (point,) = document["samples"]["places"], document["points"]
    assert place["failure"] is None
    (one,) = place["measurements"]
    assert one["images"] == 22
    epochs = one["steady"]["epochs"]
    assert one["steady"]["epoch_images"] == 22 * epochs
    assert len(one["steady"]["first_batch_ns"]) == epochs
    assert min(one["listing_ns"], one["listing_again_ns"], one["build_ns"], one["first"]["images"]) > 0
    assert (point["axis"], point["value"]) == ("files", 22)
    assert point["images_per_sec"] == pytest.approx(one["steady"]["images"] / one["steady"]["wall_ns"] * 1e9)
    assert {path.name for path in (tmp_path / "cache").iterdir()} <= {"headers"}  # what was read of the photos
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["report.html", "results.json"]
    assert str(tmp_path) not in (tmp_path / "out" / "results.json").read_text()
