"""A disk that can fail under SQLite: it counts flushes, and answers with errors where told.

It is SQLite's own file layer (the default VFS), with three of its methods wrapped through ctypes: no
privilege, no preloaded library and no tracer is needed, and every line of SQLite and of ours runs as it does
in production.
"""

import _sqlite3
import ctypes
import sqlite3
from collections.abc import Callable, Generator
from contextlib import contextmanager
from ctypes import (
    CFUNCTYPE,
    POINTER,
    Structure,
    byref,
    c_char_p,
    c_int,
    c_int64,
    c_void_p,
    cast,
    memmove,
    sizeof,
)
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

SQLITE_OK = 0
IOERR_FSYNC = sqlite3.SQLITE_IOERR_FSYNC
IOERR_READ = sqlite3.SQLITE_IOERR_READ
FULL = sqlite3.SQLITE_FULL

_XOpen = CFUNCTYPE(c_int, c_void_p, c_void_p, c_void_p, c_int, c_void_p)
_XSync = CFUNCTYPE(c_int, c_void_p, c_int)
_XTruncate = CFUNCTYPE(c_int, c_void_p, c_int64)
_XTransfer = CFUNCTYPE(c_int, c_void_p, c_void_p, c_int, c_int64)


class _Vfs(Structure):
    _fields_: ClassVar[Any] = [
        ("iVersion", c_int),
        ("szOsFile", c_int),
        ("mxPathname", c_int),
        ("pNext", c_void_p),
        ("zName", c_char_p),
        ("pAppData", c_void_p),
        ("xOpen", _XOpen),
        ("others", c_void_p * 15),
    ]


class _Methods(Structure):
    _fields_: ClassVar[Any] = [
        ("iVersion", c_int),
        ("xClose", c_void_p),
        ("xRead", _XTransfer),
        ("xWrite", _XTransfer),
        ("xTruncate", _XTruncate),
        ("xSync", _XSync),
        ("others", c_void_p * 13),
    ]


class _File(Structure):
    _fields_: ClassVar[Any] = [("pMethods", POINTER(_Methods))]


def _library() -> ctypes.CDLL:
    """The SQLite that Python's own module uses."""
    maps = Path("/proc/self/maps").read_text(encoding="utf-8")
    shared = [line.split(maxsplit=5)[5] for line in maps.splitlines() if "/libsqlite3.so" in line]
    return ctypes.CDLL(shared[0] if shared else _sqlite3.__file__)


def _fine(_: str) -> int:
    return SQLITE_OK


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that SQLite did to a file; a test may add steps of its own in between."""

    kind: str
    name: str
    at: int = 0
    data: bytes = b""


class Disk:
    """What SQLite did to its files, by name, and what it is to be told.

    A hook returns an SQLite result code.
    """

    def __init__(self) -> None:
        self.syncs: list[str] = []
        self.on_sync: Callable[[str], int] = _fine
        self.on_write: Callable[[str], int] = _fine
        self.on_read: Callable[[str], int] = _fine
        self.log: list[Step] | None = None
        """Set it to a list, and every step is recorded in it."""
        self._names: dict[int, str] = {}
        self._wrapped: dict[int, _Methods] = {}
        self._kept: list[object] = []

    def opened(self, file: int, name: bytes | None) -> None:
        """Wrap the methods of a file that SQLite has just opened."""
        self._names[file] = Path(name.decode()).name if name else ""
        handle = cast(file, POINTER(_File))
        methods = handle.contents.pMethods
        if not methods:
            return
        address = ctypes.addressof(methods.contents)
        if address not in self._wrapped:
            self._wrapped[address] = self._wrap(methods.contents)
        handle.contents.pMethods = POINTER(_Methods)(self._wrapped[address])

    def _record(self, step: "Step") -> None:
        if self.log is not None:
            self.log.append(step)

    def _wrap(self, original: _Methods) -> _Methods:
        def sync(file: int, flags: int) -> int:
            name = self._names.get(file, "")
            self.syncs.append(name)
            self._record(Step("sync", name))
            return self.on_sync(name) or original.xSync(file, flags)

        def write(file: int, buffer: int, amount: int, offset: int) -> int:
            name = self._names.get(file, "")
            if self.log is not None:
                self._record(Step("write", name, offset, ctypes.string_at(buffer, amount)))
            return self.on_write(name) or original.xWrite(file, buffer, amount, offset)

        def read(file: int, buffer: int, amount: int, offset: int) -> int:
            return self.on_read(self._names.get(file, "")) or original.xRead(file, buffer, amount, offset)

        def truncate(file: int, size: int) -> int:
            self._record(Step("truncate", self._names.get(file, ""), size))
            return int(original.xTruncate(file, size))

        wrapped = _Methods()
        memmove(byref(wrapped), byref(original), sizeof(_Methods))
        wrapped.xSync, wrapped.xWrite, wrapped.xRead = _XSync(sync), _XTransfer(write), _XTransfer(read)
        wrapped.xTruncate = _XTruncate(truncate)
        self._kept += [original, wrapped]
        return wrapped


@contextmanager
def failing_disk() -> Generator[Disk]:
    """Put a `Disk` under every connection that is opened within the block."""
    library = _library()
    library.sqlite3_vfs_find.restype = POINTER(_Vfs)
    library.sqlite3_vfs_find.argtypes = [c_char_p]
    library.sqlite3_vfs_register.argtypes = [POINTER(_Vfs), c_int]
    library.sqlite3_vfs_unregister.argtypes = [POINTER(_Vfs)]
    original = library.sqlite3_vfs_find(None)
    disk = Disk()

    def open_file(vfs: int, name: int | None, file: int, flags: int, out: int | None) -> int:
        code: int = original.contents.xOpen(ctypes.addressof(original.contents), name, file, flags, out)
        if code == SQLITE_OK:
            disk.opened(file, ctypes.string_at(name) if name else None)
        return code

    wrapped = _Vfs()
    memmove(byref(wrapped), original, sizeof(_Vfs))
    wrapped.zName = b"failing"
    wrapped.xOpen = _XOpen(open_file)
    library.sqlite3_vfs_register(byref(wrapped), 1)
    try:
        yield disk
    finally:
        library.sqlite3_vfs_unregister(byref(wrapped))
        library.sqlite3_vfs_register(original, 1)
