"""The commands of this package: python -m pipeline materialize, migrate and cache."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from unstall.pipeline.commands import cache, materialize, migrate


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the verb in `argv[0]`. Returns its exit code, or 2 for an unknown or missing verb."""
    words = list(sys.argv[1:] if argv is None else argv)
    verbs = {"materialize": materialize.main, "migrate": migrate.main, "cache": cache.main}
    if words and words[0] in verbs:
        return verbs[words[0]](words[1:])
    if words and words[0] not in ("-h", "--help"):
        print(f"python -m pipeline: {words[0]!r} is not a verb. Known: {', '.join(verbs)}.", file=sys.stderr)
        return 2
    print(
        "usage: python -m pipeline materialize --data DIR --out COPY --as raw\n"
        "       python -m pipeline migrate train.py --write fix.diff\n"
        "       python -m pipeline cache [--clear]\n\n"
        "--help behind the verb says more."
    )
    return 0 if words else 2


if __name__ == "__main__":
    sys.exit(main())
