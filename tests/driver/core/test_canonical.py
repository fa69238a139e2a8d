"""The canonical form: the RFC's bytes, whichever way they are made, and one extension."""

import json
import struct

import pytest
import rfc8785
from hypothesis import example, given
from hypothesis import strategies as st

from driver.core.canonical import canonical
from driver.core.strictjson import loads
from store.records import JsonValue
from tests.driver.core import json_values

SAFE = 2**53 - 1


def is_plain(value: JsonValue) -> bool:
    """Whether the RFC's own domain holds `value`."""
    if isinstance(value, dict):
        return all(map(is_plain, value.values()))
    if isinstance(value, list):
        return all(map(is_plain, value))
    return isinstance(value, bool) or not isinstance(value, int) or -SAFE <= value <= SAFE


@given(json_values.values)
@example({"\ue000": 1, "\U00010000": 2})
@example({"a": ":1.5", "b": '\u007f\u0000\u001f\\"/'})
def test_it_is_the_rfcs_form_where_the_rfc_has_one(value: JsonValue) -> None:
    """The fast way and the walk give what the reference implementation gives, byte for byte."""
    if is_plain(value):
        assert canonical(value) == rfc8785.dumps(value)


@given(json_values.objects)
def test_it_is_the_same_for_any_order_and_spelling(value: dict[str, JsonValue]) -> None:
    """Members in another order, spaces and escapes change nothing."""
    shuffled = dict(reversed(value.items()))
    spelled = loads(json.dumps(shuffled, indent=2, ensure_ascii=True))
    assert canonical(spelled) == canonical(value)


@given(json_values.values)
def test_it_is_its_own_canonical_form(value: JsonValue) -> None:
    """Reading the bytes and writing them again changes nothing."""
    text = canonical({"": value})
    assert canonical(loads(text)) == text


@pytest.mark.parametrize(
    ("number", "text"),
    [
        # RFC 8785, appendix B
        ("0000000000000000", "0"),
        ("8000000000000000", "0"),
        ("0000000000000001", "5e-324"),
        ("8000000000000001", "-5e-324"),
        ("7fefffffffffffff", "1.7976931348623157e+308"),
        ("4340000000000000", "9007199254740992"),
        ("4430000000000000", "295147905179352830000"),
        ("44b52d02c7e14af5", "9.999999999999997e+22"),
        ("44b52d02c7e14af6", "1e+23"),
        ("44b52d02c7e14af7", "1.0000000000000001e+23"),
        ("444b1ae4d6e2ef4e", "999999999999999700000"),
        ("444b1ae4d6e2ef4f", "999999999999999900000"),
        ("444b1ae4d6e2ef50", "1e+21"),
        ("3eb0c6f7a0b5ed8c", "9.999999999999997e-7"),
        ("3eb0c6f7a0b5ed8d", "0.000001"),
        ("41b3de4355555553", "333333333.3333332"),
        ("41b3de4355555554", "333333333.33333325"),
        ("41b3de4355555557", "333333333.33333343"),
        ("becbf647612f3696", "-0.0000033333333333333333"),
        ("43143ff3c1cb0959", "1424953923781206.2"),
    ],
)
def test_doubles_are_written_as_ecmascript_writes_them(number: str, text: str) -> None:
    """The vectors of the RFC, given as the bits of the double."""
    (value,) = struct.unpack(">d", bytes.fromhex(number))
    assert canonical(value) == text.encode()
    assert canonical({"a": [value]}) == b'{"a":[' + text.encode() + b"]}"


@pytest.mark.parametrize(
    ("value", "text"),
    [(1e-7, "1e-7"), (1e21, "1e+21"), (1.5e300, "1.5e+300"), (1e20, "100000000000000000000")],
)
def test_exponents_start_where_ecmascript_starts_them(value: float, text: str) -> None:
    """From 1e21 up and from 1e-7 down."""
    assert canonical(value) == text.encode()


@given(st.integers(-(10**60), 10**60))
def test_integers_keep_every_digit(value: int) -> None:
    """The extension: beyond 2^53 - 1, too."""
    assert canonical([value]) == f"[{value}]".encode()


def test_one_and_one_point_zero_are_one_number_and_true_is_none() -> None:
    """What Python calls equal is told apart, and what JSON calls equal is not."""
    assert canonical([1]) == canonical([1.0]) != canonical([True])
    assert canonical([0]) == canonical([-0.0]) != canonical([False])


@pytest.mark.parametrize("value", [float("nan"), [float("inf")], "\ud800", {"\udfff": 1}])
def test_what_has_no_form_raises(value: JsonValue) -> None:
    """NaN, infinities and lone surrogates have no canonical form."""
    with pytest.raises(ValueError, match=r"compliant|representable|surrogates"):
        canonical(value)
