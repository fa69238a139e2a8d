"""What a program did to its files, and what it said to others, in the order in which it did: by strace.

No privilege, no preloaded library and no compiler is needed, and every line of the program, of Python and of
SQLite runs as it does in production. A tracer sees one call after the other, also of several threads and
processes; a call that another one overtook stands where it ended, and an fsync covers what was written before
it began.
"""

import os
import re
import subprocess
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

CALLS: Final = (
    "openat,open,creat,write,pwrite64,writev,pwritev,ftruncate,truncate,fsync,fdatasync,rename,renameat,"
    "renameat2,unlink,unlinkat,link,linkat,sendto,sendmsg,fallocate,copy_file_range,sendfile"
)
STRING_BYTES_MAX: Final = 64_000_000
KNOWN: Final = frozenset(
    {
        "openat",
        "open",
        "creat",
        "write",
        "pwrite64",
        "writev",
        "ftruncate",
        "truncate",
        "fsync",
        "fdatasync",
        "rename",
        "renameat",
        "renameat2",
        "unlink",
        "unlinkat",
        "link",
        "linkat",
        "sendto",
        "sendmsg",
    }
)

Kind = Literal["open", "write", "append", "truncate", "sync", "link", "unlink", "rename", "said"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One call that changed something, or that told somebody something."""

    kind: Kind
    path: str = ""
    """Below the recorded folder; of what was said, the name of the pipe or socket."""
    other: str = ""
    """What a file is called from now on."""
    at: int = 0
    """An offset, or a size in bytes."""
    data: bytes = b""
    began: int = 0
    """How many steps stood before this one when its call began."""
    makes: bool = False
    empties: bool = False
    failed: bool = False
    """An fsync that was answered with an error."""


class Unreadable(Exception):
    """A trace holds what this module cannot follow: a recording that leaves something out proves nothing."""


def strace(log: Path, *, inject: str | None = None) -> list[str]:
    """Return the words to run a command under, so that `log` can be read by `steps`."""
    words = ["strace", "-f", "-y", "-xx", "-s", str(STRING_BYTES_MAX), "-e", f"trace={CALLS}"]
    words += ["-e", "signal=none", "-o", str(log), "--seccomp-bpf"]
    return words if inject is None else [*words, "-e", f"inject={inject}"]


def record(
    command: Sequence[str], log: Path, *, env: Mapping[str, str], cwd: Path, inject: str | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end under strace; `inject` as strace takes it. Raises TimeoutExpired."""
    return subprocess.run(
        [*strace(log, inject=inject), *command],
        env={**os.environ, **env},
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


_CALL: Final = re.compile(r"^\d+\s+(\w+)\((.*)\)\s+= (-?\d+)(.*)$", re.DOTALL)
_BEGUN: Final = re.compile(r"^(\d+)\s+(\w+)\((.*) <unfinished \.\.\.>$", re.DOTALL)
_ENDED: Final = re.compile(r"^(\d+)\s+<\.\.\. \w+ resumed>(.*)$", re.DOTALL)
_STRING: Final = re.compile(r'"((?:\\x[0-9a-f]{2})*)"(\.\.\.)?')
_DESCRIPTOR: Final = re.compile(r"^(\d+)<([^>]*)>")


def steps(logs: Iterable[Path], root: Path, watched: Iterable[str]) -> list[Step]:
    """Return what was done to the files in the folders `watched` below `root`, and what was said to others.

    One log comes after the other. Raises `Unreadable`.
    """
    reader = _Reader(root, tuple(watched))
    for log in logs:
        with log.open(encoding="ascii") as lines:
            for line in lines:
                reader.read(line.rstrip("\n"))
        reader.ended()
    return reader.steps


class _Reader:
    def __init__(self, root: Path, watched: tuple[str, ...]) -> None:
        self.steps: list[Step] = []
        self._root: Final = f"{root}/"
        self._watched: Final = watched
        self._begun: Final[dict[str, tuple[str, int]]] = {}

    def ended(self) -> None:
        """Forget calls that a killed process did not come back from."""
        self._begun.clear()

    def read(self, line: str) -> None:
        began = len(self.steps)
        if begun := _BEGUN.match(line):
            self._begun[begun[1]] = (f"{begun[1]} {begun[2]}({begun[3]}", began)
            return
        if ended := _ENDED.match(line):
            head, began = self._begun.pop(ended[1])
            line = head + ended[2]
        if call := _CALL.match(line):
            self.steps.extend(self._understand(call[1], call[2], int(call[3]), call[4], began))

    def _understand(self, call: str, arguments: str, result: int, rest: str, began: int) -> Generator[Step]:
        texts = [bytes.fromhex(text.replace("\\x", "")) for text, _ in _STRING.findall(arguments)]
        found = _DESCRIPTOR.match(arguments)
        on = _plain(found[2]) if found else ""
        path = self._below(on)
        if call in ("fsync", "fdatasync"):
            if path is not None:
                yield Step(kind="sync", path=path, began=began, failed=result != 0)
            return
        if result < 0:
            return
        if call in ("write", "writev", "sendto", "sendmsg", "pwrite64"):
            data = b"".join(texts)
            if path is not None:
                at = int(arguments.rpartition(", ")[2]) if call == "pwrite64" else 0
                kind: Kind = "write" if call == "pwrite64" else "append"
                yield Step(kind=kind, path=path, at=at, data=data[:result], began=began)
            elif not on.startswith("/"):
                yield Step(kind="said", path=on, data=data[:result], began=began)
        elif call == "ftruncate" and path is not None:
            yield Step(kind="truncate", path=path, at=int(arguments.rpartition(", ")[2]), began=began)
        else:
            yield from self._names(call, arguments, [text.decode() for text in texts], path, began)

    def _names(
        self, call: str, arguments: str, texts: list[str], path: str | None, began: int
    ) -> Generator[Step]:
        places = [place for text in texts if (place := self._below(text)) is not None]
        if not places:
            if path is not None and call not in KNOWN:
                raise Unreadable(f"{call}({arguments[:200]})")
            return
        if call in ("openat", "open"):
            makes, empties = "O_CREAT" in arguments, "O_TRUNC" in arguments
            yield Step(kind="open", path=places[0], makes=makes, empties=empties, began=began)
        elif call.startswith("rename") and len(places) == 2:
            yield Step(kind="rename", path=places[0], other=places[1], began=began)
        elif call.startswith("link") and len(places) == 2:
            yield Step(kind="link", path=places[0], other=places[1], began=began)
        elif call.startswith("unlink"):
            yield Step(kind="unlink", path=places[0], began=began)
        else:
            raise Unreadable(f"{call}({arguments[:200]})")

    def _below(self, path: str) -> str | None:
        """Return the path below the recorded folder, where it is watched."""
        if not path.startswith(self._root):
            return None
        inner = path.removeprefix(self._root).removesuffix(" (deleted)")
        return inner if inner.partition("/")[0] in self._watched else None


def _plain(name: str) -> str:
    return bytes.fromhex(name.replace("\\x", "")).decode() if name.startswith("\\x") else name
