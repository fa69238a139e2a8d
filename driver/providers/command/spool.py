"""The spool: one folder for each attempt, from before its shim is started until its outcome is committed.

Part of `driver.providers.command`; imports its `cgroup`, `errors` and `records`, the store's values,
and how it makes a name durable. Everything here blocks on the disk: call it in a worker thread.

    SPOOL/OPERATION/ATTEMPT/origin     when and where it was begun
                            control    a FIFO that the shim alone reads: it tells life, end and cancel
                            started    written before the program was executed
                            stdout     what was kept of the output
                            stderr
                            ended      durable: how it ended
                            shim.log   what the shim itself complained about
"""

import errno
import os
import shutil
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from driver.providers.command import cgroup
from driver.providers.command.errors import AttemptExists
from driver.providers.command.records import RECORD_BYTES_MAX, Ended, Origin, R, Started, parse
from store.durable import sync_folder
from store.records import OperationId

_MODE: Final = 0o700
_LOG_BYTES_MAX: Final = 1_000
"""The end of the shim's own complaints that a message quotes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The folder of one attempt."""

    operation_id: OperationId
    attempt: int
    folder: Path

    @property
    def control(self) -> Path:
        """The FIFO."""
        return self.folder / "control"

    @property
    def log(self) -> Path:
        """The shim's own stderr."""
        return self.folder / "shim.log"

    def create(self, origin: Origin) -> None:
        """Make the folder, with what a later life needs to judge it. Raises `AttemptExists`, `OSError`."""
        try:
            self.folder.mkdir(mode=_MODE, parents=True)
        except FileExistsError:
            raise AttemptExists from None
        (self.folder / "origin").write_text(origin.model_dump_json())
        os.mkfifo(self.control, 0o600)

    def persist(self) -> None:
        """Make the folder's own entry durable; the records in it are the shim's to persist.

        Without it, a power loss can take a record of the end with it, and the outcome is unknown then: so a
        failure is no reason to stop anything.
        """
        for folder in (self.folder.parent, self.folder.parent.parent):
            with suppress(OSError):
                sync_folder(folder)

    def open_control(self) -> int | None:
        """Return a descriptor of the control, which turns readable when the shim is gone; None: it is.

        Raises `OSError` where that cannot be told.
        """
        try:
            return os.open(self.control, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno != errno.ENXIO:  # nobody has it open for reading
                raise
            return None

    def origin(self) -> Origin | None:
        """Return the record of the beginning, None where there is none."""
        return self._record(Origin, "origin")

    def started(self) -> Started | None:
        """Return the record of the start, None where there is none, or it cannot be read."""
        return self._record(Started, "started")

    def has_started(self) -> bool:
        """False where the program was never executed, provided that the shim is gone."""
        return (self.folder / "started").exists()

    def ended(self) -> Ended | None:
        """Return the record of the end, None where there is none of this attempt."""
        ended = self._record(Ended, "ended")
        if ended is None or (ended.operation_id, ended.attempt) != (self.operation_id, self.attempt):
            return None
        return ended

    def output(self, name: str, size: int) -> bytes | None:
        """Return what was kept of an output; None where the file is shorter than its record says."""
        try:
            with (self.folder / name).open("rb") as file:
                data = file.read(size)
        except OSError:
            return None
        return data if len(data) == size else None

    def complaint(self) -> str:
        """Return the last thing that the shim complained about, if anything."""
        try:
            text = self.log.read_bytes()[-_LOG_BYTES_MAX:].decode("utf-8", "replace")
        except OSError:
            return ""
        return (text.strip().splitlines() or [""])[-1]

    def _record(self, kind: type[R], name: str) -> R | None:
        try:
            with (self.folder / name).open("rb") as file:
                return parse(kind, file.read(RECORD_BYTES_MAX))
        except OSError:
            return None


@dataclass(frozen=True, slots=True)
class Spool:
    """The folder of all attempts. It is made with the first."""

    root: Path

    def place(self, operation_id: OperationId, attempt: int) -> Place:
        """Return where an attempt's records are, or would be."""
        assert operation_id.replace("_", "").isalnum(), "an operation id is a prefix and hex digits"
        folder = self.root / operation_id / str(attempt)
        return Place(operation_id=operation_id, attempt=attempt, folder=folder)

    def remove(self, operation_id: OperationId, attempt: int) -> None:
        """Remove an attempt's folder, unless its shim is still there. Removing it again is no error."""
        self._remove(self.place(operation_id, attempt).folder)

    def tidy(self, keep: Collection[tuple[OperationId, int]]) -> None:
        """Remove what a crash between an outcome's commit and its clean-up has left.

        `keep` are the attempts that have no outcome yet. What a living shim uses stays, too.
        """
        kept = {self.place(*attempt).folder for attempt in keep}
        for folder in self.root.glob("*/*"):
            if folder not in kept:
                self._remove(folder)
        for operation in self.root.glob("*"):
            with suppress(OSError):
                operation.rmdir()  # a crash came between it and an attempt's folder

    def _remove(self, folder: Path) -> None:
        place = Place(operation_id=OperationId(folder.parent.name), attempt=0, folder=folder)
        try:
            descriptor = place.open_control()
        except OSError:
            return
        if descriptor is not None:
            os.close(descriptor)
            return
        origin = place.origin()
        if origin is not None and origin.cgroup is not None:
            cgroup.remove(Path(origin.cgroup))
        shutil.rmtree(folder, ignore_errors=True)
        with suppress(OSError):
            folder.parent.rmdir()  # other attempts of the operation keep it
