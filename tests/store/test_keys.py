"""The key of digests: made once, kept to itself, and missed as soon as it is lost or exchanged."""

import hashlib
import hmac
import shutil
import stat
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest
from anyio import to_thread

from store.errors import DigestKeyMissing, DigestKeyWrong, OpenRefused
from store.events import Draft
from store.findings import Finding
from store.head import read_head
from store.inspection import looking
from store.keys import KEY, DigestKey, make_key
from store.settings import JournalSettings
from store.verify import verify_file
from tests.store.conftest import Open
from tests.store.drafts import REDACT, accepted, recording, refused, secret, started, succeeded

NOW = datetime(2030, 1, 1, tzinfo=UTC)


@pytest.fixture
def state(settings: JournalSettings) -> Path:
    """The state folder."""
    return settings.state_dir


async def verified(settings: JournalSettings) -> tuple[Finding, ...]:
    """What an offline look finds."""
    look = partial(verify_file, settings, lambda _: None, now=NOW, deep=True)
    return await to_thread.run_sync(look)


async def use(opened: Open) -> None:
    """Record a keyed digest."""
    async with opened() as journal:
        await journal.transact(recording(secret(1), started(1)))


async def refuse(opened: Open, kind: type[OpenRefused], match: str) -> None:
    """Every start is refused alike."""
    for _ in range(2):
        with pytest.raises(kind, match=match):
            async with opened():
                pass


def test_a_digest_is_an_hmac() -> None:
    """HMAC-SHA-256 in the shape of a SHA-256: 64 hex digits, and others under another key."""
    key = DigestKey(b"k" * 32)
    assert key.digest(b"data") == hmac.new(b"k" * 32, b"data", hashlib.sha256).hexdigest()
    assert DigestKey(b"l" * 32).digest(b"data") != key.digest(b"data")
    assert DigestKey(b"l" * 32).check != key.check
    assert "kkkk" not in repr(key)
    assert (b"k" * 4).hex() not in repr(key)


def test_keys_are_random(tmp_path: Path) -> None:
    """No two folders have the same."""
    made = {make_key(tmp_path).check for _ in range(4)}
    assert len(made) == 4


@pytest.mark.anyio
async def test_a_state_folder_has_a_key_of_its_own(opened: Open, state: Path) -> None:
    """32 bytes for its owner alone, there from the first start on, and the same at the next."""
    async with opened() as journal:
        first = journal.key.check
        assert stat.S_IMODE((state / KEY).stat().st_mode) == 0o600
        content = (state / KEY).read_bytes()
        assert len(content) == 32
    async with opened() as journal:
        assert journal.key.check == first
    assert (state / KEY).read_bytes() == content


def used(state: Path) -> str | None:
    """Which key the closed journal says that it used."""
    with looking(state / "journal.db") as connection:
        return read_head(connection).key_check


REFUSED = Draft(
    data=refused(1).data, run_id=refused(1).run_id, command_id=refused(1).command_id, redact=REDACT
)


@pytest.mark.anyio
@pytest.mark.parametrize("draft", [secret(1), REFUSED], ids=["accepted", "refused"])
async def test_the_journal_remembers_which_key_it_used(opened: Open, state: Path, draft: Draft) -> None:
    """From the first keyed digest on, and not before."""
    async with opened() as journal:
        await journal.transact(recording(accepted(7), started(7), succeeded(7)))
        assert not await journal.read(lambda view: view.has_keyed_digests)
        await journal.transact(recording(draft))
        assert await journal.read(lambda view: view.has_keyed_digests)
        check = journal.key.check
    assert await to_thread.run_sync(used, state) == check


@pytest.mark.anyio
async def test_a_lost_key_that_was_never_used_is_made_again(opened: Open, state: Path) -> None:
    """Nothing depends on it yet."""
    async with opened() as journal:
        await journal.transact(recording(accepted(1)))
    (state / KEY).unlink()
    async with opened() as journal:
        assert await journal.read(lambda view: view.last_seq) == 1
    assert (state / KEY).exists()


@pytest.mark.anyio
async def test_a_lost_key_that_was_used_is_refused(
    opened: Open, state: Path, settings: JournalSettings
) -> None:
    """A new one would make every redelivery look like another command; put back, all goes on."""
    await use(opened)
    (state / KEY).rename(state.parent / KEY)
    await refuse(opened, DigestKeyMissing, "from a backup")
    assert not (state / KEY).exists()
    found = await verified(settings)
    assert [(finding.check, finding.subject) for finding in found] == [("key", KEY)]
    (state.parent / KEY).rename(state / KEY)
    assert await verified(settings) == ()
    async with opened() as journal:
        assert await journal.read(lambda view: view.last_seq) == 2


@pytest.mark.anyio
@pytest.mark.parametrize("content", [b"x" * 32, b"", b"x" * 31, b"x" * 33])
async def test_another_key_is_refused(
    opened: Open, state: Path, settings: JournalSettings, content: bytes
) -> None:
    """So is a file that is no key; neither is replaced, and everything else can be verified."""
    await use(opened)
    (state / KEY).write_bytes(content)
    await refuse(opened, DigestKeyWrong, "left as it is")
    assert (state / KEY).read_bytes() == content
    assert [finding.check for finding in await verified(settings)] == ["key"]


@pytest.mark.anyio
async def test_a_journal_that_moved_without_its_key_is_noticed(
    opened: Open, state: Path, settings: JournalSettings, tmp_path: Path
) -> None:
    """The check stands in the journal itself, wherever that goes."""
    await use(opened)
    other = JournalSettings(state_dir=tmp_path / "other", runtime_dir=settings.runtime_dir)
    (tmp_path / "other").mkdir(mode=0o700)
    for name in ("CURRENT", "journal.db"):
        shutil.copy2(state / name, tmp_path / "other" / name)
    with pytest.raises(DigestKeyMissing):
        async with opened(other):
            pass
