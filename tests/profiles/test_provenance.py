"""Where a measurement was made, and what is left out of that."""

from __future__ import annotations

import json
import os
import platform
import sys
import types
from importlib import metadata
from pathlib import Path

import keras
import pytest

from unstall.profiles import provenance
from unstall.profiles.measure import backends


@pytest.fixture
def four_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2, 3})


@pytest.mark.parametrize(
    ("quota", "cores"),
    [
        ("max 100000\n", 4),
        ("150000 100000\n", 1.5),
        ("50000 100000\n", 0.5),
        ("800000 100000\n", 4),
        ("", 4),
        ("x y", 4),
    ],
)
def test_usable_cores_are_the_lesser_of_affinity_and_quota(
    four_cores: None, tmp_path: Path, quota: str, cores: float
) -> None:
    (tmp_path / "cpu.max").write_text(quota)
    assert provenance.usable_cores([tmp_path]) == cores


def test_the_least_quota_of_the_groups_around_a_process_counts(four_cores: None, tmp_path: Path) -> None:
    for name, quota in (("pod", "100000 100000"), ("container", "300000 100000")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "cpu.max").write_text(quota)
    assert provenance.usable_cores([tmp_path / "container", tmp_path / "pod"]) == 1


def test_without_a_control_group_affinity_counts(four_cores: None, tmp_path: Path) -> None:
    assert provenance.usable_cores([tmp_path / "nothing"]) == 4
    assert provenance.usable_cores([]) == 4


@pytest.mark.parametrize(("cores", "threads"), [(4.0, 4), (1.5, 2), (0.3, 1)])
def test_a_pool_has_a_thread_for_each_part_of_a_core(
    monkeypatch: pytest.MonkeyPatch, cores: float, threads: int
) -> None:
    monkeypatch.setattr(provenance, "usable_cores", lambda: cores)
    assert provenance.usable_threads() == threads


def test_the_machine_is_strict_json_and_complete() -> None:
    machine = provenance.machine()
    assert json.loads(json.dumps(machine, allow_nan=False)) == machine
    wanted = {"python", "platform", "packages", "cpu", "usable_cores", "memory_bytes", "git_commit", "command"}
    assert wanted <= set(machine)
    assert machine["python"] == platform.python_version()
    assert machine["usable_cores"] > 0 and machine["memory_bytes"] > 2**20
    assert machine["packages"]["keras"] == keras.__version__


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("processor : 0\nmodel name\t: A Fast One\nprocessor : 1\nmodel name\t: A Fast One\n", "A Fast One"),
        (
            "CPU implementer\t: 0x41\nCPU variant\t: 0x1\nCPU part\t: 0xd40\n",
            "ARM implementer 0x41 part 0xd40 variant 0x1",
        ),
    ],
)
def test_a_processor_is_named_as_linux_names_it(text: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "read_text", lambda path: text)
    assert provenance._cpu_model() == name


def test_a_package_that_is_not_there_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provenance, "_PACKAGES", ("no-such-package",))
    assert provenance.machine()["packages"] == {"no-such-package": "unknown"}


@pytest.fixture
def tensorflow_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """An installation whose distribution is called tensorflow-cpu, in a process that has not loaded TensorFlow."""
    version_of = metadata.version

    def version(name: str) -> str:
        if name == "tensorflow":
            raise metadata.PackageNotFoundError(name)
        return "2.99.0" if name == "tensorflow-cpu" else version_of(name)

    monkeypatch.setattr(metadata, "version", version)
    monkeypatch.setattr(metadata, "packages_distributions", lambda: {"tensorflow": ["no-such-one", "tensorflow-cpu"]})
    monkeypatch.delitem(sys.modules, "tensorflow", raising=False)


def test_tensorflow_is_known_whatever_its_distribution_is_called(tensorflow_cpu: None) -> None:
    assert provenance.machine()["packages"]["tensorflow"] == "2.99.0"
    assert "tensorflow" not in sys.modules


def test_the_version_of_the_imported_module_is_that_of_the_measurement(
    tensorflow_cpu: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tensorflow", types.SimpleNamespace(__version__="2.98.0"))
    assert provenance.machine()["packages"]["tensorflow"] == "2.98.0"


def test_opencv_is_known_by_the_distribution_of_its_module(monkeypatch: pytest.MonkeyPatch) -> None:
    """The module says 4.12.0, the distribution 4.12.0.88: the answer must not depend on what is imported."""
    installed = metadata.version("opencv-python-headless")
    monkeypatch.setitem(sys.modules, "cv2", types.SimpleNamespace(__version__="4.12.0"))
    assert provenance.version_of("opencv-python-headless") == installed


def test_a_module_that_no_distribution_provides_is_unknown(
    tensorflow_cpu: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata, "packages_distributions", dict)
    assert provenance.version_of("tensorflow") == "unknown"


def test_distributions_are_not_listed_for_what_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "packages_distributions", lambda: pytest.fail("listed"))
    assert provenance.version_of("no-such-package") == "unknown"


def test_a_folder_without_git_has_an_unknown_commit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert provenance.machine()["git_commit"] == "unknown"


def test_a_machine_without_git_has_an_unknown_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert provenance.machine()["git_commit"] == "unknown"


def test_folders_are_left_out_of_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["/home/alice/bin/pipeline.py", "--data", "/home/alice/photos", "--out=/home/alice/runs/1", "--rounds", "3"]
    monkeypatch.setattr(sys, "argv", words)
    command = provenance.machine()["command"]
    assert command[0] == "pipeline.py" and "photos" in command and command[-2:] == ["--rounds", "3"]
    assert "alice" not in " ".join(command)


@pytest.mark.parametrize(
    ("file", "name"), [("/x/benchmarks/pipeline/__main__.py", "pipeline"), ("/x/bin/unstall", "unstall"), ("-c", "-c")]
)
def test_a_package_that_is_run_has_its_own_name(file: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", [file, "--rounds", "3"])
    assert provenance.machine()["command"] == [name, "--rounds", "3"]


def test_the_user_is_left_out_when_the_data_is_a_home_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/alice")
    monkeypatch.setattr(sys, "argv", ["pipeline.py", "--data", "/home/alice"])
    assert "alice" not in json.dumps(provenance.machine()["command"])


def test_the_name_of_the_host_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "host-that-nobody-else-has"
    monkeypatch.setattr(platform, "node", lambda: name)
    monkeypatch.setattr(sys, "argv", ["pipeline.py"])
    assert name not in json.dumps(provenance.machine())
    assert platform.uname().node not in json.dumps(provenance.machine()).split('"')


def test_the_backend_is_strict_json_and_complete() -> None:
    backend = backends.backend()
    assert json.loads(json.dumps(backend, allow_nan=False)) == backend
    assert backend["keras_backend"] == keras.backend.backend()
    assert backend["precision"] == "float32"
    assert backend["gpus"] == []
    if backend["keras_backend"] == "tensorflow":
        assert backend["threads"]["inter_op"] >= 1 and backend["threads"]["intra_op"] >= 1
