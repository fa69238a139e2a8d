"""JSON with comments and trailing commas."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driver.importing.jsonc import Members, NotJson, read_json

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(VALUES)
def test_json_is_read_as_json(value: object) -> None:
    """What has no comments loses nothing, whatever its strings look like."""
    assert read_json(json.dumps(value, indent=1)) == value


def test_comments_and_trailing_commas_are_passed_over() -> None:
    """Where clients allow them; what looks like one within a string is none."""
    text = """
    // a comment
    {"a": "// no comment, /* nor this */",  /* one
       over two lines */ "b": [1, 2, ], // }
      "c": ",]", }
    """
    assert read_json(text) == {"a": "// no comment, /* nor this */", "b": [1, 2], "c": ",]"}


def test_an_error_names_the_line_that_a_person_sees() -> None:
    """Comments before it count."""
    with pytest.raises(NotJson, match=r"line 4, column 3: "):
        read_json("/* one\n two */\n{\n  a}")


def test_a_member_that_stands_twice_is_remembered() -> None:
    """The last one counts, as everywhere."""
    value = read_json('{"a": 1, "b": 2, "a": 3}')
    assert isinstance(value, Members)
    assert value == {"a": 3, "b": 2}
    assert value.twice == ("a",)


@pytest.mark.parametrize("text", ["/*" * 200_000, '"\\"' * 200_000, "[" + "," * 400_000, "//" * 200_000])
def test_no_text_takes_long(text: str) -> None:
    """Open comments and strings are looked at once, not once for each place where one could begin."""
    with pytest.raises(NotJson):
        read_json(text)
