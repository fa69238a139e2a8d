"""Reference (e): task queues over SQLite in WAL with `synchronous=FULL`: huey, and persist-queue.

A task is put in, taken out, done (nothing), and its end recorded, by one thread.
Run as `python -m tests.bench.references.queues huey|persist-queue FOLDER`.

They are imported by name: only `make bench` installs them, and the code is checked without them.
"""

import sys
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from tests.bench.references.peer import serve


def _huey(folder: Path) -> Callable[[int], None]:
    queue: Any = import_module("huey").SqliteHuey(
        "bench", filename=str(folder / "huey.db"), fsync=True, journal_mode="wal"
    )

    def nothing(n: int) -> int:
        return n

    enqueue = queue.task()(nothing)

    def once(n: int) -> None:
        result = enqueue(n)
        queue.execute(queue.dequeue())
        assert result.get() == n

    return once


def _persist_queue(folder: Path) -> Callable[[int], None]:
    queue: Any = import_module("persistqueue").SQLiteAckQueue(str(folder), auto_commit=True)
    # it asks for WAL itself, and FULL is what SQLite has where nobody asks for less
    assert queue._putter.execute("PRAGMA synchronous").fetchone() == (2,)
    assert queue._putter.execute("PRAGMA journal_mode").fetchone() == ("wal",)

    def once(n: int) -> None:
        queue.put({"n": n})
        queue.ack(queue.get())

    return once


def main(mode: str, folder: Path) -> None:
    """Serve until nobody asks any more."""
    once = {"huey": _huey, "persist-queue": _persist_queue}[mode](folder)

    def measure(_: int, seconds: float) -> float:
        began = time.perf_counter()
        done = 0
        while time.perf_counter() - began < seconds:
            once(done)
            done += 1
        return done / (time.perf_counter() - began)

    serve(measure)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
