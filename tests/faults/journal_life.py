"""A life of a journal that uses every feature it has: what the lanes record, and let fail.

Run as `python -m tests.faults.journal_life ROOT LIFE SEED [WEAKNESS]`. On standard output it says, one JSON
line each, what a caller was told; from then on it must be true after any power loss:

    {"told": 17, "chain": "…"}        event 17 is recorded, and this is the chain as of it
    {"gone": "canary-…"}              this text stands nowhere in the state folder, once it was opened again
    {"made": "backups/3.db"}          a whole backup stands there
    {"closed": true}                  the life ended cleanly

Exit codes are the daemon's: 70 after a failure of the journal, 71 without room for a generation, 2 for a
journal that was refused. WEAKNESS takes a mechanism away, for the negative controls.
"""

import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import closing
from datetime import timedelta
from importlib import import_module
from itertools import count
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, cast

import anyio
from anyio import to_thread

from store.batches import Batches
from store.connection import prepare_new
from store.durable import write_durably
from store.errors import StoreError
from store.files import FIRST
from store.identity import Identity, write_identity
from store.journal import Journal, open_journal
from store.keys import KEY
from store.lifecycle import Effect
from store.mending import rebuild_file
from store.records import JournalId, RunId, StoredEvent, TriageRecord
from store.retention import Retention, RetentionSettings
from store.rollback import accept_rollback
from store.schema import MIGRATIONS
from store.settings import JournalSettings
from store.transaction import Transaction
from store.writer import Writer
from tests.store.conftest import Clock, Ids
from tests.store.drafts import (
    LATER,
    accepted,
    accepted_command,
    attempt_failed,
    command_id,
    completed,
    driver_started,
    failed,
    late,
    not_executed,
    operation_id,
    reconciled,
    recording,
    refused,
    secret,
    started,
    succeeded,
    token,
    unknown,
)

CHECKPOINT_PAGES: Final = 60
"""So that a short life passes many checkpoints."""
ACTIONS: Final = 10
KILLED_AT_MOST: Final = 18
VERSIONS: Final = Path(__file__).parents[1] / "store" / "versions"


def settings_of(root: Path) -> JournalSettings:
    """Where the journal below `root` lives."""
    return JournalSettings(state_dir=root / "state", runtime_dir=root / "run")


def say(**words: object) -> None:
    """Tell whoever listens: in one write, so that a recording has it in its place."""
    os.write(1, json.dumps(words).encode() + b"\n")


class Life:
    """One life: actions, drawn from a seed, on a journal that may have had others before."""

    def __init__(self, journal: Journal, root: Path, chance: random.Random) -> None:
        self.journal = journal
        self.root = root
        self.chance = chance
        self.numbers = count(chance.randrange(1, 1 << 60) * 1_000)
        self.retention = Retention(RetentionSettings(retention=timedelta()))

    async def record(self, unit: Callable[[Transaction], tuple[StoredEvent, ...]]) -> None:
        """Run a unit, and say what it recorded."""
        events = await self.journal.transact(unit)
        if events:
            say(told=events[-1].seq, chain=events[-1].chain)

    async def change(self, unit: Callable[[Transaction], object]) -> None:
        """Run a unit that records nothing."""
        await self.journal.transact(unit)

    async def call(self) -> None:
        """A call from its acceptance to its receipt, in two commits."""
        n = next(self.numbers)
        await self.record(recording(accepted(n), started(n)))
        await self.record(recording(self.chance.choice((succeeded, failed, unknown))(n)))

    async def crowd(self) -> None:
        """Calls at once, whose commits are grouped."""
        async with anyio.create_task_group() as tasks:
            for _ in range(self.chance.randint(2, 8)):
                tasks.start_soon(self.call)

    async def large(self) -> None:
        """A result of many pages."""
        n = next(self.numbers)
        await self.record(recording(accepted(n), started(n), succeeded(n, result="x" * 20_000)))

    async def acknowledge(self) -> None:
        """The plane has everything: lazily, and with the next commit."""
        self.journal.later(lambda tx: tx.acknowledge(tx.last_seq))
        await self.record(recording(driver_started()))

    async def erase_secret(self) -> None:
        """A secret that is gone once its receipt was acknowledged, and a commit after that."""
        n = next(self.numbers)
        await self.record(recording(secret(n), started(n), succeeded(n)))
        await self.change(lambda tx: tx.acknowledge(tx.last_seq))
        await self.record(recording(driver_started()))
        say(gone=token(n).decode())

    async def erase_run(self) -> None:
        """A whole run, erased on demand: whoever waits is told that it is gone."""
        n = next(self.numbers)
        canary = f"result-{n:032x}"
        run = f"run-{n}"
        await self.record(recording(accepted(n, run=run), started(n), succeeded(n, result=canary)))
        await self.change(lambda tx: tx.acknowledge(tx.last_seq))
        await self.change(lambda tx: tx.erase_run(RunId(run)))
        say(gone=canary)

    async def prune(self) -> None:
        """A pass of retention over what is acknowledged."""
        await self.change(lambda tx: tx.acknowledge(tx.last_seq))
        for _ in range(40):
            if (await self.journal.transact(self.retention.step)).finished:
                return

    async def roll_back(self) -> None:
        """Another history begins, with what the plane may not hold."""
        new = JournalId(f"{next(self.numbers):032x}")
        await self.change(lambda tx: tx.raise_fence("rolled_back", "the plane has seen more"))
        await self.change(lambda tx: accept_rollback(tx, new, reason="rolled_back", actor="operator:0"))
        seq, chain = await self.journal.read(lambda view: (view.last_seq, view.chain))
        say(told=seq, chain=chain)

    async def notes(self) -> None:
        """What stands beside the events: triages, observations, dead letters, verdicts, refusals."""
        n = next(self.numbers)
        run = RunId(f"run-{n}")
        await self.record(recording(accepted(n, run=run), started(n), unknown(n)))
        waits = TriageRecord(run_id=run, attempts=1, not_before=LATER)
        await self.change(lambda tx: tx.set_triage(waits))
        await self.change(lambda tx: tx.note_observation(operation_id(n), 1, "before", "clean\n"))
        await self.change(lambda tx: tx.note_delivery(command_id(n), "accepted"))
        await self.record(recording(reconciled(n, Effect.NONE), late(n)))
        letter = next(self.numbers)
        await self.record(recording(refused(letter), accepted_command(letter + 1, "run.end", {}, run=run)))
        next(self.numbers)
        await self.record(recording(completed(letter + 1)))

        def park(tx: Transaction) -> tuple[StoredEvent, ...]:
            tx.park(tx.last_seq, "invalid", "too long")
            return (tx.requeue(tx.last_seq),)

        await self.record(park)

    async def retry(self) -> None:
        """An attempt that failed without an effect, and the one after it."""
        n = next(self.numbers)
        await self.record(recording(accepted(n), started(n)))
        await self.record(recording(attempt_failed(n, Effect.NONE), started(n, attempt=2)))
        await self.record(recording(succeeded(n, attempts=2)))

    async def idle_erasure(self) -> None:
        """An operation that never ran."""
        n = next(self.numbers)
        await self.record(recording(accepted(n), not_executed(n)))

    async def back_up(self) -> None:
        """A backup, by a process of its own, while the journal goes on."""
        name = f"backups/{next(self.numbers)}.db"
        async with self.journal.held() as path:
            program = [sys.executable, "-m", "store.backup", str(path), str(self.root / name)]
            child = await to_thread.run_sync(
                lambda: subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            )
            await self.call()
            await to_thread.run_sync(child.communicate)
        if child.returncode == 0:
            say(made=name)

    async def act(self) -> None:
        """One action by chance."""
        actions: tuple[Callable[[], Awaitable[None]], ...] = (
            self.call,
            self.crowd,
            self.large,
            self.acknowledge,
            self.erase_secret,
            self.erase_run,
            self.prune,
            self.notes,
            self.retry,
            self.idle_erasure,
        )
        await self.chance.choice(actions)()


class Bomb:
    """Kills this process when it passes a boundary of a commit for the n-th time; never, where that is 0."""

    def __init__(self, number: int) -> None:
        self._left = number

    def __call__(self, _: str) -> None:
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


async def live(root: Path, seed: int, ends: tuple[str, ...], actions: int, bomb: Bomb) -> None:
    """Open the journal, act by chance, then do what `ends` names, and close."""
    chance = random.Random(seed)
    clock, ids = Clock(), Ids()
    ids.count = chance.randrange(1, 1 << 60)
    clock.now += timedelta(days=seed % 1_000)
    async with open_journal(settings_of(root), clock=clock, new_id=ids, boundary=bomb) as journal:
        life = Life(journal, root, chance)
        for number in range(actions):
            await life.act()
            if number == actions // 2:
                for name in ends:
                    await getattr(life, name)()
    say(closed=True)


def age(root: Path, version: int) -> None:
    """Put a journal of an old schema where a life is going to open it, with something in every table."""
    state = root / "state"
    state.mkdir(mode=0o700, exist_ok=True)
    dump = (VERSIONS / f"{version:04}.sql").read_text(encoding="utf-8")
    path = state / FIRST
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        prepare_new(connection)
        for number, script in MIGRATIONS:
            if number <= version:
                connection.executescript(script)
        connection.executescript(dump)
        file_id = connection.execute("SELECT file_id FROM journal").fetchone()[0]
        connection.execute("PRAGMA journal_mode = WAL")
    path.chmod(0o600)
    key = bytes.fromhex(dump.partition("digest.key: ")[2][:64])
    write_durably(state / KEY, key)
    write_identity(state, Identity(file_id=file_id, journal=FIRST))


def damage(root: Path) -> None:
    """Let a projection say what no event says."""
    (path,) = (root / "state").glob("journal*.db")
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE operations SET attempt_count = attempt_count + 1")


def mend(root: Path) -> None:
    """Make the projections again, in a new generation."""
    mended = rebuild_file(settings_of(root), lambda _: None, now=Clock().now)
    say(mended=mended.journal, left=len(mended.left))


def restore(root: Path) -> None:
    """Put the newest backup where a journal was, as docs/operations.md says."""
    backup = max((root / "backups").glob("*.db"), key=lambda path: path.stat().st_mtime)
    shutil.rmtree(root / "state")
    (root / "state").mkdir(mode=0o700)
    shutil.copy(backup, root / "state" / FIRST)


def no_fsync() -> None:
    """Ask SQLite for no fsync at all, and do not look."""
    connection: Any = import_module("store.connection")
    kept = (item for item in connection._SET if item[0] != "synchronous")
    connection._SET = (*kept, ("synchronous", "OFF", 0))


def lazy_fsync() -> None:
    """Let commits wait for no fsync: only checkpoints do."""
    connection: Any = import_module("store.connection")
    kept = (item for item in connection._SET if item[0] != "synchronous")
    connection._SET = (*kept, ("synchronous", "NORMAL", 1))


def no_new_generation() -> None:
    """Go on with the same files after a failed fsync."""

    def is_due(_runtime_dir: Path, _identity: Identity) -> bool:
        return False

    vars(import_module("store.generation"))["is_due"] = is_due


def no_file_fsync() -> None:
    """Ask for no fsync but SQLite's own."""

    def fsync(_: int) -> None:
        return None

    setattr(os, "fsync", fsync)  # noqa: B010 - mypy and pyright let nobody assign to it


class _Deaf:
    """A connection to which a commit that failed is a commit."""

    def __init__(self, inner: sqlite3.Connection) -> None:
        self._inner = inner

    def execute(self, statement: str, parameters: tuple[object, ...] = ()) -> sqlite3.Cursor:
        try:
            return self._inner.execute(statement, parameters)
        except sqlite3.Error:
            if statement != "COMMIT":
                raise
            self._inner.rollback()
            return self._inner.execute("SELECT 1")

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the connection has
        return getattr(self._inner, name)


def verdict_from_memory() -> None:
    """Tell of a commit that failed what was meant to be in it, and go on."""
    original = Writer.__init__

    def init(self: Writer, ledger: Batches, *rest: Any, **named: Any) -> None:  # noqa: ANN401
        ledger.connection = cast("sqlite3.Connection", _Deaf(ledger.connection))
        original(self, ledger, *rest, **named)

    Writer.__init__ = init  # type: ignore[method-assign]


WEAKNESSES: Final[Mapping[str, Callable[[], None]]] = MappingProxyType(
    {
        weaken.__name__: weaken
        for weaken in (no_fsync, lazy_fsync, no_new_generation, no_file_fsync, verdict_from_memory)
    }
)
ENDS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {"plain": (), "killed": (), "histories": ("roll_back", "back_up"), "backup": ("back_up",)}
)


def main(arguments: list[str], actions: int = ACTIONS) -> int:
    """Live one life of so many actions, and return its exit code."""
    root, name, seed = Path(arguments[0]), arguments[1], int(arguments[2])
    for weakness in arguments[3:]:
        WEAKNESSES[weakness]()
    writer: Any = import_module("store.writer")
    writer.CHECKPOINT_PAGES = CHECKPOINT_PAGES
    try:
        if name == "mend":
            mend(root)
        else:
            bomb = Bomb(random.Random(seed).randint(2, KILLED_AT_MOST) if name == "killed" else 0)
            anyio.run(live, root, seed, ENDS[name], actions, bomb)
    except StoreError as error:
        say(failed=type(error).__name__, detail=str(error))
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
