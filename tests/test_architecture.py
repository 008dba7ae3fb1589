"""The two rules of the design that no single module can hold: who may import whom, and what an import may cost."""

import ast
import pathlib
import subprocess
import sys

import pytest

PROJECT_ROOT = pathlib.Path(__file__).resolve().parents[1]
INDEPENDENT = ("pipeline", "models", "profiles")
OURS = {*INDEPENDENT, "benchmarks"}
# `python -m models train` needs a pipeline and a clock: the entry point of the command hands it to `benchmarks`, which
# combines the packages. Nothing imports an entry point, so that the package itself stays independent.
ENTRY_POINTS = {"models": {"__main__.py": ["benchmarks"]}}


def imported(path: pathlib.Path) -> set[str]:
    """The packages that a module imports anywhere in it, by their first name; relative imports stay in the package."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names.add((node.module or "").partition(".")[0])
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called in ("import_module", "__import__") and isinstance(node.args[0].value, str):
                names.add(node.args[0].value.partition(".")[0])
    return names


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("import models.networks as m", {"models"}),
        ("def f():\n    from pipeline.config import x", {"pipeline"}),
        ("import importlib\nimportlib.import_module('profiles.clock')", {"importlib", "profiles"}),
        ("if TYPE_CHECKING:\n    import keras", {"keras"}),
        ("from . import models", set()),
        ("models = 1", set()),
    ],
)
def test_every_way_to_import_is_seen(tmp_path, code, expected):
    path = tmp_path / "module.py"
    path.write_text(code)
    assert imported(path) == expected


@pytest.mark.parametrize("package", INDEPENDENT)
def test_pipeline_models_and_profiles_import_nothing_of_each_other(package):
    modules = sorted((PROJECT_ROOT / package).rglob("*.py"))
    assert modules
    found = {path.name: sorted(imported(path) & (OURS - {package})) for path in modules}
    assert {name: others for name, others in found.items() if others} == ENTRY_POINTS.get(package, {})


def test_one_module_of_a_package_reads_the_time_and_none_reads_a_clock_that_jumps():
    modules = [path for package in OURS for path in sorted((PROJECT_ROOT / package).rglob("*.py"))]
    reading = {str(path.relative_to(PROJECT_ROOT)) for path in modules if "time" in imported(path)}
    # The peers' loaders are what their users would write, and are given a clock.
    assert reading == {"pipeline/clock.py", "profiles/clock.py"}
    for name in reading:
        calls = {
            node.attr
            for node in ast.walk(ast.parse((PROJECT_ROOT / name).read_text()))
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "time"
        }
        assert calls <= {"perf_counter_ns", "process_time_ns", "thread_time_ns", "sleep"}


def test_the_networks_need_no_backend_but_what_keras_offers():
    found = set().union(*(imported(path) for path in (PROJECT_ROOT / "models").rglob("*.py")))
    assert found & {"tensorflow", "jax", "torch"} == set()


@pytest.mark.parametrize(
    "module",
    ["pipeline", "models", "models.__main__", "benchmarks.pipeline", "benchmarks.devices_run", "profiles"],
)
def test_importing_a_package_does_not_import_tensorflow_or_keras(module):
    code = f"import sys, {module}; print(sorted({{'tensorflow', 'keras', 'jax', 'cv2'}} & set(sys.modules)))"
    shown = subprocess.run([sys.executable, "-c", code], cwd=PROJECT_ROOT, capture_output=True, text=True, check=True)
    assert (shown.stdout.strip(), shown.stderr.strip()) == ("[]", "")


@pytest.mark.parametrize("package", ["pipeline", "models", "profiles"])
def test_everything_that_a_package_names_is_there(package):
    module = __import__(package)
    assert [name for name in module.__all__ if not hasattr(module, name)] == []


def test_a_name_that_the_pipeline_package_has_not_is_refused():
    import pipeline

    with pytest.raises(AttributeError, match="module 'pipeline' has no attribute 'biuld'"):
        pipeline.biuld  # noqa: B018
