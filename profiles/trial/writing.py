"""The edits of `--write`: of the script, and of the files of the user's in which its data are made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from unstall.profiles.remedies import Edit
from unstall.profiles.remedies.edits import TooInvolved, diff, edited, name_from_here, source_of
from unstall.profiles.script.run import Replaced
from unstall.profiles.trial.applying import ApplyError, Wanted
from unstall.profiles.trial.users_files import digest_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What is run in place of the user's files, and the diff that makes it if it is applied in the current folder.

    Attributes:
      names: of the files that are edited, as the diff has them.
    """

    replaced: Replaced
    names: tuple[str, ...]
    diff: str


def written(wants: Sequence[Wanted], script: Path) -> Written:
    """Writes remedies into the text of the script, and of the files of the user's in which its data are made.

    Raises:
      ApplyError: if a file has changed, cannot be read or lies elsewhere, or a remedy is too involved for an edit by
        machine.
    """
    edits: dict[str, list[Edit]] = {}
    for remedy in (remedy for one in wants for remedy in one.remedies):
        if not remedy.edits:
            raise ApplyError(f"--write: {remedy.name} is too involved for an edit by machine: {remedy.code}")
        for edit in remedy.edits:
            edits.setdefault(edit.place.file, []).append(edit)
    digests = {name: digest for one in wants for name, digest in one.digests.items()}
    texts: dict[Path, str] = {}
    diffs = {}
    for name in sorted({script.name, *edits}):
        path = script if name == script.name else script.resolve().parent / name
        if name != script.name and name not in digests:
            raise ApplyError(
                f"--write: the data are made in {name}, which lies neither in the folder of {script.name} nor in that "
                "of the command, or was changed while it was measured. Edit it by hand, or measure again."
            )
        try:
            source = source_of(path)
            if digests.get(name) != digest_of(source.encode()):
                raise ApplyError(f"--write needs the results of a run of {name} as it is now. Measure it again.")
            if name in edits:
                texts[path.resolve()] = edited(source, edits[name])
                in_diff = name_from_here(path)
                diffs[in_diff] = diff(source, texts[path.resolve()], in_diff)
        except (OSError, UnicodeDecodeError) as error:
            raise ApplyError(f"--write: {path} cannot be read: {error}.") from error
        except TooInvolved as error:
            raise ApplyError(f"--write: {name}: {error}.") from error
    return Written(replaced=Replaced(texts), names=tuple(diffs), diff="".join(diffs.values()))
