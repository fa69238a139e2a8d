"""Whether an operation is compensated: a decision on what the journal says, and the arguments of the call.

Part of `driver.core`, pure: imports `driver.core.{answers,contracts,expressions,templates}` and `store`'s
values; time arrives as facts.

Theory of operation
-------------------
Only what is declared is ever compensated, and only once: the compensation is an operation of its own, whose
id follows from the forward one's, so what became of it is a question to the journal.

It must not overtake what it takes back: while the forward operation runs, or another attempt of it was asked
for, or one may still land, it is refused. Where the forward effect is proven not to have happened there is
nothing to take back, and nothing is called. Where nobody knows, whoever asks for this one compensation has
decided to call it: a compensation has to bear that there was nothing to take back. A walk through a whole
run asks for no operation in particular, so it needs proof that the effect happened. What a supervisor
inferred is no proof, and changes neither. Where an equal call was made before, by whomever, the compensating
tool's `identical` says whether it may be made again.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal, TypeAlias, cast

from driver.core.answers import NO_SUCH_OPERATION
from driver.core.contracts import Compensation
from driver.core.expressions import EvaluationFailed
from driver.core.templates import blank
from store.lifecycle import OPEN, Effect, State
from store.records import JsonObject, timestamp

Why: TypeAlias = Literal[
    "unknown_operation",
    "no_compensation_declared",
    "still_running",
    "may_still_land",
    "not_certain",
    "expression_failed",
    "arguments_erased",
    "compensation_not_certain",
    "overloaded",
    "no_room",
    "lookalike_unsettled",
    "duplicate_completed",
    "duplicate_failed",
    "duplicate_unknown",
]
"""Why nothing is compensated."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The compensation is not called: `message` says what to do."""

    code: Why
    message: str


@dataclass(frozen=True, slots=True)
class Needless:
    """The forward effect is proven not to have happened."""


@dataclass(frozen=True, slots=True)
class Due:
    """The compensation may be called."""


Decision: TypeAlias = Refused | Needless | Due


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What is true of the forward operation. `proven` is its effect by evidence above a supervisor's."""

    state: State
    asked: bool
    """Whether another attempt was asked for, and has not begun."""
    declared: bool
    proven: Effect
    lands_until: datetime | None
    now: datetime
    certain: bool = False
    """Whether only an effect that is proven to have happened is compensated."""


def decide(facts: Facts) -> Decision:
    """Return whether an operation that was not compensated before is to be compensated now."""
    if not facts.declared:
        return UNDECLARED
    if facts.state in OPEN:
        return Refused("still_running", f"it is {facts.state}: wait for its outcome, or cancel it")
    if facts.asked:
        return Refused("still_running", "another attempt of it was asked for: wait for it, or cancel it")
    if facts.lands_until is not None and facts.now < facts.lands_until:
        until = timestamp(facts.lands_until)
        return Refused("may_still_land", f"an attempt of it may still land until {until}: ask again then")
    if facts.proven is Effect.NONE:
        return Needless()
    if facts.certain and facts.proven is not Effect.OCCURRED:
        return Refused(
            "not_certain",
            "nothing above a supervisor's best effort proves that it happened: find out, and record it with "
            "'effectd reconcile', or ask for its own compensation",
        )
    return Due()


def arguments(compensation: Compensation, seen: JsonObject) -> JsonObject | Refused:
    """Return the arguments of the call. `seen` is what expressions see of the forward operation.

    An expression that finds nothing there would take back something else, or everything.
    """
    try:
        filled = compensation.arguments.fill(seen)
    except EvaluationFailed as error:
        return _without(seen, f"the arguments of its compensation cannot be made: {error}")
    missing = blank(compensation.arguments.source, filled)
    if missing is not None:
        return _without(seen, f"the argument {missing!r} of its compensation finds nothing in this operation")
    # a template's shape stays, and this one is a table
    return cast("JsonObject", filled)


UNDECLARED: Final = Refused(
    "no_compensation_declared",
    "no contract declares how to take it back: see [providers.P.tools.T.compensate]",
)
UNKNOWN_OPERATION: Final = Refused("unknown_operation", NO_SUCH_OPERATION)


def _without(seen: JsonObject, message: str) -> Refused:
    if seen["arguments"] is None:
        return Refused(
            "arguments_erased", f"{message}; the arguments of the call were erased: take it back by hand"
        )
    return Refused("expression_failed", f"{message}: take it back by hand, or mend the contract")
