"""A disk that broke a promise, kept in a folder, with what had been told.

`python -m tests.faults.specimen FOLDER` opens a copy of it as the next start would, says again what is wrong,
and ends with 1 where something is.
"""

import json
import shutil
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from tests.faults.look import Looker
from tests.faults.platter import Image
from tests.faults.promises import Promises

TOLD: Final = "told.json"


def keep(image: Image, told: Promises, known: frozenset[str], place: Path | None = None) -> Path:
    """Write the disk into a new folder, of the temporary ones without a `place`; return that. It stays."""
    folder = Path(tempfile.mkdtemp(prefix="effectd-specimen-", dir=place))
    for name in ("state", "backups"):
        (folder / name).mkdir(mode=0o700)
    for name, content in image.files.items():
        (folder / name).write_bytes(content)
        (folder / name).chmod(0o600)
    words = {**asdict(told), "known": known}
    (folder / TOLD).write_text(json.dumps(words, default=sorted, indent=1), encoding="utf-8")
    return folder


def replay(folder: Path) -> list[str]:
    """Return what is wrong with a disk that was kept; the folder stays as it is."""
    words: dict[str, Any] = json.loads((folder / TOLD).read_text(encoding="utf-8"))
    known = frozenset[str](words.pop("known"))
    sets: dict[str, Any] = {name: frozenset(words.pop(name)) for name in ("gone", "made", "called")}
    with tempfile.TemporaryDirectory(prefix="effectd-faults-") as place:
        root = Path(place) / "root"
        shutil.copytree(folder, root)
        looker = Looker(Path(place) / "look")
        looker.root.mkdir(mode=0o700)
        return Promises(**words, **sets).broken(looker.look_at(root), known)


def main(arguments: list[str]) -> int:
    """Replay one."""
    wrong = replay(Path(arguments[0]))
    sys.stdout.write("".join(f"{text}\n" for text in wrong or ("it holds",)))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
