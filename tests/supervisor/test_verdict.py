"""A model's answer: parsed strictly, whatever stands around it, and merged with care."""

import contextlib
import json
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.lifecycle import Effect
from store.records import OperationId
from supervisor.verdict import (
    BASIS_BYTES_MAX,
    ITEM_BYTES_MAX,
    ITEMS_MAX,
    LESSON_BYTES_MAX,
    NOT_AN_EFFECT,
    OMITTED,
    SUMMARY_BYTES_MAX,
    Answer,
    Malformed,
    Word,
    bounded_text,
    parse,
    rule,
)

IDS = tuple(OperationId(f"op_{n:032x}") for n in range(4))
GOOD = {
    "needs_attention": False,
    "summary": "the provider timed out",
    "causes": ["slow"],
    "remedies": ["wait"],
    "lesson": "probe",
    "verdicts": [{"operation_id": IDS[0], "effect": "occurred", "basis": "written"}],
}
TEXT = json.dumps(GOOD)


@pytest.mark.parametrize(
    "text",
    [
        TEXT,
        f"  {TEXT}\n",
        f"```json\n{TEXT}\n```",
        f"```\n{TEXT}\n```\nThat is all.",
        f"Here is the verdict:\n{TEXT}\nI hope it helps.",
        f'<think>maybe {{"verdicts": []}} or not</think>\n{TEXT}',
        f'so I conclude {{"verdicts": []}}</think>{TEXT}',
        f"<reasoning>\n<b>x</b></reasoning>```json\n{TEXT}```",
        f'{{"note": "no verdicts in here"}} {TEXT}',
    ],
)
def test_an_answer_is_found_in_what_stands_around_it(text: str) -> None:
    """Fences and reasoning are stripped: they are a model's habits, and no part of its answer."""
    answer = parse(text)
    assert answer.words == (Word(IDS[0], Effect.OCCURRED, "written"),)
    assert (answer.needs_attention, answer.summary, answer.lesson) == (
        False,
        "the provider timed out",
        "probe",
    )
    assert (answer.causes, answer.remedies) == (("slow",), ("wait",))


@pytest.mark.parametrize(
    "text",
    [
        "",
        " \n",
        "I cannot help with that.",
        "{",
        TEXT[:-2],
        "[1, 2]",
        '{"verdicts": {}}',
        '{"summary": "no verdicts"}',
        '{"verdicts": [], "verdicts": [1]}',
        '{"verdicts": [], "x": NaN}',
        "{" * 100_000,
        '{"verdicts":' + "[" * 100_000,
        "x" * 1_048_577,
    ],
)
def test_what_is_no_answer_is_malformed(text: str) -> None:
    """Strictly: no half of an object, no key twice, no NaN, nothing too deep, nothing endless."""
    with pytest.raises(Malformed):
        parse(text)


@given(st.text())
def test_no_text_breaks_the_parser(text: str) -> None:
    """It is an answer, or `Malformed`."""
    with contextlib.suppress(Malformed):
        parse(text)


MEMBERS = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(max_size=50)
    | st.sampled_from([*IDS, "none", "occurred"]),
    lambda inner: (
        st.lists(inner, max_size=6)
        | st.dictionaries(st.sampled_from([*GOOD, "operation_id", "effect", "basis"]), inner, max_size=6)
    ),
    max_leaves=20,
)


@given(st.dictionaries(st.sampled_from(list(GOOD)), MEMBERS), st.lists(MEMBERS, max_size=8))
def test_whatever_an_answer_holds_each_operation_gets_one_bounded_ruling(
    members: dict[str, object], verdicts: list[object]
) -> None:
    """Wrong types, invented ids, odd texts: one ruling for each operation of the wall, and no other."""
    answer = parse(json.dumps({**members, "verdicts": verdicts}))
    rulings = rule(IDS, answer)
    assert tuple(ruling.operation_id for ruling in rulings) == IDS
    assert all(len(ruling.basis.encode()) <= BASIS_BYTES_MAX for ruling in rulings)
    assert len(answer.summary.encode()) <= SUMMARY_BYTES_MAX
    assert len(answer.lesson.encode()) <= LESSON_BYTES_MAX
    for items in (answer.causes, answer.remedies):
        assert len(items) <= ITEMS_MAX
        assert all(len(item.encode()) <= ITEM_BYTES_MAX for item in items)


def test_who_does_not_say_that_nobody_need_look_wants_attention() -> None:
    """The careful reading of a missing member, or of one of a wrong type."""
    assert parse('{"verdicts": []}').needs_attention
    assert parse('{"verdicts": [], "needs_attention": "false"}').needs_attention
    assert not parse('{"verdicts": [], "needs_attention": false}').needs_attention


def says(*words: tuple[OperationId, str | None]) -> Answer:
    """An answer with these words."""
    found = tuple(Word(name, None if effect is None else Effect(effect), "b") for name, effect in words)
    return Answer(needs_attention=False, summary="", words=found)


def test_what_is_omitted_or_no_effect_becomes_unknown() -> None:
    """And the ruling says which of the two it was."""
    rulings = rule(IDS[:3], says((IDS[0], "none"), (IDS[1], None)))
    assert [(ruling.effect, ruling.basis) for ruling in rulings] == [
        (Effect.NONE, "b"),
        (Effect.UNKNOWN, NOT_AN_EFFECT),
        (Effect.UNKNOWN, OMITTED),
    ]


@pytest.mark.parametrize(
    ("effects", "careful"),
    [
        (("none", "occurred"), "occurred"),
        (("none", "unknown"), "unknown"),
        (("occurred", "unknown"), "unknown"),
        (("none", "occurred", "unknown"), "unknown"),
        (("none", None), "unknown"),
    ],
)
def test_of_several_words_the_most_careful_wins_in_any_order(
    effects: tuple[str | None, ...], careful: str
) -> None:
    """What may have happened is not taken for what has not."""
    for order in permutations(effects):
        (ruling,) = rule(IDS[:1], says(*((IDS[0], effect) for effect in order)))
        assert ruling.effect == careful


def test_texts_lose_what_no_text_needs_and_are_cut_at_a_character() -> None:
    """No escape, no direction mark, no half a character reaches a terminal or the journal."""
    assert bounded_text("a\x1b[31mb\u202ec\x00", 100) == "a [31mb c"
    assert bounded_text("\ud800x", 100) == "?x"
    cut = bounded_text("ä" * 600, 101)
    assert len(cut.encode()) <= 101
    assert cut.endswith("…")
