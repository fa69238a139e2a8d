"""A rebuild leads to a sound journal that has everything else as it was, or changes nothing."""

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest
from anyio import to_thread

from store.comparison import Comparison
from store.errors import JournalBusy, NotMended
from store.findings import Progress
from store.folder import entered
from store.mending import Mended, rebuild_file
from store.rebuild import PROJECTIONS
from store.records import RunId
from store.settings import JournalSettings
from store.verify import verify_file, verify_journal
from tests.store.compared import differences
from tests.store.conftest import Open
from tests.store.drafts import accepted, not_executed, recording, started, succeeded
from tests.store.filled import fill

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def rebuild(settings: JournalSettings, report: Callable[[Progress], None] = lambda _: None) -> Mended:
    """Rebuild the journal at rest."""
    return rebuild_file(settings, report, now=NOW)


def edit(path: Path, *statements: str) -> None:
    """Change rows behind the journal's back."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for sql in statements:
            assert connection.execute(sql).rowcount > 0, sql


def content(path: Path) -> dict[str, list[tuple[object, ...]]]:
    """All rows of all tables."""
    with closing(sqlite3.connect(path)) as connection:
        tables = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
        return {
            name: sorted(connection.execute(f"SELECT * FROM {name}").fetchall(), key=repr)
            for (name,) in tables
        }


SPOILED = {
    "a state": ["UPDATE operations SET state = 'failed', listed = 1 WHERE id = 2"],
    "an effect": ["UPDATE operations SET effect = 'none', effect_by = 'operator' WHERE id = 2"],
    "a receipt": ["UPDATE operations SET receipt = '\"issue-8\"' WHERE id = 2"],
    "an attempt": ["UPDATE attempts SET phase = 'reserved' WHERE operation = 2"],
    "evidence": ["DELETE FROM evidence WHERE operation = 2"],
    "a run": ["UPDATE runs SET run_id = 'run-x', operations = 99 WHERE run_id = 'run-2'"],
    "a link": ["DELETE FROM run_links"],
    "a command": ["UPDATE commands SET receipt_seq = NULL, receipt_kind = NULL WHERE command_id = 'cmd-1'"],
    "everything": [f"DELETE FROM {table}" for table in reversed(PROJECTIONS)],
}


@pytest.mark.parametrize("what", SPOILED)
def test_a_rebuild_brings_the_projections_back(
    settings: JournalSettings, journal_file: Path, what: str
) -> None:
    """Of a pruned, erased and rolled-back journal; every row is as it was before the damage."""
    before = content(journal_file)
    edit(journal_file, *SPOILED[what])
    made = rebuild(settings)
    assert made.found
    assert (made.left, made.journal) == ((), "journal-2.db")
    assert content(settings.state_dir / "journal-2.db") == before
    assert verify_file(settings, lambda _: None, now=NOW, deep=True) == ()


def test_what_is_sound_is_left_alone(settings: JournalSettings, journal_file: Path) -> None:
    """Not a byte is written."""
    before = journal_file.read_bytes()
    assert rebuild(settings) == Mended(found=(), left=(), journal=None)
    assert journal_file.read_bytes() == before
    assert [item.name for item in settings.state_dir.glob("journal*")] == ["journal.db"]


def test_what_is_no_projection_is_kept_and_said(settings: JournalSettings, journal_file: Path) -> None:
    """The projections are made again, and a delivery that was damaged is damaged still."""
    edit(journal_file, "UPDATE deliveries SET answer = 'refused'", "DELETE FROM evidence WHERE operation = 2")
    made = rebuild(settings)
    assert [finding.check for finding in made.left] == ["deliveries"]
    assert {finding.check for finding in made.found} >= {"deliveries", "effects", "projections"}
    assert made.journal == "journal-2.db"


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE events SET body = CAST(replace(body, 'issue-7', 'issue-8') AS BLOB) WHERE seq = 9",
        "UPDATE events SET body = CAST('x' AS BLOB) WHERE seq = 9",
        "DELETE FROM events WHERE seq = 9",
        "DELETE FROM remains WHERE seq = 4",
        "UPDATE traces SET ended = 1",
    ],
)
def test_damaged_events_are_no_ground_to_build_on(
    settings: JournalSettings, journal_file: Path, sql: str
) -> None:
    """The old file stays the journal, and no other is left."""
    edit(journal_file, sql, "DELETE FROM evidence WHERE operation = 2")
    before = journal_file.read_bytes()
    with pytest.raises(NotMended, match="nothing was changed"):
        rebuild(settings)
    assert journal_file.read_bytes() == before
    assert [item.name for item in settings.state_dir.glob("journal*")] == ["journal.db"]


def test_a_rebuild_that_is_cut_off_anywhere_changes_nothing(
    settings: JournalSettings, template: Path, journal_file: Path
) -> None:
    """Until the last look at the copy is over, the old file is the journal, byte for byte."""

    class Cut(Exception):
        """Out of nowhere."""

    edit(journal_file, "DELETE FROM evidence WHERE operation = 2")
    before = journal_file.read_bytes()
    steps: list[Progress] = []
    spoiled = settings.state_dir.with_name("spoiled")
    shutil.copytree(settings.state_dir, spoiled)
    rebuild(settings, steps.append)
    for last in range(1, len(steps) + 1):
        shutil.rmtree(settings.state_dir)
        shutil.copytree(spoiled, settings.state_dir)
        reached: list[Progress] = []

        def report(step: Progress, last: int = last, reached: list[Progress] = reached) -> None:
            reached.append(step)
            if len(reached) == last:
                raise Cut

        with pytest.raises(Cut):
            rebuild(settings, report)
        assert journal_file.read_bytes() == before
        assert [item.name for item in settings.state_dir.glob("journal*")] == ["journal.db"]


def test_a_journal_in_use_is_not_rebuilt(settings: JournalSettings, journal_file: Path) -> None:
    """The lock says that somebody has it."""
    with entered(settings), pytest.raises(JournalBusy):
        rebuild(settings)


@pytest.mark.anyio
async def test_a_rebuilt_journal_goes_on(opened: Open, settings: JournalSettings, journal_file: Path) -> None:
    """The next start takes it, and removes the old file; what is recorded then follows."""
    await to_thread.run_sync(edit, journal_file, *SPOILED["everything"])
    await to_thread.run_sync(rebuild, settings)
    async with opened() as journal:
        await journal.transact(recording(accepted(50), started(50), succeeded(50)))
        assert await verify_journal(journal, lambda _: None, deep=True) == ()
    assert [item.name for item in settings.state_dir.glob("journal*")] == ["journal-2.db"]


@pytest.mark.anyio
async def test_a_deep_look_at_a_running_journal_keeps_up(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is recorded while it looks is no finding, and no event is left out."""
    monkeypatch.setattr("store.comparison.ROWS", 4)
    monkeypatch.setattr("store.comparison.EVENTS", 8)
    async with opened() as journal:
        await fill(journal)
        comparison = Comparison()
        n = 100
        while await journal.read(comparison.page) is not None:
            if n < 400:
                await journal.transact(recording(accepted(n), started(n), succeeded(n)))
            n += 1
        comparison.close()
        assert comparison.findings == []
        assert comparison.rebuilt is not None
        assert comparison.rebuilt.after > 150


@pytest.mark.anyio
async def test_a_deep_look_begins_anew_where_something_was_erased(opened: Open) -> None:
    """What was projected before is not what is left of it."""
    async with opened() as journal:
        await journal.transact(recording(accepted(1), started(1), succeeded(1), accepted(2), not_executed(2)))
        comparison = Comparison()
        while (reached := await journal.read(comparison.page)) is not None and reached.check != "comparison":
            pass
        await journal.transact(lambda tx: tx.acknowledge(tx.last_seq))
        await journal.transact(lambda tx: tx.erase_run(RunId("run-1")))
        while await journal.read(comparison.page) is not None:
            pass
        comparison.close()
        assert comparison.findings == []
        assert await journal.read(differences) == ()


@pytest.mark.anyio
async def test_nothing_is_pruned_while_somebody_looks(opened: Open) -> None:
    """What was read a page ago must be there still."""
    async with opened() as journal:
        held: list[bool] = []
        await journal.transact(recording(*(accepted(n) for n in range(1, 300))))
        await verify_journal(journal, lambda _: held.append(journal.is_held), deep=True)
        assert held
        assert all(held)
        assert not journal.is_held
