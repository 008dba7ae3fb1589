"""Settings and fixtures of all tests: a quiet TensorFlow on the CPU, an own cache, photos, an examined folder."""

import contextlib
import fcntl
import functools
import gc
import io
import json
import os
import pathlib
import sys
import tempfile
from collections.abc import Callable, Generator, Iterator

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
os.environ["NO_ALBUMENTATIONS_UPDATE"] = "1"
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
# As in an environment that is activated: processes that tests start say `unstall`, wherever it lies.
os.environ["PATH"] = f"{pathlib.Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
os.environ["GITHUB_ACTIONS"] = os.environ["GITHUB_STEP_SUMMARY"] = ""  # a run in a test tells the job of CI nothing

import pytest

import unstall
from tests import PROJECT_ROOT
from tests.checks import state
from tests.planted import planted
from unstall import commands, forks
from unstall.pipeline.sources import photographs

if unstall.HOME != PROJECT_ROOT:
    pytest.exit(f"these tests are for {PROJECT_ROOT}, not for {unstall.HOME}: run python -m pytest in the checkout", 4)

commands.program, commands.activation = lambda: "unstall", lambda: None  # whatever environment runs the tests
forks.keep_inherited_garbage()  # tests of workers fork this process, which holds iterators of tests before them

pytest_plugins = ["tests.claims", "tests.libraries", "tests.slices", "tests.tables"]

PHOTOS = 40

_LOCKS = pathlib.Path(tempfile.gettempdir()) / f"unstall-tests-{os.getuid()}"
_WITHIN = "UNSTALL_WITHIN_A_TEST"


class _Turn:
    """A lock over all test processes of this user: a test runs beside those of other processes, or alone."""

    def __init__(self) -> None:
        self._runs: io.TextIOWrapper | None = None
        self._alone = False

    def take(self, *, alone: bool) -> None:
        """Waits until no other test runs alone; with `alone`, waits until no other test runs at all."""
        if self._runs is not None and self._alone == alone:
            return
        self.give_back()
        _LOCKS.mkdir(exist_ok=True)
        self._runs, self._alone = (_LOCKS / "runs").open("w"), alone
        # A process that waits to be alone holds the file "turn", so that processes that come later wait behind it.
        with (_LOCKS / "turn").open("w") as turn:
            try:
                fcntl.flock(turn, fcntl.LOCK_EX)
                fcntl.flock(self._runs, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
            except BaseException:  # the time of the test is over
                self.give_back()
                raise
            finally:
                fcntl.flock(turn, fcntl.LOCK_UN)  # a process that a thread forked may hold it open as well

    @property
    def shares(self) -> bool:
        """Whether the test of this process runs beside those of others."""
        return self._runs is not None and not self._alone

    @property
    def is_alone(self) -> bool:
        """Whether no other test runs beside that of this process."""
        return self._runs is not None and self._alone

    def give_back(self) -> None:
        if self._runs is not None:
            fcntl.flock(self._runs, fcntl.LOCK_UN)  # a process that the test forked may hold it open as well
        self.forget()

    def forget(self) -> None:
        """Closes the file in a process that was forked, which may outlive this one; the lock stays this one's."""
        if self._runs is not None:
            self._runs.close()
            self._runs = None


_turn = _Turn()
os.register_at_fork(after_in_child=_turn.forget)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol() -> Generator[None, object, object]:
    """Runs a test beside those of other processes of this user; tests that it starts itself are a part of it."""
    if _WITHIN in os.environ:
        return (yield)
    _turn.take(alone=False)
    os.environ[_WITHIN] = "1"
    try:
        return (yield)
    finally:
        del os.environ[_WITHIN]
        _turn.give_back()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Runs a test with planted times alone, once it has failed beside others."""
    is_planted = item.get_closest_marker(planted.name) == planted.mark
    if is_planted and _turn.shares and getattr(item, "execution_count", 1) > 1:
        _turn.take(alone=True)


@contextlib.contextmanager
def _in_turn(*, alone: bool) -> Iterator[None]:
    other = _turn.shares if alone else _turn.is_alone
    if other:
        _turn.take(alone=alone)
    try:
        yield
    finally:
        if other:
            _turn.take(alone=not alone)


@pytest.fixture(scope="session")
def beside() -> Callable[[], contextlib.AbstractContextManager[None]]:
    """A context in which other tests may run beside one that runs alone: while its processes start, for seconds."""
    return functools.partial(_in_turn, alone=False)


@contextlib.contextmanager
def _handed_on() -> Iterator[None]:
    if not _turn.shares:  # alone, or within a test that has a turn
        yield
        return
    _turn.give_back()
    del os.environ[_WITHIN]
    try:
        yield
    finally:
        os.environ[_WITHIN] = "1"
        _turn.take(alone=False)


@pytest.fixture
def handed_on() -> Callable[[], contextlib.AbstractContextManager[None]]:
    """A context in which a pytest that the test starts takes turns for its own tests, in the place of this test."""
    return _handed_on


@pytest.fixture(scope="session")
def alone() -> Callable[[], contextlib.AbstractContextManager[None]]:
    """A context in which no other test of this user runs: for a fixture that measures and serves several tests."""
    return functools.partial(_in_turn, alone=True)


@pytest.fixture(scope="session", autouse=True)
def cache_folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Gives all tests a cache folder of their own, so that the user's cache is not touched."""
    folder = tmp_path_factory.mktemp("cache")
    os.environ["UNSTALL_CACHE"] = str(folder)
    return folder


@pytest.fixture(scope="module", autouse=True)
def small_heap() -> None:
    """Excludes existing objects from garbage collection.

    Every measured window collects garbage first, which would take long among the objects of thousands of tests.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture
def fake_clock(monkeypatch: pytest.MonkeyPatch):
    """A `tests.fakes.FakeClock` in the place of `profiles.clock`."""
    from tests.fakes import FakeClock

    return FakeClock(monkeypatch)


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


@pytest.fixture(scope="session")
def examined(tmp_path_factory: pytest.TempPathFactory):
    """Runs the doctor on a folder with every kind of file.

    Returns:
      The folder, the names of its files by kind; the doctor's exit code, document, printed text, and output folder.
    """
    from tests import bad_files
    from unstall.benchmarks.doctor import __main__ as doctor

    root, out = tmp_path_factory.mktemp("bad") / "photos", tmp_path_factory.mktemp("out")
    names = bad_files.write_all(root)
    before = state(root)
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(io.StringIO()) as printed:
        patch.setenv("COLUMNS", "80")
        patch.setattr("unstall.benchmarks.doctor.measure.usable_cores", lambda: 1.0)  # one child: each loads TensorFlow
        code = doctor.main(["--data", str(root), "--out", str(out)])
    assert state(root) == before, "the doctor changed something"
    return root, names, code, json.loads((out / "results.json").read_text()), printed.getvalue(), out
