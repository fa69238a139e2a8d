"""What is kept of a provider's report: what an event can hold, and nothing that the contract withholds.

Part of `driver.core`, pure: imports its `attempts`, `classify`, `contracts`, `redaction`, `scrubbing` and
`strictjson`. `judge` is how a report becomes an ending: nobody else sees both the raw answer and an event.

The receipt is found in the answer as it came, before anything is taken out. One that is a withheld value, or
quotes one, is kept by nobody: the ending says that it is missing.
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
from driver.core.strictjson import DEPTH_MAX
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

    def report(self, report: Report) -> tuple[Report, "Kept"]:
        """Return the report as everybody may see it, and what else must not be quoted because of it."""
        match report:
            case Answered(result=result) | InputRequired(result=result) | HttpStatus(result=result):
                shown, kept = self._shown(result)
                return replace(report, result=shown), kept
            case TaskPending(handle=handle):
                kept = self._kept()
                return TaskPending(handle=kept.object(handle)), kept
            case PeerError():
                return self._error(report)
            case NotSent() | Silence():
                kept = self._kept()
                return replace(report, message=kept.text(report.message)), kept

    def _error(self, report: PeerError) -> tuple[PeerError, "Kept"]:
        """An error's `data` has no shape that a path of the result could name: it goes as a whole."""
        shaped: JsonObject = {"error": {"code": report.code, "message": report.message, "data": report.data}}
        shown, kept = self._shown(shaped)
        error = shown.get("error")
        if not isinstance(error, dict):
            return PeerError(code=report.code, message=MARKER, data=MARKER), kept
        hide = self.redaction.withholds_results and report.data is not None
        return PeerError(
            code=report.code,
            message=str(error.get("message", MARKER)),
            data=MARKER if hide else error.get("data"),
        ), kept

    def _shown(self, result: JsonObject) -> tuple[JsonObject, "Kept"]:
        redacted = self.redaction.apply("result", result)
        kept = self._kept(redacted.withheld)
        return kept.object(cast("JsonObject", redacted.value)), kept

    def _kept(self, withheld: tuple[JsonValue, ...] = ()) -> "Kept":
        if self.arguments is None:
            return Kept(None)
        return Kept(Scrubber((*self.redaction.apply("arguments", self.arguments).withheld, *withheld)))


@dataclass(frozen=True, slots=True)
class Kept:
    """What may be kept of texts and values. Where there is nothing to compare them with: none of them."""

    scrubber: Scrubber | None

    def text(self, text: str) -> str:
        """Return the text without quotes."""
        return MARKER if self.scrubber is None else self.scrubber.text(text)

    def object(self, value: JsonObject) -> JsonObject:
        """Return the object without quotes."""
        if self.scrubber is None:
            return dict.fromkeys(value, MARKER)
        return cast("JsonObject", self.scrubber.value(value))

    def receipt(self, receipt: JsonValue) -> JsonValue:
        """Return the receipt, or None where it would tell what is withheld: a part of it is no reference."""
        if self.scrubber is None or self.scrubber.value(receipt) != receipt:
            return None
        return receipt


def judge(
    report: Report, phase: Phase, contract: Contract, redactor: Redactor | None, *, late: bool = False
) -> Ending:
    """Return how an attempt ended, as the journal may hold it.

    `late`: the answer came after the attempt had ended, and `phase` says nothing then.
    """
    report = sound(report)
    if redactor is None:
        return _classified(report, phase, contract, late=late)
    shown, kept = redactor.report(report)
    ending = _classified(shown, phase, contract, late=late)
    if isinstance(ending, NotExecuted):
        return ending
    receipt = kept.receipt(_receipt_of(_classified(report, phase, contract, late=late)))
    if isinstance(ending, Succeeded):
        missing = contract.receipt is not None and receipt is None
        return replace(ending, receipt=receipt, receipt_missing=missing)
    return replace(ending, receipt=receipt)


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
    if text.count("{") + text.count("[") > ANSWER_DEPTH_MAX and _is_deep(value):
        return _TOO_DEEP
    return None


_TOO_DEEP: Final = f"is nested more than {ANSWER_DEPTH_MAX} levels deep"
_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def _is_deep(value: JsonValue) -> bool:
    """Level by level, so that no depth can exhaust the stack."""
    level: list[JsonValue] = [value]
    for _ in range(ANSWER_DEPTH_MAX + 1):
        level = [
            inner
            for item in level
            if isinstance(item, dict | list)
            for inner in (item.values() if isinstance(item, dict) else item)
        ]
    return bool(level)
