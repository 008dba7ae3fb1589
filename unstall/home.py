"""Where our code lies."""

from __future__ import annotations

from pathlib import Path

# The folder on the path in which Python finds `unstall`.
ROOT = Path(__file__).resolve().parents[1]
# The folder that holds `pipeline`, `models`, `profiles` and `benchmarks`: this one, or in a checkout the one above it.
HOME = ROOT / "unstall" if (ROOT / "unstall" / "pipeline").is_dir() else ROOT
