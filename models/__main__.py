"""The commands of this package: python -m models train, python -m models predict.

Training needs a pipeline and a clock, which are other packages': `benchmarks`, which combines them, does it. It is
imported here alone, and late, so that nothing else of this package depends on it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

_USAGE = """usage: python -m models VERB [OPTION ...]

  train    trains a model on a folder of photos and writes it to a file
  predict  classifies pictures with it

python -m models VERB --help says more."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a verb. Returns its exit code, or 2 for one that there is not."""
    words = list(sys.argv[1:] if argv is None else argv)
    if words[:1] == ["train"]:
        from benchmarks import train

        return train.main(words[1:])
    if words[:1] == ["predict"]:
        from models import predict

        return predict.main(words[1:])
    if words and words[0] not in ("-h", "--help"):
        print(f"python -m models: {words[0]!r} is not a verb. Known: train, predict.", file=sys.stderr)
        return 2
    print(_USAGE)
    return 0 if words else 2


if __name__ == "__main__":
    sys.exit(main())
