"""Text of strangers as data: bounded whatever it holds, and unable to leave its quotes."""

import json
from typing import cast

from hypothesis import given
from hypothesis import strategies as st

from store.records import JsonValue
from supervisor.quoting import TEXT_BYTES_MIN, bounded, dumps, shortened, size

TEXTS = st.text(st.characters(), max_size=300)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=40) | st.dictionaries(TEXTS, inner, max_size=40),
    max_leaves=60,
)


@given(VALUES)
def test_what_is_quoted_is_ascii_and_spells_no_marker(value: JsonValue) -> None:
    """No line break, no control character and no angle bracket ever leaves a quoted value."""
    text = dumps(value)
    assert all(" " <= char <= "~" for char in text)
    assert not set("<>&") & set(text)


@given(VALUES)
def test_quoting_changes_nothing(value: JsonValue) -> None:
    """A model that reads JSON reads what was written, surrogates and all."""
    assert json.loads(dumps(value)) == value


@given(TEXTS, st.integers(TEXT_BYTES_MIN + 20, 400))
def test_a_shortened_text_keeps_its_bound_and_its_beginning(text: str, bytes_max: int) -> None:
    """The bound is that of the escaped text; what is cut says so."""
    short = shortened(text, bytes_max)
    assert size(short) <= bytes_max
    if short != text:
        kept, mark, _ = short.rpartition("...[cut: ")
        assert mark
        assert text.startswith(kept)


@given(VALUES, st.integers(TEXT_BYTES_MIN + 20, 2_000))
def test_a_bounded_value_keeps_its_bound(value: JsonValue, bytes_max: int) -> None:
    """Whatever its shape, and however its texts are escaped."""
    assert size(bounded(value, bytes_max)) <= bytes_max


@given(VALUES)
def test_what_fits_is_left_as_it_is(value: JsonValue) -> None:
    """Nothing is cut that need not be."""
    assert bounded(value, size(value)) == value


def test_a_large_object_keeps_its_shape_while_that_fits() -> None:
    """A model sees which arguments there were, though not all of each."""
    arguments = cast("JsonValue", {"title": "t" * 5_000, "labels": ["bug"] * 500, "number": 7})
    kept = cast("dict[str, JsonValue]", bounded(arguments, 600))
    assert set(kept) == {"title", "labels", "number"}
    assert kept["number"] == 7
