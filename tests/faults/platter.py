"""What a disk may hold after a power loss: what it certainly has, and what may, or may not, have reached it.

The model: what was written to a file is certain once a later fsync of that file succeeded; a name, once its
folder was synced, and until then names come in the order in which they were made, as a journaling file system
has them. All else may be there wholly, in part (sectors of 512 bytes), or not at all, in any mixture. After a
failed fsync its pages are called clean: no later fsync brings them to the disk, only another write does.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import PurePosixPath
from typing import Final

from tests.faults.recording import Step

SECTOR: Final = 512
PAGE: Final = 4_096
"""Of which the digests are kept: a disk differs from the one before it in a few pages."""
WHOLE: Final = -1
"""All sectors of a write."""

Kept = Mapping[int, int]
"""Which steps reached the disk: the sectors of each, as bits, or `WHOLE`."""


@dataclass(slots=True)
class _Entry:
    index: int
    step: Step
    certain: bool = False
    clean: bool = False
    """Whether an fsync of it has failed."""


@dataclass(slots=True, eq=False)
class _File:
    content: bytearray = field(default_factory=bytearray)
    """What is certain."""
    entries: list[_Entry] = field(default_factory=list[_Entry])
    position: int = 0
    pages: "_Pages" = field(default_factory=lambda: _Pages([]))

    def sync(self, began: int, *, failed: bool) -> None:
        for entry in self.entries:
            if entry.index < began and not entry.clean:
                entry.certain, entry.clean = entry.certain or not failed, failed and not entry.certain
        while self.entries and self.entries[0].certain:
            step = self.entries.pop(0).step
            self.pages.touch(step)
            _apply(self.content, step, WHOLE)

    def with_these(self, kept: Kept) -> tuple[bytearray, list[bytes]]:
        """Return the content, and the digests of its pages, if beside what is certain `kept` is there."""
        certain = self.pages.digested(self.content)
        if not self.entries:
            return self.content, certain
        entries = [entry for entry in self.entries if entry.certain or entry.index in kept]
        if not entries:
            return self.content, certain
        content, pages = bytearray(self.content), _Pages(list(certain))
        for entry in entries:
            pages.touch(entry.step)
            _apply(content, entry.step, WHOLE if entry.certain else kept[entry.index])
        return content, pages.digested(content)


@dataclass(slots=True)
class _Pages:
    """The digests of a content's pages, brought up to date where something was written."""

    digests: list[bytes]
    stale: set[int] = field(default_factory=set[int])

    def touch(self, step: Step) -> None:
        """A step is going to be applied."""
        if step.kind == "truncate":
            self.stale.update(range(step.at // PAGE, len(self.digests)))
        elif step.data:
            last = (step.at + len(step.data) - 1) // PAGE
            self.stale.update(range(min(step.at // PAGE, max(0, len(self.digests) - 1)), last + 1))

    def digested(self, content: bytearray) -> list[bytes]:
        """Return the digest of each page of the content."""
        count = -(-len(content) // PAGE)
        if count == len(self.digests) and not self.stale:
            return self.digests
        self.stale.update(range(len(self.digests), count))
        del self.digests[count:]
        self.digests += [b""] * (count - len(self.digests))
        for page in self.stale:
            if page < count:
                part = memoryview(content)[page * PAGE : (page + 1) * PAGE]
                self.digests[page] = blake2b(part, digest_size=16).digest()
        self.stale.clear()
        return self.digests


@dataclass(frozen=True, slots=True)
class _Name:
    index: int
    step: Step
    file: _File | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Undecided:
    """A step that may have reached the disk."""

    index: int
    sectors: int
    """0: it is a name, or a truncation, which is there or is not."""
    folder: str | None
    """Of a name."""
    clean: bool
    """Whether its fsync failed."""


class Platter:
    """The disk, step by step."""

    def __init__(self, base: Mapping[str, bytes]) -> None:
        self._names: dict[str, _File] = {path: _File(bytearray(data)) for path, data in base.items()}
        self._certain: dict[str, _File] = dict(self._names)
        self._pending: list[_Name] = []

    def apply(self, index: int, step: Step) -> None:
        """Do one more step; indexes grow."""
        match step.kind:
            case "open":
                self._open(index, step)
            case "write" | "truncate":
                self._names[step.path].entries.append(_Entry(index, step))
            case "append":
                file = self._names[step.path]
                moved = Step(kind="write", path=step.path, at=file.position, data=step.data)
                file.position += len(step.data)
                file.entries.append(_Entry(index, moved))
            case "sync":
                self._sync(step)
            case "link" | "unlink" | "rename":
                self._name(_Name(index, step, self._names.get(step.path)))
            case "said":
                pass

    def _open(self, index: int, step: Step) -> None:
        if step.path not in self._names:
            if not step.makes:
                return  # a folder
            self._name(_Name(index, Step(kind="open", path=step.path), _File()))
        file = self._names[step.path]
        file.position = 0
        if step.empties:
            file.entries.append(_Entry(index, Step(kind="truncate", path=step.path)))

    def _name(self, name: _Name) -> None:
        _rename(self._names, name)
        self._pending.append(name)

    def _sync(self, step: Step) -> None:
        if (file := self._names.get(step.path)) is not None:
            file.sync(step.began, failed=step.failed)
        elif not step.failed:  # a folder
            here = [
                name for name in self._pending if folder(name.step) == step.path and name.index < step.began
            ]
            for name in here:
                _rename(self._certain, name)
                self._pending.remove(name)

    # ------------------------------------------------------------ what may be

    def undecided(self) -> list[Undecided]:
        """Return what may, or may not, have reached the disk, in its order."""
        found = [
            Undecided(index=name.index, sectors=0, folder=folder(name.step), clean=False)
            for name in self._pending
        ]
        files = {
            id(file): file for file in (*self._certain.values(), *(n.file for n in self._pending if n.file))
        }
        for file in files.values():
            found += [
                Undecided(
                    index=entry.index, sectors=len(_sectors(entry.step)), folder=None, clean=entry.clean
                )
                for entry in file.entries
                if not entry.certain
            ]
        return sorted(found, key=lambda item: item.index)

    def build(self, kept: Kept) -> "Image":
        """Return the disk to which, beside what is certain, `kept` has come."""
        names = dict(self._certain)
        for name in self._pending:
            if name.index in kept:
                _rename(names, name)
        files: dict[str, bytes | bytearray] = {}
        pages: dict[str, list[bytes]] = {}
        whole = blake2b(digest_size=16)
        for path, file in sorted(names.items(), key=lambda item: item[0]):
            files[path], pages[path] = file.with_these(kept)
            whole.update(b"%s\0%d\0" % (path.encode(), len(files[path])) + b"".join(pages[path]))
        return Image(files=files, pages=pages, digest=whole.digest())


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """Files as a machine finds them after its power was lost. Valid until the next step."""

    files: Mapping[str, bytes | bytearray]
    pages: Mapping[str, list[bytes]]
    """The digest of each page of each file."""
    digest: bytes
    """Of everything."""


def folder(step: Step) -> str:
    """Return the folder whose sync makes the name of a step certain."""
    return str(PurePosixPath(step.other or step.path).parent)


def _rename(names: dict[str, _File], name: _Name) -> None:
    step, file = name.step, name.file
    if step.kind in ("unlink", "rename"):
        names.pop(step.path, None)
    if step.kind != "unlink" and file is not None:
        names[step.other or step.path] = file


def _sectors(step: Step) -> range:
    if step.kind != "write" or not step.data:
        return range(0)
    return range(step.at // SECTOR, (step.at + len(step.data) - 1) // SECTOR + 1)


def _apply(content: bytearray, step: Step, sectors: int) -> None:
    if step.kind == "truncate":
        del content[step.at :]
        content.extend(bytes(step.at - len(content)))
        return
    end = step.at + len(step.data)
    if sectors == WHOLE:
        content.extend(bytes(max(0, step.at - len(content))))
        content[step.at : end] = step.data
        return
    for bit, number in enumerate(_sectors(step)):
        if sectors >> bit & 1:
            start, stop = max(step.at, number * SECTOR), min(end, (number + 1) * SECTOR)
            content.extend(bytes(max(0, start - len(content))))
            content[start:stop] = step.data[start - step.at : stop - step.at]
