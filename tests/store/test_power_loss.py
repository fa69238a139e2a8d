"""Power loss, kills and full disks: what was acknowledged is there after every one of them.

A model of the disk stands under SQLite: it records every write, flush and truncation, and builds what a
machine could find after its power failed at any step: all that was flushed, and of the rest nothing,
everything, the beginning, or any part. From each of these states the journal must open, and hold every event
that a caller had been told of.
"""

import random
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import anyio
import pytest
from anyio import to_thread

import store.connection as connection_module
from store.errors import OpenRefused
from store.journal import open_journal
from store.settings import JournalSettings
from store.verify import verify_file
from tests.store.conftest import Clock, Ids
from tests.store.disk import Disk, Step, failing_disk
from tests.store.drafts import accepted, recording, started, succeeded

MODES = ("none", "all", "prefix", "some", "some")


def durable(
    steps: Sequence[Step], base: dict[str, bytes], mode: str, chance: random.Random
) -> dict[str, bytes]:
    """What the files may hold after a power loss behind the last of `steps`."""
    synced: dict[str, int] = {step.name: index for index, step in enumerate(steps) if step.kind == "sync"}
    pending = [i for i, step in enumerate(steps) if step.kind != "sync" and i > synced.get(step.name, -1)]
    kept = {
        "none": set[int](),
        "all": set(pending),
        "prefix": set(pending[: chance.randint(0, len(pending))]),
        "some": {index for index in pending if chance.random() < 0.5},
    }[mode]
    files: dict[str, bytearray] = defaultdict(
        bytearray, {name: bytearray(data) for name, data in base.items()}
    )
    lost = set(pending) - kept
    for index, step in enumerate(steps):
        if index in lost or step.kind not in ("write", "truncate"):
            continue
        content = files[step.name]
        if step.kind == "truncate":
            del content[step.at :]
        else:
            content.extend(bytes(max(0, step.at - len(content))))
            content[step.at : step.at + len(step.data)] = step.data
    return {name: bytes(data) for name, data in files.items()}


async def record_a_life(settings: JournalSettings, disk: Disk) -> tuple[list[Step], dict[str, bytes]]:
    """Live once on the recording disk: commits of one and of many, checkpoints among them, a clean stop.

    A step `told` stands where a caller was told; its place is the newest seq that the caller knows of.
    """
    async with open_journal(settings, clock=Clock(), new_id=Ids()):
        pass
    base = {"journal.db": await anyio.Path(settings.state_dir / "journal.db").read_bytes()}
    steps = disk.log = []
    async with open_journal(settings, clock=Clock(), new_id=Ids()) as journal:

        async def call(n: int) -> None:
            for unit in (recording(accepted(n), started(n)), recording(succeeded(n))):
                events = await journal.transact(unit)
                steps.append(Step("told", "", events[-1].seq))

        for n in range(6):
            await call(n)
        async with anyio.create_task_group() as tasks:
            for n in range(6, 20):
                tasks.start_soon(call, n)
    disk.log = None
    return steps, base


async def lost(
    settings: JournalSettings, steps: list[Step], base: dict[str, bytes], states: int
) -> list[str]:
    """Open the journal from many possible states, and return what was missing from them."""
    chance = random.Random(7)
    syncs = [index + 1 for index, step in enumerate(steps) if step.kind == "sync"]
    marked = next(index for index, step in enumerate(steps) if step.kind == "told")
    unmarked = max(index for index, step in enumerate(steps) if step.kind == "truncate")
    wrong: list[str] = []
    for number in range(states):
        end = chance.choice(syncs) if number % 3 == 0 else chance.randint(1, len(steps))
        mode = MODES[number % len(MODES)]
        for name, content in durable(steps[:end], base, mode, chance).items():
            await anyio.Path(settings.state_dir / name).write_bytes(content)
            await anyio.Path(settings.state_dir / name).chmod(0o600)
        mark = anyio.Path(settings.state_dir / "journal.db-unclean")
        await (mark.touch(0o600) if marked < end <= unmarked else mark.unlink(missing_ok=True))
        told = max((step.at for step in steps[:end] if step.kind == "told"), default=0)
        try:
            async with open_journal(settings, clock=Clock(), new_id=Ids()) as journal:
                found = await journal.read(lambda view: view.last_seq)
        except OpenRefused as error:
            wrong.append(f"step {end}, {mode}: {error}")
        else:
            if found < told:
                wrong.append(f"step {end}, {mode}: {told} were told, and {found} are there")
    return wrong


@pytest.mark.anyio
async def test_power_loss_at_any_step_loses_nothing_that_was_told(settings: JournalSettings) -> None:
    """I5: whatever part of the unflushed writes reached the disk, the journal has every told event."""
    with failing_disk() as disk:
        steps, base = await record_a_life(settings, disk)
        assert await lost(settings, steps, base, 150) == []
    assert (
        await to_thread.run_sync(lambda: verify_file(settings, lambda _: None, now=Clock().now, deep=True))
        == ()
    )


@pytest.mark.anyio
async def test_without_full_synchronous_power_loss_loses_events(
    settings: JournalSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Negative control: take the flush of each commit away, and the same look finds what is missing."""
    weak = tuple(
        ("synchronous", "NORMAL", 1) if name == "synchronous" else (name, value, wanted)
        for name, value, wanted in connection_module._SET
    )
    monkeypatch.setattr(connection_module, "_SET", weak)
    with failing_disk() as disk:
        steps, base = await record_a_life(settings, disk)
        assert [
            word for word in await lost(settings, steps, base, 60) if "were told" in word or "missing" in word
        ]


CHILD = """
import resource, sys, uuid
from datetime import UTC, datetime
from pathlib import Path
import anyio
from store.journal import open_journal
from store.settings import JournalSettings
from store.errors import JournalFailed
from tests.store.drafts import accepted, recording, started, succeeded

async def main():
    settings = JournalSettings(state_dir=Path(sys.argv[1]) / "state", runtime_dir=Path(sys.argv[1]) / "run")
    new_id = lambda: uuid.uuid4().hex
    async with open_journal(settings, clock=lambda: datetime.now(UTC), new_id=new_id) as journal:
        first = await journal.read(lambda view: sum(view.counts().values()))

        async def work(lane):
            for n in range(first + lane, first + 100_000, 4):
                await journal.transact(recording(accepted(n), started(n)))
                (event,) = await journal.transact(recording(succeeded(n)))
                print(event.seq, flush=True)

        async with anyio.create_task_group() as tasks:
            for lane in range(4):
                tasks.start_soon(work, lane)

if limit := int(sys.argv[2]):
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
try:
    anyio.run(main)
except JournalFailed as error:
    print("failed", error.exit_code, flush=True)
    sys.exit(error.exit_code)
"""


def child(folder: Path, *, file_bytes_max: int = 0) -> subprocess.Popen[str]:
    """Another process that writes, and says each seq that it was told of."""
    command = [sys.executable, "-c", CHILD, str(folder), str(file_bytes_max)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def test_a_killed_process_loses_nothing_that_it_was_told(settings: JournalSettings, tmp_path: Path) -> None:
    """SIGKILL in mid-commit, life after life: what was said is there, and all of it is whole."""
    chance, told = random.Random(11), 0
    for _ in range(6):
        with child(tmp_path) as process:
            assert process.stdout is not None
            for _ in range(chance.randint(1, 60)):
                told = int(process.stdout.readline())
            process.send_signal(signal.SIGKILL)
            told = max([told, *(int(line) for line in process.stdout if line.endswith("\n"))])
        assert verify_file(settings, lambda _: None, now=Clock().now, deep=True) == ()
    assert _last_seq(settings) >= told > 0


def test_a_full_disk_stops_the_process_with_its_own_code(settings: JournalSettings, tmp_path: Path) -> None:
    """Exit code 70, nothing half written, and what was said is there once there is room again."""
    with child(tmp_path, file_bytes_max=600_000) as process:
        assert process.stdout is not None
        *lines, last = process.stdout.read().splitlines()
    assert last == "failed 70"
    assert process.returncode == 70
    assert _last_seq(settings) >= max(map(int, lines)) > 10
    assert verify_file(settings, lambda _: None, now=Clock().now, deep=True) == ()


def _last_seq(settings: JournalSettings) -> int:
    async def ask() -> int:
        async with open_journal(settings, clock=Clock(), new_id=Ids()) as journal:
            return await journal.read(lambda view: view.last_seq)

    return anyio.run(ask)
