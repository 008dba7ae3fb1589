"""A folder of training scripts: what is derived from planted runs, and the command on scripts that sleep."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.benchmarks.evidence.documents import printed
from tests.benchmarks.evidence.scripts.builders import a_scripts_document
from tests.checks import have_ended
from tests.planted import planted
from unstall.benchmarks.evidence.scripts.__main__ import main
from unstall.benchmarks.evidence.scripts.results import Result, derive, without_times
from unstall.benchmarks.evidence.scripts.view import note_of, view_of

SLEEPS = """
import time
for epoch in range(3):
    began = time.perf_counter()
    time.sleep({seconds})
    print("EPOCH_S", time.perf_counter() - began)
    print("loss", 0.5, "- 12ms/step")
"""


def result_of(*words: object, **settings: object) -> Result:
    [result] = derive(a_scripts_document(*words, **settings)).scripts
    return result


def test_the_gain_by_hand_is_that_of_the_epochs_behind_the_first() -> None:
    result = result_of(
        {"as written": [(90.0, 4.0, 4.0), (70.0, 4.0, 4.0, 40.0)], "by hand": [(50.0, 2.0), (60.0, 2.0, 2.0)]},
        follows=["cache"],
        tried={"cache": 2.2, "pool": 3.0},
        chosen="pool",
    )
    assert result.epoch_s == 4.0 and result.apart == 0.0
    assert result_of({"as written": [(4.0,), (5.0,)]}).apart == pytest.approx(0.25)
    assert result.by_hand is not None and result.by_hand[0] == pytest.approx(2.0)
    assert result.measured is not None and result.measured.name == "cache"
    assert result.off == pytest.approx(0.1)
    assert not result.follows_advice


def test_a_script_that_prints_no_epochs_is_timed_as_a_whole() -> None:
    assert result_of({"as written": [()], "watched": [()]}).epoch_s == 9.0
    assert result_of({"as written": [()], "watched": [()]}).watching is None


def test_remedies_that_were_not_tried_have_no_error() -> None:
    result = result_of({"as written": [(2.0,)], "by hand": [(1.0,)]}, follows=["cache", "pool"], tried={"cache": 2.0})
    assert result.measured is None and result.off is None
    together = {"pool + cache": 2.0}
    assert result_of({"as written": [(2.0,)]}, follows=["cache", "pool"], tried=together).measured is not None


def test_what_is_predicted_of_free_loading_is_compared_with_data_that_cost_nothing() -> None:
    runs = {"as written": [(3.0,), (3.0,)], "held": [(1.5,), (1.5,)]}
    document = a_scripts_document(runs, tried={"cache": 1.2}, loading=0.6)
    [result] = derive(document).scripts
    assert result.predicted == pytest.approx(2.5) and result.prediction_off == pytest.approx(0.25)
    assert (
        "1 scripts ran with data that cost nothing: what was predicted for that is off by 25% (median), at most by 25%."
    ) in derive(document).conclusions
    assert result_of({"as written": [(3.0,)]}, tried={}, loading=0.6).prediction_off is None
    assert result_of(runs, tried={}, loading=1.0).predicted is None


@pytest.mark.parametrize(
    ("most", "cell", "outside"), [(None, ">= 1.25", 0.0), (0.2, "1.25 to 1.67", 0.2), (0.5, "1.25 to 3.33", 0.0)]
)
def test_a_range_is_predicted_where_what_the_loader_takes_from_the_cores_is_unknown(
    most: float | None, cell: str, outside: float
) -> None:
    runs = {"as written": [(3.0,)], "held": [(1.5,)]}
    document = a_scripts_document(runs, tried={}, loading=0.2, most_taken=most)
    [result] = derive(document).scripts
    assert (result.is_least, result.prediction_off) == (True, None)
    assert f"; predicted if loading cost nothing: {cell}; with data that cost nothing: 2.00" in note_of(result)
    assert result.outside == pytest.approx(outside)
    [conclusion] = [text for text in derive(document).conclusions if text.startswith("For 1 more a range")]
    assert f"{int(not outside)} gained what lies in it" in conclusion and f"by {outside:.0%} at most" in conclusion
    assert result_of({"as written": [(3.0,)], "held": [(3.0,)]}, tried={}, loading=0.2, most_taken=0.1).outside == (
        pytest.approx(0.25)
    )


@pytest.mark.parametrize(
    ("plain", "watched", "difference"),
    [("a\nb", "a\nb", None), ("a\nb", "a\nc", ("b", "c")), ("a", "a\nc", ("", "c")), ("a\nb", "a", ("b", ""))],
)
def test_the_first_line_that_differs_is_found(plain: str, watched: str, difference: tuple[str, str] | None) -> None:
    runs = {"as written": [(1.0,)], "watched": [(1.0,)]}
    assert result_of(runs, printed={"as written": plain, "watched": watched}).difference == difference


def test_advice_that_makes_a_script_slower_is_named() -> None:
    runs = {"as written": [(2.0,), (2.0,)], "by hand": [(2.5,), (2.5,)], "watched": [(2.2,)]}
    document = a_scripts_document(runs, follows=["cache"], tried={"cache": 1.2}, chosen="cache")
    gains, advised, apart, watching = derive(document).conclusions
    assert apart.startswith("Plain runs of one script differ by 0% (median of 1 scripts), at most by 0%")
    assert gains == "1 gains were measured and followed by hand: the median error is 50%, the largest 50%."
    assert advised == "1 of them were advised; slower by hand: train."
    assert watching.startswith("A watched epoch took 1.10 times as long as a plain one")


def test_what_differs_from_run_to_run_is_not_compared() -> None:
    printed = "EPOCH_S 1.5\n\r1/4 loss: 3\r4/4 ━ 2s 12ms/step - loss: 0.25\nran 3.5 seconds, 0:00:12 in all, 3 steps"
    assert without_times(printed) == "4/4 ━ _ _ - loss: 0.25\nran _, _ in all, 3 steps"
    assert without_times("\x1b[1m 3/4\x1b[0m ━ 0.3\n4/4 - \x1b[1m3s\x1b[0m - 0.2\n\nelapsed time: 3.25") == (
        "4/4 - _ - 0.2\nelapsed time_"
    )


def test_the_table_has_a_row_and_a_line_for_each_script() -> None:
    runs = {"as written": [(2.0,)] * 3, "by hand": [(1.0,)] * 3, "watched": [(2.2,)]}
    seen = {"as written": "a", "watched": "b"}
    document = a_scripts_document(runs, follows=["cache"], tried={"cache": 1.8}, chosen="cache", printed=seen)
    [row] = view_of(document).rows
    assert row["difference"] == ("a", "b")
    assert printed(document, view_of(document)).startswith(
        "script watched load% remedy measured by hand  off\ntrain     1.10   50% cache      1.80    2.00 -10%\n"
    )
    lines = " ".join(printed(document, view_of(document)).split())
    assert "train: 2.00 s an epoch; printed differs; advised cache; predicted if loading cost nothing: 2.00;" in lines
    assert "; measured 1.80; by hand 2.00 (2.00 to 2.00)" in lines


@planted
def test_scripts_run_in_turns_and_what_fails_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, text in (("good", SLEEPS.format(seconds=0.1)), ("bad", "raise SystemExit(3)")):
        (tmp_path / "scripts" / name).mkdir(parents=True)
        (tmp_path / "scripts" / name / "train.py").write_text(text)
    (tmp_path / "scripts" / "good" / "by_hand.py").write_text(SLEEPS.format(seconds=0.05))
    (tmp_path / "scripts" / "good" / "held.py").write_text(SLEEPS.format(seconds=0.02))
    (tmp_path / "scripts" / "good" / "profiles.py").write_text("raise SystemExit('a module of the user, not ours')")
    (tmp_path / "scripts" / "good" / "about.toml").write_text('source = "me@1, a.py"\nfollows = ["cache"]\n')
    assert main([str(tmp_path / "scripts"), "--out", str(tmp_path / "out")]) == 0
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    [good] = results["results"]
    assert good["script"] == "good" and good["held_ratio"] > good["by_hand_ratio"] > 1 and good["printed"] == "the same"
    reasons = {left_out["who"]: left_out["reason"] for left_out in results["left_out"]}
    assert reasons["bad"] == "as written, it ended with exit code 3; see bad-as-written.log"
    assert reasons["good"] == "watched, nothing was measured of it"
    assert good["source"] == "me@1, a.py" and not (tmp_path / "out" / "report.html").exists()
    assert "left out bad: as written" in capsys.readouterr().out


@pytest.mark.long
def test_a_script_that_does_not_end_is_ended_with_its_processes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "hangs").mkdir()
    text = "import pathlib, subprocess\nchild = subprocess.Popen(['sleep', '1000'])\n"
    text += "pathlib.Path('pid').write_text(str(child.pid))\nchild.wait()"
    (tmp_path / "hangs" / "train.py").write_text(text)
    assert main([str(tmp_path), "--limit", "4", "--out", str(tmp_path / "out")]) == 3
    assert "as written, it was ended after 4 s (--limit)" in capsys.readouterr().err
    child = int((tmp_path / "hangs" / "pid").read_text())
    assert have_ended(child)


@pytest.mark.parametrize(
    ("about", "message"),
    [
        ('folows = ["cache"]', "has 'folows'. Did you mean 'follows'? Known: "),
        ('words = "a"', "words must be a list, of texts only. Received: 'a'."),
        ("words = [1]", "words must be a list, of texts only. Received: [1]."),
        ("environment = 3", "environment must be a dict, of texts only. Received: 3."),
        ('follows = ["cache"]', "by_hand.py and `follows` in about.toml, the remedies in it, go together."),
        ("words = [", "cannot be read: "),
    ],
)
def test_what_is_described_wrongly_is_one_line(
    about: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "train.py").write_text("")
    (tmp_path / "one" / "about.toml").write_text(about)
    assert main([str(tmp_path), "--out", str(tmp_path / "out")]) == 2
    errors = capsys.readouterr().err
    assert message in errors and errors.count("\n") == 1 and not (tmp_path / "out").exists()
