"""Reads the options that several commands have: names, the file of a pipeline, settings of a pipeline."""

from __future__ import annotations

import argparse
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from unstall import models
from unstall.needs import missing
from unstall.pipeline import ConfigError, PipelineConfig
from unstall.pipeline.address import NO_SERVICE
from unstall.pipeline.config import config_from_dict, config_from_toml
from unstall.profiles import Device
from unstall.profiles.devices import parse_device
from unstall.text import did_you_mean

DATA = "generated:2000"
MODEL = "cats-dogs-64"
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kMGT]?)B?")
_UNITS = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_BITS = {"kbit": 1e3, "mbit": 1e6, "gbit": 1e9}


class UserError(Exception):
    """An error that the user of the command can mend; the message has one line."""

    def __init__(self, message: str, *, exit_code: int = 2) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def add_result_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of every command that measures: the folder for its files, and its answer as JSON."""
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder for all that it writes (default: runs/TIME)")
    parser.add_argument("--json", action="store_true", help="prints the answer as JSON (docs/documents.md)")


def known_names(text: str, option: str, known: Iterable[str]) -> tuple[str, ...]:
    """Splits NAME,NAME at its commas, and checks that all names are known.

    Raises:
      UserError: if a name is unknown (the message suggests the nearest known name), or if there is no name.
    """
    names = split_names(text, option)
    for name in names:
        if name not in known:
            raise UserError(f"{option}: {name!r} is not known.{did_you_mean(name, known)} Known: {', '.join(known)}.")
    return names


def split_names(text: str, option: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names:
        raise UserError(f"{option} needs at least one name. Received: {text!r}.")
    return names


def check_least(least: int, **given: int | None) -> None:
    """Checks numbers that options give.

    Args:
      given: by the options' names, such as batch_size; None where an option is not given.
    Raises:
      UserError: if a number is smaller than `least`.
    """
    for name, value in given.items():
        if value is not None and value < least:
            raise UserError(f"--{name.replace('_', '-')} must be at least {least}. Received: {value}.")


def check_model(name: str, option: str = "--model") -> None:
    """Checks that a name can be that of a model.

    Raises:
      UserError: if it cannot.
    """
    try:
        models.check_name(name)
    except models.ModelError as error:
        raise UserError(f"{option} {error}") from error


def device_of(text: str) -> Device:
    """Reads the device that --device names.

    Raises:
      UserError: if there is none of that name.
    """
    try:
        return parse_device(text)
    except ValueError as error:
        raise UserError(f"--device: {error}") from error


def config_from_file(path: Path, option: str = "--config") -> PipelineConfig:
    """Reads a pipeline from a TOML file. Its image size is ignored, because the model sets the image size.

    Args:
      option: the option that names the file, for messages.
    Raises:
      UserError: if the file cannot be read, or does not describe a pipeline.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8"
        raise UserError(f"{option} {path} cannot be read: {reason}.") from error
    try:
        config = config_from_toml(text)
    except ConfigError as error:
        raise UserError(f"{option} {path}: {error}") from error
    check_packages(f"{option} {path}", *packages_of(config))
    return replace(config, image_size=PipelineConfig().image_size)


def settings(pairs: Sequence[str]) -> dict[str, object]:
    """Reads FIELD=VALUE pairs. Returns the values by field, as `config_from_dict` takes them.

    Raises:
      UserError: if a text is no such pair, or sets the image size.
    """
    changes: dict[str, object] = {}
    for pair in pairs:
        field, equals, value = pair.partition("=")
        if not equals:
            raise UserError(f"--set needs FIELD=VALUE, such as workers=4. Received: {pair!r}.")
        if field == "image_size":
            raise UserError("--set image_size: the size is the model's. Choose another --model.")
        changes[field] = _value(value)
    return changes


def config_of(
    path: Path | None,
    pairs: Sequence[str],
    otherwise: PipelineConfig,
    *,
    batch_size: int | None = None,
    refused: Mapping[str, str] | None = None,
) -> PipelineConfig:
    """Reads a pipeline from --config, --set and --batch-size.

    Args:
      path: of the TOML file; None for `otherwise`.
      batch_size: None for the pipeline's own.
      refused: fields that the command chooses, and what to do in the place of setting them.
    Raises:
      UserError: if an option is wrong; the message has one line.
    """
    config = otherwise if path is None else config_from_file(path)
    changes = settings(pairs)
    for field, instead in (refused or {}).items():
        if field in changes:
            raise UserError(f"--set {field}: {instead}")
    if batch_size is not None:
        changes["batch_size"] = batch_size
    try:
        config = config_from_dict(changes, config)
    except ConfigError as error:
        raise UserError(str(error)) from error
    check_packages(f"augment_with={config.augment_with}", *packages_of(config))
    return config


def check_packages(who: str, *packages: str) -> None:
    """Checks that packages can be imported, some of those of `unstall.needs`.

    Raises:
      UserError: if one cannot; the message says what installs it.
    """
    if line := missing(who, *packages):
        raise UserError(line)


def packages_of(config: PipelineConfig) -> tuple[str, ...]:
    """Returns the packages that a pipeline augments with, and others do without."""
    return ("albumentations",) if config.augment_with == "albumentations" else ()


def servable(config: PipelineConfig) -> PipelineConfig:
    """Returns a pipeline without a service, of which a service can make one.

    Raises:
      UserError: if no service can; the message has one line.
    """
    try:
        replace(config, service="local:1")
        return replace(config, service=NO_SERVICE)
    except ConfigError as error:
        raise UserError(str(error)) from error


def _value(text: str) -> object:
    """Reads a TOML value; a bare word is a string."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def link_bytes_per_sec(text: str | None, option: str = "--network") -> float | None:
    """Reads the rate of a link, such as 1gbit. Returns bytes per second; None where there is no text.

    Raises:
      UserError: if the text is no rate.
    """
    if text is None:
        return None
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)(kbit|mbit|gbit)", text.lower())
    if match is None or not float(match[1]):
        raise UserError(f"{option} must be a rate such as 100mbit or 10gbit. Received: {text}.")
    return float(match[1]) * _BITS[match[2]] / 8


def size_bytes(text: str, option: str) -> float:
    """Reads a size, such as 500MB.

    Raises:
      UserError: if the text is no size; the message names `option`.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise UserError(f"{option} needs a size, such as 500MB or 2GB. Received: {text!r}.")
    return float(match[1]) * _UNITS[match[2]]
