"""What commands read from their command line in the same way: settings of a pipeline, names, files."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from pipeline import ConfigError, PipelineConfig
from pipeline.config import config_from_toml
from pipeline.text import did_you_mean

DATA = "generated:2000"
MODEL = "cats-dogs-64"


class UserError(Exception):
    """What the person at the command line can mend, in one line."""

    def __init__(self, message: str, *, exit_code: int = 2) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def known_names(text: str, option: str, known: Iterable[str]) -> tuple[str, ...]:
    """Splits NAME,NAME at its commas; all must be known.

    Raises:
      UserError: at an unknown one, with the nearest known name, or where there is none.
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


def config_from_file(path: Path, option: str = "--config") -> PipelineConfig:
    """Reads a pipeline from a TOML file; its image size is the model's to set.

    Args:
      option: that named the file.
    Raises:
      UserError: if it cannot be read, or is no pipeline.
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
    return replace(config, image_size=PipelineConfig().image_size)


def settings(pairs: Sequence[str]) -> dict[str, object]:
    """Reads FIELD=VALUE pairs, as `config_from_dict` takes them.

    Raises:
      UserError: at what is no pair, or sets the image size.
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


def _value(text: str) -> object:
    """Reads a TOML value; a bare word is a string."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
