"""Prunes the journal while the daemon runs: short steps between the commits of others, pass after pass.

Part of `driver.engine`; imports `store`. What goes, and what stays of it, decides `store.retention`.
"""

from typing import Final

import anyio
import structlog

from store.journal import Journal
from store.retention import Retention, RetentionSettings, Step

log = structlog.get_logger(__name__)

PAUSE_S: Final = 0.02
"""Between two steps: most of the journal's time stays everybody else's."""
PASS_S: Final = 60.0
"""Between two passes."""
PASS_S_MIN: Final = 1.0
"""The same, where what is kept is kept for minutes only."""
PASSES: Final = 20
"""Passes in the time for which things are kept, unless that is long: nothing stays much longer."""


async def prune(journal: Journal, settings: RetentionSettings) -> None:
    """Prune until cancelled, which never leaves a step half done. Raises `JournalFailed`."""
    retention = Retention(settings)
    shortest = min(settings.retention, settings.tombstones).total_seconds()
    rest_s = min(PASS_S, max(PASS_S_MIN, shortest / PASSES))
    while True:
        done = await _pass(journal, retention)
        if done.commands or done.events or done.tombstones or done.pages:
            log.info(
                "pruned",
                commands=done.commands,
                events=done.events,
                tombstones=done.tombstones,
                pages=done.pages,
            )
        await anyio.sleep(rest_s)


async def _pass(journal: Journal, retention: Retention) -> Step:
    done = Step()
    while not done.finished:
        if not journal.is_held:
            done = done.then(await journal.transact(retention.step))
        if not done.finished:
            await anyio.sleep(PAUSE_S)
    return done
