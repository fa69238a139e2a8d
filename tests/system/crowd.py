"""A journal with a hundred thousand operations in it, made through the store's own API.

Run as `python -m tests.system.crowd STATE_DIR RUNTIME_DIR`. It takes a while, on one core: pytest starts it
in the background as soon as it knows that a test wants it, at a lower priority.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from shutil import rmtree
from typing import Final
from uuid import uuid4

import anyio

from store.events import CommandAccepted, Draft, OperationNotExecuted
from store.journal import open_journal
from store.records import CommandId, Digest, OperationId, Origin, RunId
from store.settings import JournalSettings
from store.transaction import Transaction
from tests.system.zygote import ROOT

OPERATIONS: Final = 100_000
BATCH: Final = 1_000
OPERATIONS_OF_A_RUN: Final = 50
NICENESS: Final = 1
"""Hardly behind the tests that run meanwhile: a busy machine must get round to it, too."""
MAKING_S_MAX: Final = 600.0


async def make(state: Path, runtime: Path) -> None:
    """Fill a new journal."""
    settings = JournalSettings(state_dir=state, runtime_dir=runtime)
    async with open_journal(settings, clock=_now, new_id=lambda: uuid4().hex) as journal:
        for start in range(0, OPERATIONS, BATCH):
            await journal.transact(partial(_add, start))


def _add(start: int, tx: Transaction) -> None:
    for number in range(start, start + BATCH):
        draft = _about(number)
        digest = Digest(f"{number:064x}")
        accepted = CommandAccepted(
            kind="tool.call",
            content_digest=digest,
            tool="counter/count",
            args_digest=digest,
            write=True,
            identical="guard-unsettled",
        )
        tx.append(draft(data=accepted))
        tx.append(draft(data=OperationNotExecuted(reason="expired")))


def _about(number: int) -> Callable[..., Draft]:
    return partial(
        Draft,
        run_id=RunId(f"run-{number // OPERATIONS_OF_A_RUN}"),
        command_id=CommandId(f"cmd-{number}"),
        operation_id=OperationId(f"op_{number:032x}"),
        origin=Origin.PLANE,
    )


def _now() -> datetime:
    return datetime.now(UTC)


class Crowd:
    """The journal in the making, or made."""

    def __init__(self) -> None:
        self._root = Path(tempfile.mkdtemp(prefix="effectd-crowd-"))
        self.state = self._root / "state"
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.system.crowd", str(self.state), str(self._root / "run")], cwd=ROOT
        )

    def wait(self) -> None:
        """Return once it is made."""
        code = self._process.wait(timeout=MAKING_S_MAX)
        assert code == 0, f"the crowded journal could not be made: exit code {code}"

    def close(self) -> None:
        """Remove it, finished or not."""
        self._process.kill()
        self._process.wait()
        rmtree(self._root)


if __name__ == "__main__":
    os.nice(NICENESS)
    anyio.run(make, Path(sys.argv[1]), Path(sys.argv[2]))
