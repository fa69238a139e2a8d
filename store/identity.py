"""`CURRENT`: which file in the state folder is the journal, and what its identity is.

Part of `store`; imports `store.errors` and `store.folder`. The file is written whole and switched by rename.
It stands beside the journal because an emptied, foreign or missing journal cannot say what it should have
been.

`journal` is null while the first journal is being made: then a half-made file may be made again, and nothing
is lost.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast

from store.durable import write_durably
from store.errors import IdentityMissing, IdentityUnreadable
from store.folder import check_file

CURRENT: Final = "CURRENT"
_FORMAT: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What `CURRENT` says."""

    file_id: str
    journal: str | None

    def path(self, folder: Path) -> Path:
        """Return the journal's path in its folder. Only for a journal that was made."""
        assert self.journal is not None
        return folder / self.journal


def read_identity(folder: Path) -> Identity | None:
    """Return what `CURRENT` says; None in a folder that has never had a journal.

    Raises `IdentityUnreadable`, or `IdentityMissing` where there are journals and no `CURRENT`.
    """
    path = folder / CURRENT
    try:
        check_file(path, path.lstat())
        found: object = json.loads(path.read_bytes())
    except FileNotFoundError:
        if strays := sorted(folder.glob("journal*.db")):
            raise IdentityMissing(strays[0]) from None
        return None
    except ValueError as error:
        raise IdentityUnreadable(path, str(error)) from error
    return _parse(path, found)


def _parse(path: Path, found: object) -> Identity:
    if not isinstance(found, dict):
        raise IdentityUnreadable(path, "it is not an object")
    values = cast("dict[str, object]", found)
    if values.get("format") != _FORMAT:
        raise IdentityUnreadable(
            path, f"its format is {values.get('format')!r}, and this program knows {_FORMAT}"
        )
    file_id, journal = values.get("file_id"), values.get("journal")
    if not isinstance(file_id, str) or not file_id:
        raise IdentityUnreadable(path, "file_id is missing")
    if journal is not None and (not isinstance(journal, str) or Path(journal).name != journal):
        raise IdentityUnreadable(path, "journal is no name of a file")
    return Identity(file_id=file_id, journal=journal)


def write_identity(folder: Path, identity: Identity) -> None:
    """Switch `CURRENT`, durably. Raises OSError."""
    content = {"format": _FORMAT, "file_id": identity.file_id, "journal": identity.journal}
    write_durably(folder / CURRENT, json.dumps(content, indent=1).encode("ascii") + b"\n")
