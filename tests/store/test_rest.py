"""A look at a journal that nobody has open: read only, under its lock, whatever was left in the `-wal`."""

from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import anyio
import pytest

from store.errors import JournalBusy
from store.events import Draft, DriverStarted
from store.journal import open_journal
from store.rest import at_rest
from store.settings import JournalSettings

pytestmark = pytest.mark.anyio


def now() -> datetime:
    """The time."""
    return datetime.now(UTC)


def settings(folder: Path) -> JournalSettings:
    """A state folder of its own."""
    (folder / "run").mkdir(exist_ok=True)
    return JournalSettings(state_dir=folder / "state", runtime_dir=folder / "run")


def last_seq(folder: Path) -> int | None:
    """What a look says of the newest event; None where there is no journal."""
    with at_rest(settings(folder), now=now()) as view:
        return None if view is None else view.last_seq


async def write(folder: Path) -> None:
    """Make a journal with one event in it."""
    async with open_journal(settings(folder), clock=now, new_id=lambda: uuid4().hex) as journal:
        await journal.transact(lambda tx: tx.append(Draft(data=DriverStarted(software="effectd/test"))))


async def test_what_was_committed_is_seen_and_nothing_is_changed(tmp_path: Path) -> None:
    """As a daemon would see it, and byte for byte as it was."""
    await write(tmp_path)
    file = tmp_path / "state" / "journal.db"
    before = await anyio.Path(file).read_bytes()
    assert await anyio.to_thread.run_sync(last_seq, tmp_path) == 1
    assert await anyio.Path(file).read_bytes() == before


async def test_a_folder_without_a_journal_has_nothing_to_see(tmp_path: Path) -> None:
    """None is made by looking."""
    assert await anyio.to_thread.run_sync(last_seq, tmp_path) is None
    assert not await anyio.Path(tmp_path / "state" / "journal.db").exists()


async def test_a_journal_that_somebody_has_is_left_alone(tmp_path: Path) -> None:
    """Two readers of one file would be two owners of its lock."""
    async with open_journal(settings(tmp_path), clock=now, new_id=lambda: uuid4().hex):
        with pytest.raises(JournalBusy):
            await anyio.to_thread.run_sync(last_seq, tmp_path)
