"""The accuracy ladder: its runs, their order, its results file, its table and its page."""

from __future__ import annotations

import dataclasses
import io
import json

import pytest
from rich.console import Console

from tests.builders import a_trained, all_trained
from tests.builders import an_accuracy_document as a_document
from tests.builders import an_accuracy_plan as a_plan
from tests.checks import Page, assert_harmless
from unstall.benchmarks.accuracy.parser import RUNGS, parser
from unstall.benchmarks.accuracy.plan import PIPELINES, Run, published_images_seen, read_plan
from unstall.benchmarks.accuracy.report import (
    KIND,
    axes_of,
    cells,
    derive,
    learning_curves,
    legend,
    script_lines,
    table,
    ticks,
    verdict_text,
)
from unstall.benchmarks.accuracy.results import Difference, difference_of, images_per_sec, rung_results, scripts
from unstall.benchmarks.lab.photos import held_out
from unstall.pipeline import from_folder
from unstall.pipeline.variants import VARIANTS
from unstall.profiles.report import LeftOut, encode, load, write


@pytest.fixture(scope="module")
def splits(photos):
    return held_out(from_folder(photos), seed=0)


def test_the_ladder_has_the_published_accuracies():
    published = {name: rung.published for name, rung in RUNGS.items()}
    assert published == {"tutorial": 0.80, "deeper": 0.84, "dropout": 0.90, "no-augment": 0.85, "128px": 0.94}


def test_the_published_training_saw_6_4_million_images():
    assert {published_images_seen(rung.model) for rung in RUNGS.values()} == {6_400_000}


def test_runs_go_seed_by_seed_and_there_and_back():
    runs = [(run.seed, run.rung, run.pipeline) for run in a_plan().runs]
    assert runs == [
        (0, "tutorial", "generator"),
        (0, "tutorial", "tuned"),
        (0, "no-augment", "tuned"),
        (0, "no-augment", "generator"),
        (1, "tutorial", "generator"),
        (1, "tutorial", "tuned"),
        (1, "no-augment", "tuned"),
        (1, "no-augment", "generator"),
    ]


def test_an_odd_number_of_rungs_alternates_over_the_seeds():
    assert [run.pipeline for run in a_plan(rungs=("tutorial",)).runs] == ["generator", "tuned", "tuned", "generator"]


def test_a_run_sees_whole_passes():
    plan = a_plan(images_seen=100)
    assert (plan.passes(32), plan.passes(100), plan.passes(101)) == (4, 1, 1)


def test_both_pipelines_of_a_pair_have_the_same_batch_seed_and_draws():
    plan = a_plan(tuned=dataclasses.replace(VARIANTS["tf-data-composed"], seed=9))
    for rung, drawn in (("tutorial", True), ("no-augment", False)):
        generator, tuned = (plan.config(Run(rung=rung, pipeline=pipeline, seed=5)) for pipeline in PIPELINES)
        assert generator.loader == "image_data_generator" and tuned.loader == "tf_data"
        for setting in ("batch_size", "seed", "augmentation"):
            assert getattr(generator, setting) == getattr(tuned, setting)
        assert generator.seed == 5 and (generator.augmentation is not None) == drawn


@pytest.mark.parametrize(
    ("images_seen", "train", "test", "expected"),
    [
        (6_400_000, 8000, 2000, True),
        (6_392_001, 8000, 2000, True),  # 800 passes, to be whole
        (6_392_000, 8000, 2000, False),
        (6_400_000, 7999, 2000, False),
        (6_400_000, 8000, 1999, False),
    ],
)
def test_the_published_figure_is_compared_at_the_published_budget_only(images_seen, train, test, expected):
    plan = a_plan(images_seen=images_seen)
    assert plan.as_published("tutorial", train_photos=train, test_photos=test) == expected


def test_a_rung_has_the_mean_accuracy_its_interval_and_the_rate_without_first_passes():
    plan = a_plan(rungs=("tutorial",))
    first, second = (Run(rung="tutorial", pipeline="generator", seed=seed) for seed in (0, 1))
    trained = {first: a_trained("1110"), second: a_trained("1000", rates=(10.0, 200.0))}
    (result,) = rung_results(plan, trained, train_photos=32, test_photos=4)
    cell = result.cells["generator"]
    assert (cell.runs, cell.accuracy, cell.against) == (2, 0.5, None)
    assert (cell.low, cell.high) == pytest.approx((0.1500, 0.8500), abs=1e-4)  # Wilson, 2 of 4
    assert cell.images_per_sec == pytest.approx((110 + 200) / 2)
    assert result.cells["tuned"] is None and result.difference is None


def test_one_pass_has_no_rate():
    assert images_per_sec(a_trained("1", rates=(50.0,))) is None


def test_only_pairs_make_the_difference():
    plan = a_plan(rungs=("tutorial",), seeds=3)
    trained = all_trained(plan, generator="1100", tuned="1110")
    del trained[Run(rung="tutorial", pipeline="tuned", seed=2)]
    difference = difference_of(plan, trained)
    assert (difference.by_seed, difference.photos) == ((0.25, 0.25), 4)
    assert difference_of(plan, {}) is None
    (result,) = rung_results(plan, trained, train_photos=32, test_photos=4)
    assert result.difference == pytest.approx(0.25)


def test_the_table_fits_80_columns_and_brackets_what_is_context():
    plan = a_plan(rungs=tuple(RUNGS), images_seen=6_400_000)
    trained = all_trained(plan, generator="1" * 90 + "0" * 10, tuned="1" * 89 + "0" * 11)
    console = Console(width=80, record=True)
    console.print(table(rung_results(plan, trained, train_photos=8000, test_photos=2000)))
    lines = console.export_text().splitlines()
    assert max(map(len, lines)) <= 80 and len(lines) == 2 + len(RUNGS)
    assert lines[2].split() == ["tutorial", "90.0", "(83-94)", "110", "89.0", "(81-94)", "110", "-1.0", "80", "above"]
    assert lines[4].split()[-2:] == ["as", "published"]
    context = rung_results(plan, trained, train_photos=1600, test_photos=400)
    assert cells(context[0])[-1] == "(80)"


@pytest.mark.parametrize(
    ("by_seed", "low", "high", "sentences"),
    [
        (
            (-0.007, 0.013, 0.003),
            -0.01,
            0.016,
            "The tuned pipeline costs no more than 2 points of accuracy: +0.3 points (95 % interval -1.0 to +1.6) over "
            "3 seeds, on 2,000 test photos.",
        ),
        (
            (-0.03, -0.05, -0.04, -0.04),
            -0.05,
            -0.03,
            "The tuned pipeline costs accuracy: -4.0 points (95 % interval -5.0 to -3.0) over 4 seeds, on 2,000 test "
            "photos.",
        ),
        (
            (-0.03, -0.01, -0.02),
            -0.05,
            0.01,
            "Whether the tuned pipeline costs accuracy is not shown either way: -2.0 points (95 % interval -5.0 to "
            "+1.0) over 3 seeds, on 2,000 test photos. Repeat with more --seeds.",
        ),
        (
            (0.0, 0.02),
            None,
            None,
            "Whether the tuned pipeline costs accuracy is not shown: +1.0 points over 2 seeds, and an interval needs "
            "3. Repeat with more --seeds.",
        ),
    ],
)
def test_the_verdict_is_a_sentence_with_its_interval(by_seed, low, high, sentences):
    assert verdict_text(Difference(by_seed=by_seed, low=low, high=high, photos=2000)) == sentences


def test_without_a_pair_nothing_is_shown():
    assert verdict_text(None).endswith("is not shown: no seed has a pair of runs on each rung.")


def test_the_prediction_experiment_has_a_line_a_network():
    plan = a_plan(rungs=("tutorial",), seeds=1)
    lines = script_lines(scripts(all_trained(plan, generator="1100", tuned="1110")))
    assert lines[-1] == "  tutorial, seed 0: 3 of 4 wrong as published, 1 corrected"
    assert script_lines(()) == []


def test_the_document_holds_every_run_and_loads_again(tmp_path):
    plan = a_plan()
    trained = all_trained(plan, generator="1100", tuned="1110")
    document = a_document(plan, trained)
    write(tmp_path, document, KIND, derive(document))
    content = json.loads((tmp_path / "results.json").read_text())
    runs = [ended["run"] for ended in content["samples"]["runs"]]
    assert [(run["rung"], run["pipeline"], run["seed"]) for run in runs] == [
        (run.rung, run.pipeline, run.seed) for run in plan.runs
    ]
    for ended in content["samples"]["runs"]:
        assert ended["trained"]["right"] == {"generator": "1100", "tuned": "1110"}[ended["run"]["pipeline"]]
        assert [tested["correct"] for tested in ended["trained"]["passes"]] == [
            ended["trained"]["right"].count("1")
        ] * 3
    assert content["difference"] == {"mean": 0.25, "by_seed": [0.25, 0.25], "low": None, "high": None, "photos": 4}
    again, kind = load(tmp_path, {"accuracy": KIND})
    assert again == document
    assert kind.page(again, kind.derive(again)) == (tmp_path / "report.html").read_text()
    assert printed(again) == printed(document)


def printed(document):
    console = Console(file=io.StringIO(), width=80)
    KIND.print(console, document, derive(document))
    return console.file.getvalue()


def test_the_plan_holds_nothing_of_the_users_folder(tmp_path):
    plan = read_plan(parser().parse_args(["--data", "/home/someone/photos"]), tmp_path)
    assert "someone" not in str(encode(plan.asked)) and plan.data == "/home/someone/photos"


def test_curves_lie_on_common_axes():
    plan = a_plan(seeds=1)
    trained = all_trained(plan, generator="1110", tuned="1111")
    curves = learning_curves(trained, {"tutorial": 0.8, "no-augment": 0.85})
    assert list(curves) == ["tutorial", "no-augment"]
    generator, tuned, published = curves["tutorial"]
    assert [(point.x, point.y) for point in generator.points] == [(1, 0.75), (2, 0.75), (3, 0.75)]
    assert [(point.x, point.y) for point in tuned.points] == [(1, 1.0), (2, 1.0), (3, 1.0)]
    assert [(point.x, point.y) for point in published.points] == [(1, 0.8), (3, 0.8)]
    assert [point.text for point in generator.points[:2]] == ["", ""] and generator.points[2].text.endswith(": 75.0%")
    passes, accuracy = axes_of([line for lines in curves.values() for line in lines])
    assert [label for _, label in passes.labels] == ["1", "2", "3"]
    assert [label for _, label in accuracy.labels] == ["50%", "60%", "70%", "80%", "90%", "100%"]
    assert learning_curves({}, {"tutorial": 0.8}) == {}


@pytest.mark.parametrize(
    ("last", "expected"), [(1, (1,)), (2, (1, 2)), (25, (1, 10, 20, 25)), (800, (1, 200, 400, 600, 800))]
)
def test_passes_are_marked_at_round_numbers(last, expected):
    assert ticks(last) == expected


def test_the_legend_says_once_what_trained():
    plan = a_plan()
    first, *others = all_trained(plan, generator="1100", tuned="1110").items()
    on_gpu = dataclasses.replace(first[1], backend={"keras_backend": "jax", "gpus": ["H100"]})
    document = a_document(plan, dict([(first[0], on_gpu), *others]))
    lines = [line for line in legend(document, derive(document)) if "trained by" in line]
    assert lines == ["trained by Keras on jax, H100.", "trained by Keras on tensorflow, CPU."]


def test_the_page_runs_its_own_script_alone_and_escapes_what_it_shows():
    plan = a_plan(tuned_name="<script>alert(1)</script>.toml")
    trained = all_trained(plan, generator="1100", tuned="1110")
    failed = LeftOut(who=plan.runs[0].label, reason="it <b>failed</b>")
    document = a_document(plan, trained, left_out=(failed,), complete=False)
    page = KIND.page(document, derive(document))
    assert_harmless(Page(page))
    assert "<b>" not in page and "&lt;script&gt;" in page
    assert "default-src 'none'" in page and page.count("<figure class=") == 2 and "Not all runs have ended" in page
