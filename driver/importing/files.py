"""Reads a client's file, and writes a configuration with its secrets beside it.

Part of `driver.importing`, and its only part that does I/O: imports its `errors`, and `store.durable`.

Each file is written whole under another name in its folder, with mode 0600, synced, and then given its name:
there is no moment at which it is half there, or others may read it.
"""

import os
import tempfile
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from driver.importing.errors import SourceUnreadable, TargetExists
from store.durable import sync_folder

SOURCE_BYTES_MAX: Final = 4_194_304
"""Some clients keep much beside their servers; nobody keeps this much."""


def read_source(path: Path, hint: str = "name yours with --from FILE") -> str:
    """Return the text of the file at `path`. Blocks. Raises `SourceUnreadable`: `hint` says what to do."""
    try:
        with path.open("rb") as file:
            content = file.read(SOURCE_BYTES_MAX + 1)
    except FileNotFoundError:
        raise SourceUnreadable(path, f"there is no such file; {hint}") from None
    except IsADirectoryError:
        raise SourceUnreadable(path, f"is a folder, and no file; {hint}") from None
    except (OSError, ValueError) as error:
        raise SourceUnreadable(path, f"cannot be read: {error}") from error
    if len(content) > SOURCE_BYTES_MAX:
        raise SourceUnreadable(path, f"is larger than {SOURCE_BYTES_MAX:,} bytes, which no such file is")
    try:
        return content.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise SourceUnreadable(path, f"is not UTF-8 text (byte {error.start:,})") from error


def refuse_existing(paths: Iterable[Path]) -> None:
    """Raise `TargetExists` where something stands at any of `paths`."""
    existing = [path for path in paths if path.is_symlink() or path.exists()]
    if existing:
        raise TargetExists(existing)


@contextmanager
def secrets_written(folder: Path, contents: Mapping[str, str], *, force: bool) -> Generator[None]:
    """Write each content, with a newline behind it, into `folder` (0700), and keep them if the body succeeds.

    Where the body raises, those that were not there before are removed again. Raises OSError, and
    `TargetExists` without `force`. Durable when the body begins.
    """
    made: list[Path] = []
    made_folder = False
    try:
        if contents:
            made_folder = _private_folder(folder)
        for name, content in contents.items():
            path = folder / name
            new = not path.exists()
            write_private(path, f"{content}\n", force=force)
            if new:
                made.append(path)
        yield
    except BaseException:
        for path in made:
            path.unlink(missing_ok=True)
        if made_folder:
            with suppress(OSError):
                folder.rmdir()
        raise


def write_private(path: Path, text: str, *, force: bool) -> None:
    """Write `text` to `path` with mode 0600, in place of what is there only with `force`.

    Makes the folder where it is missing. Durable when it returns. Raises `TargetExists`, or OSError.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    draft = Path(name)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        if force:
            draft.replace(path)
        else:
            path.hardlink_to(draft)
    except FileExistsError:
        raise TargetExists([path]) from None
    finally:
        draft.unlink(missing_ok=True)
    sync_folder(path.parent)


def _private_folder(folder: Path) -> bool:
    """Make the folder, or take away what others may do in it; return whether it is new."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        folder.chmod(0o700)
        return False
    return True
