"""What all tests share: a quiet TensorFlow on the CPU, a cache of their own, photographs, and what `fit` is fed."""

import contextlib
import fcntl
import gc
import hashlib
import io
import json
import os
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Generator

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
os.environ["NO_ALBUMENTATIONS_UPDATE"] = "1"
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"

import numpy as np
import psutil
import pytest

from pipeline import photographs

PROJECT_ROOT = pathlib.Path(__file__).resolve().parents[1]
PHOTOS = 40
# What may pass until processes that were ended, or belong to nobody, are gone.
GONE_S = 5

# Holds a figure against planted times, on a machine that others use as well: wrong is what is wrong three times.
planted = pytest.mark.flaky(reruns=2, only_rerun=["AssertionError"])

_LOCKS = pathlib.Path(tempfile.gettempdir()) / f"unstall-tests-{os.getuid()}"
_WITHIN = "UNSTALL_WITHIN_A_TEST"


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Runs a test with planted times while no other test of this user runs, but those that it runs itself."""
    if _WITHIN in os.environ:
        return (yield)
    _LOCKS.mkdir(exist_ok=True)
    alone = item.get_closest_marker(planted.name) is not None
    with (_LOCKS / "runs").open("w") as runs:
        # Who waits to be alone keeps the turn: those that come later wait behind it.
        with (_LOCKS / "turn").open("w") as turn:
            fcntl.flock(turn, fcntl.LOCK_EX)
            fcntl.flock(runs, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        os.environ[_WITHIN] = "1"
        try:
            return (yield)
        finally:
            del os.environ[_WITHIN]
            fcntl.flock(runs, fcntl.LOCK_UN)  # a process that the test forked may hold it open as well


@pytest.fixture(scope="session", autouse=True)
def cache_folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The user's cache is never touched."""
    folder = tmp_path_factory.mktemp("cache")
    os.environ["UNSTALL_CACHE"] = str(folder)
    return folder


@pytest.fixture(scope="module", autouse=True)
def small_heap() -> None:
    """Every window collects garbage first, which takes long where thousands of tests have left objects behind."""
    gc.collect()
    gc.freeze()


def passes_on_jax(file: str, chosen: str) -> None:
    """Runs some tests of a file again in a process whose Keras computes with JAX."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", chosen, file],
        env=os.environ | {"KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu"},
        cwd=PROJECT_ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-5000:]


@pytest.fixture(scope="session")
def photos(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A folder of 40 generated photographs of many sizes, 20 a class."""
    folder = tmp_path_factory.mktemp("photos")
    for index in range(PHOTOS):
        path = folder / photographs.CLASS_NAMES[index % 2] / f"{index:03d}.jpg"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(photographs.encode_photo(index, 0))
    return folder


@pytest.fixture(scope="session")
def real_photos() -> pathlib.Path:
    """The folder of real photographs, with `train` and `test` in it."""
    folder = pathlib.Path(os.environ.get("CATS_DOGS_DIR") or PROJECT_ROOT.parent / "shared" / "photos")
    if not folder.is_dir():
        pytest.skip(f"no real photographs at {folder}; set CATS_DOGS_DIR to their folder")
    return folder


def fed(data: object, epochs: int = 1) -> list[list[tuple[np.ndarray, np.ndarray]]]:
    """The batches that Keras' own `fit` hands to a train function, by epoch, in order."""
    import keras

    seen = []

    class Epochs(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            seen.append([])

    def train_function(iterator):
        images, labels = next(iterator)
        seen[-1].append((images.numpy(), labels.numpy()))
        return {}

    layers = [keras.Input((None, None, 3)), keras.layers.GlobalAveragePooling2D(), keras.layers.Dense(1)]
    model = keras.Sequential(layers)
    model.compile(loss="mse")
    model.train_function = train_function
    # Otherwise `fit` shuffles a PyDataset's batches.
    model.fit(data, epochs=epochs, verbose=0, shuffle=False, callbacks=[Epochs()])
    return seen


def children() -> set[psutil.Process]:
    """All processes that this one started, and theirs."""
    return set(psutil.Process().children(recursive=True))


def assert_gone(before: set[psutil.Process]) -> None:
    """Holds that those that were started since `before` leave in time."""
    _, alive = psutil.wait_procs(children() - before, timeout=GONE_S)
    assert alive == []


def whole(batches: list[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """All images and all labels of an epoch."""
    return np.concatenate([images for images, _ in batches]), np.concatenate([labels for _, labels in batches])


def unit(images: np.ndarray) -> np.ndarray:
    """Images in [0, 1], whatever their type."""
    return images / np.float32(255) if images.dtype == np.uint8 else images


def build_fed(config, source, epochs: int = 1) -> list[tuple[np.ndarray, np.ndarray]]:
    from pipeline import build

    with build(config, source) as loader:
        return [whole(batches) for batches in fed(loader.data, epochs)]


def state(root: pathlib.Path) -> dict[str, object]:
    """What can be changed below a folder: names, status, and the content of what can be read."""
    found = {}
    for path in sorted(root.rglob("*")):
        status = path.lstat()
        content = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None
        found[str(path)] = (status.st_mode, status.st_size, status.st_mtime_ns, status.st_ctime_ns, content)
    return found


@pytest.fixture(scope="session")
def examined(tmp_path_factory: pytest.TempPathFactory):
    """A folder of every kind of file: its root, names by kind; and of the doctor: exit code, document, text, out."""
    import bad_files

    from benchmarks import doctor

    root, out = tmp_path_factory.mktemp("bad") / "photos", tmp_path_factory.mktemp("out")
    names = bad_files.write_all(root)
    before = state(root)
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(io.StringIO()) as printed:
        patch.setenv("COLUMNS", "80")
        code = doctor.main([str(root), "--out", str(out)])
    assert state(root) == before, "the doctor changed something"
    return root, names, code, json.loads((out / "doctor.json").read_text()), printed.getvalue(), out
