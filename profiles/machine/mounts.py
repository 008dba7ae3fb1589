"""Tells on what kind of storage a path lies, from the mounts that Linux lists."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

_MOUNTS = Path("/proc/self/mountinfo")
# Linux writes spaces, tabs, newlines and backslashes of paths in octal.
_OCTAL = re.compile(r"\\([0-7]{3})")
_RAM = ("tmpfs", "ramfs", "hugetlbfs", "devtmpfs")
_NETWORK = {"nfs": "NFS", "nfs4": "NFS", "cifs": "SMB", "smb3": "SMB", "smbfs": "SMB", "afs": "AFS"}
_CLUSTER = ("lustre", "gpfs", "beegfs", "ceph", "glusterfs", "wekafs", "orangefs", "pvfs2")
_LAYERS = ("overlay", "aufs", "fuse.fuse-overlayfs")


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """The kind of storage that a path lies on.

    Attributes:
      text: in plain words, with the name of the file system: "NFS (nfs4)".
      remote: whether reading may go over a network, or out of a virtual machine.
    """

    text: str
    remote: bool = False


def storage_of(path: str | os.PathLike[str], mounts: str | None = None) -> Storage | None:
    """Returns the storage that a path lies on; None where that cannot be told, as on another system than Linux.

    Args:
      path: need not exist; what exists of it decides.
      mounts: lines as in /proc/self/mountinfo; read from there unless given.
    """
    if mounts is None:
        try:
            mounts = _MOUNTS.read_text(encoding="utf-8", errors="surrogateescape")
        except OSError:
            return None
    parts = Path(os.path.realpath(path)).parts
    best: tuple[int, str, str, str] | None = None
    for line in mounts.splitlines():
        fields = line.split(" ")
        try:
            behind = fields.index("-", 6)
            point, kind, source = fields[4], fields[behind + 1], fields[behind + 2]
        except (ValueError, IndexError):
            continue
        options = fields[behind + 3] if len(fields) > behind + 3 else ""
        at = Path(_OCTAL.sub(lambda found: chr(int(found[1], 8)), point)).parts
        # Of several mounts at one place the last one hides the others.
        if parts[: len(at)] == at and (best is None or len(at) >= best[0]):
            best = len(at), kind, source, options
    return None if best is None else _storage(*best[1:])


def _storage(kind: str, source: str, options: str) -> Storage:
    if kind in _RAM:
        return Storage(text=f"memory ({kind})")
    if kind in _NETWORK:
        return Storage(text=f"{_NETWORK[kind]} ({kind})", remote=True)
    if kind in _CLUSTER:
        return Storage(text=f"a cluster's file system ({kind})", remote=True)
    if kind in _LAYERS:
        return Storage(text=f"a container's own layer ({kind})")
    if kind in ("drvfs", "v9fs") or (kind == "9p" and ("drvfs" in options or re.match(r"[A-Za-z]:\\", source))):
        return Storage(text=f"a Windows drive, seen from WSL ({kind})", remote=True)
    if kind in ("9p", "virtiofs", "vboxsf", "fuse.vmhgfs-fuse", "prl_fs"):
        return Storage(text=f"a folder of the host, seen from a virtual machine ({kind})", remote=True)
    if kind == "fuseblk":
        return Storage(text=f"a local disk ({kind})")
    if kind == "fuse" or kind.startswith("fuse."):
        return Storage(text=f"FUSE ({kind})", remote=True)
    return Storage(text=f"a local disk ({kind})")
