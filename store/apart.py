"""The comparison of `effectd verify --deep` in a process of its own, beside the other checks.

Part of `store`; imports its own modules. It is half of the work, and needs nothing of the rest: on a long
journal a second processor does it meanwhile. As a program (`python -m store.apart`) it is that process.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import closing, contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import IO, Any, Final

from store.comparison import Comparison
from store.findings import Finding, Progress, Report
from store.head import Head, Ledger, read_head
from store.records import JsonObject
from store.rest import reading
from store.view import View

EVENTS_MIN: Final = 50_000
"""Fewer events are compared before another process has even begun."""
TOLD_EVERY_S: Final = 0.1
"""Between two words about the progress."""


def pays(head: Head) -> bool:
    """Whether a process of its own is worth its while."""
    return head.last_seq >= EVENTS_MIN and len(os.sched_getaffinity(0)) > 1


class Apart:
    """What the other process says, in order, while it does."""

    def __init__(self, output: IO[bytes]) -> None:
        self._lines: Final[SimpleQueue[bytes]] = SimpleQueue()
        self._reader: Final = Thread(target=self._read, args=(output,), daemon=True)
        self._reader.start()

    def _read(self, output: IO[bytes]) -> None:
        for line in output:
            self._lines.put(line)
        self._lines.put(b"")

    def wait(self, report: Report) -> tuple[Finding, ...] | None:
        """Return what it found, once it is done; None where it ended without a result."""
        findings: list[Finding] = []
        while (text := self._lines.get()).endswith(b"\n"):  # else the process ended, in the middle of a line
            line: dict[str, Any] = json.loads(text)
            match line.pop("type"):
                case "progress":
                    report(Progress(**line))
                case "finding":
                    findings.append(Finding(**line))
                case _:
                    return tuple(findings)
        return None


@contextmanager
def apart(path: Path) -> Generator[Apart]:
    """Let another process compare the journal at `path`, which stands still, until the block ends."""
    program = [sys.executable, "-P", "-m", "store.apart", str(path)]
    with subprocess.Popen(program, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None, "it was asked for"
        try:
            yield Apart(process.stdout)
        finally:
            process.kill()


def main(arguments: list[str]) -> int:
    """Compare the journal `arguments[0]`; say how far it is, and what is wrong, in lines of JSON."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever started it gets it too, and ends it
    told = time.monotonic()
    with reading(Path(arguments[0])) as connection, closing(Comparison(at_rest=True)) as comparison:
        view = View(Ledger(connection, read_head(connection)), datetime.now(UTC), has_room=lambda: False)
        while (reached := comparison.page(view)) is not None:
            if time.monotonic() - told > TOLD_EVERY_S:
                told = time.monotonic()
                _say("progress", asdict(reached))
    for finding in comparison.findings:
        _say("finding", asdict(finding))
    _say("result", {})
    return 0


def _say(kind: str, members: JsonObject) -> None:
    sys.stdout.write(json.dumps({"type": kind, **members}) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
