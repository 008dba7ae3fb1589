"""The console script, `unstall VERB`; `unstall/__main__.py` runs it as a module."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Sequence

import unstall
from unstall.profiles.provenance import version_of

# Verbs in the order in which a user meets them, by what they are about. Each verb: the function that is called with the
# words after it, and what the help says about it.
GROUPS = {
    "your script": {
        "profile": (
            "profiles.__main__:guarded_main",
            "an unmodified training script, Keras' fit or a loop: what it waits for, and what helps",
        ),
        "show": (
            "benchmarks.lab.show:show",
            "what a run printed, from its results.json; as HTML, SVG, JSON, CSV, or for CI",
        ),
        "compare": ("benchmarks.lab.show:compare", "two runs of the main job, or of a script, side by side"),
        "migrate": (
            "pipeline.commands.migrate:main",
            "a script's ImageDataGenerator as tf.data, compared on its images",
        ),
    },
    "your photos": {
        "pipeline": (
            "benchmarks.pipeline.__main__:main",
            "loading against compute, for every variant, model and device",
        ),
        "tune": (
            "benchmarks.tune.__main__:main",
            "the fastest pipeline for a folder, a model and a device; or advice for your own",
        ),
        "doctor": (
            "benchmarks.doctor.__main__:main",
            "what is wrong with a folder of images, and which files to leave out",
        ),
        "materialize": (
            "pipeline.commands.materialize:main",
            "a copy of a folder of photos that is faster to read",
        ),
        "cache": (
            "pipeline.commands.cache:main",
            "what unstall keeps on this disk; --clear removes what no process uses",
        ),
        "train": ("benchmarks.train.__main__:main", "trains a model on photos and keeps it"),
        "predict": ("models.command:main", "classifies pictures with it"),
        "devices": (
            "benchmarks.devices.__main__:main",
            "the published comparisons of CPU and GPU, and what loading takes of them",
        ),
        "accuracy": (
            "benchmarks.accuracy.__main__:main",
            "the published cat/dog accuracies, and whether a fast pipeline costs any",
        ),
    },
    "keep it fast, and past one machine": {
        "gate": ("benchmarks.gate.__main__:main", "images/sec in CI: compare, record, check"),
        "service": (
            "benchmarks.service.__main__:main",
            "tf.data service: its servers, whether workers here or on other hosts pay, what limits them",
        ),
        "trainers": (
            "benchmarks.trainers.__main__:main",
            "several trainers alongside one: what they gain, decode in vain, and wait for",
        ),
    },
}
VERBS = {verb: said for verbs in GROUPS.values() for verb, said in verbs.items()}
# Verbs of earlier versions, and what answers instead: the end of a sentence that begins with "unstall VERB is gone: ".
GONE: dict[str, str] = {
    "peers": "in a checkout, python -m benchmarks.evidence.peers measures it.",
    "scripts": "in a checkout, python -m benchmarks.evidence.scripts measures it.",
    "augmentation": "in a checkout, python -m benchmarks.evidence.augmentation measures it.",
    "tune --check": "python -m pytest -m slow tests/benchmarks/tune/test_check.py holds the choices, in a checkout.",
    "service faults": "python -m pytest -m slow tests/faults/test_service.py does them, in a checkout.",
    "gate ratios": "python -m pytest -m slow tests/benchmarks/gate/test_ratios.py holds them, in a checkout.",
    "scaling": "unstall pipeline --sweep AXIS=VALUES measures it.",
    "scaleout": "unstall service plan answers it.",
    "capacity": "unstall service plan answers it, with --accelerators N for a fleet.",
    "truth": "its proofs are tests: in a checkout, python -m pytest -m claims tests/truth.",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a verb. Returns its exit code, or 2 if there is no such verb."""
    words = list(sys.argv[1:] if argv is None else argv)
    if not words or words[0] in ("-h", "--help"):
        print("usage: unstall VERB [OPTION ...]")
        for group, verbs in GROUPS.items():
            print(f"\n{group}:")
            for verb, (_, does) in verbs.items():
                print(f"  {verb:<12} {does}")
        print("\nunstall VERB --help says more; unstall --version says which version this is.")
        print("Exit codes: 0 done, 1 the answer is bad, 2 bad input, 3 nothing measured, 4 undecided.")
        return 0 if words else 2
    if words[0] == "--version":
        print(f"unstall {version_of('unstall')}")
        return 0
    for gone, successor in GONE.items():
        if words[: len(gone.split())] == gone.split():
            print(f"unstall {gone} is gone: {successor}", file=sys.stderr)
            return 2
    if words[0] not in VERBS:
        near = difflib.get_close_matches(words[0], VERBS, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        print(f"unstall: {words[0]!r} is not a verb.{hint} Known: {', '.join(VERBS)}.", file=sys.stderr)
        return 2
    function, _ = VERBS[words[0]]
    if words[1:] in (["--help"], ["-h"]):  # the parser alone starts in a quarter of the time
        if words[0] in ("show", "compare"):
            unstall.of_ours("profiles.show_parser:parser")().parse_args(words)
        elif function.startswith("benchmarks."):
            unstall.of_ours(function.replace(".__main__:main", ".parser:parser"))().parse_args(words[1:])
    return int(unstall.of_ours(function)(words[1:]))
