"""Whether an operation that has ended gets another attempt because somebody asks for it: rule R alone.

Part of `driver.core`, pure: imports `driver.core.{answers,retry}` and `store`'s values; time arrives as
facts. Definition of rule R: docs/protocol.md, section 4.

Theory of operation
-------------------
`refusal` names the part of the rule that fails, of several the first in the order of the rule: it has ended
and has not happened; it can still be called; no earlier attempt can land any more; evidence above a
supervisor's proves that none of them happened. The last two may fail where the provider deduplicates by the
operation's key (b); where a contract claims that, what is wrong with the claim is named instead.

What a supervisor inferred counts for nothing here, in either direction. A `none` from before the journal was
rolled back proves nothing: another life may have had an attempt since.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal, TypeAlias

from driver.core.answers import NO_SUCH_OPERATION
from driver.core.retry import Case, Obstacle, permit
from store.lifecycle import OPEN, Effect, Evidence, Judgement, Source, State, judge
from store.records import AttemptRecord, EvidenceRecord, timestamp

Why: TypeAlias = (
    Obstacle
    | Literal[
        "unknown_operation",
        "not_ended",
        "still_running",
        "already_occurred",
        "arguments_erased",
        "expired",
        "may_still_land",
        "not_proven_none",
        "best_effort_only",
    ]
)
"""The part of the rule that fails."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why there is no further attempt: `code` is a stable word, `message` says what to do."""

    code: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What is true of an operation of which another attempt is wanted.

    `proven` is what the evidence says without any supervisor's, `guessed` whether one of those said `none`.
    """

    state: State
    runs: bool
    asked: bool
    """Whether another attempt was asked for already, and has not begun; or its compensation has not ended."""
    erased: bool
    """Whether its arguments are gone."""
    proven: Judgement
    guessed: bool
    case: Case
    """`doubtful` where `proven` is not `none`."""


def refusal(facts: Facts) -> Refusal | None:
    """Return why another attempt of the operation cannot be asked for now; None where it can."""
    why = _unready(facts)
    return objection(facts) if why is None else Refusal(why, _MESSAGES[why])


def objection(facts: Facts) -> Refusal | None:
    """Return why the attempt that was asked for must not begin now; None where it may."""
    why = _why(facts)
    return None if why is None else Refusal(why, _message(why, facts))


def proof(
    evidence: Iterable[EvidenceRecord], attempts: Sequence[AttemptRecord], *, since_seq: int = 0
) -> Judgement:
    """Return what evidence above a supervisor's says of these attempts, or of an operation without any.

    What was said of an attempt before it began is not about it. A `none` up to event `since_seq` does not
    count: a journal that was rolled back there does not know what happened since.
    """
    begun = {item.attempt: item.started_seq for item in attempts}
    words = [
        Evidence(item.attempt, item.effect, item.source)
        for item in evidence
        if item.source is not Source.SUPERVISOR
        and (item.attempt in begun or not begun)
        and item.seq > begun.get(item.attempt, 0)
        and (item.seq > since_seq or item.effect is not Effect.NONE)
    ]
    return judge(words, len(attempts))


def _unready(facts: Facts) -> Why | None:
    if facts.state in OPEN:
        return "still_running" if facts.runs else "not_ended"
    return "still_running" if facts.asked else None


def _why(facts: Facts) -> Why | None:
    if facts.state is State.SUCCEEDED or (facts.case.write and facts.proven.effect is Effect.OCCURRED):
        return "already_occurred"
    if facts.erased:
        return "arguments_erased"
    at = facts.case.now.wall
    if facts.case.expires_at is not None and at >= facts.case.expires_at:
        return "expired"
    obstacle = permit(facts.case, at)
    if obstacle is None or _claims_deduplication(facts.case):
        return obstacle
    if _lands(facts.case, at):
        return "may_still_land"
    return "best_effort_only" if facts.guessed else "not_proven_none"


def _claims_deduplication(case: Case) -> bool:
    return case.contract.idempotent or (case.first is not None and case.first.idempotent)


def _lands(case: Case, at: datetime) -> bool:
    return case.lands_until is not None and at < case.lands_until


def _message(why: Why, facts: Facts) -> str:
    message = _MESSAGES[why]
    if why in _CLAIM:
        return f"{_CLAIM[why]}, {_unproven(facts)}"
    if why == "may_still_land" and facts.case.lands_until is not None:
        return f"{message}; that is over at {timestamp(facts.case.lands_until)}"
    return message


def _unproven(facts: Facts) -> str:
    if _lands(facts.case, facts.case.now.wall):
        return "and an earlier attempt may still land"
    return "and no evidence above a supervisor's proves that no earlier attempt happened"


_CLAIM: Final[dict[Why, str]] = {
    "not_deduplicated": "the provider does not deduplicate by the key, or did not at the first attempt",
    "another_key": "the key would travel in another way than with the first attempt",
    "clock_went_back": "a clock went backwards, so nobody can tell how long ago the first attempt was",
    "past_horizon": "the provider may have forgotten the key before the attempt has ended",
}
_MESSAGES: Final[dict[Why, str]] = {
    **_CLAIM,
    "unknown_operation": NO_SUCH_OPERATION,
    "not_ended": "it has not ended: wait for its outcome, or cancel it",
    "still_running": "an attempt of it, or its compensation, runs or was asked for: wait for its outcome",
    "already_occurred": "it has happened, and is not done twice: send a new command if another one is meant",
    "arguments_erased": "its arguments were erased, so it cannot be called again: send a new command",
    "expired": "its command has expired, and no attempt may begin after that: send a new command",
    "may_still_land": "an earlier attempt may still land",
    "not_proven_none": "nothing proves that no earlier attempt happened, and the provider does not "
    "deduplicate: find out, and record it with 'effectd reconcile', then retry",
    "best_effort_only": "only a supervisor's best effort says that it did not happen, and that allows "
    "nothing: find out, and record it with 'effectd reconcile', then retry",
}

ERASED: Final = Refusal("arguments_erased", _MESSAGES["arguments_erased"])
"""What is said where the arguments went after another attempt had been asked for."""
COMPENSATED: Final = Refusal(
    "compensated",
    "its compensation was called, and may have happened: what came behind that, nobody would take back. "
    "Send a new command",
)
"""What is said where a compensation would stand for an effect that it came before."""
PARENT_JUDGED: Final = Refusal(
    "parent_judged",
    "what it was called for counts as not having happened, because this did nothing, and somebody may rely "
    "on that: retry the parent, or send a new command",
)
"""What is said where an attempt would come behind the word about the parent that rests on its absence."""
COMPENSATES_RUNNING: Final = Refusal(
    "still_running", "what it takes back runs, or another attempt of that was asked for: wait for its outcome"
)
COMPENSATES_LANDING: Final = Refusal("may_still_land", "an attempt of what it takes back may still land")
UNKNOWN_OPERATION: Final = Refusal("unknown_operation", _MESSAGES["unknown_operation"])
