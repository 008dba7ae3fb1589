"""The main job from end to end, as a user calls it."""

from __future__ import annotations

import json
import os
import pathlib
import select
import signal
import statistics
import subprocess
import sys

import psutil
import pytest

from tests import PROJECT_ROOT
from tests.builders import write_quick_modules
from tests.checks import samples_of
from unstall.benchmarks.lab import command as lab_command
from unstall.benchmarks.pipeline import __main__ as pipeline
from unstall.profiles.report.document import SCHEMA_VERSION

pytestmark = pytest.mark.long

QUICK = ["--rounds", "2", "--batch-size", "4", "--device", "cpu,emulated:400", "--model", "mynet:build"]

_WITH_SHORT_WINDOWS = """
import sys
from unstall.benchmarks.lab import child
from unstall.benchmarks.pipeline import __main__ as pipeline

start = child.Child.__init__


def shorter(self, session, *words):
    assert session == "benchmarks.lab.session:Session"
    start(self, "short:Session", *words)


child.Child.__init__ = shorter
sys.exit(pipeline.main(sys.argv[1:]))
"""


@pytest.fixture(scope="module")
def finished(photos, tmp_path_factory):
    """One run on 20 photos and two files that are no photos; returns what it printed and where its results are."""
    import shutil

    folder = tmp_path_factory.mktemp("data") / "photos"
    shutil.copytree(photos, folder)
    for path in sorted(folder.glob("*/*"))[::2]:
        path.unlink()
    images = sum(1 for _ in folder.glob("*/*"))
    classes = sorted(path.name for path in folder.iterdir())
    (folder / classes[0] / "notes.txt").write_text("no image")
    (folder / classes[1] / "empty.jpg").touch()
    out = tmp_path_factory.mktemp("run") / "results"
    modules = write_quick_modules(tmp_path_factory.mktemp("modules"))
    words = ["--data", folder, *QUICK, "--variants", "generator,tf-data-uint8", "--out", out]
    done = subprocess.run(
        [sys.executable, "-c", _WITH_SHORT_WINDOWS, *map(str, words)],
        cwd=PROJECT_ROOT,
        env={**os.environ, "COLUMNS": "100", "PYTHONPATH": f"{PROJECT_ROOT}{os.pathsep}{modules}"},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    return done, json.loads((out / "results.json").read_text()), out, images


def test_every_variant_has_a_result_on_every_device(finished):
    _, document, _, _ = finished
    assert document["left_out"] == []
    assert document["complete"] is True
    names = [(one["variant"], one["device"]["name"]) for one in document["results"]]
    assert names == [
        (variant, device) for device in ("cpu", "emulated:400") for variant in ("generator", "tf-data-uint8")
    ]


def test_results_hold_the_schema_and_shares_sum_to_one(finished):
    _, document, _, _ = finished
    assert document["schema_version"] == SCHEMA_VERSION
    for one in document["results"]:
        shares = [share for share in one["attribution"].values() if share is not None]
        assert sum(shares) == pytest.approx(1, abs=1e-9)
        assert one["attribution"]["fetch_stall"] is None
        assert one["loading_ratio"] == pytest.approx(1 - one["attribution"]["compute"])
        assert 0 < one["epoch_images_per_sec"] < 1.2 * one["images_per_sec"] and one["spread_ratio"] is None
        assert {sample["round"] for sample in samples_of(document, one) if sample["window"] == "train"} == {0, 1}
    for one in document["results"]:
        utilization = "accelerator_utilization" if one["device"]["kind"] == "emulated" else "compute_ratio"
        assert one[utilization] == pytest.approx(one["attribution"]["compute"])


def test_the_samples_give_the_published_rate_again(finished):
    _, document, _, _ = finished
    for one in document["results"]:
        rates = sorted(s["images"] / s["wall_ns"] * 1e9 for s in samples_of(document, one) if s["window"] == "train")
        slow, fast = rates[0], rates[-1]
        assert slow <= one["images_per_sec"] <= fast


def test_an_emulated_device_computes_at_its_rate(finished):
    _, document, _, _ = finished
    results = [one for one in document["results"] if one["device"]["kind"] == "emulated"]
    assert len(results) == 2
    for one in results:
        windows = [s for s in samples_of(document, one) if s["window"] == "resident"]
        rates = [s["images"] / s["wall_ns"] * 1e9 for s in windows]
        assert min(rates) <= one["compute_images_per_sec"] <= max(rates)
        # The median step: on a busy machine sleeps take several milliseconds longer than the 10 of a batch.
        step_ns = statistics.median(ns for s in windows for ns in s["step_ns"])
        assert 300 < 4 / step_ns * 1e9 < 420


def test_skipped_files_are_named_and_kept_and_skipped_is_the_total(finished):
    done, document, _, photos = finished
    dataset = document["dataset"]
    assert (dataset["images"], dataset["skipped"]) == (photos, 2)
    assert {one["reason"] for one in dataset["skipped_files"]} == {"not an image", "zero bytes"}
    assert f"skipped 2 of {photos + 2} files" in done.stderr


def test_workers_that_took_effect_are_reported(finished):
    _, document, _, _ = finished
    training = {one["variant"]: one["training"] for one in document["results"] if one["device"]["name"] == "cpu"}
    assert training["generator"]["workers_effective"] == 1
    assert training["tf-data-uint8"]["workers_effective"] is None


def test_the_table_fits_its_width_and_the_verdict_follows(finished):
    done, _, out, _ = finished
    *lines, report, show = done.stdout.splitlines()
    assert max(map(len, lines)) <= 100
    # Whole, to be copied.
    assert report == f"MORE           {out}/report.html" and show.strip().endswith(f"show {out} --details")
    printed = " ".join(done.stdout.split())
    assert "parameters) on cpu" in printed and "parameters) on emulated:400" in printed
    assert printed.count("NO VERDICT") == 2  # 20 photos are too few


def test_nothing_private_is_written(finished):
    _, document, _, _ = finished
    import getpass
    import socket

    text = json.dumps(document)
    assert socket.gethostname() not in text or len(socket.gethostname()) < 4
    assert str(pathlib.Path.home()) not in text
    assert f'"{getpass.getuser()}"' not in text


def test_an_earlier_run_is_not_overwritten(finished, capsys):
    _, _, out, _ = finished
    before = (out / "results.json").read_bytes()
    assert pipeline.main(["--out", str(out), "--variants", "tf-data"]) == 2
    assert "holds results.json already" in capsys.readouterr().err
    assert (out / "results.json").read_bytes() == before


@pytest.mark.slow  # 18 s: a main job
def test_a_model_of_the_users_own_sets_the_image_size(photos, tmp_path):
    (tmp_path / "mynet.py").write_text(
        "import keras\n"
        "def build(classes):\n"
        "    return keras.Sequential([keras.Input((24, 40, 3)), keras.layers.Flatten(), keras.layers.Dense(classes)])\n"
        "def grey():\n"
        "    return keras.Sequential([keras.Input((24, 40, 1)), keras.layers.Flatten(), keras.layers.Dense(1)])\n"
    )
    out = tmp_path / "out"
    environment = {**os.environ, "PYTHONPATH": str(PROJECT_ROOT)}
    words = [sys.executable, "-m", "benchmarks.pipeline", "--data", str(photos), "--variants", "tf-data,"]
    words += ["--device", "cpu", "--rounds", "1", "--batch-size", "4"]
    done = subprocess.run(
        [*words, "--model", "mynet:build", "--out", str(out)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    document = json.loads((out / "results.json").read_text())
    assert [one["config"]["image_size"] for one in document["results"]] == [[24, 40]]
    refused = subprocess.run(
        [*words, "--model", "mynet:grey", "--out", str(tmp_path / "grey")],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert refused.returncode == 2
    assert "mynet:grey must take images of shape (batch, height, width, 3)" in refused.stderr
    assert not (tmp_path / "grey").exists()


@pytest.mark.parametrize(
    ("words", "exit_code", "message"),
    [
        (["--data", "nowhere"], 2, "nowhere does not exist"),
        (["--variants", "nope"], 2, "'nope' is not a variant"),
        (["--out", "/proc/nowhere"], 2, "results cannot be written there"),
    ],
)
def test_bad_input_gets_one_line_and_an_exit_code(words, exit_code, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert pipeline.main(words) == exit_code
    printed = capsys.readouterr()
    assert message in printed.err
    assert len(printed.err.strip().splitlines()) == 1
    assert printed.out == ""


def test_no_room_on_disk_is_said_before_anything_is_measured(monkeypatch, tmp_path, capsys):
    usage = type("Usage", (), {"free": 1_000_000})
    monkeypatch.setattr(lab_command.shutil, "disk_usage", lambda path: usage)
    assert pipeline.main(["--out", str(tmp_path / "out")]) == 2
    assert "no room on disk, 1 MB are free and 50 MB are needed" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("number", "exit_code"), [(signal.SIGINT, 130), pytest.param(signal.SIGTERM, 143, marks=pytest.mark.slow)]
)
def test_a_stopped_run_writes_what_it_has_and_leaves_no_process(photos, tmp_path, number, exit_code):
    out = tmp_path / "out"
    words = ["--data", str(photos), "--variants", "generator-4-workers", "--device", "cpu", "--rounds", "1000"]
    words += ["--model", "mynet:build", "--batch-size", "4", "--out", str(out)]
    running = subprocess.Popen(
        [sys.executable, "-c", _SAYS_WHEN_A_ROUND_IS_DONE, *words],
        cwd=PROJECT_ROOT,
        env={**os.environ, "PYTHONPATH": f"{PROJECT_ROOT}{os.pathsep}{write_quick_modules(tmp_path)}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        said = running.stdout.readline() if select.select([running.stdout], [], [], 240)[0] else "nothing in 240 s"
        children = psutil.Process(running.pid).children(recursive=True)
        os.kill(running.pid, number)
        _, errors = running.communicate(timeout=30)
    finally:
        running.kill()  # its children see that, and end
    assert said == "a round\n", errors
    assert running.returncode == exit_code
    assert "stopped: what was measured so far is in" in errors
    document = json.loads((out / "results.json").read_text())
    assert document["complete"] is False
    [one] = document["results"]
    assert 2 <= one["training"]["workers_effective"] <= 4
    gone, alive = psutil.wait_procs(children, timeout=5)
    assert alive == []
    assert gone


_SAYS_WHEN_A_ROUND_IS_DONE = """
import sys
from unstall.benchmarks.pipeline import __main__ as pipeline, measure

run_round = measure.run_round


def told(*words, **options):
    run_round(*words, **options)
    print("a round", flush=True)


measure.run_round = told
sys.exit(pipeline.main(sys.argv[1:]))
"""


def test_the_list_of_names_comes_without_tensorflow():
    code = (
        "import sys; from unstall.benchmarks.pipeline import __main__ as pipeline\npipeline.main(['--list'])\n"
        "print([name for name in ('tensorflow', 'keras', 'scipy.stats') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=PROJECT_ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_run_as_a_file_it_says_how_to_run_it():
    done = subprocess.run(
        [sys.executable, "benchmarks/pipeline/__main__.py"],
        cwd=PROJECT_ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode != 0
    assert "python -m benchmarks.pipeline" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_machine_is_recorded_beside_the_run_and_every_row_says_how_busy_it_was(finished):
    _, document, out, _ = finished
    telemetry = document["telemetry"]
    phases = [mark["text"] for mark in telemetry["marks"] if mark["phase"]]
    assert phases == ["warm-up", "round 1", "round 2", "again", "stages"]
    windows = {mark["text"] for mark in telemetry["marks"] if not mark["phase"]}
    for one in document["results"]:
        assert f"train: {one['variant']}, {one['model']}, {one['device']['name']}" in windows
        assert 0 < one["machine"]["cpu_ratio"] <= 1
    # The children are in it: each has TensorFlow loaded.
    assert max(telemetry["memory_bytes"]) > 3 * telemetry["memory_bytes"][0]
    assert "The machine during the run" in (out / "report.html").read_text()
