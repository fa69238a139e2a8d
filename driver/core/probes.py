"""What a read after a write proves, and when it is worth another look.

Part of `driver.core`, pure: imports its `classify`, `contracts`, `expressions` and `reports`, and the store's
vocabulary; time arrives as facts.

Theory of operation
-------------------
A probe asks a provider, with one read, how often it can see the effect of one operation. What comes back is a
number or a failure, and the number is evidence only in one direction at a time:

* *something was found*: it happened, whenever the question was put. More than once is an incident, and
  happened all the same;
* *nothing was found*: that proves nothing by itself. It is `absent` only where the contract vouches for that
  (`authoritative_absence`), and where the question was put when no attempt could land any more and what had
  landed must have become visible (`visible_after_s`);
* *anything else* (an error, no answer, an answer that was cut or is no number) is `undetermined`. No failure
  of a probe is ever the absence of an effect.

The schedule is derived from the looks that the journal holds, and from nothing else: up to half of them come
early, because most effects can be seen at once, and the others when absence can be believed. At least one
comes then, however many somebody asked for before.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal, TypeAlias, cast

from driver.core.attempts import Answered, Phase, Report
from driver.core.classify import Failed, bounded
from driver.core.contracts import Contract, Probe
from driver.core.expressions import EvaluationFailed
from driver.core.reports import Redactor, judge, sound
from driver.core.templates import blank
from store.lifecycle import ENDED, Effect, Evidence, Source, State
from store.lifecycle import judge as judge_effect
from store.records import JsonObject, JsonValue, OperationId, OperationRecord

BACKOFF_S: Final = 1.0
"""The pause after the first look; it doubles with each."""
BACKOFF_S_MAX: Final = 60.0
MATCHES_MAX: Final = 2**53 - 1
"""The largest whole number that every reader of JSON holds exactly."""

LOOK_PREFIX: Final = "probe_"
"""Begins the ids under which looks call their providers: none is an operation's."""

_DOUBLINGS_MAX: Final = 16

Verdict: TypeAlias = Literal["occurred", "absent", "duplicated", "undetermined"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What one look came to. `matches` is None where nothing could be counted; `detail` is for people."""

    verdict: Verdict
    matches: int | None
    detail: str

    @property
    def effect(self) -> Literal[Effect.OCCURRED, Effect.NONE] | None:
        """What it says about the effect; None where it says nothing."""
        if self.verdict in ("occurred", "duplicated"):
            return Effect.OCCURRED
        return Effect.NONE if self.verdict == "absent" else None


@dataclass(frozen=True, slots=True)
class Unclear:
    """Nothing was counted: `detail` says why. It holds nothing that is withheld."""

    detail: str

    def finding(self) -> Finding:
        """Return the verdict that each failure is."""
        return Finding(verdict="undetermined", matches=None, detail=bounded(self.detail))


# ------------------------------------------------------------ the question


def scope(
    operation_id: str, arguments: JsonObject | None, receipt: JsonValue, *, key: str | None = None
) -> JsonObject:
    """Return what the expressions of a probe see of an operation. The key is its id, unless another is given.

    `arguments` are null once they were erased.
    """
    return {
        "key": operation_id if key is None else key,
        "arguments": arguments,
        "receipt": receipt,
        "operation_id": operation_id,
    }


def look_id(digits: str) -> OperationId:
    """Return the id of one look, from 32 hex digits: what is heard of it later lands on no operation."""
    return OperationId(LOOK_PREFIX + digits)


def is_look(operation_id: OperationId) -> bool:
    """Whether a call was a probe's."""
    return operation_id.startswith(LOOK_PREFIX)


def question(probe: Probe, seen: JsonObject) -> JsonObject | Unclear:
    """Return the arguments of the read. `seen` is the operation's `scope`.

    An expression that finds nothing there asks about nothing in particular: its answer would be about
    something else.
    """
    try:
        filled = probe.arguments.fill(seen)
    except EvaluationFailed as error:
        return Unclear(f"the probe's arguments cannot be made: {error}")
    missing = blank(probe.arguments.source, filled)
    if missing is not None:
        return Unclear(f"the probe's argument {missing!r} finds nothing in this operation")
    # a template's shape stays, and this one is a table
    return cast("JsonObject", filled)


# ------------------------------------------------------------ the answer


def count(
    probe: Probe,
    seen: JsonObject,
    report: Report,
    phase: Phase,
    contract: Contract,
    redactor: Redactor | None = None,
) -> int | Unclear:
    """Return how many matches the answer shows, or why that cannot be said.

    `contract` and `redactor` are those of the read.
    """
    usable = sound(report)
    if not isinstance(usable, Answered) or usable.is_error:
        return Unclear(f"{probe.tool} failed: {_failure(report, phase, contract, redactor)}")
    try:
        counted = _number(probe.matches.evaluate({**seen, "result": usable.result}))
    except EvaluationFailed as error:
        return Unclear(f"matches: {error}")
    return _flaw(probe, usable) or counted if counted == 0 else counted


def _flaw(probe: Probe, answer: Answered) -> Unclear | None:
    """Return why something may be missing from the answer; None where it is whole."""
    if answer.output_invalid:
        return Unclear(f"0 matches, in an answer that breaks the output schema of {probe.tool}")
    if answer.result.get("stdout_truncated") is True:
        return Unclear(f"0 matches, in an output of {probe.tool} that was cut at output_max_bytes")
    return None


def _failure(report: Report, phase: Phase, contract: Contract, redactor: Redactor | None) -> str:
    """Return what the read came to instead of an answer, without what its contract withholds."""
    ending = judge(report, phase, contract, redactor)
    if isinstance(ending, Failed):
        return f"{ending.error.code}: {ending.error.message}"
    return getattr(ending, "message", "") or getattr(ending, "reason", ending.kind)


def _number(value: JsonValue) -> int | Unclear:
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, int) and 0 <= value <= MATCHES_MAX:
        return value
    kind = "null" if value is None else f"a {type(value).__name__}"
    what = "a number that counts nothing" if isinstance(value, int | float) else kind
    return Unclear(f"matches yields {what}, and not a whole number or a boolean")


def verdict(probe: Probe, counted: int | Unclear, *, began: datetime, landed: datetime | None) -> Finding:
    """Return what a look proves that was begun at `began`.

    `landed` is when the last attempt could no longer land; None where that cannot be told.
    """
    if isinstance(counted, Unclear):
        return counted.finding()
    if counted > 1:
        detail = f"{counted} matches for one operation: it happened more than once"
        return Finding(verdict="duplicated", matches=counted, detail=detail)
    if counted == 1:
        return Finding(verdict="occurred", matches=1, detail="1 match")
    doubt = _doubt(probe, began, landed)
    if doubt is not None:
        return Finding(verdict="undetermined", matches=0, detail=f"0 matches, which proves nothing: {doubt}")
    return Finding(verdict="absent", matches=0, detail="0 matches, and it would be visible by now")


def _doubt(probe: Probe, began: datetime, landed: datetime | None) -> str | None:
    """Return why finding nothing is no proof; None where it is one."""
    if not probe.authoritative_absence:
        return "authoritative_absence is not declared"
    if landed is None:
        return "it may still be executed"
    visible = landed + timedelta(seconds=probe.visible_after_s)
    return None if began >= visible else f"what has happened may not be visible before {visible.isoformat()}"


def adds(known: Iterable[Evidence], effect: Effect, attempts: int) -> bool:
    """Whether a probe's word about the first `attempts` attempts changes what is known of any of them.

    It does not where something at least as strong has been said.
    """
    words = tuple(known)
    for attempt in range(1, max(attempts, 1) + 1):
        of_attempt = [Evidence(1, word.effect, word.source) for word in words if word.attempt == attempt]
        probed = Evidence(1, effect, Source.PROBE)
        if judge_effect([*of_attempt, probed], 1) != judge_effect(of_attempt, 1):
            return True
    return False


# ------------------------------------------------------------ the schedule


def is_wanted(record: OperationRecord) -> bool:
    """Whether it is worth looking for what an operation came to: nobody has said so who could have looked."""
    if not record.write or record.state not in ENDED:
        return False
    if not record.settled:
        return True
    return record.state in (State.UNKNOWN, State.FAILED) and record.effect_by is Source.SUPERVISOR


def due(
    probe: Probe, looks: Sequence[datetime], *, ended: datetime, landed: datetime | None
) -> datetime | None:
    """Return when to look next; None where it was looked often enough.

    `looks` are those since the newest attempt began, in order; `ended` is when that attempt had ended.
    """
    early_max = probe.attempts // 2
    visible = None if landed is None else landed + timedelta(seconds=probe.visible_after_s)
    if visible is None:
        if len(looks) >= probe.attempts:
            return None
        return looks[-1] + _pause(len(looks)) if looks else ended
    if not looks:
        return ended if early_max else max(ended, visible)
    if looks[-1] >= visible:
        return None if len(looks) >= probe.attempts else looks[-1] + _pause(len(looks))
    soon = looks[-1] + _pause(len(looks))
    return soon if soon < visible and len(looks) < early_max else visible


def _pause(looks: int) -> timedelta:
    return timedelta(seconds=min(BACKOFF_S_MAX, BACKOFF_S * float(1 << min(looks - 1, _DOUBLINGS_MAX))))
