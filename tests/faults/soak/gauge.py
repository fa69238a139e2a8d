"""What a daemon holds at a quiet moment: descriptors, threads, memory, children, files. Part of `soak`."""

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One look. A field that does not apply is 0 throughout, and so flat."""

    descriptors: int = 0
    threads: int = 0
    memory_kb: int = 0
    """Anonymous memory that is resident: what the process has allocated, without the pages of files."""
    processes: int = 0
    """Below the daemon."""
    wal_kb: int = 0
    journal_kb: int = 0
    files: int = 0
    """In the state and the runtime folder, records of programs aside."""
    records: int = 0
    """Of programs."""


def measure(pid: int, state: Path, runtime: Path) -> Sample:
    """Look at a daemon and its folders. Blocks for a moment. Raises OSError where it has ended."""
    process = Path("/proc") / str(pid)
    status = dict(line.split(":", 1) for line in (process / "status").read_text().splitlines())
    spool = state / "spool"
    files = sum(_entries(folder, spool) for folder in (state, runtime))
    journals = [path for path in state.glob("*.db") if path.is_file()]
    return Sample(
        descriptors=len(os.listdir(process / "fd")),  # noqa: PTH208 - their targets are not wanted
        threads=int(status["Threads"]),
        memory_kb=int(status["RssAnon"].split()[0]),
        processes=sum(1 for _ in descendants(pid)),
        wal_kb=sum(_kb(path) for path in state.glob("*-wal")),
        journal_kb=sum(map(_kb, journals)),
        files=files,
        records=sum(1 for _ in spool.glob("*")),
    )


def _entries(folder: Path, apart: Path) -> int:
    """Count what is below a folder, one of them apart; what is removed meanwhile is passed over."""
    count = 0
    for place, folders, files in os.walk(folder):
        count += len(folders) + len(files)
        if place == str(apart.parent) and apart.name in folders:
            folders.remove(apart.name)
    return count


def _kb(path: Path) -> int:
    with suppress(FileNotFoundError):
        return path.stat().st_size // 1024
    return 0


def descendants(pid: int) -> Iterator[int]:
    """Yield the processes below one, as of now."""
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            for child in map(int, task.read_text().split()):
                yield child
                yield from descendants(child)
