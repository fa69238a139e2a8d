"""Headers of a tool's request: no value becomes another header, and none says how the request travels."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driver.core.headers import OWN, VALUE_CHARS_MAX, wrong_name, wrong_value


@pytest.mark.parametrize("name", ["Accept", "Idempotency-Key", "x_y", "X-1", "Authorization", "Cookie"])
def test_an_ordinary_name_is_taken(name: str) -> None:
    """Letters, digits, hyphens and a few marks."""
    assert wrong_name(name) is None


@pytest.mark.parametrize("name", ["", "a b", "a:", "a\r\nb", "a\n", "ä", "\0", "(x)"])
def test_what_is_no_name_is_refused(name: str) -> None:
    """A name is a token, to its last character."""
    assert wrong_name(name)


@pytest.mark.parametrize("name", [*sorted(OWN), "Host", "HOST", "Proxy-Authorization"])
def test_how_the_request_travels_is_not_a_tools_business(name: str) -> None:
    """Framing, routing and connection headers are the daemon's alone, in any spelling."""
    assert wrong_name(name)


@pytest.mark.parametrize("value", ["", "x", "a b", "a\tb", "Bearer x=y;z", "~" * VALUE_CHARS_MAX])
def test_an_ordinary_value_is_taken(value: str) -> None:
    """ASCII text of a bounded length; it may be empty."""
    assert wrong_value(value) is None


@pytest.mark.parametrize("value", ["a\r\nx: y", "a\n", "\r", "a\0", "ä", " a", "a ", "\ta", "\x7f", "a\x85b"])
def test_a_value_that_could_be_read_as_more_is_refused(value: str) -> None:
    """Line breaks, control characters, what is not ASCII, and spaces that a reader would strip."""
    assert wrong_value(value)


def test_a_value_is_bounded() -> None:
    """One character beyond the limit is too much."""
    assert wrong_value("x" * (VALUE_CHARS_MAX + 1))


@given(st.text())
def test_whatever_is_taken_stays_in_its_line(value: str) -> None:
    """A value that is taken has no line break, and is never quoted by what refuses it."""
    wrong = wrong_value(value)
    if wrong is None:
        assert value.isascii()
        assert value == value.strip()
        assert not set(value) & {"\r", "\n", "\0"}
