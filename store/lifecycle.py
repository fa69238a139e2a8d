"""What states an operation has, how it moves between them, and what its effect is known to be.

Pure: imports only the standard library; every other module that decides about operations asks this one.

Theory of operation
-------------------
An operation's **state** is what the daemon did with it; its **effect** is what is known to have happened in
the world. The two move apart on purpose: `unknown` stays the state of an operation whose outcome was lost,
while a late answer, a probe or an operator may still settle its effect.

* The state moves by the events of `MOVES`, and by nothing else. An event that has no row for the present
  state is a bug of ours: `advance` raises `IllegalMove` and the caller changes nothing.
* The effect is a function of the evidence and of nothing else (`judge`). Evidence belongs to one attempt and
  has a rank; weaker evidence never overrides stronger. Any attempt that occurred makes the operation
  `occurred`; all attempts `none` makes it `none`; anything else is `unknown`.
* The order in which evidence arrives changes nothing, with one exception: of operators' verdicts the newest
  stands, for a second one is recorded only where it overrides the first. Where other words of one rank
  differ, the most careful one stands: what one of them saw happen is never tried again because another did
  not see it. Two words of the highest rank that differ are a contradiction (`contradictions`).
* What the pair of them means for the rest of the product (is it listed as unsettled, does it guard against
  look-alikes) is one function for each question, over `Standing`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from store.values import light


class State(StrEnum):
    """What the daemon did with an operation."""

    ACCEPTED = "accepted"
    AWAITING_APPROVAL = "awaiting_approval"
    STARTED = "started"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    NOT_EXECUTED = "not_executed"
    UNKNOWN = "unknown"


class Effect(StrEnum):
    """What is known to have happened in the world."""

    NONE = "none"
    OCCURRED = "occurred"
    UNKNOWN = "unknown"


class Source(StrEnum):
    """Who says so. The first three rank alike, above all others."""

    PROVIDER = "provider"
    DAEMON = "daemon"
    SHIM = "shim"
    OPERATOR = "operator"
    PROBE = "probe"
    SUPERVISOR = "supervisor"


RANK: Final = MappingProxyType(
    {
        Source.PROVIDER: 4,
        Source.DAEMON: 4,
        Source.SHIM: 4,
        Source.OPERATOR: 3,
        Source.PROBE: 2,
        Source.SUPERVISOR: 1,
    }
)

RANK_MAX: Final = max(RANK.values())
"""The rank of what nothing overrides: a provider's answer, the daemon's proof, a shim's record."""

OPEN: Final = frozenset({State.ACCEPTED, State.AWAITING_APPROVAL, State.STARTED})
ENDED: Final = frozenset(State) - OPEN

_WAITING: Final = (State.ACCEPTED, State.AWAITING_APPROVAL)
_REVIVABLE: Final = (State.UNKNOWN, State.FAILED, State.NOT_EXECUTED)

MOVES: Final[Mapping[tuple[State | None, str], State]] = MappingProxyType(
    {
        # accepted, and what may happen before the intent
        (None, "command.accepted"): State.ACCEPTED,
        (State.ACCEPTED, "operation.approval_requested"): State.AWAITING_APPROVAL,
        (State.AWAITING_APPROVAL, "operation.approval_requested"): State.AWAITING_APPROVAL,
        (State.AWAITING_APPROVAL, "operation.approval_decided"): State.AWAITING_APPROVAL,
        # the intent, and its end
        **{(state, "operation.started"): State.STARTED for state in _WAITING},
        **{(state, "operation.not_executed"): State.NOT_EXECUTED for state in (*_WAITING, State.STARTED)},
        (State.STARTED, "operation.succeeded"): State.SUCCEEDED,
        (State.STARTED, "operation.failed"): State.FAILED,
        (State.STARTED, "operation.attempt_ended"): State.STARTED,
        # a journal that was lost or rolled back makes even what never started unknown
        **{(state, "operation.unknown"): State.UNKNOWN for state in (*_WAITING, State.STARTED)},
        # rule R: another attempt, with the same key
        (State.STARTED, "operation.started"): State.STARTED,
        **{(state, "operation.started"): State.STARTED for state in _REVIVABLE},
        # a person is asked about it first; where nobody grants it, the operation is what it was before
        **{(state, "operation.approval_requested"): State.AWAITING_APPROVAL for state in _REVIVABLE},
        (State.AWAITING_APPROVAL, "operation.failed"): State.FAILED,
    }
)
"""Every legal transition: (state before, kind of event) to the state after."""


class IllegalMove(Exception):
    """An event that the operation's state does not allow: a bug of ours, never the world's."""

    def __init__(self, state: State | None, kind: str) -> None:
        self.state = state
        self.kind = kind
        super().__init__(
            f"event {kind} is not legal for an operation in state {state or 'absent'}; "
            "nothing was changed. This is a bug in effectd: please report it with the output of "
            "'effectd show'"
        )


def advance(state: State | None, kind: str) -> State:
    """Return the state after an event of `kind`.

    Raises `IllegalMove`, and changes nothing, where there is none.
    """
    try:
        return MOVES[state, kind]
    except KeyError:
        raise IllegalMove(state, kind) from None


@light
@dataclass(frozen=True, slots=True)
class Evidence:
    """What one source says of one attempt. Only `none` and `occurred` say anything."""

    attempt: int
    effect: Effect
    source: Source


@light
@dataclass(frozen=True, slots=True)
class Judgement:
    """The effect of an operation, and the source that decided it (None where nobody could)."""

    effect: Effect
    by: Source | None

    @property
    def best_effort(self) -> bool:
        """True where only a supervisor's inference stands behind the effect."""
        return self.by is Source.SUPERVISOR


UNDECIDED: Final = Judgement(Effect.UNKNOWN, None)


def judge(evidence: Iterable[Evidence], attempts: int) -> Judgement:
    """Return what `evidence` proves about an operation of `attempts` attempts.

    The order counts among an operator's verdicts only. An operation that never started counts as one attempt.
    The judgement names one source: for `occurred` the strongest that says so, as one is enough; for `none`
    the weakest, as all of them are needed.
    """
    words = tuple(evidence)
    if len(words) <= 1 and attempts <= 1:
        return _judge_attempt(words)
    found: dict[int, list[Evidence]] = {}
    for item in words:
        found.setdefault(item.attempt, []).append(item)
    if not found:
        return UNDECIDED
    verdicts = [_judge_attempt(items) for items in found.values()]
    occurred = [v for v in verdicts if v.effect is Effect.OCCURRED]
    if occurred:
        return max(occurred, key=_strength)
    if len(verdicts) >= max(attempts, 1) and all(v.effect is Effect.NONE for v in verdicts):
        return min(verdicts, key=_strength)
    if len(verdicts) < attempts or any(v.by is None for v in verdicts):
        return UNDECIDED  # whoever said `unknown` of the others does not speak of an attempt that came later
    said_unknown = [v for v in verdicts if v.effect is Effect.UNKNOWN]
    return max(said_unknown, key=_strength, default=UNDECIDED)


def contradictions(known: Iterable[Evidence], late: Evidence) -> tuple[Evidence, ...]:
    """Return what of `known` says the opposite of `late` about the same attempt, both of the highest rank."""
    opposite = _OPPOSITE.get(late.effect)
    if opposite is None or RANK[late.source] < RANK_MAX:
        return ()
    return tuple(
        item
        for item in known
        if item.attempt == late.attempt and item.effect is opposite and RANK[item.source] == RANK_MAX
    )


def _judge_attempt(evidence: Sequence[Evidence]) -> Judgement:
    """The strongest evidence of one attempt decides it.

    A person's or a model's `unknown` is a word too, and stands where nothing of at least its rank says more.
    """
    words = [e for e in evidence if e.effect is not Effect.UNKNOWN or e.source in _VERDICTS]
    if len(words) <= 1:
        return Judgement(words[0].effect, words[0].source) if words else UNDECIDED
    best = max(RANK[e.source] for e in words)
    strongest = [e for e in words if RANK[e.source] == best]
    if len(strongest) == 1 or best == RANK[Source.OPERATOR]:
        word = strongest[-1]
    else:
        word = max(strongest, key=_care)
    return Judgement(word.effect, word.source)


_VERDICTS: Final = frozenset({Source.OPERATOR, Source.SUPERVISOR})
_OPPOSITE: Final = MappingProxyType({Effect.NONE: Effect.OCCURRED, Effect.OCCURRED: Effect.NONE})
_CAREFUL: Final = (Effect.NONE, Effect.UNKNOWN, Effect.OCCURRED)
_SOURCES: Final = tuple(reversed(Source))


def _care(word: Evidence) -> tuple[int, int]:
    return _CAREFUL.index(word.effect), _SOURCES.index(word.source)


def _strength(judgement: Judgement) -> tuple[int, int]:
    """By rank; between sources of one rank, in the order in which `Source` names them."""
    if judgement.by is None:
        return 0, 0
    return RANK[judgement.by], _SOURCES.index(judgement.by)


@light
@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """All that decides how the rest of the product treats an operation."""

    write: bool
    state: State
    judgement: Judgement
    error_means: str | None = None


def is_listed(standing: Standing) -> bool:
    """Whether it is listed as unsettled: it ended, may have happened, and nobody has said anything."""
    if not standing.write or standing.judgement.by is not None:
        return False
    if standing.state is State.UNKNOWN:
        return True
    return standing.state is State.FAILED and standing.error_means == "unsettled"


def is_settled(standing: Standing) -> bool:
    """Whether the operation has ended and is not listed as unsettled."""
    return standing.state in ENDED and not is_listed(standing)


def is_erasable(standing: Standing) -> bool:
    """Whether nobody may have to look at its content any more, once its receipt is acknowledged.

    A supervisor's word closes a listing, and is not the last one.
    """
    return is_settled(standing) and standing.judgement.by is not Source.SUPERVISOR


def guards(standing: Standing) -> bool:
    """Whether a look-alike of this operation is a likely resend: it runs, or may have happened unsettled."""
    if not standing.write:
        return False
    if standing.state in OPEN or is_listed(standing):
        return True
    if standing.state not in (State.UNKNOWN, State.FAILED):
        return False
    by, effect = standing.judgement.by, standing.judgement.effect
    if by is Source.SUPERVISOR:
        return True
    return by is Source.OPERATOR and effect is Effect.UNKNOWN
