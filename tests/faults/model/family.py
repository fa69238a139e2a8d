"""One operation of a tree of delegations, as whoever saw all its events knows it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Final

from store.events import Draft
from store.lifecycle import Effect, Source
from tests.faults.model.reference import Word, proven, strongest
from tests.store.drafts import failed, not_executed, succeeded, unknown

NOT_SENT: Final = "not sent"
LOST: Final = "unknown"
ENDS: Final = MappingProxyType[str, tuple[Callable[..., Draft], Effect]](
    {
        "succeeded": (succeeded, Effect.OCCURRED),
        "failed": (failed, Effect.UNKNOWN),
        "proven": (partial(failed, effect=Effect.NONE), Effect.NONE),
    }
)
"""How an operation ends by an answer, and what that says of the world."""
HOWS: Final = (*sorted(ENDS), LOST, NOT_SENT)
ACTORS: Final = MappingProxyType(
    {"operator:1": Source.OPERATOR, "probe:p/find": Source.PROBE, "supervisor:bold": Source.SUPERVISOR}
)


@dataclass
class Call:
    """An operation of the tree, and what was said of it itself, by anything but its child runs."""

    number: int
    run: str
    parent: int | None
    seq: int
    """Of its acceptance."""
    begun: list[int] = field(default_factory=list[int])
    """The seq of each attempt's intent."""
    words: list[Word] = field(default_factory=list[Word])
    unsent: set[int] = field(default_factory=set[int])
    """The attempts that never left: nothing answers these."""
    how: str = NOT_SENT
    """How it has ended last."""

    @property
    def attempts(self) -> int:
        """How many there are intents of."""
        return len(self.begun)

    @property
    def is_idle(self) -> bool:
        """Whether it is known to have done nothing, whatever its child runs did."""
        return proven(self.words, self.attempts)[0] is Effect.NONE

    def was_idle(self, attempt: int) -> bool:
        """Whether that is proven of one attempt, by anybody but a supervisor."""
        words = [word for word in self.words if word.attempt == attempt and word.source.value != "supervisor"]
        word = strongest(words)
        return word is not None and word.effect is Effect.NONE

    def begins(self, seq: int) -> None:
        """An attempt has begun: what was said of it before was about none."""
        self.begun.append(seq)
        self.unsent.discard(self.attempts)
        self.words = [word for word in self.words if word.attempt < self.attempts]

    def says(self, effect: Effect, source: Source, attempt: int | None = None) -> None:
        """Something is said of one attempt, or of all that there were."""
        numbers = range(1, max(self.attempts, 1) + 1) if attempt is None else (attempt,)
        self.words.extend(Word(number, effect, source) for number in numbers)

    def was_not_sent(self, attempt: int) -> None:
        """An attempt is proven to have sent nothing."""
        self.unsent.add(attempt)
        self.says(Effect.NONE, Source.DAEMON, attempt)

    def ending(self) -> Draft:
        """Return the event that says how it has ended last, and hear what that says."""
        attempt = max(self.attempts, 1)
        if self.how == NOT_SENT:
            self.was_not_sent(attempt)
            return not_executed(self.number)
        if self.how == LOST:
            return unknown(self.number, attempts=self.attempts)
        draft, effect = ENDS[self.how]
        self.says(effect, Source.PROVIDER, attempt)
        return draft(self.number, attempts=attempt)
