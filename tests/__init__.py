"""The tests, in folders that mirror the source."""

import pathlib

PROJECT_ROOT = pathlib.Path(__file__).resolve().parents[1]
