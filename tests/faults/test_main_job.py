"""The main job under faults: stopped anywhere, photos that change, variants that fail."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time

import psutil
import pytest
from PIL import Image

from tests import PROJECT_ROOT
from tests.builders import write_quick_modules
from unstall.benchmarks.lab.child import Child
from unstall.benchmarks.pipeline import __main__ as main_job
from unstall.benchmarks.pipeline import measure
from unstall.pipeline import from_folder
from unstall.pipeline.commands.terminal import Stopped, signals
from unstall.pipeline.prepared.index import open_prepared
from unstall.pipeline.sources import headers

GONE_S = 5
STORED = "tf-data-raw,tf-data-cache-disk"
QUICK = ["--device", "cpu", "--rounds", "1", "--batch-size", "4"]
# Imports, scan, warm-up, copies, a round, stages and the report of `STORED` take about so long on two quiet cores.
WHOLE_RUN_S = 25


def running(*words, cache, **options):
    environment = {**os.environ, "UNSTALL_CACHE": str(cache), "COLUMNS": "200"}
    return subprocess.Popen(
        [sys.executable, "-m", *map(str, words)],
        cwd=PROJECT_ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        **options,
    )


def stopped_after(process, wait_s, number):
    """Lets a command run for a while, signals it, and holds that it and all that it started are gone in time."""
    try:
        process.communicate(timeout=wait_s)
        return
    except subprocess.TimeoutExpired:
        family = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
    os.kill(process.pid, number)
    deadline = time.monotonic() + GONE_S
    try:
        process.communicate(timeout=GONE_S)
        _, alive = psutil.wait_procs(family, timeout=max(deadline - time.monotonic(), 0))
        assert alive == []
    finally:
        for one in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                one.kill()


def assert_cache_is_whole(cache):
    """Whatever has a name of its own can be opened; nothing lies in it half."""
    for folder in [*cache.glob("prepared/*"), *cache.glob("cached/*")]:
        assert ".building-" not in folder.name
        assert open_prepared(folder).images == 40


@pytest.mark.slow
@pytest.mark.parametrize("attempt", range(19))
def test_a_main_job_that_is_stopped_anywhere_leaves_nothing_half(attempt, photos, tmp_path):
    """At moments that are drawn anew each time."""
    draw = random.Random()
    wait_s, number = draw.uniform(1, WHOLE_RUN_S), draw.choice([signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
    print(f"attempt {attempt}: {number.name} after {wait_s:.1f} s")  # shown with a failure
    earlier = tmp_path / "earlier"
    earlier.mkdir()
    (earlier / "results.json").write_text("{}")
    cache, out = tmp_path / "cache", tmp_path / "out"
    words = ["--data", photos, "--variants", STORED, *QUICK, "--out", out]
    process = running("benchmarks.pipeline", *words, cache=cache)
    stopped_after(process, wait_s, number)
    # Before Python is up, and when all is done, a signal does what it does by itself.
    assert process.returncode in (0, 128 + number, -number)
    files = {path.name for path in out.iterdir()} if out.exists() else set()
    assert not [name for name in files if name.startswith(".")]
    if "results.json" in files:
        document = json.loads((out / "results.json").read_text())
        assert document["results"]
        assert document["complete"] or process.returncode
    assert_cache_is_whole(cache)
    assert (earlier / "results.json").read_text() == "{}"


COMMANDS = {
    "materialize": (
        "pipeline",
        "materialize",
        "--data",
        "{photos}",
        "--out",
        "{out}/copy",
        "--as",
        "raw",
        "--image-size",
        "1500",
    ),
    "doctor": ("benchmarks.doctor", "--data", "{photos}", "--out", "{out}"),
    "generated": ("benchmarks.evidence.peers", "--data", "generated:2000", "--peers", "parts", "--out", "{out}"),
}


def held(folder):
    """Every file below a folder, with what is in it and when it was written."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {path.relative_to(folder): (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


@pytest.mark.slow  # 6 processes
@pytest.mark.parametrize("wait_s", [0.7, 2.5])
@pytest.mark.parametrize("name", COMMANDS)
def test_other_commands_that_are_stopped_leave_nothing_half(name, wait_s, photos, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    before, cache = held(photos), tmp_path / "cache"
    words = [word.format(photos=photos, out=out) for word in COMMANDS[name]]
    process = running(*words, cache=cache)
    stopped_after(process, wait_s, signal.SIGTERM)
    assert process.returncode in (0, 1, 128 + signal.SIGTERM, -signal.SIGTERM)
    assert held(photos) == before
    results = {path.name for path in (*out.glob("*"), *cache.glob("*"))}
    if name == "materialize":
        assert results <= {"copy", "digests"}
        assert "copy" not in results or open_prepared(out / "copy").images == 40
    elif name == "doctor":
        assert results <= {"results.json", "report.html"}
        assert not results or json.loads((out / "results.json").read_text())["files"] == 40
    else:
        assert all(name.startswith("generated-") and ".building-" not in name for name in results)
        assert not results or len(list(cache.glob("generated-*/*/*.jpg"))) == 2000


def test_a_signal_in_a_scan_stops_it_and_costs_no_photo(photos, monkeypatch, tmp_path):
    """Even where whatever the readers of headers raise would be the file's fault."""
    opened = []

    def interrupted(*arguments, **options):
        opened.append(arguments)
        if len(opened) == 3:
            signal.raise_signal(signal.SIGINT)
        return open_image(*arguments, **options)

    monkeypatch.setenv("UNSTALL_CACHE", str(tmp_path / "cache"))  # no header is known from before
    monkeypatch.setattr(headers, "_of_ordinary_jpeg", lambda path, status: None)  # as of files that Pillow reads
    open_image = Image.open
    monkeypatch.setattr(Image, "open", interrupted)
    with pytest.raises(Stopped, match="SIGINT"), signals():
        from_folder(photos)
    assert len(opened) == 3


@pytest.fixture
def folder(photos, tmp_path):
    shutil.copytree(photos, tmp_path / "photos")
    return tmp_path / "photos"


@pytest.fixture
def quick(tmp_path, monkeypatch):
    """Words for a small model; and children measure it in short windows."""
    modules = tmp_path / "modules"
    modules.mkdir()
    monkeypatch.syspath_prepend(write_quick_modules(modules))
    start = Child.__init__

    def shorter(self, session, *words):
        assert session == "benchmarks.lab.session:Session"
        start(self, "short:Session", *words)

    monkeypatch.setattr(Child, "__init__", shorter)
    return [*QUICK, "--model", "mynet:build"]


@pytest.fixture
def before_the_first_round(monkeypatch):
    """Does something when everything is warmed up."""

    def at(action):
        run_round = measure.run_round

        def first(turns, number, *words, **options):
            if number == 0:
                action()
            run_round(turns, number, *words, **options)

        monkeypatch.setattr(measure, "run_round", first)

    return at


@pytest.mark.long
def test_a_photo_that_is_deleted_in_a_run_is_named_and_costs_only_whoever_reads_it(
    folder, tmp_path, before_the_first_round, capsys, monkeypatch, quick
):
    monkeypatch.setenv("COLUMNS", "120")
    before_the_first_round((folder / "discs" / "008.jpg").unlink)
    out = tmp_path / "out"
    words = ["--data", str(folder), "--variants", "tf-data,tf-data-cache", *quick, "--out", str(out)]
    assert main_job.main(words) == 0
    document = json.loads((out / "results.json").read_text())
    assert [one["variant"] for one in document["results"]] == ["tf-data-cache"]
    assert "data changed during the run: discs/008.jpg (deleted)" in document["results"][0]["flags"]
    [left_out] = document["left_out"]
    assert left_out["who"].startswith("tf-data (")
    assert "008.jpg" in left_out["reason"]
    assert "No such file or directory" in left_out["reason"]
    assert document["dataset"]["changed_files"] == [{"path": "discs/008.jpg", "what": "deleted"}]
    assert document["dataset"]["fingerprint_at_end"] != document["dataset"]["fingerprint"]
    printed = " ".join(capsys.readouterr().out.split())
    assert "data changed during the run: discs/008.jpg (deleted)" in printed
    assert "008.jpg" in (out / "report.html").read_text()
