"""What evidence proves, and what follows from that: `store.lifecycle` against the reference, in any order."""

from collections.abc import Sequence
from typing import Final

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from store.lifecycle import (
    Effect,
    Evidence,
    Source,
    Standing,
    State,
    guards,
    is_erasable,
    is_listed,
    is_settled,
    judge,
)
from tests.faults.model.counting import ENDED, SEEN
from tests.faults.model.reference import OPEN, Known, Word

ENDS: Final = (State.SUCCEEDED, State.FAILED, State.NOT_EXECUTED, State.UNKNOWN)
WEAK: Final = frozenset({Source.SUPERVISOR})


class EvidenceModel(RuleBasedStateMachine):
    """Words about the attempts of one operation, as they arrive."""

    def __init__(self) -> None:
        super().__init__()
        self.known = Known(0, 0, state=State.UNKNOWN, attempts=1)

    @rule(
        attempt=st.integers(1, 3),
        effect=st.sampled_from(Effect),
        source=st.sampled_from(Source),
    )
    def say(self, attempt: int, effect: Effect, source: Source) -> None:
        """Somebody says something of an attempt: nothing weaker changes what it was."""
        attempt = min(attempt, self.known.attempts)
        before = self.known.effect, self.known.by
        word = Word(attempt, effect, source)
        self.known.words.append(word)
        if before[1] is not None and before[0] is not self.known.effect:
            SEEN["overruled"] += 1
            heard = [w for w in self.known.words if w.attempt == attempt and w.says_something]
            strongest = max(w.rank for w in heard)
            assert word.rank == strongest, "something weaker has overruled"

    @rule()
    def begin(self) -> None:
        """Another attempt, of which nobody has said anything."""
        if self.known.attempts < 3:
            self.known.attempts += 1

    @rule(state=st.sampled_from(State), unsettled=st.booleans())
    def move(self, state: State, unsettled: bool) -> None:
        """It is in another state."""
        self.known.state, self.known.unsettled_error = state, unsettled

    @invariant()
    def the_judgement_is_the_reference(self) -> None:
        """In the order in which the words came."""
        effect, by = judged(self.known.words, self.known.attempts)
        assert (effect, by) == (self.known.effect, self.known.by), "another word counts"
        SEEN[f"proven {effect}"] += 1

    @invariant()
    def the_order_of_words_changes_nothing(self) -> None:
        """But that of an operator's, of which the newest stands."""
        operators = [word for word in self.known.words if word.source is Source.OPERATOR]
        others = [word for word in self.known.words if word.source is not Source.OPERATOR]
        turned = [*reversed(others), *operators]
        assert judged(turned, self.known.attempts) == (self.known.effect, self.known.by)

    @invariant()
    def what_follows_is_the_reference(self) -> None:
        """Whether it is listed, guards, and may go."""
        known = self.known
        judgement = judge(_as_evidence(known.words), known.attempts)
        standing = Standing(
            write=True,
            state=known.state,
            judgement=judgement,
            error_means="unsettled" if known.unsettled_error else "reported",
        )
        assert is_listed(standing) == known.listed
        assert guards(standing) == known.guards
        assert is_erasable(standing) == known.is_over
        assert is_settled(standing) == (known.state not in OPEN and not known.listed)
        SEEN["listed"] += known.listed
        SEEN["guards though judged"] += known.guards and known.by is not None and known.state not in OPEN

    @invariant()
    def a_guess_makes_nothing_possible(self) -> None:
        """I8: without a supervisor's words the evidence above them says the same."""
        sound = [word for word in self.known.words if word.source not in WEAK]
        effect, by = judged(sound, self.known.attempts)
        if by is not None and self.known.by not in (None, "supervisor"):
            assert (effect, by) == proven_words(sound, self.known.attempts), "another word counts"

    def teardown(self) -> None:
        """Each example is counted."""
        ENDED["evidence"] += 1


def judged(words: Sequence[Word], attempts: int) -> tuple[Effect, str | None]:
    """Return what the product makes of the words: the effect, and whose rank it rests on."""
    found = judge(_as_evidence(words), attempts)
    if found.by is None:
        return found.effect, None
    source = found.by.value
    return found.effect, source if source in ("supervisor", "probe", "operator") else "answer"


def proven_words(words: Sequence[Word], attempts: int) -> tuple[Effect, str | None]:
    """Return what the reference makes of them."""
    known = Known(0, 0, attempts=attempts, words=list(words))
    return known.effect, known.by


def _as_evidence(words: Sequence[Word]) -> list[Evidence]:
    return [Evidence(word.attempt, word.effect, word.source) for word in words]
