"""The files that a shim writes into its attempt's folder: outputs that are cut, records that are whole.

Part of `driver.providers.command.shim`; imports the standard library only.
"""

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

CHUNK_BYTES: Final = 65_536
"""What is read at once: the capacity of a pipe."""
DRAIN_BYTES_MAX: Final = 16 * CHUNK_BYTES
"""Read after the end, when only a stranger who was handed the pipe could still write."""
RECORD_BYTES: Final = 4_096
"""Set aside before anything runs, so that a full disk does not lose the record."""


class Stream:
    """One output of the program: a pipe that is always read, and a file that takes no more than its limit."""

    def __init__(self, folder: int, name: str, bytes_max: int) -> None:
        self.read_end, self.write_end = os.pipe()
        os.set_blocking(self.read_end, False)
        self.kept = 0
        self.truncated = False
        self._room = bytes_max
        self._file = create(folder, name)

    @property
    def pipe(self) -> int:
        """What tells this pipe from others in /proc."""
        return os.fstat(self.read_end).st_ino

    def pump(self) -> int:
        """Take what is there, up to one chunk, and return its size: 0 at the end."""
        chunk = os.read(self.read_end, CHUNK_BYTES)
        if len(chunk) > self._room:
            self.truncated = True
        self._keep(chunk[: self._room])
        return len(chunk)

    def drain(self) -> None:
        """Take what is left, and make what was kept durable."""
        left = DRAIN_BYTES_MAX
        with suppress(BlockingIOError):  # a stranger holds the other end
            while left > 0 and (taken := self.pump()):
                left -= taken
        if self.kept:
            os.fdatasync(self._file)

    def _keep(self, data: bytes) -> None:
        try:
            while data:
                written = os.write(self._file, data)
                self.kept += written
                self._room -= written
                data = data[written:]
        except OSError:  # the disk is full: what was kept so far is what there is
            self.truncated = True
            self._room = 0


class FinalRecord:
    """The record of the end: its space is there from the start, its name only once it is durable."""

    def __init__(self, folder: int) -> None:
        self._folder = folder
        self._file = create(folder, "ended.new")
        os.posix_fallocate(self._file, 0, RECORD_BYTES)

    def commit(self, fields: Mapping[str, object]) -> None:
        """Make the record durable, and visible; returns when both are."""
        data = json.dumps(fields).encode()
        os.write(self._file, data)
        os.ftruncate(self._file, len(data))
        os.fsync(self._file)
        os.rename("ended.new", "ended", src_dir_fd=self._folder, dst_dir_fd=self._folder)
        os.fsync(self._folder)


def record(folder: int, name: str, fields: Mapping[str, object]) -> None:
    """Write a record that appears at once and whole, to whoever looks in this boot of the machine."""
    file = create(folder, f"{name}.new")
    os.write(file, json.dumps(fields).encode())
    os.close(file)
    os.rename(f"{name}.new", name, src_dir_fd=folder, dst_dir_fd=folder)


def create(folder: int, name: str) -> int:
    """Return a descriptor of a new file."""
    return os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=folder)
