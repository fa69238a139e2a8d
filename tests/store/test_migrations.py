"""A journal of each earlier version goes on: nothing is lost, and an interrupted migration is none at all.

`versions/NNNN.sql` are the rows of a journal that was written by an effectd whose newest migration was that
one, with something in each of its tables.
"""

import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Final, get_args, get_origin, get_type_hints

import pytest
from anyio import to_thread

import store.schema as schema  # noqa: PLR0402 - for pyright, `store` alone would be the folder of these tests
from store.connection import prepare_new
from store.declared import EventData
from store.errors import JournalNewer
from store.events import EVENT_TYPES
from store.findings import Finding, Progress
from store.folder import LOCK
from store.keys import KEY
from store.lifecycle import Effect
from store.mending import rebuild_file
from store.pieces import PIECE_BYTES
from store.records import JournalId, OperationFilter
from store.rest import at_rest
from store.rollback import begin_history
from store.settings import JournalSettings
from store.verify import verify_file, verify_journal
from store.wire import as_json, from_json
from tests.store.conftest import Clock, Open
from tests.store.drafts import (
    accepted,
    command_id,
    late,
    operation_id,
    reconciled,
    recording,
    started,
    succeeded,
    unknown,
)

VERSIONS = Path(__file__).parent / "versions"
EARLIER = tuple(range(schema.FIRST, schema.VERSION))


def migrations(version: int) -> list[str]:
    """The scripts up to `version`."""
    return [script for number, script in schema.MIGRATIONS if number <= version]


def make(folder: Path, version: int) -> Path:
    """Make a state folder as an effectd of an earlier version left it; return its journal."""
    folder.mkdir(mode=0o700)
    key, _, rows = (VERSIONS / f"{version:04}.sql").read_text(encoding="utf-8").partition("\n")
    path = folder / "journal.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        prepare_new(connection)
        connection.execute("PRAGMA journal_mode = WAL").fetchone()
        for script in migrations(version):
            connection.executescript(script)
        connection.executescript(f"BEGIN;\n{rows}\nCOMMIT;")
        (file_id,) = connection.execute("SELECT file_id FROM journal").fetchone()
    (folder / KEY).write_bytes(bytes.fromhex(key.removeprefix("-- digest.key: ")))
    (folder / "CURRENT").write_text(json.dumps({"format": 1, "file_id": file_id, "journal": path.name}))
    for file in folder.iterdir():
        file.chmod(0o600)
    return path


def content(path: Path, version: int) -> dict[str, list[tuple[object, ...]]]:
    """The rows of the tables that `version` had, in its columns."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as old:
        for script in migrations(version):
            old.executescript(script)
        tables = [row[0] for row in old.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        columns = {
            table: ", ".join(row[1] for row in old.execute(f"PRAGMA table_info('{table}')"))
            for table in tables
        }
    with closing(sqlite3.connect(path)) as connection:
        pieces = _pieces(connection)

        def whole(seq: int, body: bytes | None) -> bytes | None:
            return None if body is None else body + pieces.get(seq, b"")

        connection.create_function("whole", 2, whole)
        columns["payloads"] = columns["payloads"].replace("body", "whole(seq, body)")
        return {
            table: sorted(connection.execute(f"SELECT {names} FROM {table}").fetchall(), key=repr)
            for table, names in columns.items()
            if table != "journal"
        }


def kept(rows: dict[str, list[tuple[object, ...]]]) -> dict[str, list[tuple[object, ...]]]:
    """Without what commits remove by themselves, and with what payloads have in pieces."""
    return {table: found for table, found in rows.items() if table not in {"pieces", "shreds"}}


IN_PIECES: Final = 7
"""The first version that keeps what is long in pieces."""


def _pieces(connection: sqlite3.Connection) -> dict[int, bytes]:
    """What follows on the body of each payload."""
    if schema.version(connection) < IN_PIECES:
        return {}
    found: dict[int, bytes] = {}
    for seq, body in connection.execute(
        "SELECT p.seq, i.body FROM payloads AS p JOIN pieces AS i ON i.of = p.pieces ORDER BY i.n"
    ):
        found[seq] = found.get(seq, b"") + body
    return found


UNALLOWED: Final = (
    Finding(
        check="attempts",
        subject=f"operation {operation_id(2)}",
        problem="attempt 2 began while nothing proved that those before it did nothing",
    ),
)
"""What is wrong in each of them, and nothing else: made by hand, they hold a repeat that rule R forbids."""


def wrong(version: int) -> tuple[Finding, ...]:
    """What is wrong in the journal of a version."""
    return UNALLOWED if version < ALLOWED else ()


ALLOWED: Final = 6
"""The first version whose journal was made with a contract that allows its repeat."""


@pytest.fixture(params=EARLIER)
def version(request: pytest.FixtureRequest) -> int:
    """Each version before the present one."""
    return int(request.param)


@pytest.fixture
def journal_file(settings: JournalSettings, version: int) -> Path:
    """A journal of that version."""
    return make(settings.state_dir, version)


def test_the_rows_of_a_version_are_in_every_table_that_it_had(journal_file: Path, version: int) -> None:
    """Else a migration could lose what no test has."""
    later = {4: {"erasures", "remains"}}  # they were made and not yet used
    empty = {table for table, rows in content(journal_file, version).items() if not rows}
    assert empty == later.get(version, set())


@pytest.mark.anyio
async def test_a_journal_of_an_earlier_version_goes_on(
    opened: Open, settings: JournalSettings, clock: Clock, journal_file: Path, version: int
) -> None:
    """It has every row that it had, is sound, and takes what happens next to what happened before."""
    before = kept(await to_thread.run_sync(content, journal_file, version))
    async with opened() as journal:
        assert await verify_journal(journal, lambda _: None, deep=True) == wrong(version)
        assert await journal.read(lambda view: schema.version(view.ledger.connection)) == schema.VERSION
        assert (await journal.read(lambda view: view.deliveries(command_id(1))))[0].answer == "accepted"
    assert kept(await to_thread.run_sync(content, journal_file, version)) == before
    async with opened() as journal:
        await journal.transact(recording(accepted(50), started(50), succeeded(50)))
        await journal.transact(recording(reconciled(3, Effect.OCCURRED), late(3)))
        await journal.transact(lambda tx: tx.acknowledge(tx.last_seq))
        await journal.transact(lambda tx: begin_history(tx, JournalId("e" * 32)))
        await journal.transact(recording(accepted(51), started(51), unknown(51)))
        operation = await journal.read(lambda view: view.operation(operation_id(3)))
        assert operation is not None
        assert operation.effect is Effect.OCCURRED
    found = await to_thread.run_sync(lambda: verify_file(settings, lambda _: None, now=clock(), deep=True))
    assert found == wrong(version)


def test_a_journal_of_an_earlier_version_is_looked_at_as_the_next_start_will_have_it(
    settings: JournalSettings, clock: Clock, journal_file: Path, version: int
) -> None:
    """As between an upgrade and the first start. To be old is no damage, and nothing is changed."""
    before = content_of(settings.state_dir)
    assert verify_file(settings, nobody, now=clock(), deep=True) == wrong(version)
    with at_rest(settings, now=clock()) as view:
        assert view is not None
        assert view.operations(OperationFilter(), None, 500).items
    assert content_of(settings.state_dir) == before


def test_the_projections_of_an_earlier_version_can_be_made_again(
    settings: JournalSettings, clock: Clock, journal_file: Path, version: int
) -> None:
    """In a copy that is migrated; the old file stays what it was."""
    with closing(sqlite3.connect(journal_file)) as connection, connection:
        connection.execute("UPDATE operations SET tool = 'other/tool' WHERE rowid = 1")
    before = journal_file.read_bytes()
    made = rebuild_file(settings, nobody, now=clock())
    assert {finding.check for finding in made.found} >= {"projections"}
    assert (made.journal, made.left) == ("journal-2.db", wrong(version))
    assert state_of(settings.state_dir / "journal-2.db") == (schema.VERSION, schema.EXPECTED)
    assert journal_file.read_bytes() == before


def test_what_is_long_stands_in_pieces_however_old_it_is(journal_file: Path) -> None:
    """To remove it takes many short commits."""
    migrate(journal_file, nothing)
    with closing(sqlite3.connect(journal_file)) as connection:
        (longest,) = connection.execute("SELECT max(length(body)) FROM payloads").fetchone()
        assert longest <= PIECE_BYTES


@pytest.mark.anyio
async def test_a_very_long_payload_is_cut_and_reads_as_it_was(
    opened: Open, settings: JournalSettings
) -> None:
    """Thirty megabytes in one row, as an earlier version kept them."""
    await to_thread.run_sync(make, settings.state_dir, IN_PIECES - 1)
    content = bytes(range(256)) * 120_000
    file = settings.state_dir / "journal.db"

    def lengthen() -> None:
        with closing(sqlite3.connect(file)) as connection, connection:
            (seq,) = connection.execute("SELECT seq FROM payloads WHERE length(body) > 65536").fetchone()
            connection.execute("UPDATE payloads SET body = ? WHERE seq = ?", (content, seq))

    await to_thread.run_sync(lengthen)
    async with opened() as journal:
        assert await journal.read(lambda view: view.result(operation_id(8))) == content


def described(version: int) -> str:
    """The schema of one version."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        for script in migrations(version):
            connection.executescript(script)
        return schema.describe(connection)


def content_of(folder: Path) -> dict[str, bytes]:
    """The files of a state folder, but for its lock."""
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.name != LOCK}


def nobody(_: Progress) -> None:
    """Whom progress is told."""


def nothing(_: sqlite3.Connection, __: int) -> None:
    """Let the statement run."""


def migrate(path: Path, at_statement: Callable[[sqlite3.Connection, int], None]) -> int:
    """Migrate the file, and call back before each statement; return how many there were."""
    count = 0

    with closing(sqlite3.connect(path, isolation_level=None)) as connection:

        def trace(_: str) -> None:
            nonlocal count
            count += 1
            at_statement(connection, count)

        connection.set_trace_callback(trace)
        schema.migrate(connection)
    return count


def state_of(path: Path) -> tuple[int, str]:
    """Version and schema of a file."""
    with closing(sqlite3.connect(path)) as connection:
        return schema.version(connection), schema.describe(connection)


def test_a_migration_that_is_killed_anywhere_leaves_one_version_or_the_next(
    settings: JournalSettings, journal_file: Path, version: int, tmp_path: Path
) -> None:
    """What the disk holds before each statement is a whole version with all rows, and can go on."""
    whole = {number: described(number) for number in range(version, schema.VERSION + 1)}
    before = content(journal_file, version)
    images: list[Path] = []

    def copy(_: sqlite3.Connection, number: int) -> None:
        image = tmp_path / f"image-{number}"
        shutil.copytree(settings.state_dir, image)
        images.append(image / journal_file.name)

    assert migrate(journal_file, copy) == len(images) > 0
    for image in images:
        found, schema_found = state_of(image)
        assert schema_found == whole[found]
        assert content(image, version) == before
        migrate(image, nothing)
        assert state_of(image) == (schema.VERSION, schema.EXPECTED)
        assert content(image, version) == before


def test_a_migration_that_fails_anywhere_leaves_one_version_or_the_next(
    journal_file: Path, version: int, tmp_path: Path
) -> None:
    """An error in any statement is the caller's, and the next try finishes."""
    whole = {number: described(number) for number in range(version, schema.VERSION + 1)}
    before = content(journal_file, version)
    failed = 0
    trial = tmp_path / "trial.db"
    shutil.copyfile(journal_file, trial)
    for place in range(1, migrate(trial, nothing) + 1):
        shutil.copyfile(journal_file, trial)

        def fail(connection: sqlite3.Connection, number: int, place: int = place) -> None:
            if number == place:
                connection.interrupt()

        try:
            migrate(trial, fail)
        except sqlite3.OperationalError:
            failed += 1
        found, schema_found = state_of(trial)
        assert schema_found == whole[found]
        migrate(trial, nothing)
        assert state_of(trial) == (schema.VERSION, schema.EXPECTED)
        assert content(trial, version) == before
    assert failed


@pytest.mark.anyio
async def test_a_newer_journal_is_refused_by_both_versions(
    opened: Open, settings: JournalSettings, journal_file: Path
) -> None:
    """The message names its version, and ours; the file is left as it is."""

    def raise_version() -> bytes:
        with closing(sqlite3.connect(journal_file)) as connection:
            connection.execute(f"PRAGMA user_version = {schema.VERSION + 1}")
        return journal_file.read_bytes()

    before = await to_thread.run_sync(raise_version)
    with pytest.raises(
        JournalNewer, match=f"is {schema.VERSION + 1}, and this program knows {schema.VERSION}"
    ):
        async with opened():
            pass
    assert await to_thread.run_sync(journal_file.read_bytes) == before


@pytest.mark.parametrize("event", EVENT_TYPES, ids=lambda event: event.KIND)
def test_an_event_that_lacks_what_it_could_not_know_reads_carefully(event: type[EventData]) -> None:
    """What may be absent is None; an effect that nobody recorded is unknown, and its error unsettled."""
    careful = {"effect": Effect.UNKNOWN, "error_means": "unsettled", "idempotent": False}
    hints = get_type_hints(event)
    nullable = {name for name, hint in hints.items() if type(None) in get_args(hint)}
    required = {item.name for item in fields(event) if item.default is MISSING}
    told = {name: _example(hints[name]) for name in required - nullable - careful.keys()}
    data = from_json(event.KIND, told)
    for name in required & nullable:
        assert getattr(data, name) is None
    for name in required & careful.keys():
        assert getattr(data, name) == careful[name]
    assert from_json(event.KIND, as_json(data)) == data


def _example(hint: object) -> object:
    kind = get_origin(hint)
    if kind is tuple:
        return []
    return {} if kind is dict else "x"
