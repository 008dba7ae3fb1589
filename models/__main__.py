"""The command of this package: python -m models predict."""

from __future__ import annotations

import sys
from collections.abc import Sequence

_USAGE = """usage: python -m models VERB [OPTION ...]

  predict  classifies pictures with a model that python -m benchmarks.train wrote

python -m models VERB --help says more."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the verb in `argv[0]`. Returns its exit code, or 2 for an unknown or missing verb."""
    words = list(sys.argv[1:] if argv is None else argv)
    if words[:1] == ["predict"]:
        from unstall.models import predict

        return predict.main(words[1:])
    if words and words[0] not in ("-h", "--help"):
        hint = " Training is python -m benchmarks.train." if words[0] == "train" else ""
        print(f"python -m models: {words[0]!r} is not a verb. Known: predict.{hint}", file=sys.stderr)
        return 2
    print(_USAGE)
    return 0 if words else 2


if __name__ == "__main__":
    sys.exit(main())
