"""Loops over a `DataLoader` in a script without Keras: with a stand-in for PyTorch, and with PyTorch itself."""

from __future__ import annotations

import json
import os
import textwrap
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from tests import INSTALLED
from tests.checks import in_forks, run_python
from unstall.profiles.data import DataKind
from unstall.profiles.data.torch import DataLoaders
from unstall.profiles.results.facts import Facts
from unstall.profiles.script.loops import Loops
from unstall.profiles.unit import images_in

TORCH = {
    "torch/__init__.py": """
        __version__ = "0.0"
        _enabled = True
        class Tensor:
            pass
        def is_grad_enabled():
            return _enabled
        def get_num_threads():
            return 2
        class no_grad:
            def __enter__(self):
                global _enabled
                _enabled = False
            def __exit__(self, *_):
                global _enabled
                _enabled = True
        class cuda:
            is_initialized = staticmethod(lambda: False)
            device_count = staticmethod(lambda: 0)
        """,
    "torch/utils/__init__.py": "",
    "torch/utils/data/__init__.py": """
        import numpy as np
        class DataLoader:
            batch_sampler = None  # looked for where stages are measured, which nothing here asks for
            def __init__(self, dataset, batch_size):
                self.dataset, self.batch_size, self.num_workers = dataset, batch_size, 0
            def __len__(self):
                return -(-len(self.dataset) // self.batch_size)
            def __iter__(self):
                for first in range(0, len(self.dataset), self.batch_size):
                    last = min(first + self.batch_size, len(self.dataset))
                    images, labels = zip(*(self.dataset[index] for index in range(first, last)))
                    yield [np.stack(images), np.array(labels)]
        """,
}
# What a process runs first: time passes only where the script sleeps, and 1 ns with each reading of a clock.
FAKE_TIME = """
import itertools, time
import psutil
slept_ns, readings = [10**9], itertools.count()
def sleep(seconds):
    slept_ns[0] += round(seconds * 1e9)
def hidden(**_):
    raise psutil.AccessDenied
time.sleep, time.perf_counter_ns = sleep, lambda: slept_ns[0] + next(readings)
time.process_time_ns, psutil.cpu_times = time.perf_counter_ns, hidden
"""
SCRIPT = """
import sys, time
import numpy as np
import torch
from torch.utils.data import DataLoader

class Slow:
    def __len__(self):
        return 60
    def __getitem__(self, index):
        time.sleep(0.003)
        return np.zeros((4, 4), "float32"), index % 2

train, test = DataLoader(Slow(), batch_size=6), DataLoader(Slow(), batch_size=20)
seen = 0
"""
TRAINS = """
for epoch in range(3):
    for images, labels in train:
        seen += len(images)
        time.sleep(0.02)
    with torch.no_grad():
        for images, labels in test:
            seen += len(images)
print(seen)
"""


# Scripts, each with the words in front of it. None of the tests on them asks how a process starts.
SCRIPTS = {
    "trains": (TRAINS, ()),
    "eight steps": (TRAINS, ("--max-steps", "8")),
    "an evaluation in a step": (
        """
        for epoch in range(3):
            for step, (images, labels) in enumerate(train):
                time.sleep(0.02)
                if step % 3 == 1:
                    with torch.no_grad():
                        for images, labels in test:
                            time.sleep(0.001)
        """,
        (),
    ),
    "two in an evaluation in a step": (
        """
        for epoch in range(3):
            for step, (images, labels) in enumerate(train):
                if step % 3 == 1:
                    for first, second in zip(test, DataLoader(Slow(), batch_size=20)):
                        pass
                time.sleep(0.02)
        """,
        (),
    ),
    "an iterator in the place of another": (
        """
        for epoch in range(3):
            batches = iter(train)  # while the one before is still there
            for _ in range(6):
                batch = next(batches)
                time.sleep(0.01)
        """,
        (),
    ),
    "left early": (
        """
        for epoch in range(3):
            for step, batch in enumerate(train):
                time.sleep(0.01)
                if step == 5:
                    break
        """,
        (),
    ),
    "one batch of each pass": ("for step in range(5):\n    batch = next(iter(train))\n    time.sleep(0.01)\n", ()),
    "two in one line": (
        "for epoch in range(3):\n    for first, second in zip(train, test):\n        time.sleep(0.01)\n",
        (),
    ),
    "behind one generator": (
        """
        def batches(loader):
            for batch in loader:
                yield batch
        other = DataLoader(Slow(), batch_size=20)
        for epoch in range(3):
            for batch in batches(train):
                time.sleep(0.01)
            for batch in batches(other):
                pass
        """,
        (),
    ),
    "by hand": (
        """
        batches = iter(train)
        assert iter(batches) is batches
        first = next(batches)
        print(len(first), len(list(batches)))
        try:
            next(batches)
        except StopIteration:
            print("ended")
        """,
        (),
    ),
    "an error of the data": (
        """
        Slow.__getitem__ = lambda self, index: 1 / 0
        for batch in train:
            pass
        """,
        (),
    ),
}
PROGRAM = """
import os, sys
os.chdir({folder!r})
from unstall.profiles.__main__ import guarded_main
sys.exit(guarded_main({words!r}))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """What became of a script under the profiler; `folder` holds the script, and what the profiler has written."""

    folder: Path
    returncode: int
    stdout: str
    stderr: str

    @property
    def results(self):
        return json.loads((self.folder / "out" / "results.json").read_text())

    def line_of(self, text):
        return 1 + (self.folder / "train.py").read_text().split("\n").index(text)


def write(folder, text):
    (folder / "train.py").write_text(SCRIPT + textwrap.dedent(text))


def words_of(*words):
    return ["--no-trial", "--details", "--out", "out", *words, "train.py"]


@pytest.fixture(scope="module", params=["a stand-in", pytest.param("PyTorch", marks=pytest.mark.needs("torch"))])
def library(request):
    return request.param


@pytest.fixture(scope="module")
def on_path(library, tmp_path_factory):
    """A folder on the path of the scripts. The stand-in for PyTorch lies there."""
    folder = tmp_path_factory.mktemp("path")
    if library == "a stand-in":
        for name, text in TORCH.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(textwrap.dedent(text))
    return folder


def environment(on_path):
    return {"PYTHONPATH": f"{INSTALLED}{os.pathsep}{on_path}", "COLUMNS": "120"}


@pytest.fixture(scope="module")
def ran(library, on_path, tmp_path_factory):
    """What became of each script. PyTorch itself, which takes seconds to import, is there when they start."""
    folders, codes = {}, {}
    for name, (text, words) in SCRIPTS.items():
        folder = folders[name] = tmp_path_factory.mktemp("script")
        write(folder, text)
        codes[name] = FAKE_TIME + PROGRAM.format(folder=str(folder), words=words_of(*words))
    home = tmp_path_factory.mktemp("forks")
    ended = in_forks(
        codes,
        home,
        cwd=home,
        env={**os.environ, **environment(on_path)},
        imported=("scipy.stats", *(("torch.utils.data",) if library == "PyTorch" else ())),
    )
    return {
        name: Ran(folder=folders[name], returncode=code, stdout=output, stderr=errors)
        for name, (code, output, errors) in ended.items()
    }


def run(folder, on_path, text):
    """Runs a script in a process of its own, as a user does. PyTorch is first imported by the script."""
    write(folder, text)
    done = run_python(folder, "-m", "unstall", "profile", *words_of(), **environment(f"{on_path}{os.pathsep}{folder}"))
    return Ran(folder=folder, returncode=done.returncode, stdout=done.stdout, stderr=done.stderr)


@pytest.mark.long
def test_a_planted_loader_is_found_in_a_loop_that_trains(ran):
    """A batch takes 6 x 3 ms, a step 20 ms: 47 % of the time is loading."""
    shown = ran["trains"]
    assert (shown.stdout, shown.returncode) == ("360\n", 0), shown.stderr
    train, test = shown.results["results"]
    assert train["variant"] == f"loop 1 (train.py:{shown.line_of('    for images, labels in train:')})"
    assert test["model"] == "a loop without gradients"
    assert train["notes"][0] == "fed by a DataLoader (0 workers)"
    assert train["seconds_per_image"]["prep_stall"] * 6 == pytest.approx(0.018, rel=1e-4)
    assert train["seconds_per_image"]["compute"] * 6 == pytest.approx(0.02, rel=1e-4)
    assert train["loading_ratio"] == pytest.approx(18 / 38, rel=1e-4)
    assert test["loading_ratio"] == pytest.approx(1, rel=1e-4)
    assert "47% of an epoch is loading" in " ".join(shown.stderr.split())


@pytest.mark.long
def test_a_loop_inside_a_step_is_a_loop_of_its_own(ran):
    """In an epoch 3 of 10 steps of 20 ms have an evaluation inside: 3 batches of 60 ms, with 1 ms for each."""
    shown = ran["an evaluation in a step"]
    train, test = shown.results["results"]
    assert train["loading_ratio"] == pytest.approx(18 / 38, rel=1e-4)
    assert test["loading_ratio"] == pytest.approx(60 / 61, rel=1e-4)
    assert train["epoch_images_per_sec"] == pytest.approx(6 / 0.038, rel=1e-4)


@pytest.mark.long
def test_loops_that_run_at_once_inside_a_step_are_left_out_of_it_once(ran):
    train = ran["two in an evaluation in a step"].results["results"][0]
    assert train["loading_ratio"] == pytest.approx(18 / 38, rel=1e-4)
    assert train["epoch_images_per_sec"] == pytest.approx(6 / 0.038, rel=1e-4)


@pytest.mark.needs("torch")
@pytest.mark.parametrize("divided", [False, True])
def test_workers_that_each_give_all_of_an_iterable_dataset_are_seen(divided: bool) -> None:
    import torch
    from torch.utils.data import DataLoader, IterableDataset, get_worker_info

    class Stream(IterableDataset):
        def __iter__(self):
            info = get_worker_info()
            return iter(torch.arange(float(info.id if divided else 0), 16.0, info.num_workers if divided else 1))

    loops = Loops(max_steps=None)
    restore = DataLoaders().attach(loops)
    try:
        seen = sum(len(batch) for batch in DataLoader(Stream(), batch_size=4, num_workers=2))
    finally:
        restore()
    assert seen == (16 if divided else 32)
    assert loops.fits[0].facts == Facts(
        data="a DataLoader (2 workers)",
        kind=DataKind.DATA_LOADER,
        loop=True,
        workers_asked=2,
        copies=None if divided else 2,
    )


def test_it_needs_few_packages(on_path, tmp_path):
    """NumPy, SciPy, psutil, rich and Jinja2 (and what they need), and those of the script."""
    others = ["keras", "tensorflow", "tensorflow_datasets", "albumentations", "PIL", "cv2", "line_profiler", "pytest"]
    (tmp_path / "sitecustomize.py").write_text(
        f"import sys\nfor name in {others}:\n    sys.modules[name] = None\n{FAKE_TIME}"
    )
    shown = run(
        tmp_path, on_path, "from unstall import profiles\nfor batch in train: pass\nprint(profiles.Device.__name__)"
    )
    assert (shown.stdout, shown.returncode) == ("Device\n", 0), shown.stderr
    assert "is input-bound" in shown.stderr
    provenance = shown.results["provenance"]
    assert "torch" in provenance and "keras_backend" not in provenance
    assert (tmp_path / "out" / "report.html").is_file()


def test_an_iterator_that_the_next_takes_the_place_of_is_no_other_loader(ran):
    shown = ran["an iterator in the place of another"]
    assert shown.returncode == 0 and "several loaders" not in shown.stderr
    [result] = shown.results["results"]
    assert result["attribution"]["prep_stall"] is not None


def test_a_pass_that_is_left_early_counts_what_it_had(ran):
    shown = ran["left early"]
    assert shown.returncode == 0
    assert shown.results["dataset"]["images"] == 30  # of the sixth batch nobody knows when its step ended


def test_one_batch_of_each_pass_is_no_loop_that_can_be_judged(ran):
    shown = ran["one batch of each pass"]
    assert "nothing measured" in shown.stderr and "bound" not in shown.stderr


def test_loaders_in_one_line_are_not_told_apart(ran):
    shown = ran["two in one line"]
    assert "several loaders are drawn from in one line" in " ".join(shown.stderr.split())
    assert shown.results["results"] == []


def test_loaders_behind_one_generator_of_the_scripts_have_a_row_each(ran):
    shown = ran["behind one generator"]
    assert len(shown.results["results"]) == 2, shown.stderr


def test_a_batch_that_does_not_like_to_be_looked_at_is_left_alone():
    class Odd:
        @property
        def shape(self):
            raise RuntimeError("not now")

    assert images_in({"x": [np.zeros((3, 2))]}) == 3
    assert [images_in(batch) for batch in (Odd(), [Odd()], [], None, np.float32(1))] == [None] * 5


def test_what_a_script_does_with_the_iterator_is_as_before(ran):
    shown = ran["by hand"]
    assert shown.stdout == "2 9\nended\n", shown.stderr


def test_an_error_of_the_data_is_the_scripts_own(ran):
    shown = ran["an error of the data"]
    assert shown.returncode == 1
    assert "ZeroDivisionError: division by zero" in shown.stderr
    assert "profiles/script" not in shown.stderr
    assert "nothing measured, train.py made no step of fit, nor of a loop over a DataLoader" in shown.stderr


def test_an_executor_that_nobody_shuts_down_does_not_hold_the_report_up(on_path, tmp_path):
    (tmp_path / "sitecustomize.py").write_text(FAKE_TIME)
    shown = run(
        tmp_path,
        on_path,
        """
        from concurrent.futures import ThreadPoolExecutor
        pool = ThreadPoolExecutor(1)
        pool.submit(print, "x").result()
        for batch in train:
            time.sleep(0.01)
        """,
    )
    assert (shown.stdout, shown.returncode) == ("x\n", 0)
    assert "of an epoch is loading" in " ".join(shown.stderr.split())


def test_max_steps_leaves_the_loop(ran):
    shown = ran["eight steps"]
    assert (shown.stdout, shown.returncode) == ("", 0), shown.stderr
    assert shown.results["dataset"]["images"] == 8 * 6
    assert shown.results["results"][0]["attribution"]["epoch_overhead"] is None
