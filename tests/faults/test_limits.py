"""Disks that are full, folders that cannot be written to, files that cannot be opened: one line, and nothing half."""

import contextlib
import ctypes
import json
import os
import resource
import subprocess
import sys

import numpy as np
import pytest

from tests import PROJECT_ROOT
from tests.checks import samples_of, state
from unstall.benchmarks.lab.serve import one_line
from unstall.pipeline import VARIANTS, PipelineConfig, build, from_folder, open_source
from unstall.pipeline.cache import cache_root
from unstall.pipeline.errors import SourceError, UnavailableError, WriteError
from unstall.pipeline.prepared.write import materialize
from unstall.pipeline.sources.headers import inspect
from unstall.profiles.report.writing_files import write_atomically

CAP_DAC_OVERRIDE = 1


@contextlib.contextmanager
def limit(kind, value):
    before = resource.getrlimit(kind)
    resource.setrlimit(kind, (value, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(kind, before)


@contextlib.contextmanager
def file_size(size_bytes):
    """As a disk that gets full in the middle of a file."""
    with limit(resource.RLIMIT_FSIZE, size_bytes):
        yield


@contextlib.contextmanager
def files_left(number):
    """So many more files can be opened at once."""
    highest = max(map(int, os.listdir("/proc/self/fd")))
    spare = [os.open(os.devnull, os.O_RDONLY)]
    while spare[-1] <= highest or len(spare) < number:
        spare.append(os.open(os.devnull, os.O_RDONLY))
    with limit(resource.RLIMIT_NOFILE, spare[-1] + 1):
        for _ in range(number):
            os.close(spare.pop())
        try:
            yield
        finally:
            for descriptor in spare:
                os.close(descriptor)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("UNSTALL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def left_in(folder):
    return [path for path in folder.rglob("*") if not path.is_dir()]


# Full disks


@pytest.mark.parametrize(("form", "size_bytes"), [("raw", 100_000), ("records", 10_000), ("resized", 1_000)])
def test_a_copy_for_which_the_disk_is_too_small_is_none(form, size_bytes, photos, tmp_path):
    with file_size(size_bytes), pytest.raises(WriteError, match="File too large.*; nothing was left behind"):
        materialize(from_folder(photos), tmp_path / "copy", form, PipelineConfig(image_size=(64, 64)))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["tf-data-raw", "tf-data-cache-disk"])
def test_a_loader_for_whose_copy_the_disk_is_too_small_is_unavailable_and_the_next_one_is_not(name, photos, cache):
    source = from_folder(photos)
    with file_size(100_000), pytest.raises(UnavailableError, match="File too large.*; nothing was left behind"):
        build(VARIANTS[name], source)
    assert [
        path for path in left_in(cache) if path.parent.name not in ("digests", "headers")
    ] == []  # those are of the photos
    with build(VARIANTS[name], source) as loader:
        assert sum(len(labels) for _, labels in loader.data) == source.images


def test_generated_photos_for_which_the_disk_is_too_small_are_none(cache):
    with file_size(1_000), pytest.raises(SourceError, match="cannot be written to .*: File too large"):
        open_source("generated:8")
    assert left_in(cache_root()) == []


def test_results_for_which_the_disk_is_too_small_leave_the_earlier_ones(tmp_path):
    write_atomically(tmp_path / "results.json", "earlier")
    with file_size(1_000), pytest.raises(OSError, match="File too large"):
        write_atomically(tmp_path / "results.json", "x" * 5_000)
    assert [path.name for path in tmp_path.iterdir()] == ["results.json"]
    assert (tmp_path / "results.json").read_text() == "earlier"


# Too many open files


def test_a_scan_that_can_open_no_file_skips_none(photos):
    source = from_folder(photos)
    with files_left(0), pytest.raises(SourceError, match=r"cannot be read: Too many open files\."):
        from_folder(photos)
    with (
        files_left(0),
        pytest.raises(SourceError, match=r"000\.jpg cannot be opened: Too many open files\. See `ulimit"),
    ):
        inspect(photos / "discs" / "000.jpg")
    assert from_folder(photos).fingerprint == source.fingerprint


def test_a_copy_without_files_to_open_is_none(photos, tmp_path):
    source = from_folder(photos)
    with files_left(0), pytest.raises(SourceError, match="Too many open files"):
        materialize(source, tmp_path / "copy", "resized", PipelineConfig(image_size=(64, 64)))
    assert not left_in(tmp_path)


def test_worker_processes_that_cannot_be_started_are_an_error(photos):
    import threading

    data = build(VARIANTS["py-dataset-processes"], from_folder(photos)).data
    said = []

    def ask():
        with pytest.raises(OSError, match="Too many open files"):
            data[0]
        said.append(True)

    with files_left(4):
        thread = threading.Thread(target=ask)
        thread.start()
        thread.join(15)
    assert said == [True]


# Folders that are read only


def without_override():
    """Not even root may write where nobody may."""
    ctypes.CDLL(None).prctl(24, CAP_DAC_OVERRIDE)  # PR_CAPBSET_DROP


READ_ONLY = {
    "results": (["benchmarks.pipeline", "--data", "{photos}", "--out", "{shut}/out"], 2, "results cannot be written"),
    "copy": (
        ["pipeline", "materialize", "--data", "{photos}", "--out", "{shut}/out", "--as", "raw"],
        3,
        "Permission denied",
    ),
    "cache": (["benchmarks.pipeline", "--data", "generated:8", "--out", "{out}"], 2, "cannot be written to"),
}


@pytest.mark.parametrize("name", ["results", pytest.param("copy", marks=pytest.mark.slow), "cache"])
def test_a_folder_that_is_read_only_is_said_in_one_line(name, photos, tmp_path):
    words, code, said = READ_ONLY[name]
    shut = tmp_path / "shut"
    shut.mkdir(mode=0o555)
    before = state(tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", *(word.format(photos=photos, shut=shut, out=tmp_path / "out") for word in words)],
        cwd=PROJECT_ROOT,
        env={**os.environ, "UNSTALL_CACHE": str(shut / "cache"), "COLUMNS": "200"},
        preexec_fn=without_override,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, len(done.stderr.strip().splitlines())) == (code, 1), done.stderr
    assert said in done.stderr
    assert state(tmp_path) == before


# Memory


def test_memory_that_there_is_not_is_said_as_such():
    import tensorflow as tf

    with pytest.raises(MemoryError) as host:
        np.empty(2**55, np.uint8)
    assert one_line(host.value) == "out of memory (MemoryError)"
    # As TensorFlow says it, for which it tries for 10 s.
    device = tf.errors.ResourceExhaustedError(
        None, None, "{{function_node x}} OOM when allocating tensor with shape[9]"
    )
    assert one_line(device) == "out of memory (ResourceExhaustedError)"


@pytest.mark.slow  # a main job
def test_a_variant_that_has_no_memory_is_marked_and_the_others_go_on(photos, tmp_path):
    (tmp_path / "huge.toml").write_text('loader = "py_dataset"\naugment_with = "opencv"\nworkers = 2\n')
    code = (
        "import sys\n"
        "from unstall.benchmarks.lab import rounds\n"
        "from unstall.benchmarks.pipeline import __main__ as pipeline\n"
        "if __name__ == '__main__':\n"
        "    made = rounds.Group.__init__\n"
        "    made.__defaults__ = ('hungry:Hungry', *made.__defaults__[1:])\n"
        "    sys.exit(pipeline.main(sys.argv[1:]))\n"
    )
    (tmp_path / "script.py").write_text(code)
    (tmp_path / "hungry.py").write_text(
        "import numpy as np\n"
        "from unstall.benchmarks.lab import session\n"
        "class Hungry(session.Session):\n"
        "    def window(self, job, window, round_):\n"
        "        if job.variant == 'huge' and window == 'train':\n"
        "            np.empty(2**55, np.uint8)\n"
        "        return super().window(job, window, round_)\n"
    )
    out = tmp_path / "out"
    words = ["--data", photos, "--variants", "tf-data,", "--config", tmp_path / "huge.toml", "--device", "cpu"]
    done = subprocess.run(
        [sys.executable, tmp_path / "script.py", *words, "--rounds", "2", "--batch-size", "4", "--out", out],
        env={**os.environ, "PYTHONPATH": f"{PROJECT_ROOT}:{tmp_path}"},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    document = json.loads((out / "results.json").read_text())
    assert [one["variant"] for one in document["results"]] == ["tf-data"]
    assert {
        sample["round"] for sample in samples_of(document, document["results"][0]) if sample["window"] == "train"
    } == {0, 1}
    (left_out,) = document["left_out"]
    assert left_out["who"].startswith("huge (") and left_out["reason"] == "out of memory (MemoryError)"
