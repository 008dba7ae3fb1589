"""What needs a package says so in one line, with the command that installs it; what does not works without it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests import PROJECT_ROOT
from unstall import needs
from unstall.benchmarks import cli
from unstall.benchmarks.lab.options import UserError, config_of
from unstall.benchmarks.pipeline.parser import parser
from unstall.benchmarks.pipeline.plan import read_plan
from unstall.pipeline import BASELINE, SourceError, from_tfds
from unstall.profiles.gate import anchors, rates

# What each verb that needs TensorFlow would run.
NEEDING = {
    "pipeline": "",
    "tune": "",
    "materialize": "--data photos --out copy --as raw",
    "migrate": "train.py",
    "train": "--data photos --out x.keras",
    "predict": "x.keras a.jpg",
    "devices": "",
    "accuracy": "--data photos",
    "doctor": "--data photos",
    "service": "local",
    "trainers": "",
    "gate": "compare tf-data tf-data-cache",
}


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment in which none of the packages of the extra can be imported."""
    for name in needs.DISTRIBUTIONS:
        monkeypatch.setitem(sys.modules, name, None)


@pytest.mark.usefixtures("without")
@pytest.mark.parametrize("verb", NEEDING)
def test_a_verb_without_its_packages_is_one_line(
    verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    try:
        code = cli.main([verb, *NEEDING[verb].split()])
    except SystemExit as left:
        code = int(left.code or 0)
    printed = capsys.readouterr()
    assert (code, printed.out, printed.err.count("\n")) == (2, "", 1)
    assert "which cannot be imported here. To install: pip install " in printed.err
    assert (
        f"pip install '{PROJECT_ROOT}[tensorflow]'\n" in printed.err
    )  # of a checkout, in which `unstall` is not installed
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("without")
@pytest.mark.parametrize("verb", NEEDING)
def test_help_needs_none_of_them(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        cli.main([verb, "--help"])
    assert left.value.code == 0 and capsys.readouterr().out.startswith("usage: ")


@pytest.mark.usefixtures("without")
def test_what_can_be_chosen_is_listed_without_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["pipeline", "--list"]) == 0
    assert "tf-data-autotune" in capsys.readouterr().out


def test_options_name_the_package_that_they_need(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "albumentations", None)
    install = r"needs albumentations, which cannot be imported here\. To install: pip install albumentations==2\.0\.8$"
    with pytest.raises(UserError, match=rf"^augment_with=albumentations {install}"):
        config_of(None, ["loader=tf_data", "augment_with=albumentations"], BASELINE)
    with pytest.raises(UserError, match=rf"^--variants tf-data-albumentations {install}"):
        read_plan(parser().parse_args(["--variants", "tf-data-albumentations"]), tmp_path)
    assert len(read_plan(parser().parse_args(["--variants", "all"]), tmp_path).variants) > 10  # there it is left out
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", None)
    with pytest.raises(SourceError, match="tfds:mnist needs tensorflow_datasets, .* pip install tensorflow-datasets$"):
        from_tfds("mnist")


def test_what_can_be_imported_counts_and_not_what_brought_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A folder without code is no package; with TensorFlow there, by whatever name, nothing asks for another one."""
    for name in ("tensorflow", "keras"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.setattr(sys, "path_importer_cache", {})
    (tmp_path / "tensorflow").mkdir()
    assert "install '" in (needs.missing("x", "tensorflow") or "")
    (tmp_path / "tensorflow" / "__init__.py").touch()
    assert needs.missing("x", "tensorflow") is None
    assert needs.missing("x", "tensorflow", "keras") == (
        "x needs keras, which cannot be imported here. To install: pip install keras"
    )


@pytest.mark.usefixtures("without")
def test_without_opencv_and_keras_copies_are_the_anchor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "unstall.profiles.measure.windows", raising=False)
    assert list(anchors.runnable()) == ["copy"]
    assert rates.why_not("copy") is None
    assert (rates.why_not("decode") or "").endswith(
        "install opencv-python-headless, or use anchor='copy', which needs nothing"
    )
