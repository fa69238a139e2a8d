"""The `-wal` file, read without SQLite: what SQLite would silently ignore in it, and how full it is.

Part of `store`; imports nothing of ours. All but `Filling` is for a journal that nobody has open. The layout
is that of https://www.sqlite.org/walformat.html: a header of 32 bytes, then frames of 24 bytes and one page
each; all integers are big-endian. Reading this file takes no locks away: SQLite's stand on the journal
itself, and on its `-shm`.

SQLite takes the frames up to the first one whose checksum is wrong for the end of the log, whatever stands
behind it. After a power loss that is right: the transaction that was being written is torn. But a transaction
is only begun when the one before it is on the disk. So where, behind that point, a whole transaction and the
beginning of another stand, something that had been promised is lost: the file was damaged, not torn.

A torn write leaves whole sectors, new ones and old ones. Where a sector ends within a frame's header, before
the salts, a frame can seem to end a transaction and does not: what says so is left from an earlier use of the
file. Such a frame is believed only if its checksum follows from that of the frame before it.
"""

import os
import struct
import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

HEADER: Final = struct.Struct(">IIIIIIII")
FRAME: Final = struct.Struct(">IIIIII")
SECTOR_BYTES: Final = 512
"""What a disk writes as a whole, at least."""
_SPLIT_AT: Final = SECTOR_BYTES - 8
"""Where a frame begins in its sector whose salts stand in the next one."""
_MAGIC: Final = frozenset({0x377F0682, 0x377F0683})
_FORMAT: Final = 3_007_000
_WORD: Final = 0xFFFF_FFFF
_SALTS_AT: Final = 16
_PAGES_IN_FRAME: Final = 4
_SALTS_IN_FRAME: Final = 8
_SALT_BYTES: Final = 8
_SHM_FRAMES_AT: Final = 16
"""Where the `-shm` file says, in the machine's byte order, how many frames are valid."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WalHeader:
    """The header of a `-wal` that SQLite would read."""

    page_bytes: int
    salts: tuple[int, int]
    big: bool
    """Whether checksums read the file's words as big-endian ones."""
    checksum: tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class WalFrames:
    """What the frames of a `-wal` say."""

    pages: frozenset[int]
    """The pages that valid frames hold."""
    page_count: int
    """How long the journal is, in pages, as of the last valid commit; 0 where there is none."""
    commits_lost: bool
    """True where, behind the first invalid frame, a whole transaction and the beginning of another stand."""


def read_header(path: Path) -> WalHeader | None:
    """Return the header; None where SQLite would ignore the file as a whole. Raises OSError."""
    with path.open("rb") as file:
        raw = file.read(HEADER.size)
    if len(raw) < HEADER.size:
        return None
    magic, version, page_bytes, _, salt_1, salt_2, sum_1, sum_2 = HEADER.unpack(raw)
    if (
        magic not in _MAGIC
        or version != _FORMAT
        or _checksum(raw[:24], big=bool(magic & 1)) != (sum_1, sum_2)
    ):
        return None
    return WalHeader(
        page_bytes=page_bytes, salts=(salt_1, salt_2), big=bool(magic & 1), checksum=(sum_1, sum_2)
    )


def _checksum(raw: bytes, *, big: bool, before: tuple[int, int] = (0, 0)) -> tuple[int, int]:
    words = struct.unpack(f"{'>' if big else '<'}{len(raw) // 4}I", raw)
    first, second = before
    for even, odd in zip(words[::2], words[1::2], strict=True):
        first = (first + even + second) & _WORD
        second = (second + odd + first) & _WORD
    return first, second


def valid_frames(shm: Path) -> int:
    """Return how many frames SQLite found valid.

    For while a connection has the journal open. Raises OSError.
    """
    with shm.open("rb") as file:
        file.seek(_SHM_FRAMES_AT)
        return int(struct.unpack("=I", file.read(4))[0])


def read_frames(path: Path, header: WalHeader, valid: int) -> WalFrames:
    """Return what the frames say, `valid` of which SQLite would read. Raises OSError."""
    pages: set[int] = set()
    page_count = 0
    whole_behind = lost = False
    size = FRAME.size + header.page_bytes
    before = header.checksum
    with path.open("rb", buffering=0) as file:
        count = (os.fstat(file.fileno()).st_size - HEADER.size) // size
        for index in range(count):
            at = HEADER.size + index * size
            raw = os.pread(file.fileno(), FRAME.size, at)
            page, commit, salt_1, salt_2, *checksum = FRAME.unpack(raw)
            if index < valid:
                pages.add(page)
                page_count = commit or page_count
            elif (salt_1, salt_2) == header.salts:
                lost |= whole_behind
                if commit and at % SECTOR_BYTES == _SPLIT_AT:
                    content = os.pread(file.fileno(), header.page_bytes, at + FRAME.size)
                    follows = _checksum(raw[:8] + content, big=header.big, before=before)
                    commit = commit if follows == tuple(checksum) else 0
                whole_behind |= bool(commit)
            before = (checksum[0], checksum[1])
    return WalFrames(pages=frozenset(pages), page_count=page_count, commits_lost=lost)


class Filled(NamedTuple):
    """How full a `-wal` is."""

    frames: int
    bytes: int
    """How long the file is."""
    pages: int
    """How many pages the journal has, as of the last commit; 0 where no commit ends there."""


class Filling:
    """How many frames stand in the `-wal` of an open journal, which SQLite does not tell.

    Asked by the journal's owner after its commits. The file does not shrink when SQLite begins anew at its
    head, under other salts: what carries the salts of the header was written since. The count is exact,
    unless a transaction was rolled back after its pages had spilled: then it is too high until the next one.

    It is opened with the first look and stays open until `close`: a process that is out of descriptors later
    goes on committing. Who forgets a `Filling` has closed it.
    """

    def __init__(self, path: Path, page_bytes: int) -> None:
        self._path: Final = path
        self._frame_bytes: Final = FRAME.size + page_bytes
        self._file: int | None = None
        self._release: weakref.finalize[[int], Filling] | None = None
        self._salts = b""
        self._frames = self._pages = 0
        self._grew = (0, 0)
        """By how many frames between the looks before: a call's two commits take turns."""

    def look(self) -> Filled:
        """Return how full it is. Costs few short reads. Raises OSError."""
        file = self._opened()
        salts = os.pread(file, _SALT_BYTES, _SALTS_AT)
        if salts != self._salts:
            self._salts, self._frames, self._pages = salts, 0, 0
        if salts:
            before, self._frames = self._frames, self._last(file, self._frames, self._grew[0])
            self._grew = self._grew[1], self._frames - before
        return Filled(self._frames, os.fstat(file).st_size, self._pages)

    def close(self) -> None:
        """Give the descriptor back; a later look would open the file again."""
        if self._release is not None:
            self._release()
        self._file = self._release = None

    def _opened(self) -> int:
        if self._file is None:
            self._file = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
            self._release = weakref.finalize(self, os.close, self._file)
        return self._file

    def _last(self, file: int, valid: int, guess: int) -> int:
        """Return the last valid frame, behind one that is: by a guess, by strides that double, then halve."""
        if guess and self._is_valid(file, valid + guess):
            valid += guess
        stride = 1
        while self._is_valid(file, valid + stride):
            valid, stride = valid + stride, stride * 2
        while stride > 1:
            stride //= 2
            if self._is_valid(file, valid + stride):
                valid += stride
        return valid

    def _is_valid(self, file: int, frame: int) -> bool:
        """Whether a frame was written since the `-wal` was begun anew; notes what the last such one says."""
        at = HEADER.size + (frame - 1) * self._frame_bytes + _PAGES_IN_FRAME
        head = os.pread(file, _SALTS_IN_FRAME - _PAGES_IN_FRAME + _SALT_BYTES, at)
        if not head.endswith(self._salts):
            return False
        self._pages = int.from_bytes(head[:-_SALT_BYTES], "big")
        return True
