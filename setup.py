"""Puts our folders into the one package that is installed. setup.cfg, which has the rest, cannot rename packages."""

from setuptools import find_packages, setup

FOLDERS = ("benchmarks", "models", "pipeline", "profiles")

# `benchmarks.evidence` measures our own claims, in a checkout.
found = find_packages(
    include=[name for folder in FOLDERS for name in (folder, f"{folder}.*")],
    exclude=["benchmarks.evidence", "benchmarks.evidence.*"],
)
setup(
    packages=["unstall", *(f"unstall.{name}" for name in found)],
    package_dir={"unstall": "unstall", **{f"unstall.{folder}": folder for folder in FOLDERS}},
)
