"""The embedded model: a few careful rules, without a network, at no cost.

Part of `supervisor.models`, pure but for its protocol: imports `supervisor.{verdict,wall}`. It says `none` or
`occurred` only where a recorded fact says so in so many words; everything else is `unknown`, and wants a
person's attention.
"""

from typing import Final

from store.lifecycle import Effect
from supervisor.models.model import Judged
from supervisor.verdict import Answer, Word
from supervisor.wall import Entry, Wall

NAME: Final = "rules"


class RulesModel:
    """Implements `Model`."""

    @property
    def name(self) -> str:
        """`rules`."""
        return NAME

    @property
    def is_paid(self) -> bool:
        """Never."""
        return False

    async def judge(self, wall: Wall) -> Judged:
        """Return at once what the rules say. Raises nothing."""
        return Judged(decide(wall), "answered")


def decide(wall: Wall) -> Answer:
    """Return what the rules say about each operation of the wall."""
    words = tuple(_word(entry) for entry in wall.entries)
    open_ = sum(word.effect is Effect.UNKNOWN for word in words)
    return Answer(
        needs_attention=open_ > 0,
        summary=_summary(len(words), open_),
        causes=tuple(sorted({f"reason: {entry.reason}" for entry in wall.entries if entry.reason}))[:5],
        remedies=_REMEDIES if open_ else (),
        lesson=_LESSON if open_ else "",
        words=words,
    )


def _word(entry: Entry) -> Word:
    effect, basis = _ruling(entry)
    return Word(entry.operation_id, effect, basis)


def _ruling(entry: Entry) -> tuple[Effect, str]:
    if entry.observed_change is True:
        return Effect.OCCURRED, "the reading command printed something else after it than before"
    if entry.observed_change is False:
        return Effect.NONE, "the reading command printed the same before and after it"
    return Effect.UNKNOWN, "no recorded fact says whether it happened"


def _summary(operations: int, open_: int) -> str:
    if not open_:
        return f"{operations} operations: the recorded facts say what happened to each"
    return f"{operations} operations, and no recorded fact says whether {open_} of them happened"


_REMEDIES: Final = (
    "look at the provider, and record what is there: effectd reconcile ID --effect none|occurred --note TEXT",
)
_LESSON: Final = "a probe in the tool's contract lets the daemon look by itself"
