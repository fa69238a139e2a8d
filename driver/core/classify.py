"""What an attempt's report says about the effect: the table of the configuration contract, row by row.

Part of `driver.core`, pure: imports `driver.core.attempts`, `driver.core.contracts` and the store's values.

The rule behind the table: an attempt is `not_executed` only where a recorded fact shows that nothing left
this machine. An error text, a status code, an annotation or a timeout never shows that. So everything that is
no answer is judged by the phase that the attempt had reached, and not by what it looked like.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final, Literal, NamedTuple, TypeAlias

from driver.core.attempts import (
    Answered,
    HttpStatus,
    InputRequired,
    NotSent,
    NotSentReason,
    PeerError,
    Phase,
    Report,
    Silence,
    SilenceCause,
    TaskPending,
)
from driver.core.contracts import Contract, ErrorMeans
from driver.core.expressions import ExpressionError
from store.lifecycle import Effect
from store.records import JsonObject, JsonValue
from store.values import light

MESSAGE_BYTES_MAX: Final = 2_000
"""An error message from outside is cut to this, in UTF-8: it is for people, and stands in events."""
RECEIPT_BYTES_MAX: Final = 4_096
"""A provider's reference is an id or a URL; an event must hold it uncut. A larger one counts as missing."""

UnknownReason: TypeAlias = Literal[
    "execution_timeout",
    "connection_lost",
    "cancelled_after_dispatch",
    "protocol_error",
    "gateway_error",
    "redirected",
    "task_pending",
]


class Failure(NamedTuple):
    """A provider's own error: its code as text, and its message, bounded by `MESSAGE_BYTES_MAX`."""

    code: str
    message: str


@light
@dataclass(frozen=True, slots=True, kw_only=True)
class Succeeded:
    """The provider answered that it did it."""

    kind: Literal["succeeded"] = "succeeded"
    effect: Literal[Effect.OCCURRED] = Effect.OCCURRED
    result: JsonObject
    receipt: JsonValue = None
    receipt_missing: bool = False
    output_invalid: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The provider answered with a failure; `error_means` is what decided the effect."""

    kind: Literal["failed"] = "failed"
    effect: Literal[Effect.NONE, Effect.UNKNOWN]
    error: Failure
    error_means: ErrorMeans
    result: JsonObject
    receipt: JsonValue = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NotExecuted:
    """Provably nothing was dispatched."""

    kind: Literal["not_executed"] = "not_executed"
    effect: Literal[Effect.NONE] = Effect.NONE
    reason: NotSentReason
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown:
    """Something may have been dispatched, and nobody knows what came of it."""

    kind: Literal["unknown"] = "unknown"
    effect: Literal[Effect.UNKNOWN] = Effect.UNKNOWN
    reason: UnknownReason
    message: str
    receipt: JsonValue = None


Ending: TypeAlias = Succeeded | Failed | NotExecuted | Unknown
"""How an attempt ended; `kind` tells them apart."""


def classify(report: Report, phase: Phase, contract: Contract) -> Ending:
    """Return the outcome of an attempt that reached `phase` and ended with `report`, under `contract`."""
    match report:
        case Answered(is_error=False):
            return _succeeded(report, contract)
        case Answered(result=result):
            return _failed(_own_error(report), result, contract, error_means=_means(report, contract))
        case PeerError(code=code, message=message):
            return _failed(Failure(str(code), message), _as_result(report), contract)
        case InputRequired(result=result):
            return _failed(Failure("input_required", _NOBODY_TO_ASK), result, contract)
        case TaskPending(handle=handle):
            return Unknown(reason="task_pending", message=_TASK_NOT_DONE, receipt=_bounded_receipt(handle))
        case HttpStatus():
            return _http(report, contract)
        case NotSent() | Silence() if phase.may_have_left:
            return Unknown(reason=_after_the_first_byte(report), message=bounded(report.message))
        case NotSent() | Silence():
            return NotExecuted(reason=_before_the_first_byte(report), message=bounded(report.message))


def classify_late(report: Report, contract: Contract) -> Ending:
    """Return what an answer says that came after its attempt had ended: by the same rows, with one exception.

    The provider had been told to stop, so an error may be about that, from a tool that was interrupted
    halfway: it never proves that nothing happened, whatever the contract says that errors mean.
    """
    return classify(report, Phase.ANSWERED, replace(contract, error_means=_never_none(contract)))


_NOBODY_TO_ASK: Final = "the tool asks for input, and nobody is there to give it"
_TASK_NOT_DONE: Final = (
    "the provider gave a task handle in place of a result, and was not done by the deadline"
)


def _before_the_first_byte(report: NotSent | Silence) -> NotSentReason:
    return report.reason if isinstance(report, NotSent) else _SILENT_BEFORE[report.cause]


def _after_the_first_byte(report: NotSent | Silence) -> UnknownReason:
    """A `NotSent` that contradicts the recorded phase is not believed."""
    return _NOT_SENT_AFTER[report.reason] if isinstance(report, NotSent) else _SILENT_AFTER[report.cause]


_SILENT_BEFORE: Final[Mapping[SilenceCause, NotSentReason]] = MappingProxyType(
    {
        "deadline": "deadline",
        "cancelled": "cancelled",
        "connection_lost": "connect_failed",
        "protocol_error": "connect_failed",
        "internal": "connect_failed",
    }
)

_SILENT_AFTER: Final[Mapping[SilenceCause, UnknownReason]] = MappingProxyType(
    {
        "deadline": "execution_timeout",
        "cancelled": "cancelled_after_dispatch",
        "connection_lost": "connection_lost",
        "protocol_error": "protocol_error",
        "internal": "protocol_error",
    }
)

_NOT_SENT_AFTER: Final[Mapping[NotSentReason, UnknownReason]] = MappingProxyType(
    {
        "deadline": "execution_timeout",
        "cancelled": "cancelled_after_dispatch",
        "connect_failed": "connection_lost",
        "spawn_failed": "connection_lost",
        "invalid_arguments": "protocol_error",
        "unknown_tool": "protocol_error",
    }
)

_REDIRECTS: Final = range(300, 400)
_NOT_NOW: Final = frozenset({429, 503})
_CONFLICT: Final = 409
_UNPROCESSABLE: Final = 422
_PROVIDERS_OWN: Final = frozenset({*range(400, 500), 500, 501})
"""The statuses that are the provider's word. 502, 504 and whatever else is not listed may be a gateway's."""

_KEY_IN_FLIGHT: Final = Failure(
    "idempotency_key_in_flight", "HTTP 409: the provider is still executing a request with this key"
)
_KEY_REUSED: Final = Failure(
    "idempotency_key_reused",
    "HTTP 422: the provider knows this key with another payload; was the tool's declaration changed?",
)
_ABOUT_KEYS: Final = "idempoten"
"""What the answers that the Idempotency-Key draft describes have in common, whatever their language."""
_SEARCHED_CHARS_MAX: Final = 4_096
"""How much of an answer is searched for that."""


def _http(report: HttpStatus, contract: Contract) -> Ending:
    """A status decides by whose word it is, and never proves that nothing happened by itself."""
    status, result = report.status, report.result
    error = Failure(f"http_{status}", f"the provider answered with HTTP status {status}")
    if status in _REDIRECTS and contract.write:
        message = f"HTTP {status}: redirects are not followed, and a write may have happened before one"
        return Unknown(reason="redirected", message=message, receipt=_receipt(result, contract))
    if status in _NOT_NOW:
        # some of it may have been done before the provider gave up
        return _failed(error, result, contract, error_means=_never_none(contract))
    if status == _CONFLICT and contract.carries_key:
        # of all conflicts this is the one that settles nothing, so each counts as it, even one that says less
        error = _KEY_IN_FLIGHT if _speaks_of_keys(result) else error
        return _failed(error, result, contract, error_means="unsettled")
    if status == _UNPROCESSABLE and contract.carries_key and _speaks_of_keys(result):
        return _failed(_KEY_REUSED, result, contract)
    if status in _PROVIDERS_OWN or status in _REDIRECTS:
        return _failed(error, result, contract)
    return Unknown(reason="gateway_error", message=f"HTTP {status} may be the word of a gateway")


def _speaks_of_keys(result: JsonObject) -> bool:
    """Whether the answer's body, or what it links to, mentions idempotency: it only chooses an error's name.

    Other headers do not count: many a server repeats the key in all of its answers.
    """
    headers = result.get("headers")
    link = headers.get("link") if isinstance(headers, dict) else None
    said = (link, result.get("text"), result.get("json"))
    return any(_ABOUT_KEYS in json.dumps(part)[:_SEARCHED_CHARS_MAX].lower() for part in said)


def _succeeded(report: Answered, contract: Contract) -> Succeeded:
    receipt = _receipt(report.result, contract)
    return Succeeded(
        result=report.result,
        receipt=receipt,
        receipt_missing=contract.receipt is not None and receipt is None,
        output_invalid=report.output_invalid,
    )


def _failed(
    error: Failure, result: JsonObject, contract: Contract, *, error_means: ErrorMeans | None = None
) -> Failed:
    means = error_means or contract.error_means
    return Failed(
        effect=Effect.NONE if means == "none" else Effect.UNKNOWN,
        error=Failure(error.code, bounded(error.message)),
        error_means=means,
        result=result,
        receipt=_receipt(result, contract),
    )


def _means(report: Answered, contract: Contract) -> ErrorMeans:
    return _never_none(contract) if report.interrupted else contract.error_means


def _never_none(contract: Contract) -> ErrorMeans:
    """What an error means that proves nothing, whatever the contract says."""
    return "reported" if contract.error_means == "none" else contract.error_means


def _receipt(result: JsonObject, contract: Contract) -> JsonValue:
    if contract.receipt is None:
        return None
    try:
        return _bounded_receipt(contract.receipt.evaluate({"result": result}))
    except ExpressionError:
        return None


def _bounded_receipt(receipt: JsonValue) -> JsonValue:
    return receipt if len(json.dumps(receipt).encode()) <= RECEIPT_BYTES_MAX else None


def _as_result(error: PeerError) -> JsonObject:
    return {"error": {"code": error.code, "message": error.message, "data": error.data}}


def _own_error(report: Answered) -> Failure:
    """The error of a program explains itself on its last line; any other has a text."""
    stderr = report.result.get("stderr")
    if report.code is None or stderr is None:
        return Failure(report.code or "tool_error", _text_of(report.result))
    lines = stderr.strip().splitlines() if isinstance(stderr, str) else []
    return Failure(report.code, lines[-1] if lines else _SILENT)


_SILENT: Final = "the program said nothing on its standard error"


def _text_of(result: JsonObject) -> str:
    """The text that a tool's `isError` result, or the state of a failed task, explains itself with."""
    said = result.get("statusMessage")
    if isinstance(said, str) and "content" not in result:
        return said
    content = result.get("content")
    blocks = content if isinstance(content, list) else []
    texts = [block.get("text") for block in blocks if isinstance(block, dict)]
    return (
        "\n".join(text for text in texts if isinstance(text, str))
        or "the tool reported an error without a text"
    )


def bounded(message: str) -> str:
    """Return `message` cut to `MESSAGE_BYTES_MAX` bytes of UTF-8, and marked where it was."""
    data = message.encode("utf-8", "replace")
    if len(data) <= MESSAGE_BYTES_MAX:
        return message
    mark = "…"
    return data[: MESSAGE_BYTES_MAX - len(mark.encode())].decode("utf-8", "ignore") + mark
