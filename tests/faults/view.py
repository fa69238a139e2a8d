"""What a start reads of a disk: of two disks with the same view, every start says the same.

SQLite reads a journal's pages from its `-wal`, up to the last commit whose checksums follow from the
header's, and from the file where the `-wal` has none (https://www.sqlite.org/walformat.html). What stands in
the file below such a page, and what stands in the `-wal` behind that commit, it never sees: so most of what a
torn write may leave is one and the same journal. The look that effectd takes before it opens one sees more:
how long the file is, whether the `-wal` has a header, and which frames behind the last commit carry its
salts. All that is in the view. Of a `-shm`, of the lock, and of files that were never finished, it is only
that they are there; other files are in it as they are.

This is a claim about SQLite and about `store.inspection`, and it is not believed: `tests.faults.look` opens a
share of the disks whose view it knows, and the answer must be the one that was known.
"""

import struct
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final

from tests.faults.platter import PAGE, SECTOR, Image

HEADER: Final = struct.Struct(">8I")
FRAME: Final = struct.Struct(">6I")
FRAME_BYTES: Final = FRAME.size + PAGE
STATE: Final = "state/"
WAL: Final = "-wal"
UNREAD: Final = ("-shm", "/lock")
UNFINISHED: Final = ".new"
_SPLIT_AT: Final = SECTOR - 8
_WORD: Final = 0xFFFF_FFFF
_WORDS: Final = struct.Struct(f"<{PAGE // 4}I")

Sums = tuple[int, int]


@dataclass(frozen=True, slots=True)
class _Frame:
    """A frame that follows from the one before it."""

    page: int
    commit: int
    sums: Sums
    digest: bytes


@dataclass(slots=True)
class Viewer:
    """Finds the views of disks, and remembers frames: most disks have most of them in common."""

    _frames: dict[tuple[Sums, bytes], _Frame | None] = field(
        default_factory=dict[tuple[Sums, bytes], _Frame | None]
    )

    def view(self, image: Image) -> bytes:
        """Return a digest of what a start reads of the state folder."""
        whole = blake2b(digest_size=16)
        for path, pages in image.pages.items():
            if not path.startswith(STATE) or (path.endswith(WAL) and path.removesuffix(WAL) in image.files):
                continue
            if path.endswith(UNREAD) or UNFINISHED in path:
                whole.update(path.encode())
                continue
            size = len(image.files[path])
            if (log := image.files.get(path + WAL)) is not None:
                pages, facts = self._with_log(pages, log)  # noqa: PLW2901 - the pages that are read
                whole.update(facts)
            whole.update(b"%s\0%d\0%d\0" % (path.encode(), size, len(pages)) + b"".join(pages))
        return whole.digest()

    def _with_log(self, pages: list[bytes], log: bytes | bytearray) -> tuple[list[bytes], bytes]:
        """Return the digests of the pages that are read, and what else is seen of a `-wal`."""
        if not log:
            return pages, b"empty"
        if (header := _header(log)) is None:
            return pages, b"ignored"
        salts, sums = header
        found, committed, count = dict[int, bytes](), dict[int, bytes](), 0
        at = valid_to = HEADER.size
        while at + FRAME_BYTES <= len(log) and log[at + 8 : at + 16] == salts:
            frame = self._frame(sums, bytes(log[at : at + FRAME_BYTES]))
            if frame is None:
                break
            found[frame.page], sums, at = frame.digest, frame.sums, at + FRAME_BYTES
            if frame.commit:
                committed.update(found)
                found.clear()
                count, valid_to = frame.commit, at
        if count:
            read = [*pages, *[b""] * (count - len(pages))][:count]
            for page, digest in committed.items():
                if page <= count:
                    read[page - 1] = digest
            pages = read
        return pages, b"read" + _behind(log, salts, valid_to)

    def _frame(self, before: Sums, raw: bytes) -> _Frame | None:
        key = (before, raw)
        if key not in self._frames:
            self._frames[key] = _checked(before, raw)
        return self._frames[key]


def _header(log: bytes | bytearray) -> tuple[bytes, Sums] | None:
    """Return the salts, and the checksum from which the first frame's follows."""
    raw = bytes(log[: HEADER.size])
    if len(raw) < HEADER.size:
        return None
    magic, version, page_bytes, _, _, _, first, second = HEADER.unpack(raw)
    if magic != 0x377F0682 or version != 3_007_000 or page_bytes != PAGE:
        return None
    return (
        (raw[16:24], (first, second))
        if _sums(struct.unpack("<6I", raw[:24]), (0, 0))
        == (
            first,
            second,
        )
        else None
    )


def _checked(before: Sums, raw: bytes) -> _Frame | None:
    page, commit, _, _, first, second = FRAME.unpack_from(raw)
    content = raw[FRAME.size :]
    sums = _sums(_WORDS.unpack(content), _sums(struct.unpack_from("<2I", raw), before))
    if not page or sums != (first, second):
        return None
    return _Frame(page, commit, sums, blake2b(content, digest_size=16).digest())


def _sums(words: tuple[int, ...], before: Sums) -> Sums:
    first, second = before
    for at in range(0, len(words), 2):
        first = (first + words[at] + second) & _WORD
        second = (second + words[at + 1] + first) & _WORD
    return first, second


def _behind(log: bytes | bytearray, salts: bytes, at: int) -> bytes:
    """Return what is seen behind the last commit: frames of this use of the file, and commits."""
    seen: list[bytes] = []
    while at + FRAME_BYTES <= len(log):
        if log[at + 8 : at + 16] == salts:
            commit = any(log[at + 4 : at + 8])
            mark = b"c" if commit else b"."
            seen += [] if seen and seen[-1] == mark else [mark]
            if commit and at % SECTOR == _SPLIT_AT:  # whether it is believed depends on its content
                sums = log[at - FRAME_BYTES + 16 : at - FRAME_BYTES + 24]
                seen.append(blake2b(sums + log[at : at + FRAME_BYTES], digest_size=16).digest())
        at += FRAME_BYTES
    return b"".join(seen)
