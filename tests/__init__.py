"""The tests, in folders that mirror the source."""

import pathlib

PROJECT_ROOT = pathlib.Path(__file__).resolve().parents[1]
# A folder for the path of other processes, in which `unstall` lies as it does where it is installed: without the four
# folders of a checkout, which Python would take for packages of the user's.
INSTALLED = PROJECT_ROOT / "tests" / "installed"
