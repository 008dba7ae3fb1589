"""The console script: `unstall VERB` is `python -m benchmarks.VERB`."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Sequence

import unstall

# Each verb, the module whose `main(argv)` it calls, and what it does.
VERBS = {
    "pipeline": ("benchmarks.pipeline.__main__", "loading against compute, for every variant, model and device"),
    "materialize": ("pipeline.commands.materialize", "a copy of a folder of photos that is faster to read"),
    "tune": (
        "benchmarks.tune.__main__",
        "the fastest pipeline for a folder, a model and a device; or advice for your own",
    ),
    "train": ("benchmarks.train.__main__", "trains a model on photos and keeps it"),
    "predict": ("models.predict", "classifies pictures with it: python -m models predict"),
    "profile": ("profiles.__main__", "somebody's unmodified Keras script: python -m profiles"),
    "scaling": ("benchmarks.scaling.__main__", "how loading grows with files, cores, batch size and image size"),
    "devices": (
        "benchmarks.devices.__main__",
        "the published comparisons of CPU and GPU, and what loading takes of them",
    ),
    "peers": (
        "benchmarks.peers.__main__",
        "other libraries' loaders at the same work as ours, and decoding alone, in one run",
    ),
    "accuracy": (
        "benchmarks.accuracy.__main__",
        "the published cat/dog accuracies, and whether a fast pipeline costs any",
    ),
    "truth": ("benchmarks.truth.__main__", "how far our own figures are off, against planted truth"),
    "augmentation": (
        "benchmarks.augmentation.__main__",
        "what each augmentation costs, by library and place, with pictures",
    ),
    "doctor": ("benchmarks.doctor.__main__", "what is wrong with a folder of images, and which files to leave out"),
    "gate": ("benchmarks.gate.__main__", "images/sec in CI: compare, record, check"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a verb. Returns its exit code, or 2 for one that there is not."""
    words = list(sys.argv[1:] if argv is None else argv)
    if not words or words[0] in ("-h", "--help"):
        print("usage: unstall VERB [OPTION ...]\n")
        for verb, (_, does) in VERBS.items():
            print(f"  {verb:<12} {does}")
        print("\nunstall VERB --help says more.")
        return 0 if words else 2
    if words[0] not in VERBS:
        near = difflib.get_close_matches(words[0], VERBS, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        print(f"unstall: {words[0]!r} is not a verb.{hint} Known: {', '.join(VERBS)}.", file=sys.stderr)
        return 2
    module = VERBS[words[0]][0]
    package = module.partition(".")[0]
    if unstall.is_users_here(package):
        print(
            f"unstall: the package {package!r} in this folder is yours, and what `python -m {package}` runs here. "
            f"`unstall {words[0]}` is this command.",
            file=sys.stderr,
        )
    return int(unstall.of_ours(f"{module}:main")(words[1:]))
