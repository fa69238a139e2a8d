"""What came of somebody's wish to lift the fence.

Part of `driver.core`, pure: imports `store.records`.
"""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from store.records import JournalId


@dataclass(frozen=True, slots=True, kw_only=True)
class Unfenced:
    """The daemon may act again. `previous_journal_id`: the history that ended, where another one began.

    `unknown`: how many operations became so with that.
    """

    reason: str
    journal_id: JournalId
    previous_journal_id: JournalId | None = None
    unknown: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StillFenced:
    """Nothing was changed: `code` is a stable word, `message` says what to do."""

    code: Literal["not_ready", "not_fenced", "rollback_not_accepted"]
    message: str


Unfencing: TypeAlias = Unfenced | StillFenced
