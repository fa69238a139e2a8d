"""Files and names that survive a power loss.

Part of `store`; imports nothing of ours, so that whoever writes a file beside the journal can do it in the
same way. Everything here blocks.
"""

import os
from pathlib import Path


def sync_folder(path: Path) -> None:
    """Make the names in the folder durable. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_durably(path: Path, content: bytes) -> None:
    """Replace the file at `path` as a whole: after this returns, it survives a power loss. Raises OSError."""
    fresh = unwritten(path)
    fresh.unlink(missing_ok=True)
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    with open(descriptor, "wb") as file:  # noqa: PTH123 - its flags are those of the descriptor
        file.write(content)  # all of it, where `os.write` may take a part
        file.flush()
        os.fsync(descriptor)
    fresh.rename(path)
    sync_folder(path.parent)


def unwritten(path: Path) -> Path:
    """Return where the new content of the file at `path` stands until it is whole."""
    return path.with_name(path.name + ".tmp")


def unlink_durably(path: Path) -> None:
    """Remove the file at `path`, if it is there, so that it stays removed. Raises OSError."""
    path.unlink(missing_ok=True)
    sync_folder(path.parent)
