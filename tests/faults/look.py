"""Opens what a power loss may have left, as the next start would, and says what is there.

Three looks. Of every disk the view is taken: what a start reads of it (`tests.faults.view`). Each disk with a
view that is new, and a share of the others, is opened by the journal's own code, with the one difference that
its connection runs in the same thread; the others have the answer of their view, and where one that is opened
has another, the lane has failed. What came of an opening, the journal after recovery, is the same for many:
each of those is looked at once, and deeply: another life goes on with it, ends, and everything is verified.
"""

import os
import re
import shutil
import sqlite3
from collections.abc import Callable, Coroutine, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import blake2b
from importlib import import_module
from pathlib import Path
from typing import Final, TypeVar, cast

import anyio

from store.connection import CACHED_STATEMENTS, uri
from store.errors import StoreError
from store.files import FIRST, generation
from store.head import Ledger
from store.identity import read_identity
from store.journal import open_journal
from store.opening import open_connection, opened_folder
from store.settings import JournalSettings
from store.verify import verify_file
from tests.faults.platter import Image
from tests.faults.view import Viewer
from tests.store.conftest import FILES, Clock, Ids
from tests.store.drafts import driver_started, recording

T = TypeVar("T")
_CANARY: Final = re.compile(rb"(?:canary|result)-[0-9a-f]{32}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A journal as it is after recovery."""

    last_seq: int
    chains: Mapping[int, str]
    """The hash chain as of each event, and as of the end of each gap."""
    gaps: tuple[tuple[int, int], ...]
    attempts: frozenset[str]
    """The operations that have one."""
    canaries: frozenset[str]
    """Texts that were to be erased some time, and still stand somewhere once another life has ended."""
    wrong: tuple[str, ...]
    """What another life, and a deep look, found wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a start says of a state: a journal, or why there is none."""

    found: Found | None
    refusal: str | None
    backups: Mapping[str, str]
    """What is wrong with each backup that has its name; an empty text for a good one."""


OPENED: Final = 256 // 16
"""Of disks whose view is known, those whose digest begins below this are opened all the same: 1 in 16."""


@dataclass(slots=True)
class Looker:
    """Looks at states, in a folder of its own."""

    root: Path
    answers: dict[bytes, Answer] = field(default_factory=dict[bytes, Answer])
    views: dict[bytes, Found | str] = field(default_factory=dict[bytes, "Found | str"])
    recovered: dict[bytes, Found] = field(default_factory=dict[bytes, Found])
    backups: dict[bytes, str] = field(default_factory=dict[bytes, str])
    opened: int = 0
    """Disks on which a start was run."""
    different: int = 0
    """Disks of which a start said something else than of another one with the same view."""
    _viewer: Viewer = field(default_factory=Viewer)

    def look(self, image: Image) -> Answer:
        """Return what a start says of these files; remembered by their content."""
        answer = self.answers.get(image.digest)
        if answer is None:
            backups = {
                name: self._backup(b"".join(image.pages[name]), data)
                for name, data in image.files.items()
                if _is_backup(name)
            }
            answer = self.answers[image.digest] = _answer(self._state(image), backups)
        return answer

    def _state(self, image: Image) -> Found | str:
        view = self._viewer.view(image)
        known = self.views.get(view)
        if known is not None and image.digest[0] >= OPENED:
            return known
        self.opened += 1
        folder = self.root / "state"
        _write(folder, {name[6:]: data for name, data in image.files.items() if name.startswith("state/")})
        found = self._start(JournalSettings(state_dir=folder, runtime_dir=self.root / "run"))
        self.different += found != self.views.setdefault(view, found)
        return found

    def look_at(self, root: Path) -> Answer:
        """Return what a start says of the folders below `root`, where they are: nothing is remembered."""
        contents = {f"backups/{path.name}": path.read_bytes() for path in (root / "backups").iterdir()}
        backups = {
            name: self._backup(blake2b(data, digest_size=16).digest(), data)
            for name, data in contents.items()
            if _is_backup(name)
        }
        settings = JournalSettings(state_dir=root / "state", runtime_dir=root / "run")
        return _answer(self._start(settings), backups)

    def _start(self, settings: JournalSettings) -> Found | str:
        try:
            return self._found(settings)
        except (StoreError, sqlite3.Error) as error:  # or the lane itself cannot read it
            return f"{type(error).__name__}: {error}"

    def _found(self, settings: JournalSettings) -> Found:
        clock = Clock()
        with _inline(), opened_folder(settings, new_id=Ids(), now=clock) as opened:
            connection, writer = _at_once(
                open_connection(opened, settings, clock=clock, boundary=lambda _: None)
            )
            chains, gaps, attempts = _events(writer.ledger)
            last_seq = writer.ledger.head.last_seq
            writer.finish()
            _at_once(connection.close())
            content = opened.path.read_bytes()
        names = " ".join(sorted(os.listdir(settings.state_dir)))  # noqa: PTH208 - it is fast
        digest = blake2b(content + names.encode(), digest_size=16).digest()
        if (known := self.recovered.get(digest)) is None:
            canaries, wrong = _live_on(settings)
            known = self.recovered[digest] = Found(
                last_seq=last_seq, chains=chains, gaps=gaps, attempts=attempts, canaries=canaries, wrong=wrong
            )
        return known

    def _backup(self, digest: bytes, content: bytes | bytearray) -> str:
        if digest not in self.backups:
            place = self.root / "restored"
            _write(place, {FIRST: content})
            settings = JournalSettings(state_dir=place, runtime_dir=self.root / "run")
            try:
                self.backups[digest] = "; ".join(_live_on(settings)[1])
            except StoreError as error:
                self.backups[digest] = str(error)
        return self.backups[digest]


def _answer(state: Found | str, backups: Mapping[str, str]) -> Answer:
    if isinstance(state, Found):
        return Answer(found=state, refusal=None, backups=backups)
    return Answer(found=None, refusal=state, backups=backups)


def _is_backup(name: str) -> bool:
    return name.startswith("backups/") and not Path(name).name.startswith(".") and name.endswith(".db")


def _write(place: Path, content: Mapping[str, bytes | bytearray]) -> None:
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(mode=0o700)
    for name, data in content.items():
        descriptor = os.open(place / name, os.O_WRONLY | os.O_CREAT, 0o600)
        if data:
            assert os.write(descriptor, data) == len(data)
        os.close(descriptor)


def _events(ledger: Ledger) -> tuple[dict[int, str], tuple[tuple[int, int], ...], frozenset[str]]:
    rows = ledger.connection.execute("SELECT seq, chain FROM events").fetchall()
    gaps = ledger.connection.execute("SELECT first, last, chain FROM gaps").fetchall()
    attempts = ledger.connection.execute(
        "SELECT operation_id FROM operations WHERE id IN (SELECT operation FROM attempts)"
    )
    chains = {**dict(rows), **{last: chain for _, last, chain in gaps}}
    return chains, tuple((first, last) for first, last, _ in gaps), frozenset(name for (name,) in attempts)


def _live_on(settings: JournalSettings) -> tuple[frozenset[str], tuple[str, ...]]:
    """Let another life use the journal and end; return the canaries that are left, and what is wrong."""
    wrong: list[str] = []
    try:
        anyio.run(_life, settings)
        wrong += map(str, verify_file(settings, lambda _: None, now=Clock().now, deep=True))
    except StoreError as error:
        wrong.append(f"the life after it: {error}")
    identity = read_identity(settings.state_dir)
    left = {item.name for item in settings.state_dir.iterdir()}
    if extra := {name for name in left - FILES if generation(name) is None}:
        wrong.append(f"left behind after a clean stop: {sorted(extra)}")
    canaries: set[str] = set()
    if identity is not None and identity.journal is not None:
        content = identity.path(settings.state_dir).read_bytes()
        canaries = {text.decode() for text in _CANARY.findall(content)}
    return frozenset(canaries), tuple(wrong)


async def _life(settings: JournalSettings) -> None:
    clock = Clock()
    async with open_journal(settings, clock=clock, new_id=Ids()) as journal:
        await journal.transact(recording(driver_started()))


class _Inline:
    """The journal's connection without its thread: what is run, runs at once."""

    def __init__(self, path: Path) -> None:
        self._path: Final = path

    def __await__(self) -> Generator[None, None, "_Inline"]:
        self._raw = sqlite3.connect(
            uri(self._path, "rw"), uri=True, isolation_level=None, cached_statements=CACHED_STATEMENTS
        )
        yield from ()
        return self

    async def run(self, function: Callable[[sqlite3.Connection], T]) -> T:
        return function(self._raw)

    async def abandon(self, after: Callable[[], None]) -> None:
        self._raw.interrupt()  # no checkpoint at the close, as `JournalConnection` has it
        self._raw.close()
        after()

    async def close(self) -> None:
        self._raw.close()


@contextmanager
def _inline() -> Generator[None]:
    """Open in this thread, and ask nothing of the machine that is the same for every state."""

    def on_a_local_disk(_: Path) -> str:
        return "ext4"

    def in_a_safe_place(_: Path) -> None:
        return None

    opening, folder = vars(import_module("store.opening")), vars(import_module("store.folder"))
    usual = opening["connect"], folder["file_system_of"], folder["weak_ancestor"]
    opening["connect"], folder["file_system_of"], folder["weak_ancestor"] = (
        _Inline,
        on_a_local_disk,
        in_a_safe_place,
    )
    try:
        yield
    finally:
        opening["connect"], folder["file_system_of"], folder["weak_ancestor"] = usual


def _at_once(coroutine: Coroutine[object, None, T]) -> T:
    """Run a coroutine that waits for nothing."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return cast("T", end.value)
    raise AssertionError("it waits")
