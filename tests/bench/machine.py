"""The machine that a run was on, and what else it did meanwhile. Names nothing that tells whose it is."""

import os
import platform
import sqlite3
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

LIBRARIES: Final = ("websockets", "aiosqlite", "anyio", "mcp", "dbos", "huey", "persist-queue")


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """What the kernel says, at a moment, or (of shares and load) over a stretch of time."""

    busy: float
    """Jiffies, of all processors."""
    stolen: float
    total: float
    load: float
    """Over the last minute; over a stretch, the larger of both ends."""

    def until(self, later: "Conditions") -> "Conditions":
        """Return what was between two moments."""
        return Conditions(
            busy=later.busy - self.busy,
            stolen=later.stolen - self.stolen,
            total=later.total - self.total,
            load=max(self.load, later.load),
        )

    def words(self) -> str:
        """Say it in a line."""
        return (
            f"processors busy {self.busy / self.total:.0%} of the time, "
            f"{self.stolen / self.total:.1%} stolen, load up to {self.load:.1f} on {os.cpu_count()}"
        )


def conditions() -> Conditions:
    """Look now."""
    numbers = [float(text) for text in Path("/proc/stat").read_text().splitlines()[0].split()[1:]]
    user, nice, system, idle, wait, irq, softirq, steal = numbers[:8]
    return Conditions(
        busy=user + nice + system + irq + softirq,
        stolen=steal,
        total=user + nice + system + idle + wait + irq + softirq + steal,
        load=os.getloadavg()[0],
    )


def file_system(folder: Path) -> str:
    """Return the kind of file system that a folder is on."""
    mounts = [line.split()[1:3] for line in Path("/proc/mounts").read_text().splitlines()]
    over = [(len(point), kind) for point, kind in mounts if folder.is_relative_to(point)]
    return max(over)[1]


def description(folder: Path) -> str:
    """Describe the machine."""
    kernel = platform.release().split("-")[0]
    return (
        f"{os.cpu_count()} {platform.machine()} cores, {platform.system()} {kernel}, {file_system(folder)}; "
        f"Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}"
    )


def versions() -> dict[str, str]:
    """Return the versions of the libraries that took part."""
    found: dict[str, str] = {}
    for name in LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
