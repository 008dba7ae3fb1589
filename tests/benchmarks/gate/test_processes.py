"""One measurement in a fresh process: its answer, and every way in which there is none."""

from __future__ import annotations

import sys
import types

import pytest

from tests.fakes import GateChildHere
from unstall.benchmarks.gate import processes
from unstall.benchmarks.gate.processes import MeasureError, Setting, Subject, measure
from unstall.benchmarks.lab.backend import Refused
from unstall.benchmarks.lab.child import ChildDied, ChildHung, JobRefused
from unstall.profiles.devices import CPU

pytestmark = pytest.mark.long

SETTING = Setting(data="generated:8", measure="loader", model="cats-dogs-64", device=CPU, timeout_s=120)

FEEDS = """
import sys

import pipeline, profiles.images  # the user's own, of the same names as ours

print("this is no answer")

def count():
    return pipeline.IMAGES * profiles.images.TIMES * len(sys.argv[:1])
"""


MINE = """
def count():
    import feeds

    return feeds.count()
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A user's folder with feeds, modules of its own called `pipeline` and `profiles`, and a folder `src`."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "feeds.py").write_text(FEEDS)
    (folder / "pipeline.py").write_text("IMAGES = 7\n")
    for inner in ("profiles", "src"):
        (folder / inner).mkdir()
    (folder / "profiles" / "__init__.py").touch()
    (folder / "profiles" / "images.py").write_text("TIMES = 1\n")
    (folder / "src" / "mine.py").write_text(MINE)
    return folder


def a_function(project, name, **options):
    return Subject(label=name.partition(":")[2], kind="function", text=name, root=project, **options)


@pytest.fixture(scope="module")
def measured(project, tmp_path_factory):
    """A function of a revision's folder `src`, which calls one beside that folder: its process, and what that said."""
    log = tmp_path_factory.mktemp("log") / "log"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(processes, "WINDOWS", 2)
        patch.chdir(project)
        process = measure(a_function(project, "mine:count", revision=True), SETTING, log, anchors=True, inspect=True)
    return process, log.read_text()


def test_a_function_is_measured_beside_the_anchors_in_the_users_folder(measured, project):
    process, output = measured
    assert {name: len(rates) for name, rates in process.rates.items()} == {"epoch": 2}
    assert {name: len(rates) for name, rates in process.anchors.items()} == {"decode": 2, "copy": 2, "resident": 2}
    assert process.invariants.images == 7
    assert "this is no answer" in output
    assert not list(project.rglob("__pycache__"))


def test_a_revision_with_a_folder_src_is_measured_from_there(measured):
    process, _ = measured
    assert process.images_per_sec["epoch"] > 0


@pytest.fixture
def in_this_process(monkeypatch):
    """Has the child's work done here, for what ends before anything is measured: a process takes seconds to start."""
    monkeypatch.setattr(processes, "Child", GateChildHere)


@pytest.fixture(params=["here", pytest.param("a process", marks=pytest.mark.slow)])
def either(request):
    """Has the work done in this process; with `-m slow` in a process of its own as well."""
    if request.param == "here":
        request.getfixturevalue("in_this_process")


@pytest.mark.usefixtures("either")
def test_a_function_that_fails_is_said_in_one_line(tmp_path, monkeypatch):
    (tmp_path / "failing.py").write_text("def fails():\n    raise RuntimeError('no photos today')\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(MeasureError, match="^fails: RuntimeError: no photos today$"):
        measure(a_function(tmp_path, "failing:fails"), SETTING, tmp_path / "log")


def test_a_function_that_is_not_there_is_said_in_one_line(tmp_path, in_this_process, monkeypatch):
    (tmp_path / "emptied.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(MeasureError, match="^missing: AttributeError: module 'emptied' has no attribute 'missing'$"):
        measure(a_function(tmp_path, "emptied:missing"), SETTING, tmp_path / "log")


def test_what_is_not_the_revisions_own_code_is_no_measurement_of_it(project, tmp_path, in_this_process):
    """An installed package would be the same code on both sides, and both sides the same."""
    elsewhere = a_function(project, "os:cpu_count", revision=True)
    with pytest.raises(MeasureError, match="'os' was loaded from .*, not from the revision: both sides would be"):
        measure(elsewhere, SETTING, tmp_path / "log")


@pytest.mark.parametrize("package", [".", "src"])
def test_a_module_of_the_checkout_is_not_the_revisions_wherever_it_lies(package, tmp_path, monkeypatch):
    """An editable install of the repository leads to the checkout, also where the user stands in another folder."""
    from unstall.benchmarks.gate.child import _check_origin

    checkout, revision = tmp_path / "checkout", tmp_path / "revision"
    for top in (checkout, revision):
        (top / ".git").mkdir(parents=True)
        (top / "bench").mkdir()
    (checkout / package).mkdir(exist_ok=True)
    module = types.ModuleType("planted_package")
    module.__file__ = str(checkout / package / "planted_package.py")
    # Only this module is asked where it lies: there are thousands, each at several files to look for.
    loaded = types.SimpleNamespace(
        modules={module.__name__: module},
        stdlib_module_names=sys.stdlib_module_names,
        prefix=sys.prefix,
        base_prefix=sys.base_prefix,
    )
    monkeypatch.setattr("unstall.benchmarks.gate.child.sys", loaded)
    subject = Subject(label="f", kind="function", text="bench_x:f", root=revision / "bench", revision=True)
    with pytest.raises(Refused, match="'planted_package' was loaded from .*, not from the revision"):
        _check_origin(subject, checkout / "bench")
    module.__file__ = str(revision / package / "planted_package.py")
    _check_origin(subject, checkout / "bench")
    # Environments, and other repositories, may lie in a checkout.
    module.__file__ = str(checkout / ".venv" / "lib" / "site-packages" / "planted_package.py")
    _check_origin(subject, checkout / "bench")
    (checkout / "other" / ".git").mkdir(parents=True)
    module.__file__ = str(checkout / "other" / "planted_package.py")
    _check_origin(subject, checkout / "bench")


@pytest.mark.parametrize(
    ("error", "match"),
    [
        (
            ChildHung("no answer within 2 s"),
            r"^loader: no answer within 2 s\. Measure less, such as dataset.take\(100\)\.$",
        ),
        (ChildDied("the process died of signal SIGSEGV"), "^loader: the process died of signal SIGSEGV$"),
        (JobRefused("it is broken"), "^loader: it is broken$"),
    ],
)
def test_a_child_without_an_answer_could_not_measure_and_is_ended(error, match, tmp_path, monkeypatch):
    killed = []

    class FailingChild:
        def __init__(self, *_, home):
            assert home.folder == tmp_path

        def ask(self, *_, timeout_s):
            assert timeout_s == SETTING.timeout_s
            raise error

        def kill(self):
            killed.append(True)

    monkeypatch.setattr(processes, "Child", FailingChild)
    subject = Subject(label="loader", kind="variant", text="tf-data", root=tmp_path)
    with pytest.raises(MeasureError, match=match):
        measure(subject, SETTING, tmp_path / "log")
    assert killed == [True]
