"""Folders of simulated machines: copied and removed by the thousand, so with as few calls as that takes.

Permissions are those of a new file of this process: it plays worlds, and keeps all to itself (`OWNER_ONLY`).
"""

import os
from pathlib import Path
from typing import Final

OWNER_ONLY: Final = 0o077
"""What a process that plays worlds sets as its umask."""


def copy_folder(source: Path, to: Path) -> None:
    """Copy a folder of files and folders to a new one."""
    to.mkdir()
    for entry in _entries(source):
        if entry.is_dir(follow_symlinks=False):
            copy_folder(source / entry.name, to / entry.name)
        else:
            (to / entry.name).write_bytes((source / entry.name).read_bytes())


def remove_folder(folder: Path) -> None:
    """Remove a folder, and all that is in it."""
    for entry in _entries(folder):
        if entry.is_dir(follow_symlinks=False):
            remove_folder(folder / entry.name)
        else:
            (folder / entry.name).unlink()
    folder.rmdir()


def _entries(folder: Path) -> list["os.DirEntry[str]"]:
    with os.scandir(folder) as found:
        return list(found)
