"""The journal alone: callers who each record an operation after the other, as the engine does."""

import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Final

import anyio

from store.journal import Journal
from store.records import StoredEvent
from store.transaction import Transaction
from tests.store import large
from tests.store.drafts import accepted, recording, started, succeeded

RUNS: Final = 64
Unit = Callable[[Transaction], tuple[StoredEvent, ...]]


def intent(n: int) -> Unit:
    """What is committed before a call: its acceptance, and its intent."""
    return recording(accepted(n, run=f"run-{n % RUNS}"), started(n))


def outcome(n: int) -> Unit:
    """What is committed after it."""
    return recording(succeeded(n))


def record(operations: int) -> Iterator[Iterator[Unit]]:
    """Yield the units of all intents, and then of all outcomes: many operations with each."""
    yield (_together(intent, chunk) for chunk in _chunks(operations))
    yield (_together(outcome, chunk) for chunk in _chunks(operations))


def _chunks(operations: int, size: int = 500) -> Iterator[range]:
    for first in range(1, operations + 1, size):
        yield range(first, min(first + size, operations + 1))


def _together(unit_of: Callable[[int], Unit], numbers: range) -> Unit:
    units = [unit_of(n) for n in numbers]

    def unit(tx: Transaction) -> tuple[StoredEvent, ...]:
        return tuple(event for each in units for event in each(tx))

    return unit


async def measure_journal(folder: Path, operations: int, callers: int) -> float:
    """Let `callers` record so many operations in a new journal; return operations a second.

    An operation is durable when both of its commits are.
    """
    await anyio.Path(folder).mkdir()
    async with large.opened(folder) as journal:
        return await operations_a_second(journal, operations, callers, 1)


async def operations_a_second(journal: Journal, operations: int, callers: int, first: int) -> float:
    """Let `callers` record so many operations, the first of them with number `first`."""
    numbers = count(first)

    async def call() -> None:
        while (n := next(numbers)) < first + operations:
            await journal.transact(intent(n))
            await journal.transact(outcome(n))

    began = time.perf_counter()
    async with anyio.create_task_group() as tasks:
        for _ in range(callers):
            tasks.start_soon(call)
    return operations / (time.perf_counter() - began)
