"""Verification finds every kind of damage, in every table, and nothing in a whole journal."""

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from anyio import create_task_group, to_thread

from store.errors import JournalBusy, JournalDamaged, NoJournal
from store.findings import Finding, Progress
from store.folder import entered
from store.head import read_head, write_head
from store.settings import JournalSettings
from store.verify import verify_file, verify_journal
from tests.store.conftest import FILES, Open
from tests.store.drafts import accepted, recording, started, succeeded
from tests.store.filled import fill

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def look(settings: JournalSettings, *, deep: bool = False) -> tuple[Finding, ...]:
    """What is found, progress aside."""
    return verify_file(settings, lambda _: None, now=NOW, deep=deep)


def edit(path: Path, sql: str) -> None:
    """Change rows behind the journal's back."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        assert connection.execute(sql).rowcount == 1, "the edit must hit exactly one row"


@pytest.mark.parametrize("deep", [False, True])
def test_a_whole_journal_has_no_findings(
    settings: JournalSettings, journal_file: Path, *, deep: bool
) -> None:
    """Every projection is exactly what the events make of it; looking changes no byte."""
    before = journal_file.read_bytes()
    progress: list[Progress] = []
    assert verify_file(settings, progress.append, now=NOW, deep=deep) == ()
    assert journal_file.read_bytes() == before
    assert {step.check for step in progress} >= {"integrity"}
    assert {item.name for item in settings.state_dir.iterdir()} == FILES


DAMAGE = [
    # events: content, place, envelope
    ("UPDATE events SET body = CAST(replace(body, 'issue-7', 'issue-8') AS BLOB) WHERE seq = 9", "chain"),
    ("UPDATE events SET body = CAST('x' AS BLOB) WHERE seq = 9", "chain"),
    ("UPDATE events SET digest = 'b' || substr(digest, 2) || 'b' WHERE seq = 9", "chain"),
    ("UPDATE events SET chain = 'b' || substr(chain, 2) || 'b' WHERE seq = 9", "chain"),
    ("UPDATE events SET kind = 'operation.failed' WHERE seq = 9", "chain"),
    ("UPDATE events SET at = '2031' WHERE seq = 9", "chain"),
    ("UPDATE events SET terminal = 0 WHERE seq = 9", "chain"),
    ("UPDATE events SET run = NULL WHERE seq = 9", "chain"),
    ("UPDATE events SET command = 4 WHERE seq = 9", "chain"),
    ("UPDATE events SET operation = 3 WHERE seq = 9", "chain"),
    ("UPDATE events SET body = NULL WHERE seq = 9", "chain"),
    ("UPDATE events SET body = x'00' WHERE seq = 8", "chain"),
    ("UPDATE events SET body = x'00' WHERE seq = 7", "payloads"),
    ("DELETE FROM events WHERE seq = 9", "chain"),
    # payloads
    ("UPDATE payloads SET body = CAST(replace(body, '1', '2') AS BLOB) WHERE seq = 7", "payloads"),
    ("UPDATE payloads SET body = CAST(replace(body, 'canary', 'banana') AS BLOB) WHERE due > 0", "payloads"),
    ("UPDATE payloads SET digest = 'b' || substr(digest, 2) || 'b' WHERE seq = 7", "payloads"),
    (
        "UPDATE payloads SET body = CAST(replace(body, 'x', 'y') AS BLOB) WHERE length(body) > 1000",
        "payloads",
    ),
    ("UPDATE payloads SET body = NULL WHERE seq = 7", "payloads"),
    ("UPDATE payloads SET body = NULL WHERE redact IS NOT NULL AND due IS NULL", "payloads"),
    ("UPDATE payloads SET due = NULL WHERE due > 0", "payloads"),
    ("UPDATE payloads SET due = due + 1 WHERE due > 0", "payloads"),
    ("UPDATE payloads SET redact = NULL, due = NULL WHERE due > 0", "payloads"),
    ("UPDATE payloads SET redact = '7' WHERE due > 0", "payloads"),
    ("UPDATE payloads SET seq = 6 WHERE seq = 7", "payloads"),
    ("DELETE FROM payloads WHERE seq = 7", "chain"),
    # commands
    ("UPDATE commands SET receipt_seq = 8 WHERE command_id = 'cmd-1'", "receipts"),
    ("UPDATE commands SET receipt_seq = NULL, receipt_kind = NULL WHERE command_id = 'cmd-1'", "chain"),
    ("UPDATE commands SET receipt_kind = 'operation.failed' WHERE command_id = 'cmd-1'", "receipts"),
    ("UPDATE commands SET content_digest = 'f' WHERE command_id = 'cmd-1'", "receipts"),
    ("UPDATE commands SET content_digest = 'f' WHERE command_id = 'cmd-6'", "receipts"),
    ("UPDATE commands SET kind = 'run.end' WHERE command_id = 'cmd-1'", "receipts"),
    ("UPDATE commands SET run = NULL WHERE command_id = 'cmd-6'", "receipts"),
    ("UPDATE commands SET command_id = 'cmd-99' WHERE command_id = 'cmd-1'", "chain"),
    ("UPDATE commands SET expires_at = '2031' WHERE command_id = 'cmd-5'", "receipts"),
    # operations
    ("UPDATE operations SET state = 'failed' WHERE id = 2", "operations"),
    ("UPDATE operations SET state = 'faild' WHERE id = 2", "operations"),
    ("UPDATE operations SET ended_at = NULL WHERE id = 2", "operations"),
    ("UPDATE operations SET listed = 0 WHERE id = 4", "operations"),
    ("UPDATE operations SET effect = 'none' WHERE id = 2", "effects"),
    ("UPDATE operations SET effect_by = 'daemon' WHERE id = 2", "effects"),
    ("UPDATE operations SET guards = 1 WHERE id = 2", "operations"),
    ("UPDATE operations SET args_digest = 'f' WHERE id = 2", "operations"),
    ("UPDATE operations SET tool = 'issues/delete' WHERE id = 2", "operations"),
    ("UPDATE operations SET receipt = '\"issue-8\"' WHERE id = 2", "projections"),
    ("UPDATE operations SET attempt_count = 2 WHERE id = 2", "projections"),
    ("DELETE FROM operations WHERE id = 6", "operations"),
    ("UPDATE operations SET attempt_count = 2 WHERE id = 2", "attempts"),
    ("UPDATE operations SET started_seq = NULL WHERE id = 2", "attempts"),
    ("UPDATE attempts SET started_seq = started_seq + 1 WHERE operation = 2", "attempts"),
    ("UPDATE attempts SET attempt = 2 WHERE operation = 2", "attempts"),
    ("UPDATE attempts SET idempotency_key = 'op_x' WHERE operation = 3 AND attempt = 2", "attempts"),
    ("UPDATE attempts SET idempotent = 0 WHERE operation = 3 AND attempt = 1", "attempts"),
    ("UPDATE attempts SET key_carrier = 'header' WHERE operation = 3 AND attempt = 2", "attempts"),
    ("UPDATE tombstones SET seq = 20", "tombstones"),
    # the rest
    ("UPDATE gaps SET last = 1", "chain"),
    ("UPDATE gaps SET chain = 'b' || substr(chain, 2) || 'b'", "gaps"),
    ("DELETE FROM gaps", "chain"),
    ("UPDATE tombstones SET effect = 'occurred'", "tombstones"),
    ("UPDATE tombstones SET content_digest = 'f'", "tombstones"),
    ("UPDATE traces SET ended = 1", "traces"),
    ("DELETE FROM traces", "projections"),
    ("UPDATE erasures SET done = 0", "erasures"),
    ("UPDATE remains SET body = CAST(replace(body, 'issues', 'issuez') AS BLOB) WHERE seq = 4", "chain"),
    ("DELETE FROM remains WHERE seq = 4", "chain"),
    ("UPDATE attempts SET phase = 'reserved' WHERE operation = 2", "projections"),
    ("UPDATE attempts SET idempotency_key = 'op_x' WHERE operation = 2", "projections"),
    ("UPDATE evidence SET effect = 'none' WHERE operation = 2", "effects"),
    ("UPDATE evidence SET source = 'operator' WHERE operation = 2", "effects"),
    ("UPDATE runs SET operations = 4 WHERE run_id = 'run-1'", "runs"),
    ("UPDATE runs SET unsettled = 0 WHERE run_id = 'run-2'", "runs"),
    ("UPDATE runs SET outcome = 'dona' WHERE run_id = 'run-1'", "projections"),
    ("UPDATE runs SET ended = 0 WHERE run_id = 'run-1'", "projections"),
    ("DELETE FROM run_links", "projections"),
    ("UPDATE deliveries SET answer = 'refused'", "deliveries"),
    ("UPDATE deliveries SET at = '2031'", "deliveries"),
    ("UPDATE dead_letters SET code = 'retired'", "dead letters"),
    ("UPDATE dead_letters SET message = ''", "dead letters"),
    ("UPDATE dead_letters SET requeued_as = requeued_as - 1", "dead letters"),
    ("UPDATE dead_letters SET requeued_as = NULL", "dead letters"),
    ("UPDATE triages SET attempts = 2", "triages"),
    ("UPDATE observations SET body = 'changed'", "observations"),
]


@pytest.mark.parametrize(("sql", "check"), DAMAGE)
def test_damage_in_each_table_is_found(
    settings: JournalSettings, journal_file: Path, sql: str, check: str
) -> None:
    """SQLite's integrity_check sees none of these: the value is as good as any other."""
    edit(journal_file, f"{sql}")
    with closing(sqlite3.connect(journal_file)) as connection:
        connection.execute("PRAGMA foreign_keys = OFF")
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    found = look(settings, deep=True)
    assert check in {finding.check for finding in found}


def test_a_head_that_was_changed_is_refused(settings: JournalSettings, journal_file: Path) -> None:
    """The row that says how far the journal has come has a digest of its own."""
    edit(journal_file, "UPDATE journal SET acked_seq = 4")
    with pytest.raises(JournalDamaged, match="does not match its digest"):
        look(settings)


def test_a_head_that_was_rolled_back_is_found(settings: JournalSettings, journal_file: Path) -> None:
    """Counts and last seq are compared with what is there."""
    with closing(sqlite3.connect(journal_file, isolation_level=None)) as connection:
        head = read_head(connection)
        counts = {state: count + 1 for state, count in head.counts.items()}
        write_head(connection, replace(head, last_seq=head.last_seq - 1, counts=counts))
    assert {finding.subject for finding in look(settings)} >= {"journal"}


def test_another_schema_is_found(settings: JournalSettings, journal_file: Path) -> None:
    """An index that is missing is no damage to SQLite, and costs a scan."""
    with closing(sqlite3.connect(journal_file)) as connection:
        connection.execute("DROP INDEX operations_open")
    assert {finding.check for finding in look(settings)} == {"schema"}


def test_a_broken_page_is_found_and_the_rest_goes_on(settings: JournalSettings, journal_file: Path) -> None:
    """A page that SQLite cannot read is a finding, not a crash."""
    content = bytearray(journal_file.read_bytes())
    with closing(sqlite3.connect(journal_file)) as connection:
        root = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'payloads'").fetchone()[0]
    content[(root - 1) * 4096 : (root - 1) * 4096 + 100] = b"\xff" * 100
    journal_file.write_bytes(content)
    found = {finding.check for finding in look(settings)}
    assert {"integrity", "payloads"} <= found


def test_a_journal_in_use_is_not_looked_at(settings: JournalSettings, journal_file: Path) -> None:
    """Offline means offline: the running daemon verifies its own."""
    with entered(settings), pytest.raises(JournalBusy):
        look(settings)


def test_a_folder_without_a_journal_is_not_called_sound(settings: JournalSettings) -> None:
    """There is nothing to look at, and that is said."""
    with pytest.raises(NoJournal):
        look(settings)


@pytest.mark.anyio
async def test_a_crashed_journal_is_verified_with_its_wal(opened: Open, settings: JournalSettings) -> None:
    """What stands in the -wal alone is part of it, and stays there."""
    copy = settings.state_dir.with_name("crashed")
    async with opened() as journal:
        await fill(journal)
        await to_thread.run_sync(shutil.copytree, settings.state_dir, copy)
    await to_thread.run_sync(shutil.rmtree, settings.state_dir)
    copy.rename(settings.state_dir)
    log = settings.state_dir / "journal.db-wal"
    before = log.read_bytes()
    assert await to_thread.run_sync(lambda: look(settings, deep=True)) == ()
    assert log.read_bytes() == before


@pytest.mark.anyio
async def test_a_running_journal_is_verified_between_its_commits(
    opened: Open, settings: JournalSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In pages, while others write; what they write meanwhile is no finding."""
    monkeypatch.setattr("store.findings.PAGE", 8)
    progress: list[Progress] = []
    async with opened() as journal:
        await fill(journal)

        async def write() -> None:
            for n in range(100, 140):
                await journal.transact(recording(accepted(n), started(n), succeeded(n)))

        async with create_task_group() as tasks:
            tasks.start_soon(write)
            assert await verify_journal(journal, progress.append) == ()
        assert await verify_journal(journal, progress.append) == ()
    assert len([step for step in progress if step.check == "chain"]) > 10


@pytest.mark.anyio
async def test_a_running_journal_finds_its_own_damage(opened: Open, settings: JournalSettings) -> None:
    """The same checks, on the same file, for the daemon that has it open."""

    def spoil(sql: str) -> Callable[[], None]:
        return lambda: edit(settings.state_dir / "journal.db", sql)

    async with opened() as journal:
        await fill(journal)
    await to_thread.run_sync(spoil("UPDATE payloads SET body = CAST('{}' AS BLOB) WHERE seq = 7"))
    async with opened() as journal:
        found = await verify_journal(journal, lambda _: None)
    assert [finding.subject for finding in found] == ["payload 7"]
