"""What our own code may never do, read from its syntax: run data, reach the network, print past the console."""

import ast
import pathlib
from collections.abc import Iterator

import pytest

from tests import PROJECT_ROOT
from tests.checks import OURS
from unstall.benchmarks.lab.options import UserError, config_from_file
from unstall.pipeline import ConfigError, PipelineConfig
from unstall.pipeline.config import config_from_dict

MODULES = [
    *sorted(path for name in ("unstall", *OURS) for path in (PROJECT_ROOT / name).rglob("*.py")),
]

# Data that run, or can: what is read with these executes what its writer wants. Processes of one run hand each other
# objects by `multiprocessing`, which pickles them: from memory to memory, nothing at rest.
DATA_THAT_RUN = {"pickle", "cPickle", "dill", "cloudpickle", "shelve", "marshal", "joblib", "yaml", "h5py"}
ARCHIVES = {"zipfile", "tarfile", "rarfile", "py7zr"}
NETWORK = {
    "socket",
    "ssl",
    "http",
    "urllib.request",
    "urllib3",
    "requests",
    "httpx",
    "aiohttp",
    "ftplib",
    "smtplib",
    "xmlrpc",
}
# Who may call what runs code, and why.
ALLOWED_CALLS = {
    ("profiles/script/run.py", "exec"): "the user's own script, which is what the command is asked to run",
    ("profiles/script/run.py", "compile"): "the same script",
    ("profiles/remedies/edits.py", "compile"): "whether edited text is valid; what it compiles is never run",
    ("unstall/importing.py", "import_module"): "modules of ours, and module:function from the command line",
    ("unstall/late.py", "import_module"): "modules of ours, by a table",
    ("benchmarks/gate/environment.py", "import_module"): "A as module:function, from the command line",
}
# Who may import what reads such data, or knows the network, and why.
ALLOWED_IMPORTS = {
    ("pipeline/loaders/shared_arrays.py", "pickle"): "batches, from a process that this one forked to this one",
    ("pipeline/loaders/workers.py", "pickle"): "whether an error can be sent so; nothing else",
    ("pipeline/loaders/workers.py", "socket"): "pairs that join a process to those that it forked; none has an address",
    ("pipeline/service/server.py", "socket"): "looks at the sockets of its own servers; asks for its own address",
    ("pipeline/service/handshake.py", "socket"): "whether the dispatcher that the user names answers",
    ("benchmarks/lab/ports.py", "socket"): "free ports of this host",
    (
        "pipeline/sources/published_files.py",
        "zipfile",
    ): "NumPy's .npz, read in memory up to a size; nothing is unpacked to disk",
}
RUNNING = {"eval", "exec", "compile", "__import__", "import_module", "run_path", "run_module"}
# Names of methods of other things: re.compile, model.compile.
METHODS = {"compile"}
# Consoles that obey what a name holds. `rich` may print texts that are ours alone.
PLAIN_CONSOLES = {
    "pipeline/commands/cache.py": "imports nothing of profiles; escapes all that it prints",
    "pipeline/commands/migrate.py": "imports nothing of profiles; escapes all that it prints",
    "pipeline/commands/materialize.py": "imports nothing of profiles; escapes all that it prints",
}


def name_of(path: pathlib.Path) -> str:
    return path.relative_to(PROJECT_ROOT).as_posix()


def imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield node.module or ""
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def calls(tree: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    """Yields the name that is called, the last part of a dotted one, and the call."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Name):
                yield node.func.id, node
            elif isinstance(node.func, ast.Attribute) and node.func.attr not in METHODS:
                yield node.func.attr, node


def forbidden(tree: ast.AST, name: str) -> list[str]:
    """What of a module this test refuses."""
    modules = {part for one in imports(tree) for part in (one, one.partition(".")[0])}
    refused = {one for one in modules & (DATA_THAT_RUN | ARCHIVES | NETWORK) if (name, one) not in ALLOWED_IMPORTS}
    found = [f"imports {one}" for one in sorted(refused)]
    for called, call in calls(tree):
        options = {one.arg: getattr(one.value, "value", None) for one in call.keywords}
        if ast.unparse(call.func) in ("os.system", "os.popen", "torch.load"):
            found.append(f"calls {called}")
        if called in RUNNING and (name, called) not in ALLOWED_CALLS:
            found.append(f"calls {called}")
        if options.get("allow_pickle") or options.get("shell"):
            found.append(f"calls {called} with allow_pickle or shell")
        if called == "load_model" and options.get("safe_mode") is not True:
            found.append("opens a model without safe_mode=True")
        if called in ("connect", "listen", "create_connection", "create_server") and (
            (name, "socket") not in ALLOWED_IMPORTS
        ):
            found.append(f"calls {called}")
        if called in ("unpack_archive", "unsafe_load", "extractall"):
            found.append(f"calls {called}")
    return found


def test_our_code_runs_no_data_opens_no_archive_and_knows_no_network():
    assert len(MODULES) > 100
    found = {name_of(path): forbidden(ast.parse(path.read_text()), name_of(path)) for path in MODULES}
    assert {name: what for name, what in found.items() if what} == {}


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("import pickle", ["imports pickle"]),
        ("def f():\n    from yaml import load", ["imports yaml"]),
        ("import h5py.x as h", ["imports h5py"]),
        ("import urllib.request", ["imports urllib.request"]),
        ("from urllib import request", ["imports urllib.request"]),
        ("import urllib.parse", []),
        ("from zipfile import ZipFile", ["imports zipfile"]),
        ("eval('1')", ["calls eval"]),
        ("import os\nos.system('x')", ["calls system"]),
        ("import numpy as np\nnp.load('x', allow_pickle=True)", ["calls load with allow_pickle or shell"]),
        ("keras.models.load_model('x')", ["opens a model without safe_mode=True"]),
        ("keras.models.load_model('x', safe_mode=True)", []),
        ("re.compile('x'); model.compile(); np.load('x')", []),
        ("compile('x', 'y', 'exec')", ["calls compile"]),
        ("one.connect(('10.0.0.1', 80))", ["calls connect"]),
    ],
)
def test_the_rules_see_what_they_forbid(code, expected):
    assert forbidden(ast.parse(code), "pipeline/x.py") == expected


def test_every_exception_is_still_needed():
    called = {(name_of(path), name) for path in MODULES for name, _ in calls(ast.parse(path.read_text()))}
    assert set(ALLOWED_CALLS) <= called
    imported = {(name_of(path), name) for path in MODULES for name in imports(ast.parse(path.read_text()))}
    assert set(ALLOWED_IMPORTS) <= imported


@pytest.mark.parametrize("package", ["pipeline", "models", "profiles", "benchmarks"])
def test_no_model_is_written_or_read_as_hdf5(package):
    """`.h5` stands where it is refused, and nowhere else."""
    mentions = {
        name_of(path)
        for path in MODULES
        if path.parts[len(PROJECT_ROOT.parts)] == package and (".h5" in path.read_text() or "hdf5" in path.read_text())
    }
    assert mentions <= {"models/opening.py"}


def test_every_command_prints_through_the_console_that_escapes():
    made = {
        name_of(path): [ast.unparse(call.func) for _, call in calls(ast.parse(path.read_text()))] for path in MODULES
    }
    assert {name for name, called in made.items() if "Console" in called} == set(PLAIN_CONSOLES)


def test_albumentations_is_told_not_to_call_home_before_every_import_of_it():
    """2.0.8 asks the package index for a newer release when it is imported."""
    importing = []
    for path in MODULES:
        text = path.read_text()
        for node in ast.walk(ast.parse(text)):
            bodies = [body for body in (getattr(node, "body", None),) if isinstance(body, list)]
            for body in bodies:
                for position, statement in enumerate(body):
                    if isinstance(statement, ast.Import) and any(a.name == "albumentations" for a in statement.names):
                        importing.append(name_of(path))
                        before = "\n".join(ast.unparse(one) for one in body[:position])
                        assert "NO_ALBUMENTATIONS_UPDATE" in before, name_of(path)
    assert len(importing) == 3
    template = (PROJECT_ROOT / "pipeline" / "templates" / "tf_data.py.j2").read_text()
    assert template.index("NO_ALBUMENTATIONS_UPDATE") < template.index("import albumentations")


# Code is named on the command line, never in a file.


@pytest.mark.parametrize("field", PipelineConfig.__dataclass_fields__)
def test_no_setting_of_a_pipeline_takes_a_function(field):
    with pytest.raises(ConfigError):
        config_from_dict({field: "os:system"})


@pytest.mark.parametrize("key", ["model", "pipeline", "function", "augmentation.apply", "loader"])
def test_a_file_that_names_a_function_is_refused(key, tmp_path):
    (tmp_path / "variant.toml").write_text(f'{key} = "os:system"\n')
    with pytest.raises(UserError, match=r"^--config .*variant\.toml: `"):
        config_from_file(tmp_path / "variant.toml")
