"""On what kind of storage a path lies: lines of /proc/self/mountinfo as they were recorded, and this machine's own."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from unstall.profiles.machine.mounts import Storage, storage_of

ROOT = "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw"
# By what is said: a line of mountinfo for /data.
LINES = {
    "a local disk (xfs)": "40 22 259:1 / /data rw,noatime shared:2 - xfs /dev/nvme0n1p1 rw,attr2",
    "a local disk (fuseblk)": "41 22 8:17 / /data rw,relatime - fuseblk /dev/sdb1 rw,user_id=0",
    "memory (tmpfs)": "42 22 0:40 / /data rw,nosuid,nodev - tmpfs tmpfs rw,size=8G",
    "NFS (nfs4)": "43 22 0:45 / /data rw,relatime shared:9 - nfs4 10.0.0.2:/export/data rw,vers=4.2,rsize=1048576",
    "SMB (cifs)": "44 22 0:46 / /data rw,relatime - cifs //nas/share rw,vers=3.1.1",
    "a cluster's file system (lustre)": "45 22 0:47 / /data rw - lustre 10.1.0.1@o2ib:/scratch rw,flock",
    "a container's own layer (overlay)": "46 22 0:48 / /data rw - overlay overlay rw,lowerdir=/a:/b,upperdir=/c",
    "FUSE (fuse.gcsfuse)": "47 22 0:49 / /data rw,nosuid,nodev - fuse.gcsfuse bucket rw,user_id=1000",
    "FUSE (fuse)": "48 22 0:50 / /data rw - fuse drive rw,user_id=0,allow_other",
    "a Windows drive, seen from WSL (9p)": "49 22 0:51 / /data rw,noatime - 9p C:\\134 rw,aname=drvfs;path=C:\\134",
    "a Windows drive, seen from WSL (drvfs)": "50 22 0:52 / /data rw - drvfs C: rw,case=off",
    "a folder of the host, seen from a virtual machine (9p)": "51 22 0:53 / /data rw - 9p shared rw,trans=virtio",
    "a folder of the host, seen from a virtual machine (virtiofs)": "52 22 0:54 / /data rw - virtiofs share rw",
}
LOCAL = ("a local disk", "memory", "a container's own layer")


@pytest.mark.parametrize("text", LINES)
def test_each_kind_of_mount_is_named(text: str) -> None:
    mounts = f"{ROOT}\n{LINES[text]}\n"
    assert storage_of("/data/cats/1.jpg", mounts) == Storage(text=text, remote=not text.startswith(LOCAL))
    assert storage_of("/database/1.jpg", mounts) == Storage(text="a local disk (ext4)")


def test_the_innermost_mount_counts_and_of_several_the_last() -> None:
    inner = "60 22 0:60 / /data/cats rw - tmpfs tmpfs rw"
    over = "61 22 0:61 / /data rw - nfs server:/data rw"
    mounts = "\n".join([ROOT, inner, LINES["a local disk (xfs)"], over])
    assert str(getattr(storage_of("/data/cats/1.jpg", mounts), "text", "")) == "memory (tmpfs)"
    assert str(getattr(storage_of("/data/dogs/1.jpg", mounts), "text", "")) == "NFS (nfs)"


def test_spaces_in_a_path_and_lines_that_say_nothing() -> None:
    mounts = f"{ROOT}\nnonsense\n\n62 22 0:62 / /my\\040data rw - nfs4 server:/x rw\n63 22 0:63 / /cut rw -\n"
    assert storage_of("/my data/1.jpg", mounts) == Storage(text="NFS (nfs4)", remote=True)
    assert storage_of("/cut/1.jpg", mounts) == Storage(text="a local disk (ext4)")
    assert storage_of("/data", "") is None


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_this_machine_tells_of_its_own(tmp_path: Path) -> None:
    assert storage_of(tmp_path) is not None
    assert storage_of("/proc/self/status") == Storage(text="a local disk (proc)")
