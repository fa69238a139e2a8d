"""A model's answer as a verdict: parsed strictly, bounded, and merged with the wall it is about.

Part of `supervisor`, pure: imports `store.{lifecycle,records}`. A model may say anything; what comes out of
here is one ruling for each operation of the wall, and texts of a known size.

    Malformed      the text holds no answer of the form that was asked for
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from store.lifecycle import Effect
from store.records import OperationId

SUMMARY_BYTES_MAX: Final = 2_000
LESSON_BYTES_MAX: Final = 1_000
ITEM_BYTES_MAX: Final = 500
ITEMS_MAX: Final = 5
BASIS_BYTES_MAX: Final = 500
CANDIDATES_MAX: Final = 32
"""Places in a text at which an answer is looked for."""
ANSWER_CHARS_MAX: Final = 1_048_576

OMITTED: Final = "the model said nothing about it"
NOT_AN_EFFECT: Final = "the model named no effect that there is"

_CARE: Final = {Effect.UNKNOWN: 2, Effect.OCCURRED: 1, Effect.NONE: 0}
"""Which of two words about one operation is the more careful: what may have happened is not done again."""
_REASONING: Final = re.compile(
    r"<(think|thinking|reasoning|reflection)\b[^>]*>.*?</\1\s*>", re.DOTALL | re.IGNORECASE
)
_UNFINISHED: Final = re.compile(
    r"^.*</(?:think|thinking|reasoning|reflection)\s*>", re.DOTALL | re.IGNORECASE
)
"""Some servers cut the opening mark of a reasoning away, and leave the closing one."""
_FENCE: Final = re.compile(r"```[A-Za-z0-9_-]*[ \t]*\r?\n(.*?)```", re.DOTALL)
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")
"""What a terminal or a reader might obey, and no text needs."""


class Malformed(Exception):
    """The text is no answer. `problem` is in our own words, and quotes nothing of it."""

    def __init__(self, *, problem: str) -> None:
        self.problem = problem
        super().__init__(f"the triage model's answer cannot be used: {problem}")


@dataclass(frozen=True, slots=True)
class Word:
    """What a model said about one operation; `effect` is None where it named none."""

    operation_id: str
    effect: Effect | None
    basis: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a model said of one wall. All texts are bounded."""

    needs_attention: bool
    summary: str
    causes: tuple[str, ...] = ()
    remedies: tuple[str, ...] = ()
    lesson: str = ""
    words: tuple[Word, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruling:
    """What is to be recorded about one operation of the wall."""

    operation_id: OperationId
    effect: Effect
    basis: str


def bounded_text(text: str, bytes_max: int) -> str:
    """Return `text` without what is no text, and at most `bytes_max` bytes of its UTF-8."""
    clean = _CONTROL.sub(" ", text).encode("utf-8", errors="replace").strip()
    if len(clean) <= bytes_max:
        return clean.decode("utf-8")
    return clean[: bytes_max - len(_CUT)].decode("utf-8", errors="ignore") + _CUT.decode("utf-8")


_CUT: Final = " …".encode()


def parse(text: str) -> Answer:
    """Return the answer that `text` holds, with or without fences and reasoning around it.

    Raises `Malformed`.
    """
    if len(text) > ANSWER_CHARS_MAX:
        raise Malformed(problem=f"it is longer than {ANSWER_CHARS_MAX:,} characters")
    if not text.strip():
        raise Malformed(problem="it is empty")
    problem = "it holds no JSON object"
    for candidate in _candidates(text):
        found = _load(candidate)
        if found is None:
            continue
        if isinstance(found.get("verdicts"), list):
            return _answer(found)
        problem = 'its JSON object has no array "verdicts"'
    raise Malformed(problem=problem)


def rule(operation_ids: Sequence[OperationId], answer: Answer) -> tuple[Ruling, ...]:
    """Return one ruling for each operation of the wall, in its order.

    Ids that the wall does not have are dropped. What the answer omits, or names no effect for, is `unknown`;
    of several words about one operation the most careful stands.
    """
    said: dict[str, list[Word]] = {}
    for word in answer.words:
        said.setdefault(word.operation_id, []).append(word)
    return tuple(_ruling(operation_id, said.get(operation_id, ())) for operation_id in operation_ids)


def _ruling(operation_id: OperationId, words: Sequence[Word]) -> Ruling:
    if not words:
        return Ruling(operation_id=operation_id, effect=Effect.UNKNOWN, basis=OMITTED)
    word = max(words, key=lambda word: _CARE[word.effect or Effect.UNKNOWN])
    if word.effect is None:
        return Ruling(operation_id=operation_id, effect=Effect.UNKNOWN, basis=NOT_AN_EFFECT)
    return Ruling(operation_id=operation_id, effect=word.effect, basis=word.basis)


# ------------------------------------------------------------ finding the JSON in a text


def _candidates(text: str) -> Iterator[str]:
    """Yield what may be the answer: the text, and then ever smaller parts of it."""
    yield text
    plain = _UNFINISHED.sub("", _REASONING.sub("", text))
    yield plain
    yield from _FENCE.findall(plain)[:CANDIDATES_MAX]
    at = plain.find("{")
    for _ in range(CANDIDATES_MAX):
        if at < 0:
            return
        yield plain[at:]
        at = plain.find("{", at + 1)


def _load(text: str) -> dict[str, Any] | None:
    """Return the strict JSON object that `text` begins with; None where it does not."""
    try:
        value, _ = _DECODER.raw_decode(text.strip())
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def _no_constant(name: str) -> object:
    raise ValueError(name)


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Of a key that stands twice nobody knows which one is meant."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key stands twice")  # noqa: TRY003 - caught above
    return found


_DECODER: Final = json.JSONDecoder(parse_constant=_no_constant, object_pairs_hook=_once)


# ------------------------------------------------------------ the members


def _answer(found: Mapping[str, Any]) -> Answer:
    attention = found.get("needs_attention")
    return Answer(
        # whoever does not say that nobody need look has not said it
        needs_attention=attention if isinstance(attention, bool) else True,
        summary=_text(found.get("summary"), SUMMARY_BYTES_MAX),
        causes=tuple(_texts(found.get("causes"))),
        remedies=tuple(_texts(found.get("remedies"))),
        lesson=_text(found.get("lesson"), LESSON_BYTES_MAX),
        words=tuple(_words(found["verdicts"])),
    )


def _text(value: object, bytes_max: int) -> str:
    return bounded_text(value, bytes_max) if isinstance(value, str) else ""


def _texts(value: object) -> Iterator[str]:
    if not isinstance(value, list):
        return
    for item in cast("list[object]", value)[:ITEMS_MAX]:
        if text := _text(item, ITEM_BYTES_MAX):
            yield text


def _words(verdicts: Iterable[object]) -> Iterator[Word]:
    for item in verdicts:
        if not isinstance(item, dict):
            continue
        verdict = cast("dict[str, object]", item)
        if isinstance(operation_id := verdict.get("operation_id"), str):
            effect, basis = _effect(verdict.get("effect")), _text(verdict.get("basis"), BASIS_BYTES_MAX)
            yield Word(operation_id, effect, basis or "the model gave no basis")


def _effect(value: object) -> Effect | None:
    try:
        return Effect(value) if isinstance(value, str) else None
    except ValueError:
        return None
