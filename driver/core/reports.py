"""What is kept of a provider's report: what an event can hold, and nothing that the contract withholds.

Part of `driver.core`, pure: imports its `attempts`, `classify`, `contracts`, `redaction`, `scrubbing` and
`strictjson`. `judge` is how a report becomes an ending: nobody else sees both the raw answer and an event.

A receipt must be what it is in the answer as it came. One that is a withheld value, or quotes one, is kept
by nobody: a part of a reference is none, and the ending says that it is missing.
"""

import json
import re
from dataclasses import dataclass, replace
from typing import Final, cast

from driver.core.attempts import (
    Answered,
    HttpStatus,
    InputRequired,
    NotSent,
    PeerError,
    Phase,
    Report,
    Silence,
    TaskPending,
)
from driver.core.classify import Ending, Failed, NotExecuted, Succeeded, Unknown, classify, classify_late
from driver.core.contracts import Contract
from driver.core.redaction import MARKER, Redaction
from driver.core.scrubbing import Scrubber
from driver.core.strictjson import DEPTH_MAX, deeper_than
from store.records import JsonObject, JsonValue

ANSWER_DEPTH_MAX: Final = DEPTH_MAX - 8
"""Levels of an answer: an event that holds it may have `DEPTH_MAX`, and wraps it in a few of its own."""

_SURROGATE: Final = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Redactor:
    """What one operation's contract withholds of it. `arguments` is None once they were erased."""

    redaction: Redaction
    arguments: JsonObject | None

    def shown_arguments(self) -> JsonObject | None:
        """Return the arguments as everybody may see them; None where they were erased."""
        if self.arguments is None:
            return None
        redacted = self.redaction.apply("arguments", self.arguments)
        # arguments are an object, and a scrubber keeps shapes
        return cast("JsonObject", Scrubber(redacted.withheld).value(redacted.value))

    def message(self, text: str) -> str:
        """Return a message about the call, of ours or anybody's, without what it quotes."""
        return text if not text else self._kept().text(text)

    def value(self, value: JsonValue) -> JsonValue:
        """Return a recorded value without what it quotes."""
        return self._kept().value(value)

    def report(self, report: Report) -> Report:
        """Return the report as everybody may see it."""
        match report:
            case Answered(result=result) | InputRequired(result=result) | HttpStatus(result=result):
                redacted = self.redaction.apply("result", result)
                kept = self._kept(redacted.withheld)
                return replace(report, result=kept.object(cast("JsonObject", redacted.value)))
            case TaskPending(handle=handle):
                return TaskPending(handle=self._kept().object(handle))
            case PeerError():
                return self._error(report)
            case NotSent() | Silence():
                return replace(report, message=self._kept().text(report.message))

    def _error(self, report: PeerError) -> PeerError:
        """An error has no shape that a path of the result could name: where there is any, its words go."""
        if self.redaction.withholds_results:
            hidden = None if report.data is None else MARKER
            return PeerError(code=report.code, message=MARKER, data=hidden)
        kept = self._kept()
        return PeerError(code=report.code, message=kept.text(report.message), data=kept.value(report.data))

    def _kept(self, withheld: tuple[JsonValue, ...] = ()) -> "_Kept":
        if self.arguments is None:
            return _Kept(None)
        return _Kept(Scrubber((*self.redaction.apply("arguments", self.arguments).withheld, *withheld)))


@dataclass(frozen=True, slots=True)
class _Kept:
    """What may be kept of texts and values. Where there is nothing to compare them with: none of them."""

    scrubber: Scrubber | None

    def text(self, text: str) -> str:
        return MARKER if self.scrubber is None else self.scrubber.text(text)

    def value(self, value: JsonValue) -> JsonValue:
        return MARKER if self.scrubber is None else self.scrubber.value(value)

    def object(self, value: JsonObject) -> JsonObject:
        return (
            dict.fromkeys(value, MARKER) if self.scrubber is None else cast("JsonObject", self.value(value))
        )


def judge(
    report: Report, phase: Phase, contract: Contract, redactor: Redactor | None, *, late: bool = False
) -> Ending:
    """Return how an attempt ended, as the journal may hold it.

    `late`: the answer came after the attempt had ended, and `phase` says nothing then.
    """
    report = sound(report)
    if redactor is None:
        return _classified(report, phase, contract, late=late)
    ending = _classified(redactor.report(report), phase, contract, late=late)
    if isinstance(ending, NotExecuted) or ending.receipt == _receipt_of(
        _classified(report, phase, contract, late=late)
    ):
        return ending
    if isinstance(ending, Succeeded):
        return replace(ending, receipt=None, receipt_missing=True)
    return replace(ending, receipt=None)


def _classified(report: Report, phase: Phase, contract: Contract, *, late: bool) -> Ending:
    return classify_late(report, contract) if late else classify(report, phase, contract)


def _receipt_of(ending: Ending) -> JsonValue:
    match ending:
        case Succeeded(receipt=receipt) | Failed(receipt=receipt) | Unknown(receipt=receipt):
            return receipt
        case NotExecuted():
            return None


# ------------------------------------------------------------ what an event can hold


def sound(report: Report) -> Report:
    """Return the report; where no event could hold its answer, that nothing usable came.

    Every provider has limits of its own, and mends or refuses what is no JSON. This is the last look, so that
    an answer can never make its own outcome impossible to record.
    """
    if isinstance(report, NotSent | Silence):
        return report
    problem = _problem(_answer(report))
    if problem is None:
        return report
    return Silence(cause="protocol_error", message=f"the answer cannot be recorded: it {problem}")


def _answer(report: Answered | InputRequired | HttpStatus | TaskPending | PeerError) -> JsonValue:
    match report:
        case TaskPending(handle=handle):
            return handle
        case PeerError(message=message, data=data):
            return [message, data]
        case _:
            return report.result


def _problem(value: JsonValue) -> str | None:
    try:
        text = _ENCODER.encode(value)
    except RecursionError:
        return _TOO_DEEP
    except ValueError:
        return "holds a number that JSON or effectd cannot write"
    if not text.isascii() and _SURROGATE.search(text):
        return "holds half a surrogate pair, which no UTF-8 can carry"
    if text.count("{") + text.count("[") > ANSWER_DEPTH_MAX and deeper_than(value, ANSWER_DEPTH_MAX):
        return _TOO_DEEP
    return None


_TOO_DEEP: Final = f"is nested more than {ANSWER_DEPTH_MAX} levels deep"
_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)
