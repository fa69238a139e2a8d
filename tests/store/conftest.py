"""A journal in a folder of its own, an exact clock, and identities that count up."""

import shutil
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import anyio
import pytest
from anyio import to_thread

from store.journal import Journal, open_journal
from store.settings import JournalSettings
from tests.store.filled import fill, leave_shreds


class Clock:
    """A clock that moves a millisecond each time it is read."""

    def __init__(self) -> None:
        self.now = datetime(2030, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        self.now += timedelta(milliseconds=1)
        return self.now


class Ids:
    """Identities of 32 hex digits that count up."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> str:
        self.count += 1
        return f"{self.count:032x}"


FILES = {"CURRENT", "digest.key", "journal.db", "lock"}
"""What a clean stop leaves in the state folder."""

Open = Callable[..., AbstractAsyncContextManager[Journal]]


@pytest.fixture
def settings(tmp_path: Path) -> JournalSettings:
    """Where the test's journal lives."""
    return JournalSettings(state_dir=tmp_path / "state", runtime_dir=tmp_path / "run")


@pytest.fixture
def clock() -> Clock:
    """The test's clock."""
    return Clock()


@pytest.fixture
def opened(settings: JournalSettings, clock: Clock) -> Open:
    """Open the test's journal; again and again, if it is closed in between."""
    new_id = Ids()

    def open_(
        changed: JournalSettings = settings, boundary: Callable[[str], None] = lambda _: None
    ) -> AbstractAsyncContextManager[Journal]:
        return open_journal(changed, clock=clock, new_id=new_id, boundary=boundary)

    return open_


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed journal with something in every table, made once."""
    folder = tmp_path_factory.mktemp("template")

    async def make() -> None:
        settings = JournalSettings(state_dir=folder / "state", runtime_dir=folder / "run")
        async with open_journal(settings, clock=Clock(), new_id=Ids()) as journal:
            await fill(journal)
        await to_thread.run_sync(leave_shreds, folder / "state" / "journal.db")

    anyio.run(make)
    return folder / "state"


@pytest.fixture
def journal_file(settings: JournalSettings, template: Path) -> Path:
    """A copy of the template: the test's own to damage."""
    shutil.copytree(template, settings.state_dir)
    return settings.state_dir / "journal.db"
