"""The journal: one file, one owner, many callers.

Part of `store`; imports its own modules. Callers hand in whole units of work; one task takes everything that
waits, runs it in the connection's thread as one group commit, and releases each caller when its own unit is
durable. Reads run between commits, in the same thread.

* A caller that is cancelled stops waiting. What it writes is written all the same, whole; a read that nobody
  waits for any more is left out, so that callers who come and go cannot hold up the commits.
* A unit's own exception reaches its caller alone; what it had written is undone.
* When the journal fails, every caller gets `JournalFailed`, nothing more is written, and `open_journal`
  raises it out of its block, whatever else was going on.
"""

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias, TypeVar, cast

import anyio
from anyio import CancelScope, create_task_group, move_on_after, to_thread

from store.connection import SQLITE_VERSION, JournalConnection
from store.erasure import NO_DEBT
from store.errors import JournalClosed, JournalFailed, QueueFull
from store.keys import DigestKey
from store.opening import Opened, open_connection, opened_folder
from store.records import StoredEvent, timestamp
from store.settings import JournalSettings
from store.statistics import JournalStatistics
from store.transaction import Transaction
from store.view import View
from store.waiting import Call, take
from store.writer import Committed, Raised, Writer

T = TypeVar("T")
U = TypeVar("U", View, Transaction)
Listener = Callable[[Sequence[StoredEvent]], None]

LAZY_SHARE: Final = 4
"""A commit is made for lazy writes alone once they fill this part of their queue."""
ERASE_AFTER_S: Final = 1.0
"""How long nobody wants anything before a commit is made only to erase what an acknowledgement allows."""

PASSES: Final = 3
"""Passes of the event loop without a new unit after which nobody is on their way any more: about 0.1 ms."""


CommitWatch: TypeAlias = Callable[[float, int], None]
"""Told of each group commit that wrote: how many seconds it took, and how many units it ran."""


@asynccontextmanager
async def open_journal(
    settings: JournalSettings,
    *,
    clock: Callable[[], datetime],
    new_id: Callable[[], str],
    boundary: Callable[[str], None] = lambda _: None,
) -> AsyncGenerator["Journal"]:
    """Open the state folder's journal, or make it, and own it until the block ends.

    `clock` returns an aware time and `new_id` 32 hex digits; both, and `boundary` (called with the name of
    each point between two durable steps), run in the connection's thread. At the end all that waits is
    committed, and the `-wal` is gone.

    Raises an `OpenRefused` or `NoRoomForGeneration` before the block; `JournalFailed` out of it, and then in
    place of whatever the block raised. Other exceptions of the block pass as they are.
    """
    entering = opened_folder(settings, new_id=new_id, now=clock)
    opened = await _shielded(partial(to_thread.run_sync, entering.__enter__))
    try:
        async with _owned(opened, settings, clock=clock, boundary=boundary) as journal:
            yield journal
    finally:
        leave = partial(entering.__exit__, None, None, None)
        await _shielded(partial(to_thread.run_sync, leave))


@asynccontextmanager
async def _owned(
    opened: Opened,
    settings: JournalSettings,
    *,
    clock: Callable[[], datetime],
    boundary: Callable[[str], None],
) -> AsyncGenerator["Journal"]:
    opening = partial(open_connection, opened, settings, clock=clock, boundary=boundary)
    connection, writer = await _shielded(opening)
    journal = Journal(connection, writer, opened, settings)
    try:
        async with create_task_group() as tasks:
            tasks.start_soon(journal.own)
            try:
                yield journal
            finally:
                journal.close()
    except BaseExceptionGroup as group:
        if journal.failed is not None:
            raise journal.failed from journal.failed.__cause__
        if len(group.exceptions) == 1:
            raise group.exceptions[0] from group.exceptions[0].__cause__
        raise
    finally:
        await _shielded(journal.close_connection)


async def _shielded(work: Callable[[], Awaitable[T]]) -> T:
    """Await `work` to its end, whoever is cancelled.

    Neither the lock nor the connection's thread may be left behind.
    """
    with CancelScope(shield=True):
        return await work()
    raise AssertionError  # for the type checkers: a scope that nobody cancels swallows nothing


class Journal:
    """The open journal. Made by `open_journal`; used from the event loop's thread only."""

    def __init__(
        self, connection: JournalConnection, writer: Writer, opened: Opened, settings: JournalSettings
    ) -> None:
        self._connection: Final = connection
        self._writer: Final = writer
        self._opened: Final = opened
        self._settings: Final = settings
        self._writes: Final[deque[Call[Transaction]]] = deque()
        self._reads: Final[deque[Call[View]]] = deque()
        self._later: Final[deque[Call[Transaction]]] = deque()
        self._listeners: Final[dict[object, Listener]] = {}
        self._watches: Final[list[CommitWatch]] = []
        self._room = anyio.Event()
        self._wake = asyncio.Event()
        self._crowd = 0
        """How many units the last commit ran: about so many may come again."""
        self._hold = anyio.Lock()
        self._looking = 0
        self._idle = False
        """Whether nobody wants anything, and secrets can be erased."""
        self._debt = NO_DEBT
        self._closing = False
        self.failed: JournalFailed | None = None
        """Why the journal stopped, once it did."""
        self._commits = self._units = self._events = self._lazy_errors = 0
        self._last_commit_at: datetime | None = None
        # as of the last commit; the writer's own may be ahead of it
        self._reached = writer.ledger.head.reached

    # ------------------------------------------------------------ for callers

    async def transact(self, unit: Callable[[Transaction], T]) -> T:
        """Run `unit` in the next group commit, and return what it returned, after the fsync.

        The unit runs in the connection's thread: it decides first, then writes, and must not block. What it
        raises is raised here, and nothing of it stays. Cancellation ends the wait only. Waits for a place in
        the queue where `queue_max` units wait already. Raises `JournalFailed` (it may or may not be on the
        disk) and `JournalClosed`.
        """
        return await self._wait_for(self._writes, unit)

    async def read(self, unit: Callable[[View], T]) -> T:
        """Run `unit` between two commits, and return what it returned. Otherwise as `transact`.

        Cancelled before its turn, it does not run.
        """
        return await self._wait_for(self._reads, unit)

    def later(self, unit: Callable[[Transaction], None]) -> None:
        """Run `unit` with the next commit, at the latest when the journal is closed; nobody waits for it.

        For what may be lost without harm. What it raises is undone and counted (`lazy_errors`). Raises
        `QueueFull` and `JournalClosed`.
        """
        self._check_open()
        if len(self._later) >= self._settings.later_max:
            raise QueueFull(self._settings.later_max)
        self._later.append(Call(unit, None))
        if self._is_urgent or self._debt.waiting:
            self._wake.set()

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` in the event loop after each commit that recorded events, with them, in order.

        Returns the function that ends the subscription. A listener must not block, and must not raise.
        """
        key = object()
        self._listeners[key] = listener

        def end() -> None:
            self._listeners.pop(key, None)

        return end

    def watch(self, watch: CommitWatch) -> None:
        """Call `watch` in the event loop after each commit that wrote. It must not block, nor raise."""
        self._watches.append(watch)

    @property
    def progress(self) -> int:
        """How many steps the long units have taken so far: it grows while one of them is at work."""
        return self._writer.ledger.progress

    @property
    def is_held(self) -> bool:
        """Whether the file stands still, and the `-wal` grows, or somebody looks at all of it.

        No time for pruning.
        """
        return self._writer.held or self._looking > 0

    @contextmanager
    def unpruned(self) -> Generator[None]:
        """Let `is_held` say that nothing is to be pruned while the block lasts."""
        self._looking += 1
        try:
            yield
        finally:
            self._looking -= 1

    @asynccontextmanager
    async def held(self) -> AsyncGenerator[Path]:
        """Let the journal's file stand still while the block lasts, and yield its path.

        Commits go on, into the `-wal` alone, which only grows meanwhile. One at a time. Raises as `read`.
        """
        async with self._hold:
            self._writer.held = True
            try:
                await self.read(lambda _: None)  # whatever was copying pages into the file has ended
                yield self._opened.path
            finally:
                self._writer.held = False
                self._wake.set()  # there may be old copies of secrets in the `-wal`

    @property
    def key(self) -> DigestKey:
        """The key of this state folder: what a contract withholds has digests under it."""
        return self._opened.key

    def statistics(self) -> JournalStatistics:
        """Return how the journal does. Costs nothing."""
        reached, sizes = self._reached, self._writer.sizes
        return JournalStatistics(
            commits=self._commits,
            units=self._units,
            events=self._events,
            waiting=len(self._writes) + len(self._reads),
            base=reached.base,
            last_seq=reached.last_seq,
            acked_seq=reached.acked_seq,
            last_commit_at=None if self._last_commit_at is None else timestamp(self._last_commit_at),
            bytes=sizes.bytes,
            wal_bytes=self._writer.wal_bytes,
            free_bytes=sizes.free_bytes,
            checkpoints=self._writer.checkpoints,
            lazy_errors=self._lazy_errors,
            rotated=self._opened.rotated,
            volatile=self._opened.folder.volatile,
            file_system=self._opened.folder.file_system,
            file_name=self._opened.path.name,
            sqlite_version=SQLITE_VERSION,
        )

    def _check_open(self) -> None:
        if self.failed is not None:
            raise self.failed
        if self._closing:
            raise JournalClosed

    async def _wait_for(self, queue: deque[Call[U]], unit: Callable[[U], T]) -> T:
        self._check_open()
        while len(self._writes) + len(self._reads) >= self._settings.queue_max:
            await self._room.wait()
            self._check_open()
        waiter: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        queue.append(Call(unit, waiter))
        self._wake.set()
        return cast("T", await waiter)

    # ------------------------------------------------------------ the owner

    def close(self) -> None:
        """Take no more units; `own` ends when those that wait are committed. For `open_journal`."""
        self._closing = True
        self._wake.set()

    async def own(self) -> None:
        """Own the connection until `close`. Nothing cancels it: a commit is never left half-way."""
        with CancelScope(shield=True):
            try:
                while await self._work_arrives():
                    await self._commit_what_waits()
                    await self._read_what_waits()
                    crowded = bool(self._writes)
                    if self._writer.wants_checkpoint(crowded=crowded) or self._may_empty_wal:
                        checkpoint = partial(self._writer.checkpoint, hurried=not self._may_empty_wal)
                        await self._run(checkpoint)
                await self._run(self._writer.finish)
            except JournalFailed as error:
                self._fail(error)
                raise
            except BaseException as error:
                failed = JournalFailed("its owner's work", repr(error), ambiguous=True)
                self._fail(failed)
                raise failed from error

    async def _work_arrives(self) -> bool:
        """Wait for work. False where there is none and none will come."""
        was_idle, self._idle = self._idle, False
        if not self._writes and not self._reads and not self._closing:
            if self._may_erase:
                with move_on_after(0 if was_idle else ERASE_AFTER_S):
                    await self._wake.wait()
            else:
                await self._wake.wait()
            self._idle = not self._wake.is_set()
        self._wake.clear()
        if self._writes:
            await self._let_others_come()
        return bool(self._writes or self._reads or self._later or not self._closing)

    async def _let_others_come(self) -> None:
        """Wait for those whom the last commit has released, as long as they are on their way.

        Else a few of them would be alone in the next commit, and the others in one more. Whoever is alone
        waits for nobody.
        """
        idle, waiting = 0, len(self._writes)
        while idle < PASSES and waiting < min(self._crowd, self._settings.batch_max):
            await asyncio.sleep(0)
            idle = 0 if len(self._writes) > waiting else idle + 1
            waiting = len(self._writes)

    async def _run(self, work: Callable[[], T]) -> T:
        return await self._connection.run(lambda _: work())

    async def _commit_what_waits(self) -> None:
        lazy = self._is_urgent or self._idle or (self._closing and self._later)
        if not self._writes and not lazy:
            return
        # lazy writes go first: they are older than what their writer asked for afterwards
        calls = take(self._later, self._settings.batch_max) + take(self._writes, self._settings.batch_max)
        self._let_in()
        began = time.perf_counter()
        try:
            committed = await self._run(partial(self._writer.commit, [call.unit for call in calls]))
        except BaseException:
            self._writes.extendleft(reversed(calls))  # where `_fail` finds them
            raise
        self._count(committed)
        self._crowd = sum(call.waiter is not None for call in calls)  # nobody comes again for what is lazy
        if committed.wrote:
            for watch in self._watches:
                watch(time.perf_counter() - began, len(calls))
        for call, outcome in zip(calls, committed.outcomes, strict=True):
            self._lazy_errors += call.waiter is None and isinstance(outcome, Raised)
            call.release(outcome)
        if committed.events:
            for listener in tuple(self._listeners.values()):
                listener(committed.events)

    async def _read_what_waits(self) -> None:
        if not self._reads:
            return
        calls = [call for call in take(self._reads, self._settings.batch_max) if call.is_awaited]
        self._let_in()
        try:
            outcomes = await self._run(partial(self._writer.read, [call.unit for call in calls]))
        except BaseException:
            self._reads.extendleft(reversed(calls))
            raise
        self._units += len(calls)
        for call, outcome in zip(calls, outcomes, strict=True):
            call.release(outcome)

    @property
    def _may_erase(self) -> bool:
        """Whether a commit of its own, or an empty `-wal`, would leave fewer secrets in the files."""
        acknowledged = self._debt.waiting and bool(self._later)
        return self._debt.due or acknowledged or (self._writer.holds_erased and not self._writer.held)

    @property
    def _may_empty_wal(self) -> bool:
        """Whether old copies of erased secrets can go from the `-wal` without holding anybody up."""
        return self._idle and not self._debt.due and self._writer.holds_erased and not self._writer.held

    @property
    def _is_urgent(self) -> bool:
        return len(self._later) * LAZY_SHARE >= self._settings.later_max

    def _let_in(self) -> None:
        """Let callers that wait for a place in the queue look again."""
        self._room.set()
        self._room = anyio.Event()

    def _count(self, committed: Committed) -> None:
        self._units += len(committed.outcomes)
        self._events += len(committed.events)
        self._reached, self._debt = committed.reached, committed.debt
        if committed.wrote:
            self._commits += 1
            self._last_commit_at = committed.at

    def _fail(self, error: JournalFailed) -> None:
        self.failed = error
        for queue in (self._writes, self._reads):
            while queue:
                queue.popleft().fail(error)
        self._later.clear()
        self._let_in()

    async def close_connection(self) -> None:
        """Close the connection, after a failure without another byte written. For `open_journal`."""
        if self.failed is None:
            await self._connection.close()
        else:
            await self._run(self._writer.give_up)
            await self._connection.abandon()
