"""Rules about all modules together: which may import which, by which front door, and what an import may load.

Over 400 lines, because all rules read the same list of imports, which is made once.
"""

from __future__ import annotations

import ast
import configparser
import functools
import graphlib
import importlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests import INSTALLED, PROJECT_ROOT
from tests.checks import INDEPENDENT, OURS, in_forks
from unstall.benchmarks.cli import VERBS

FRAMEWORKS = {"tensorflow", "tensorflow_datasets", "keras", "jax", "torch", "cv2", "albumentations"}
# Other loaders' libraries, and NVIDIA's: they are optional, so that modules import them late.
OPTIONAL = {"PIL", "ai_edge_litert", "grain", "spdl", "nvidia", "ffcv", "pynvml"}
# The files that may use a framework's private names, and what these names are for.
PRIVATE_NAMES = {
    "profiles/stages/tf_graph.py": "the functions and settings of a tf.data transformation",
    "profiles/script/tracing.py": "the function that traces a `tf.function`",
    "profiles/script/keras_private.py": "layers at any depth, values of variables, the count behind the loss",
    "pipeline/service/tf_private.py": "the names of Python functions, how often a client asks, the end of a read",
}
# The files that need a single private name of a framework.
ONE_NAME = {
    "models/saved.py": {"model._flatten_layers"},
}
# Private names of Python itself that have no public counterpart.
OF_PYTHON = {
    "os._exit",
    "sys._getframe",
    "sys._current_frames",
    "threading._shutdown",
    "atexit._run_exitfuncs",
    "process._target",
    "process._args",
    "sys.modules.get('concurrent.futures.thread')._threads_queues",
}


@dataclass(frozen=True)
class Import:
    """An import of a module, ours or another: its dotted name, its line, and whether it stands in a function or is
    for type checkers only.
    """

    name: str
    line: int
    late: bool
    typing_only: bool


def modules() -> dict[str, Path]:
    """Returns all of our modules by their dotted names below `unstall`; a package has the name of its folder."""
    paths = {"unstall": PROJECT_ROOT / "unstall" / "__init__.py"}
    paths |= {path.stem: path for path in (PROJECT_ROOT / "unstall").glob("*.py") if not path.stem.startswith("__")}
    for package in sorted(OURS):
        for path in sorted((PROJECT_ROOT / package).rglob("*.py")):
            parts = path.relative_to(PROJECT_ROOT).with_suffix("").parts
            paths[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return paths


MODULES = modules()


@functools.cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@functools.cache
def imports_of(path: Path) -> tuple[Import, ...]:
    return tuple(imports_in(tree_of(path)))


def imports_in(tree: ast.Module) -> Iterator[Import]:
    """Yields all imports of a module, also those inside of functions, but no relative imports: we have none."""

    def visit(node: ast.AST, late: bool, typing_only: bool) -> Iterator[Import]:
        for child in ast.iter_child_nodes(node):
            inner = late or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            typed = typing_only or (isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING")
            for name in names_of(child):
                yield Import(name, getattr(child, "lineno", 0), late, typing_only)
            yield from visit(child, inner, typed)

    yield from visit(tree, False, False)


def names_of(node: ast.AST) -> list[str]:
    """Returns the modules that a statement or a call imports; ours without the `unstall` before them."""
    if isinstance(node, ast.Import):
        return [below_unstall(alias.name) for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.level == 0:
        inner = [below_unstall(f"{node.module}.{alias.name}") for alias in node.names]
        submodules = [name for name in inner if name in MODULES]
        return [*submodules, *([below_unstall(node.module or "")] if len(submodules) < len(inner) else [])]
    if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if called in ("import_module", "__import__") and isinstance(node.args[0].value, str):
            return [node.args[0].value]
    return []


def below_unstall(name: str) -> str:
    return name.removeprefix("unstall.")


def first(name: str) -> str:
    return name.partition(".")[0]


@functools.cache
def frameworks_of() -> dict[str, frozenset[str]]:
    """Returns, for each of our modules, the frameworks that its import loads, directly or through other modules."""
    at_once = {
        name: {
            door
            for imported in imports_of(path)
            if not imported.late and not imported.typing_only
            for door in opened_by(imported.name)
        }
        for name, path in MODULES.items()
    }
    loaded = {name: frozenset(map(first, names)) & FRAMEWORKS for name, names in at_once.items()}
    while True:
        more = {
            name: loaded[name].union(*(loaded[other] for other in names & loaded.keys()))
            for name, names in at_once.items()
        }
        if more == loaded:
            return loaded
        loaded = more


def opened_by(name: str) -> list[str]:
    """Returns a module and the packages that it lies in, whose `__init__` its import runs as well."""
    parts = name.split(".")
    return [".".join(parts[: end + 1]) for end in range(len(parts))]


def loads_a_framework(name: str) -> bool:
    return bool(frameworks_of().get(name))


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("import unstall.models.network as m", {"models.network"}),
        ("from unstall.pipeline import config, build", {"pipeline.config", "pipeline"}),
        ("from unstall import profiles", {"profiles"}),
        ("def f():\n    from unstall.pipeline.config import x", {"pipeline.config"}),
        ("import importlib\nimportlib.import_module('profiles.clock')", {"importlib", "profiles.clock"}),
        ("if TYPE_CHECKING:\n    import keras", {"keras"}),
        ("from . import models", set()),
        ("models = 1", set()),
    ],
)
def test_every_way_to_import_is_seen(code, expected):
    assert {imported.name for imported in imports_in(ast.parse(code))} == expected


def test_it_is_seen_whether_an_import_is_late_or_for_types_alone():
    code = "if TYPE_CHECKING:\n    import keras\ndef f():\n    import jax\nimport cv2"
    imports = {imported.name: (imported.late, imported.typing_only) for imported in imports_in(ast.parse(code))}
    assert imports == {"keras": (False, True), "jax": (True, False), "cv2": (False, False)}


# Who may import whom


@pytest.mark.parametrize("package", INDEPENDENT)
def test_pipeline_models_and_profiles_import_nothing_of_each_other_nor_of_benchmarks(package):
    mine = {name: path for name, path in MODULES.items() if first(name) == package}
    assert mine
    others = {
        name: sorted({imported.name for imported in imports_of(path) if first(imported.name) in OURS - {package}})
        for name, path in mine.items()
    }
    assert {name: imports for name, imports in others.items() if imports} == {}


def test_what_all_share_imports_nothing_but_the_standard_library():
    shared = {name: path for name, path in MODULES.items() if path.parent == PROJECT_ROOT / "unstall"}
    assert len(shared) >= 8
    others = {
        name: sorted({first(one.name) for one in imports_of(path)} - shared.keys() - sys.stdlib_module_names)
        for name, path in shared.items()
    }
    assert {name: imports for name, imports in others.items() if imports} == {}


def test_no_module_imports_another_that_imports_it():
    graph = {name: {imported.name for imported in asked_for(name)} - {name} for name in MODULES}
    assert circle(graph) == []


def test_no_folder_imports_another_that_imports_it():
    """Then a folder's `__init__`, which imports the modules of the folder, can be imported from anywhere."""
    folders: dict[str, set[str]] = {}
    for name in MODULES:
        for imported in asked_for(name):
            if imported.name in MODULES and room(imported.name) != room(name):
                folders.setdefault(room(name), set()).add(room(imported.name))
    assert circle(folders) == []


def asked_for(name: str) -> list[Import]:
    """Returns the imports of a module; of an adapter those that it makes at once, since all rooms ask it."""
    is_adapter = name.startswith("profiles.data")
    return [one for one in imports_of(MODULES[name]) if not (is_adapter and (one.late or one.typing_only))]


# Names by which code would tell which library reads some data, and the modules of these libraries.
OF_LIBRARIES = {"DataLoader", "PyDataset", "element_spec", "grain"}
LIBRARIES_OWN = re.compile(
    r"profiles\.(data\..*|remedies\.(keras|tf|torch)\..*|stages\.(loader_stages|python_stages|tf_\w+))"
)
ANOTHER_MEANING = {
    "profiles.gate.anchors": {"grain"},  # of a photo
    "profiles.stages.places": {"grain"},  # a folder of a library, as that of NumPy
}


@pytest.mark.parametrize("name", [name for name in MODULES if first(name) == "profiles"])
def test_only_a_librarys_own_modules_ask_which_library_reads_data(name):
    found = names_in(tree_of(MODULES[name])) & OF_LIBRARIES - ANOTHER_MEANING.get(name, set())
    assert not found or LIBRARIES_OWN.fullmatch(name), found


def test_no_two_classes_and_no_two_modules_of_profiles_have_one_name():
    ours = {name: path for name, path in MODULES.items() if first(name) == "profiles" and path.name[:2] != "__"}
    classes = [node.name for path in ours.values() for node in tree_of(path).body if isinstance(node, ast.ClassDef)]
    for names in (classes, [path.name for path in ours.values()]):
        assert len(names) > 100 and [name for name in {*names} if names.count(name) > 1] == []


def names_in(tree: ast.Module) -> set[str]:
    """Returns the names in code, as they stand there, in an import, or in a text such as that of `hasattr`."""
    documented = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in documented:
            found.add(node.value)
        found |= {
            part
            for alias in getattr(node, "names", ())
            if isinstance(alias, ast.alias)
            for part in alias.name.split(".")
        }
        found |= {text for key in ("id", "attr", "arg") if isinstance(text := getattr(node, key, None), str)}
    return found


@pytest.mark.parametrize(
    "code", ["x.element_spec", "hasattr(x, 'element_spec')", "import grain.x", "from a import DataLoader", "f(grain=1)"]
)
def test_a_name_of_a_library_is_seen(code):
    assert names_in(ast.parse(code)) & OF_LIBRARIES and not names_in(ast.parse("'element_spec'")) & OF_LIBRARIES


def room(name: str) -> str:
    """Returns a module's folder, right below its package; or the module itself, if it lies in no such folder."""
    return ".".join(name.split(".")[:2])


def circle(graph: dict[str, set[str]]) -> list[str]:
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return list(error.args[1])
    return []


def test_a_circle_is_seen():
    assert set(circle({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}})) == {"a", "b", "c"}


def test_benchmarks_enters_the_packages_by_their_front_doors():
    """That is a package or what lies right below it; deeper modules are imported only if they load a framework."""
    deep = {
        f"{name}:{imported.line} {imported.name}"
        for name, path in MODULES.items()
        if first(name) == "benchmarks"
        for imported in imports_of(path)
        if first(imported.name) in INDEPENDENT
        and imported.name.count(".") > 1
        and not loads_a_framework(imported.name)
        and not is_offered(imported.name)
    }
    assert deep == set()


def is_offered(name: str) -> bool:
    """Whether a module is among the names of its folder's front door, as in `from profiles.report import html`."""
    folder, _, leaf = name.rpartition(".")
    text = MODULES[folder].read_text() if folder in MODULES else ""
    return f'"{leaf}"' in text.partition("__all__")[2]


def named_modules() -> set[str]:
    """Returns the texts in `benchmarks` that name one of its modules, as "module" or "module:name".

    Of an f-string only the part before its first value is read: f"benchmarks.tune.child:{name}" without the name.
    """
    texts = {
        node.value
        for name, path in MODULES.items()
        if first(name) == "benchmarks"
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    return {text for text in texts if re.fullmatch(r"benchmarks(\.\w+)+(:\w*)?", text)}


def test_what_is_installed_does_without_the_evidence():
    """The wheel lacks `benchmarks.evidence`, so that nothing else may import or name it."""
    allowed = {"benchmarks.gate.ratios"}  # which go; until then they need the checkout
    others = {name: path for name, path in MODULES.items() if not is_evidence(name) and name not in allowed}
    assert len(others) < len(MODULES)
    importing = {
        f"{name}:{imported.line} {imported.name}"
        for name, path in others.items()
        for imported in imports_of(path)
        if is_evidence(imported.name)
    }
    naming = {
        f"{name}:{node.lineno} {node.value}"
        for name, path in others.items()
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and is_evidence(node.value)
    }
    assert (importing, naming) == (set(), set())


def is_evidence(name: str) -> bool:
    return f"{name}.".startswith("benchmarks.evidence.")


def test_a_session_is_imported_by_nobody_but_other_children():
    """A text names it, such as "benchmarks.tune.child:TuneSession", and only the measuring process imports it."""
    sessions = {text.partition(":")[0] for text in named_modules() if text.endswith("Session")}
    assert len(sessions) >= 7
    children = {name for name in MODULES if name.startswith("benchmarks.") and name.endswith("child")}
    # The parent takes plain data from these two; neither imports a framework at its top.
    both_ends = {"benchmarks.lab.session", "benchmarks.devices.check"}
    assert not any(loads_a_framework(name) for name in both_ends)
    children = (children | sessions) - both_ends - {"benchmarks.lab.child"}
    importing = {
        f"{name} imports {imported.name}"
        for name, path in MODULES.items()
        if name not in children
        for imported in imports_of(path)
        if imported.name in children
    }
    assert importing == set()


def test_every_module_that_is_named_is_there():
    named = named_modules()
    assert len(named) >= 15
    for text in sorted(named):
        module, _, name = text.partition(":")
        assert module in MODULES, text
        body = tree_of(MODULES[module]).body
        defined = {node.name for node in body if hasattr(node, "name")} | {
            target.id
            for node in body
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        assert not name or name in defined, text


@pytest.mark.parametrize("folder", [*sorted(OURS), "unstall", "tests", ".ci", "docs"])
def test_no_file_imports_a_name_of_ours_without_unstall(folder):
    """In a checkout it would load a second copy; installed, there is none, or it is the user's own."""
    files = sorted((PROJECT_ROOT / folder).rglob("*.py"))
    short = {
        f"{path.relative_to(PROJECT_ROOT)}:{node.lineno} {name}"
        for path in files
        for node in ast.walk(tree_of(path))
        for name in short_names(node)
    }
    assert short == set()


def short_names(node: ast.AST) -> list[str]:
    """Returns the modules of ours that a statement imports without the `unstall` before them."""
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    else:
        names = [node.module or ""] if isinstance(node, ast.ImportFrom) and node.level == 0 else []
    return [name for name in names if first(name) in OURS]


def test_a_short_import_is_seen():
    code = "import models\nfrom profiles.clock import now_ns\nimport unstall.models\nfrom unstall.models import MODELS"
    assert [name for node in ast.walk(ast.parse(code)) for name in short_names(node)] == ["models", "profiles.clock"]


def test_mypy_checks_every_file():
    """It does not follow the `__path__` of a checkout: a folder of links shows it the package as it is installed."""
    from mypy.modulefinder import FindModuleCache, SearchPaths
    from mypy.options import Options

    config = configparser.ConfigParser()
    config.read(PROJECT_ROOT / "setup.cfg")
    paths = SearchPaths((), (str(PROJECT_ROOT / config["mypy"]["mypy_path"]),), (), ())
    checked = FindModuleCache(paths, None, Options()).find_modules_recursive(config["mypy"]["packages"])
    files = [path for folder in ("unstall", *OURS) for path in (PROJECT_ROOT / folder).rglob("*.py")]
    found = [Path(source.path or "").resolve() for source in checked]
    assert sorted(path for path in found if path.suffix == ".py") == sorted(files)


def test_no_import_is_relative():
    """The rules above would not see relative imports."""
    relative = [
        name
        for name, path in MODULES.items()
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.ImportFrom) and node.level > 0
    ]
    assert relative == []


# Private names


def test_private_names_of_frameworks_stand_where_a_change_of_them_is_looked_for():
    by_file: dict[str, set[str]] = {}
    for path in MODULES.values():
        tree = tree_of(path)
        names = private_names(tree) - OF_PYTHON
        if names:
            by_file[path.relative_to(PROJECT_ROOT).as_posix()] = names
    assert {file: names for file, names in by_file.items() if file not in PRIVATE_NAMES} == ONE_NAME
    assert set(PRIVATE_NAMES) <= set(by_file), "a file of the list has no private name any more"


def private_names(tree: ast.Module) -> set[str]:
    """Returns the names with a leading `_` that a module uses, except those of `self` and `cls`, and its own."""
    own = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    own |= {target.id for node in tree.body for target in ast.walk(node) if isinstance(target, ast.Name)}
    own |= {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    }
    private = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            private |= {name for name in names if name.startswith(("tensorflow.python", "keras.src"))}
        elif isinstance(node, ast.Attribute):
            mine = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
            if is_private(node.attr) and not mine and node.attr not in own:
                private.add(ast.unparse(node))
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("getattr", "hasattr", "setattr"):
            second = node.args[1]
            if isinstance(second, ast.Constant) and is_private(str(second.value)) and second.value not in own:
                private.add(f"{ast.unparse(node.args[0])}.{second.value}")
    return private


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("dataset._inputs()", {"dataset._inputs"}),
        ("getattr(model, '_layers', None)", {"model._layers"}),
        ("from tensorflow.python.ops import x", {"tensorflow.python.ops"}),
        ("class A:\n    def f(self, other): self._x = other._x", set()),
        ("def _own(): pass\nmodule._own()", set()),
        ("model.__class__", set()),
    ],
)
def test_a_private_name_is_seen(code, expected):
    assert private_names(ast.parse(code)) == expected


# What an import may cost


def test_imports_stand_at_the_top_unless_they_load_a_framework():
    """Optional libraries are imported late as well, and a command's own modules, so that `--help` answers at once."""
    late = set()
    for name, path in MODULES.items():
        for imported in imports_of(path):
            loads = first(imported.name) in FRAMEWORKS | OPTIONAL or loads_a_framework(imported.name)
            if imported.late and not loads and not may_be_late(name, imported.name):
                late.add(f"{name}:{imported.line} {imported.name}")
    assert late == set()


# Modules that import something late though it loads no framework: what they may import so, and why.
LATE = {
    "models.command": ({"models"}, "NumPy and Pillow, for more than --help"),
    "pipeline.commands.cache": ({"rich"}, "the table, for more than --help"),
    "pipeline.commands.materialize": ({"rich", "pipeline"}, "the bar and the build, for more than --help"),
    "pipeline.commands.migrate": ({"rich", "psutil"}, "the console and the free memory, for more than --help"),
    "pipeline.templating": ({"jinja2"}, "templates, for whoever writes code"),
    "profiles": ({"profiles"}, "`watch`, which most processes never ask for"),
    "profiles.__main__": ({"profiles"}, "runs in the user's process, whose own modules come first"),
    **{
        f"profiles.data.{name}": ({"profiles"}, "answers for data with the rooms above it, when it is asked")
        for name in ("arrays", "base", "grain", "keras", "tf_data", "torch")
    },
    "profiles.trial.trying": ({"profiles"}, "the trial of a loop needs no Keras"),
    "profiles.pytest_plugin": ({"profiles"}, "nothing but pytest before a test measures"),
    "profiles.gate.anchors": ({"profiles"}, "runs in the user's tests"),
}


def may_be_late(importing: str, imported: str) -> bool:
    if importing in LATE:
        return first(imported) in LATE[importing][0]
    # A command's `__main__` imports late what only its run needs, so that `--help` answers at once.
    return (
        importing.endswith(".__main__") and first(importing) == "benchmarks" and imported not in sys.stdlib_module_names
    )


def test_late_modules_of_a_command_are_few():
    """A command imports late what its run needs: its own folder, and some functions of the packages."""
    late = [
        imported.name
        for name, path in MODULES.items()
        if name.endswith(".__main__") and first(name) == "benchmarks"
        for imported in imports_of(path)
        if imported.late
        and room(imported.name) != room(name)
        and not loads_a_framework(imported.name)
        and first(imported.name) not in FRAMEWORKS
    ]
    assert len(late) <= 25, sorted(late)


def test_every_reason_for_a_late_import_is_still_needed():
    unused = {
        name: sorted(allowed - {first(imported.name) for imported in imports_of(MODULES[name]) if imported.late})
        for name, (allowed, _) in LATE.items()
    }
    assert {name: names for name, names in unused.items() if names} == {}


def test_the_networks_need_no_backend_but_what_keras_offers():
    imports = {
        first(imported.name)
        for name, path in MODULES.items()
        if first(name) == "models"
        for imported in imports_of(path)
    }
    assert imports & {"tensorflow", "jax", "torch"} == set()


SHOW = f"import sys\nprint([name for name in {sorted(FRAMEWORKS)!r} if name in sys.modules])"


def loaded_by(code: str) -> list[str]:
    """Returns the frameworks that a new interpreter has imported after running some code, which may print."""
    words = [sys.executable, "-c", f"{code}\n{SHOW}"]
    done = subprocess.run(words, cwd=PROJECT_ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return ast.literal_eval(done.stdout.splitlines()[-1])


def test_a_framework_that_is_loaded_is_seen():
    assert loaded_by("import cv2") == ["cv2"]


LIGHT = (
    *(
        name
        for name, path in MODULES.items()
        if path.name == "__init__.py" and name != "benchmarks.evidence.peers.loaders"
    ),
    "profiles.pytest_plugin",
    "profiles.script.run",
    "profiles.__main__",
    "benchmarks.lab.command",
)


def test_importing_these_modules_imports_no_framework():
    """One process imports all of them; if a framework is loaded, `frameworks_of` tells by which."""
    assert {name: frameworks_of()[name] for name in LIGHT if frameworks_of()[name]} == {}
    assert loaded_by("\n".join(f"import unstall.{name}" for name in LIGHT)) == []


def test_batches_for_a_loop_in_python_need_no_tensorflow():
    assert loaded_by("from unstall.pipeline import PythonBatches") == ["cv2"]


def test_profiles_imports_no_framework_but_keras_into_a_users_process():
    """Keras uses the user's own backend; modules for one backend alone are imported only where it is the user's."""
    loaded = {name: names - {"keras"} for name, names in frameworks_of().items() if first(name) == "profiles"}
    assert {name for name, names in loaded.items() if names} == {
        "profiles.remedies.tf.tf_data_rebuilt",
        "profiles.remedies.torch.keeping",
        "profiles.remedies.torch.kept_before_draws",
        "profiles.remedies.torch.kept_samples",
        "profiles.remedies.torch.loader_data",
        "profiles.remedies.torch.loader_plan",
        "profiles.script.loop_step",
        "profiles.stages.loader_stages",
        "profiles.stages.tf_model",
        "profiles.stages.tf_stages",
    }


# Wrong arguments that each verb refuses before it measures, with exit code 2.
REFUSED = {
    "pipeline": "--data /nowhere",
    "materialize": "--data /nowhere --out copy --as raw",
    "migrate": "/nowhere.py",
    "cache": "--clear nothing",
    "tune": "--data /nowhere",
    "train": "--data /nowhere --out x.keras",
    "predict": "/nowhere.keras /nowhere.jpg",
    "profile": "/nowhere.py",
    "devices": "--rounds 0",
    "accuracy": "--data /nowhere",
    "doctor": "--data /nowhere",
    "service": "local --rounds 0",
    "trainers": "--rounds 0",
    "gate": "check /nowhere.json",
    "show": "/nowhere.json",
    "compare": "/nowhere.json /nowhere.json",
}


HELPS_AND_REFUSES = """
import importlib
main = getattr(importlib.import_module("unstall." + {module!r}), {name!r})
for words, expected in ((["--help"], 0), ({refused!r}, 2), ({refused!r} + ["--json"], 2)):
    try:
        code = main(words)
    except SystemExit as left:
        code = left.code
    assert code == expected, (words, code)
"""


@pytest.fixture(scope="module")
def answered(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, str, str]]:
    """What each verb prints for --help and for wrong arguments, then the frameworks that its process has imported."""
    codes = {
        verb: HELPS_AND_REFUSES.format(module=module, name=name, refused=REFUSED[verb].split()) + SHOW
        for verb, (function, _) in VERBS.items()
        for module, _, name in [function.partition(":")]
    }
    codes["service plan"] = codes["service"].replace(str(REFUSED["service"].split()), "['plan', '--goal', '0']")
    codes["a framework"] = f"import cv2\n{SHOW}"
    environment = {**os.environ, "PYTHONPATH": str(PROJECT_ROOT)}
    return in_forks(codes, tmp_path_factory.mktemp("forks"), cwd=PROJECT_ROOT, env=environment)


@pytest.mark.parametrize(
    ("verb", "expected"), [*((verb, []) for verb in (*VERBS, "service plan")), ("a framework", ["cv2"])]
)
def test_no_command_imports_a_framework_to_help_or_to_refuse(verb, expected, answered):
    code, output, errors = answered[verb]
    assert code == 0, errors
    assert ast.literal_eval(output.splitlines()[-1]) == expected


@pytest.fixture(scope="module")
def loaded_for_help(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, str, str]]:
    """What each verb's `--help` has loaded, as the console script runs it."""
    code = """
import sys
from unstall import main
sys.argv = ["unstall", {verb!r}, "--help"]
try:
    main()
except SystemExit:
    print([name for name in {names!r} if name in sys.modules])
"""
    names = sorted({"numpy", "scipy", *FRAMEWORKS, *OPTIONAL})
    codes = {verb: code.format(verb=verb, names=names) for verb in VERBS}
    environment = {**os.environ, "PYTHONPATH": str(INSTALLED)}
    folder = tmp_path_factory.mktemp("helps")
    return in_forks(codes, folder, cwd=folder, env=environment, imported=None)


@pytest.mark.parametrize("verb", VERBS)
def test_help_loads_neither_numpy_nor_scipy_nor_a_framework(verb, loaded_for_help):
    code, output, errors = loaded_for_help[verb]
    assert code == 0 and output.startswith("usage: "), errors
    assert output.splitlines()[-1] == "[]"


# What measures answers as JSON, but for what trains, what examines a folder, and what writes a file of its own.
NO_JSON = {"materialize", "migrate", "cache", "train", "doctor", "compare"}


@pytest.mark.parametrize("verb", VERBS)
def test_every_command_that_measures_has_the_option_json(verb, answered):
    _, _, errors = answered[verb]
    assert ("unrecognized arguments: --json" in errors) is (verb in NO_JSON)


# The rest


def test_one_module_of_a_package_reads_the_time_and_none_reads_a_clock_that_jumps():
    reading = {name for name, path in MODULES.items() if any(imported.name == "time" for imported in imports_of(path))}
    # The peers' loaders are written as their users would write them, and get a clock as an argument.
    assert reading == {"pipeline.clock", "profiles.clock"}
    for name in reading:
        assert "from time import" not in MODULES[name].read_text()
        calls = {
            node.attr
            for node in ast.walk(tree_of(MODULES[name]))
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "time"
        }
        assert calls <= {"perf_counter_ns", "process_time_ns", "thread_time_ns", "sleep"}


@pytest.mark.parametrize("package", INDEPENDENT)
def test_everything_that_a_package_names_is_there(package):
    folders = [name for name, path in MODULES.items() if path.name == "__init__.py" and first(name) == package]
    for name in folders:
        module = importlib.import_module(f"unstall.{name}")
        assert [public for public in getattr(module, "__all__", ()) if not hasattr(module, public)] == [], name


def test_a_name_that_the_pipeline_package_has_not_is_refused():
    from unstall import pipeline

    with pytest.raises(AttributeError, match=r"module 'unstall\.pipeline' has no attribute 'biuld'"):
        pipeline.biuld  # noqa: B018


def test_no_test_module_imports_another():
    tests = list((PROJECT_ROOT / "tests").rglob("test_*.py"))
    assert len(tests) > 100
    importing = {
        f"{path.relative_to(PROJECT_ROOT)} imports {name}"
        for path in tests
        for node in ast.walk(tree_of(path))
        for name in names_of(node)
        if any(part.startswith("test_") or part == "conftest" for part in name.split("."))
    }
    assert importing == set()
