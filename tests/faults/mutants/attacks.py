"""Attacks that are short, and each about one promise: one try each, and what was broken in it, or None.

They are made on the product as it is, and on the product with a bug; only the worlds are another lane's.
"""

import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from random import Random
from threading import Barrier, Thread
from typing import Final, TypeAlias
from uuid import uuid4

import anyio
from anyio.lowlevel import checkpoint

from driver.core.attempts import Silence
from store.errors import JournalBusy
from store.folder import LOCK, entered
from store.journal import Journal, open_journal
from store.records import CommandId, JsonObject, RunId
from store.settings import JournalSettings
from tests.driver.engine.rig import DECLARED, Rig, ScriptedProvider, call, engine
from tests.faults.simulation.batch import play_many
from tests.faults.simulation.themes import Theme
from tests.store.drafts import accepted, operation_id, recording

Attack: TypeAlias = Callable[[int], str | None]
"""Takes a seed. Returns which promise was broken, or None."""

RIVALS: Final = 4
NOBODY: Final = 4_194_303
"""A process id that there never is: the kernel's are smaller."""
WRITERS: Final = 6
STEPS_MAX: Final = 40
"""Of the event loop, from when a journal is wanted, or is open, until whoever has it is cancelled."""
STUCK_S: Final = 30.0
PAIRS: Final = 6
TOOLS: Final = ("act", "other")
ARGUMENTS: Final[tuple[JsonObject, ...]] = ({"n": 1}, {"n": 2}, {"n": "1"}, {"m": 1})


def world(theme: Theme | None) -> Attack:
    """Return one that plays a world of the simulation. In a process that plays worlds alone."""

    def play(seed: int) -> str | None:
        broken = play_many([seed], theme=theme).broken
        return broken[0] if broken else None

    return play


def race(seed: int) -> str | None:
    """Let several want a state folder at once whose last owner is dead: one of them gets it."""
    rng = Random(seed)
    with tempfile.TemporaryDirectory(prefix="effectd-race-") as name:
        settings = _settings(Path(name))
        settings.state_dir.mkdir(mode=0o700)
        if rng.random() < 0.8:
            lock = settings.state_dir / LOCK
            lock.touch(0o600)
            lock.write_text(f"{NOBODY}\n", encoding="ascii")
        begin, end = Barrier(RIVALS), Barrier(RIVALS)
        owners: list[bool] = []
        rivals = [Thread(target=partial(_want, settings, begin, end, owners)) for _ in range(RIVALS)]
        for rival in rivals:
            rival.start()
        for rival in rivals:
            rival.join()
    return None if len(owners) == 1 else f"{len(owners)} own one state folder at the same time"


def _want(settings: JournalSettings, begin: Barrier, end: Barrier, owners: list[bool]) -> None:
    begin.wait(STUCK_S)
    try:
        with entered(settings):
            owners.append(True)
            end.wait(STUCK_S)
    except JournalBusy:
        end.wait(STUCK_S)


def _settings(folder: Path) -> JournalSettings:
    (folder / "run").mkdir(exist_ok=True)
    return JournalSettings(state_dir=folder / "state", runtime_dir=folder / "run", reserve_bytes=65_536)


def cancellation(seed: int) -> str | None:
    """Cancel whoever owns a journal: it is closed as a whole, and what was told of is there."""
    with tempfile.TemporaryDirectory(prefix="effectd-cancel-") as name:
        return anyio.run(_cancelled, _settings(Path(name)), Random(seed))


async def _cancelled(settings: JournalSettings, rng: Random) -> str | None:
    told: list[int] = []
    since = anyio.Event()
    if rng.random() < 0.3:
        since.set()
    try:
        with anyio.fail_after(STUCK_S), anyio.CancelScope() as scope:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_cancel, scope, since, rng.randrange(STEPS_MAX))
                async with _open(settings) as journal:
                    since.set()
                    async with anyio.create_task_group() as writing:
                        for n in range(WRITERS):
                            writing.start_soon(_write, journal, n, told)
                    await anyio.sleep_forever()
        left = sorted(path.name for path in settings.state_dir.glob("*-wal"))
        if left:
            return f"{left} stands there after its owner was cancelled"
        with anyio.fail_after(STUCK_S):
            return await _missing(settings, told)
    except Exception as error:  # noqa: BLE001 - whatever it is, a cancelled owner must not lead to it
        return f"a cancelled owner leaves this behind: {error!r}"


def _open(settings: JournalSettings):  # type: ignore[no-untyped-def]  # noqa: ANN202
    return open_journal(settings, clock=lambda: datetime.now(UTC), new_id=lambda: uuid4().hex)


async def _cancel(scope: anyio.CancelScope, since: anyio.Event, steps: int) -> None:
    await since.wait()
    for _ in range(steps):
        await checkpoint()
    scope.cancel()


async def _write(journal: Journal, n: int, told: list[int]) -> None:
    await journal.transact(recording(accepted(n)))
    told.append(n)


async def _missing(settings: JournalSettings, told: list[int]) -> str | None:
    async with _open(settings) as journal:
        for n in told:
            if await journal.read(lambda view, n=n: view.operation(operation_id(n))) is None:
                return f"operation {n} was told of, and is not there"
    return None


def likeness(seed: int) -> str | None:
    """Ask for something while nobody knows of a call: refused exactly where it is the same call."""
    with tempfile.TemporaryDirectory(prefix="effectd-alike-") as name:
        return anyio.run(_alike, Path(name), Random(seed))


async def _alike(folder: Path, rng: Random) -> str | None:
    lost = Silence(cause="connection_lost", message="gone")
    provider = ScriptedProvider(answer=lost)
    async with engine(folder, provider, others={"other": DECLARED}) as rig:
        for number in range(PAIRS):
            first, second = ((rng.choice(TOOLS), rng.choice(ARGUMENTS)) for _ in range(2))
            run = RunId(f"run-{number}")
            await _call(rig, f"first-{number}", run, *first)
            await rig.settled(f"first-{number}")
            await _call(rig, f"second-{number}", run, *second)
            if await _is_refused(rig, CommandId(f"second-{number}")) != (first == second):
                return f"{second} after {first}: taken for the same, or for another, and it is not"
    return None


async def _call(rig: Rig, name: str, run: RunId, tool: str, arguments: JsonObject) -> None:
    await rig.intake.deliver([call(name, run_id=run, tool=f"tools/{tool}", arguments=arguments)])


async def _is_refused(rig: Rig, name: CommandId) -> bool:
    found = await rig.journal.read(lambda view: view.command(name))
    assert found is not None, "a command that was delivered is known, done or refused"
    return found.operation_id is None
