"""Feeds the service manager's watchdog, for as long as the journal commits.

Part of `driver`; imports `store` and its own siblings. Where the disk hangs nothing is fed, the service
manager ends the daemon, and the next start reads what is true: so nothing else feeds it. A unit that takes
long, as an accepted rollback may, says that it goes on; that feeds it, too.
"""

from collections.abc import Callable, Mapping
from typing import Final

import anyio

from driver import notify
from store.journal import Journal
from store.transaction import Transaction

FEED: Final = "WATCHDOG=1"
MEALS: Final = 4
"""Within one interval: twice as many as sd_watchdog_enabled(3) asks for."""


def interval_s(environment: Mapping[str, str], pid: int) -> float | None:
    """Return how often the watchdog wants to be fed, in seconds; None where nobody watches this process."""
    if environment.get("WATCHDOG_PID", str(pid)) != str(pid):
        return None
    try:
        micros = int(environment.get("WATCHDOG_USEC", "0"))
    except ValueError:
        return None
    return micros / 1e6 if micros > 0 else None


async def _commit(journal: Journal, patience_s: float) -> None:
    """Return after a commit. Feeds the watchdog while a long unit that comes before it goes on."""
    while True:
        progress = journal.progress
        with anyio.move_on_after(patience_s):
            await journal.transact(Transaction.beat)
            return
        if journal.progress != progress:
            notify.notify(FEED)


async def watch(journal: Journal, interval_s: float, status: Callable[[], str]) -> None:
    """Feed the watchdog after each commit that proves the journal's health, until cancelled.

    `status` is told with it, in one line, for whoever asks the service manager. A journal that commits
    anyway is asked for nothing more. Raises what `Journal.transact` does.
    """
    seen = -1
    while True:
        commits = journal.statistics().commits
        if commits == seen:
            await _commit(journal, interval_s / MEALS)
            commits = journal.statistics().commits
        seen = commits
        notify.notify(f"{FEED}\nSTATUS={status()}")
        await anyio.sleep(interval_s / MEALS)
