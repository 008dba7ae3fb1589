"""The pytest plugin, run by pytest: what passes, fails and is skipped, and what it costs those who do not use it."""

from __future__ import annotations

import math
import random
import re
import subprocess
import sys
from functools import partial

import pytest

from tests import PROJECT_ROOT
from tests.planted import planted
from unstall.profiles import clock, pytest_plugin
from unstall.profiles.gate import anchors, baseline, fit_windows
from unstall.profiles.gate import rates as pytest_rates
from unstall.profiles.gate.invariants import Invariants
from unstall.profiles.measure.schedule import epochs_for

pytest_plugins = ["pytester"]
PLUGIN = "unstall.profiles.pytest_plugin"

AT_LEAST = """
import pytest

@pytest.mark.images_per_sec({demands})
def test_my_pipeline(images_per_sec):
    images_per_sec("feed")
"""


class Rates:
    """What a made-up machine serves."""

    def __init__(self):
        self.feed, self.anchor, self.images = [100.0], [200.0], 768

    def serve(self, column):
        column.append(column.pop(0))
        return column[-1]


@pytest.fixture
def rates(monkeypatch):
    """Made-up rates in the place of every measurement."""
    made_up = Rates()

    class Feed:
        reading = "loop"

        def __init__(self, feed, *, limit_s):
            assert feed == "feed" and limit_s < 1000  # nothing waits for ever

        def rates(self):
            return dict.fromkeys(("steady", "epoch"), made_up.serve(made_up.feed))

    def anchor():
        return made_up.serve(made_up.anchor)

    monkeypatch.setattr(pytest_rates, "Feed", Feed)
    monkeypatch.setattr(pytest_rates, "inspect", lambda feed: Invariants(images=made_up.images))
    monkeypatch.setattr(anchors, "decode", anchor)
    monkeypatch.setattr(anchors, "copy", anchor)
    monkeypatch.setattr(anchors, "Resident", lambda: anchor)
    return made_up


@pytest.fixture
def run(pytester, monkeypatch):
    """Runs pytest on one test; the plugin comes by its name, whether or not this project is installed."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")

    def run(demands, *words, ini=""):
        pytester.makepyfile(AT_LEAST.format(demands=demands))
        pytester.makeini(f"[pytest]\n{ini}")
        return pytester.runpytest_inprocess("-p", PLUGIN, "--strict-markers", "-rs", *words)

    return run


def test_a_feed_above_its_floor_passes(run, rates):
    run("at_least=0.4").assert_outcomes(passed=1)
    run("at_least=0.4, anchor='copy'").assert_outcomes(passed=1)


def test_what_a_passed_test_has_measured_is_a_line_of_the_summary_and_of_junits_file(run, rates, pytester):
    result = run("at_least=0.4", "--junitxml", "junit.xml")
    line = "same: steady images/sec 0.5x of the anchor decode (97.5%: 0.5 to 0.5; 10 rounds), allowed 0.4x"
    result.stdout.fnmatch_lines(["=* images/sec =*", f"*.py::test_my_pipeline: {line}"])
    assert f'name="images_per_sec" value="{line}"' in (pytester.path / "junit.xml").read_text()


def test_a_feed_below_its_floor_fails_in_one_line(run, rates):
    result = run("at_least=0.6")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["images/sec: regression: steady images/sec 0.5x of the anchor decode (99.7%: * rounds), allowed 0.6x"]
    )
    result.stdout.no_fnmatch_line("*Traceback*")


def test_a_machine_too_noisy_to_tell_skips_and_fails_where_strict(run, rates):
    rates.feed = [50.0, 150.0, 90.0, 120.0, 70.0]
    result = run("at_least=0.45")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["*images/sec: inconclusive: steady images/sec 0.45x *60 rounds)*"])
    run("at_least=0.45", ini="images_per_sec_strict = true").assert_outcomes(failed=1)


def test_without_a_baseline_it_skips_and_says_how_to_record_one(run, rates):
    result = run("")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(
        ["*not comparable: no *.test_my_pipeline.json: record it with pytest --images-per-sec-r*"]
    )
    run("", ini="images_per_sec_strict = true").assert_outcomes(failed=1)


def test_what_was_recorded_is_held_against_what_is_served(run, rates, pytester):
    run("", "--images-per-sec-record").assert_outcomes(passed=1)
    assert [path.name for path in (pytester.path / "benchmarks_baseline").iterdir()] == [
        "test_what_was_recorded_is_held_against_what_is_served.test_my_pipeline.json"
    ]
    run("").assert_outcomes(passed=1)
    rates.feed = [80.0]
    failed = run("")
    failed.assert_outcomes(failed=1)
    failed.stdout.fnmatch_lines(
        ["images/sec: regression: steady images/sec 0.8x of what was recorded (99.7%: * 10 rounds), allowed 0.9x"]
    )
    run("threshold=0.3").assert_outcomes(passed=1)
    rates.anchor = [160.0]  # a slower hour
    run("").assert_outcomes(passed=1)


def test_a_baseline_is_replaced_only_when_asked(run, rates, pytester):
    path = pytester.path / "speed" / "mine.json"
    ini = "images_per_sec_baselines = speed"
    run("baseline='mine'", "--images-per-sec-record", ini=ini).assert_outcomes(passed=1)
    before = path.read_text()
    rates.feed = [50.0]
    run("baseline='mine'", "--images-per-sec-record", ini=ini).assert_outcomes(failed=1)
    assert path.read_text() == before
    run("baseline='mine'", "--images-per-sec-overwrite", ini=ini).assert_outcomes(passed=1)
    assert path.read_text() != before


def test_what_has_no_noise_fails_at_once(run, rates):
    run("", "--images-per-sec-record").assert_outcomes(passed=1)
    rates.images = 700
    result = run("")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["images/sec: regression: images served: 768 -> 700"])


def test_a_demand_of_none_is_no_demand(run, rates):
    run("at_least=None, baseline=None, threshold=None").assert_outcomes(skipped=1)


def test_tests_of_the_same_name_have_baselines_of_their_own(rates, pytester, monkeypatch):
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    test = """
        import pytest

        @pytest.mark.parametrize("size", ["1/2", "1-2"])
        def test_it(images_per_sec, size):
            images_per_sec("feed")
    """
    pytester.makepyfile(test_one=test, test_two=test)
    pytester.runpytest_inprocess("-p", PLUGIN, "--images-per-sec-record").assert_outcomes(passed=4)
    assert len(list((pytester.path / "benchmarks_baseline").iterdir())) == 4


def test_a_baseline_of_another_version_skips(run, rates, pytester):
    run("baseline='mine'", "--images-per-sec-record").assert_outcomes(passed=1)
    path = pytester.path / "benchmarks_baseline" / "mine.json"
    path.write_text(path.read_text().replace('"schema_version": 3', '"schema_version": 2'))
    result = run("baseline='mine'")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["*`schema_version` must be 3. Received: 2*"])


def test_another_machine_skips(run, rates, monkeypatch):
    run("", "--images-per-sec-record").assert_outcomes(passed=1)
    monkeypatch.setattr(pytest_rates, "machine_of", lambda *_: {"cpu": "another"})
    result = run("")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(
        ["*not comparable: *record it again here: pytest --images-per-sec-overwrite *.py::test_my_pipeline"]
    )
    assert baseline.RECORDED == 10


def noisy(spread, seed=0):
    rng = random.Random(seed)
    return [100 * math.exp(rng.gauss(0, spread)) for _ in range(200)]


@pytest.fixture
def planted_rounds(rates, monkeypatch):
    """Rounds of a planted duration: each window of the feed takes all of it."""
    now_ns, serve = [0], rates.serve
    monkeypatch.setattr(clock, "now_ns", lambda: now_ns[0])

    def plant(seconds):
        def served(column):
            if column is rates.feed:
                now_ns[0] += int(seconds * 1e9)
            return serve(column)

        rates.serve = served

    return plant


@pytest.fixture
def decisions(monkeypatch):
    """What the tests came to, as data."""
    kept, text_of = [], pytest_plugin._text_of
    monkeypatch.setattr(pytest_plugin, "_text_of", lambda made, *words: kept.append(made) or text_of(made, *words))
    return kept


def test_unchanged_code_under_load_takes_the_rounds_that_it_needs_and_passes(run, rates, decisions):
    rates.feed = noisy(0.03)
    run("", "--images-per-sec-record").assert_outcomes(passed=1)
    rates.feed = noisy(0.12, seed=3)
    run("").assert_outcomes(passed=1)
    assert decisions[-1].verdict == "same" and decisions[-1].pairs > 16


def test_a_test_whose_time_is_over_says_how_much_it_takes_and_with_it_passes(run, rates, planted_rounds, decisions):
    rates.feed = noisy(0.03)
    run("", "--images-per-sec-record").assert_outcomes(passed=1)
    planted_rounds(5)
    rates.feed = noisy(0.12, seed=3)
    skipped = run("")
    skipped.assert_outcomes(skipped=1)
    made = decisions[-1]
    assert (made.verdict, made.pairs, made.lack.cause, made.lack.round_s) == ("inconclusive", 16, "rounds", 5)
    (said,) = re.findall(
        r"about (\d+) more rounds, (\d+) s: @pytest.mark.images_per_sec\((\w+=\d+)\)", str(skipped.stdout)
    )
    assert (int(said[0]), int(said[1])) == (made.lack.rounds - 16, 5 * (made.lack.rounds - 16))
    rates.feed = noisy(0.12, seed=3)
    run(said[2]).assert_outcomes(passed=1)


@pytest.mark.parametrize("words", [("--timeout=60",), ()], ids=["of the command", "of the test"])
def test_what_pytest_timeout_allows_is_not_exceeded(run, rates, planted_rounds, decisions, pytester, words):
    rates.feed = noisy(0.03)
    run("", "--images-per-sec-record").assert_outcomes(passed=1)
    planted_rounds(5)
    rates.feed = noisy(0.12, seed=3)
    mark = "" if words else ")\n@pytest.mark.timeout(60"
    run(mark, "-p", "timeout", *words).assert_outcomes(skipped=1)
    assert decisions[-1].pairs == 6  # ten rounds would take 50 of its 60 seconds


def test_a_noisy_baseline_is_to_be_recorded_again(run, rates, decisions):
    rates.feed = noisy(0.3)
    run("", "--images-per-sec-record").assert_outcomes(passed=1)
    rates.feed = noisy(0.03)
    skipped = run("")
    skipped.assert_outcomes(skipped=1)
    assert decisions[-1].lack.cause == "recording"
    skipped.stdout.fnmatch_lines(["*pytest --images-per-sec-overwrite *.py::test_my_pipeline*"])


def test_a_busy_machine_says_what_others_took(run, rates, decisions, monkeypatch):
    run("", "--images-per-sec-record").assert_outcomes(passed=1)
    monkeypatch.setattr(pytest_rates.Others, "ratio", lambda others: 0.5)
    rates.feed = noisy(0.8)
    skipped = run("")
    skipped.assert_outcomes(skipped=1)
    assert (decisions[-1].lack.cause, decisions[-1].lack.others_ratio) == ("noise", 0.5)
    skipped.stdout.fnmatch_lines(["*a quiet machine: *; other programs took 50% of the cores*"])


@pytest.mark.parametrize(
    ("demands", "message"),
    [
        ("0.3", "*takes anchor, at_least, baseline, threshold, budget_s, by name*"),
        ("atleast=0.3", "*takes anchor, at_least, baseline, threshold, budget_s, by name*"),
        ("at_least=0", "*`at_least` must be above 0. Received: 0*"),
        ("at_least=1, anchor='moon'", "*`anchor` must be one of decode, copy. Received: 'moon'*"),
        ("budget_s=0", "*`budget_s` must be above 0. Received: 0*"),
        ("threshold=2", "*`threshold` must be above 0 and below 1. Received: 2*"),
        ("anchor='copy'", "*`anchor` is what `at_least` is times of*"),
        ("baseline='../up'", "*A benchmark's name must be letters*"),
    ],
)
def test_a_demand_that_cannot_be_is_refused(run, rates, demands, message):
    result = run(demands)
    assert result.parseoutcomes().keys() <= {"errors", "failed"}
    result.stdout.fnmatch_lines([message])


def test_a_run_that_does_not_use_it_imports_nothing_for_it(tmp_path):
    (tmp_path / "test_plain.py").write_text(
        "import sys\n\n\ndef test_plain():\n"
        "    heavy = {'tensorflow', 'keras', 'scipy', 'numpy', 'cv2', 'psutil', 'rich'} & set(sys.modules)\n"
        "    ours = sorted(name for name in sys.modules if name.startswith('unstall.profiles'))\n"
        "    assert heavy == set()\n"
        "    assert ours == ['unstall.profiles' + one for one in ('', '.devices', '.pytest_plugin')]\n"
    )
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "unstall.profiles.pytest_plugin",
        "-c",
        "/dev/null",
        str(tmp_path),
    ]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env={"PYTHONPATH": str(PROJECT_ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PATH": ""},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, "1 passed" in done.stdout) == (0, True), done.stdout + done.stderr


@pytest.fixture
def example(pytester, monkeypatch):
    """Runs the docs' example, for real, on this machine; returns how many passed and were skipped."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    text = (PROJECT_ROOT / "docs" / "examples" / "test_images_per_sec.py").read_text()
    pytester.makepyfile(test_example=text)

    def run(*words):
        outcomes = pytester.runpytest_inprocess("-p", PLUGIN, "-rs", *words).parseoutcomes()
        assert set(outcomes) <= {"passed", "skipped", "warnings"}
        return outcomes.get("passed", 0), outcomes.get("skipped", 0)

    return run


def test_the_example_of_the_docs_runs(example, monkeypatch):
    """Its floor is far below what it serves, but a machine can be too noisy to tell; nothing is recorded yet."""
    monkeypatch.setattr(fit_windows, "epochs_for", partial(epochs_for, window_s=0.05))
    monkeypatch.setattr(anchors, "WINDOW_S", 0.05)
    assert example() in ((1, 1), (0, 2))


@planted
@pytest.mark.claims
def test_what_the_example_of_the_docs_recorded_holds(example, pytester):
    passed, _ = example("--images-per-sec-record")
    assert passed >= 1
    assert [path.name for path in (pytester.path / "benchmarks_baseline").iterdir()] == [
        "test_example.test_my_pipeline_is_no_slower_than_recorded.json"
    ]
    assert sum(example()) == 2


EDGES = """
import pytest
from tests import edges

@pytest.mark.images_per_sec({demands})
def test_my_pipeline(images_per_sec):
    images_per_sec(edges.{feed})
"""


@pytest.fixture
def run_edges(pytester, monkeypatch):
    """Runs pytest on loaders of planted times, in short windows, beside an anchor of 500 a second."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setattr(fit_windows, "epochs_for", partial(epochs_for, window_s=0.05))
    for name in ("decode", "copy"):
        monkeypatch.setattr(anchors, name, lambda: 500.0)
    monkeypatch.setattr(anchors, "Resident", lambda: lambda: 500.0)

    def run(demands, name, *words):
        pytester.makepyfile(EDGES.format(demands=demands, feed=name))
        return pytester.runpytest_inprocess("-p", PLUGIN, "-rs", *words)

    return run


# By the slower loader. Behind a shuffle that holds the epoch no step is steady: both figures are the epoch's own.
REGRESSION = {
    "decoded_twice": r"images/sec: regression: (steady images/sec|images/sec with epoch edges) 0\.",
    "slow_start": r"images/sec: regression: images/sec with epoch edges 0\.",
}


@planted
@pytest.mark.claims
@pytest.mark.parametrize(("name", "least"), [("decoded_twice", 1.0), ("slow_start", 2.0)])
def test_a_slower_epoch_than_the_floor_fails(run_edges, name, least):
    """Without the edges 1,500 images/sec at best; whole epochs: 370 behind the shuffle, 590 with a slow start."""
    failed = run_edges(f"at_least={least}", name)
    failed.assert_outcomes(failed=1)
    failed.stdout.re_match_lines([REGRESSION[name]])


@planted
@pytest.mark.claims
@pytest.mark.parametrize(("name", "slower"), [("decoded_once", "decoded_twice"), ("quick_start", "slow_start")])
def test_a_slower_epoch_fails(run_edges, name, slower):
    run_edges("baseline='mine'", name, "--images-per-sec-record").assert_outcomes(passed=1)
    failed = run_edges("baseline='mine'", slower)
    failed.assert_outcomes(failed=1)
    failed.stdout.re_match_lines([REGRESSION[slower]])
