"""What an operation's effect is, whether it is listed, whether it guards: said a second time, in other words.

Written from docs/architecture.md and the table of states, and shares nothing with `store.lifecycle` but its
vocabulary: what both get wrong alike they must get wrong twice.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from store.lifecycle import Effect, Source, State

ORDER: Final = ("supervisor", "probe", "operator", "answer")
"""From the weakest to the strongest."""
OPEN: Final = (State.ACCEPTED, State.AWAITING_APPROVAL, State.STARTED)


@dataclass(frozen=True)
class Word:
    """What somebody said of one attempt."""

    attempt: int
    effect: Effect
    source: Source

    @property
    def rank(self) -> int:
        """How much it counts."""
        return ORDER.index(self.source.value) if self.source.value in ORDER else len(ORDER) - 1

    @property
    def says_something(self) -> bool:
        """Whether it counts at all: that nobody knows is a word of persons and of models only."""
        return self.effect is not Effect.UNKNOWN or self.source.value in ("operator", "supervisor")


def strongest(words: Sequence[Word]) -> Word | None:
    """Return the word that stands for one attempt."""
    heard = [word for word in words if word.says_something]
    for rank in reversed(range(len(ORDER))):
        level = [word for word in heard if word.rank == rank]
        if level and ORDER[rank] == "operator":
            return level[-1]
        for effect in (Effect.OCCURRED, Effect.UNKNOWN, Effect.NONE):
            found = [word for word in level if word.effect is effect]
            if found:
                return found[0]
    return None


def proven(words: Sequence[Word], attempts: int) -> tuple[Effect, int | None]:
    """Return what is known of an operation, and the rank of what that rests on; None: of nothing."""
    numbers = {word.attempt for word in words}
    verdicts = {number: strongest([w for w in words if w.attempt == number]) for number in numbers}
    said = [verdict for verdict in verdicts.values() if verdict is not None]
    happened = [word.rank for word in said if word.effect is Effect.OCCURRED]
    if happened:
        return Effect.OCCURRED, max(happened)
    complete = len(verdicts) >= max(attempts, 1)
    if complete and said and len(said) == len(verdicts) and all(w.effect is Effect.NONE for w in said):
        return Effect.NONE, min(word.rank for word in said)
    if len(verdicts) < attempts or len(said) < len(verdicts):
        return Effect.UNKNOWN, None
    unsure = [word.rank for word in said if word.effect is Effect.UNKNOWN]
    return Effect.UNKNOWN, max(unsure, default=None)


@dataclass
class Known:
    """One operation, as whoever saw all its events knows it."""

    number: int
    alike: int
    """What its arguments are: two operations with the same are look-alikes."""
    state: State = State.ACCEPTED
    attempts: int = 0
    unsettled_error: bool = False
    words: list[Word] = field(default_factory=list[Word])
    newest_seq: int = 0
    newest_at: float = 0.0

    @property
    def effect(self) -> Effect:
        """What is known of the world."""
        return proven(self.words, self.attempts)[0]

    @property
    def by(self) -> str | None:
        """The rank of what that rests on."""
        rank = proven(self.words, self.attempts)[1]
        return None if rank is None else ORDER[rank]

    @property
    def listed(self) -> bool:
        """Whether somebody must find out what happened."""
        if self.by is not None:
            return False
        return self.state is State.UNKNOWN or (self.state is State.FAILED and self.unsettled_error)

    @property
    def guards(self) -> bool:
        """Whether a call with the same arguments is a likely resend."""
        if self.state in OPEN or self.listed:
            return True
        if self.state in (State.SUCCEEDED, State.NOT_EXECUTED):
            return False
        return self.by == "supervisor" or (self.by == "operator" and self.effect is Effect.UNKNOWN)

    @property
    def is_over(self) -> bool:
        """Whether it may leave the journal, once it is acknowledged and old."""
        return self.state not in OPEN and not self.listed and self.by != "supervisor"
