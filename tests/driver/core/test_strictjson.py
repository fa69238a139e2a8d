"""Strict JSON: what another reader could take otherwise is refused, and everything else comes out exact."""

import json
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driver.core.strictjson import DEPTH_MAX, DIGITS_MAX, NotStrictJson, deeper_than, dumps_compact, loads
from store.records import JsonObject, JsonValue
from tests.driver.core import json_values


def code_of(text: str | bytes) -> str:
    """Why `text` is refused."""
    with pytest.raises(NotStrictJson) as caught:
        loads(text)
    assert caught.value.message
    return caught.value.code


@given(json_values.objects)
def test_what_is_written_is_read_back_with_the_same_types(value: JsonObject) -> None:
    """Writing and reading is the identity, and 1, 1.0 and true stay three things."""
    back = loads(dumps_compact(value))
    assert repr(back) == repr(value)


@given(json_values.objects, st.booleans())
def test_spaces_and_escapes_are_read_as_any_writer_puts_them(value: JsonObject, ascii_only: bool) -> None:
    """Indented and escaped text, as str or as bytes, is the same object."""
    text = json.dumps(value, indent=1, ensure_ascii=ascii_only)
    assert repr(loads(text)) == repr(value) == repr(loads(text.encode()))


@pytest.mark.parametrize("text", ['{"a":1,"a":1}', '{"b":[{"a":1,"c":2,"a":3}]}', '{"a":1,"\\u0061":2}'])
def test_a_key_that_stands_twice_is_refused(text: str) -> None:
    """Two readers would disagree about which value counts, however the key is spelled."""
    assert code_of(text) == "duplicate_key"


@pytest.mark.parametrize(
    "number", ["NaN", "Infinity", "-Infinity", "1e400", "-1e400", "1" + "0" * 400 + ".0"]
)
def test_a_number_that_no_double_holds_is_refused(number: str) -> None:
    """NaN and infinities are no JSON, and neither is what rounds to one."""
    assert code_of(f'{{"a":[{number}]}}') == "not_finite"


@pytest.mark.parametrize("string", [r"\ud800", r"\udc00x", r"\udc00\ud800", r"\\\uDbFf", "\ud800"])
def test_half_of_a_surrogate_pair_is_refused(string: str) -> None:
    """No UTF-8 can carry it, and SQLite will not bind it; as value, key or raw character."""
    assert code_of(f'{{"a":"{string}"}}') == "lone_surrogate"
    assert code_of(f'{{"{string}":[]}}') == "lone_surrogate"
    assert code_of(f'{{"b":[[{{"{string}":1}}]]}}') == "lone_surrogate"


def test_a_whole_surrogate_pair_is_one_character() -> None:
    """Escaped pairs are ordinary text, and an escaped backslash before `ud800` is no escape."""
    assert loads(r'{"a":"\ud83d\ude00","b":"\\ud800"}') == {"a": "😀", "b": r"\ud800"}


def nested(depth: int, opening: str, closing: str) -> str:
    """An object with containers inside one another, `depth` in all."""
    return '{"a":' + opening * (depth - 1) + "1" + closing * (depth - 1) + "}"


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}")])
def test_depth_has_a_limit(opening: str, closing: str) -> None:
    """The limit counts the outermost object; what breaks Python's own parser is refused the same way."""
    loads(nested(DEPTH_MAX, opening, closing))
    for depth in (DEPTH_MAX + 1, 900, 100_000):
        assert code_of(nested(depth, opening, closing)) == "too_deep"


THREE_LEVELS: list[JsonValue] = [{"a": [{}]}, [[["x"]]], {"a": 1, "b": [[], {"c": 1}]}]


@pytest.mark.parametrize("value", THREE_LEVELS)
def test_depth_counts_objects_and_lists_empty_ones_too(value: JsonValue) -> None:
    """What is neither has no levels."""
    assert deeper_than(value, 2)
    assert not deeper_than(value, 3)
    assert not deeper_than("[[[[", 0)


def test_many_shallow_containers_are_no_depth() -> None:
    """A wide frame is not a deep one, and brackets in strings are not containers."""
    value: JsonObject = {"a": [[] for _ in range(1_000)], "b": "[{" * 1_000}
    assert loads(dumps_compact(value)) == value


@pytest.mark.parametrize("digits", [1, 639, 640, 641, 1_280, 1_281, DIGITS_MAX])
@pytest.mark.parametrize("sign", ["", "-"])
def test_long_integers_are_exact(digits: int, sign: str) -> None:
    """Every digit is kept, up to the limit."""
    text = sign + ("1" + "9876543210" * (digits // 10))[:digits].ljust(digits, "7")
    value = loads(f'{{"a":{text}}}')
    assert isinstance(value["a"], int)
    assert dumps_compact(value) == f'{{"a":{text}}}'


def test_longer_integers_are_refused() -> None:
    """One digit more than the limit is invalid, not rounded."""
    assert code_of('{"a":' + "9" * (DIGITS_MAX + 1) + "}") == "integer_too_long"
    assert code_of('{"a":-' + "9" * (DIGITS_MAX + 1) + "}") == "integer_too_long"


@pytest.mark.parametrize("limit", ["0", "640", "100000"])
def test_the_limit_is_ours_and_not_the_interpreters(limit: str) -> None:
    """Whatever PYTHONINTMAXSTRDIGITS says, the same integers are taken, written, and refused."""
    program = (
        "from driver.core.canonical import canonical\n"
        "from driver.core.strictjson import NotStrictJson, dumps_compact, loads\n"
        "text = '{\"a\":' + '9' * 4300 + '}'\n"
        "value = loads(text)\n"
        "assert dumps_compact(value) == text and canonical(value) == text.encode()\n"
        "try: loads('{\"a\":' + '9' * 4301 + '}')\n"
        "except NotStrictJson as error: print(error.code)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONINTMAXSTRDIGITS": limit, "PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("integer_too_long\n", "")


@pytest.mark.parametrize(
    "data",
    [b'{"a":"\xff"}', b'{"a":"\xed\xa0\x80"}', b"\xc0\xaf", '{"a":1}'.encode("utf-16")],
    ids=["stray-byte", "encoded-surrogate", "overlong", "utf-16-with-mark"],
)
def test_bytes_must_be_utf8(data: bytes) -> None:
    """No other encoding is guessed, and nothing is replaced."""
    assert code_of(data) == "invalid_utf8"


@pytest.mark.parametrize(
    "data",
    [
        *(b'\xef\xbb\xbf{"a":1}', '{"a":1}'.encode("utf-16-le"), b"", b"{", b'{"a":1}{}', b"{'a':1}"),
        *(
            b'{"a":01}',
            b'{"a":1,}',
            b'{"a":\x00}',
            b'{"a":"\x1f"}',
            b'{"a":"\\x"}',
            b'{"a":+1}',
            b'{"a":.5}',
            b"{a:1}",
        ),
    ],
)
def test_what_is_no_json_is_refused(data: bytes) -> None:
    """Byte order marks, UTF-16, trailing text, and all that only some parsers take."""
    assert code_of(data) == "invalid_json"
    assert code_of(data.decode()) == "invalid_json"


@pytest.mark.parametrize("text", ["[]", "1", '"a"', "null", "true", "[{}]"])
def test_a_frame_is_an_object(text: str) -> None:
    """Any other JSON value is no frame."""
    assert code_of(text) == "not_an_object"


@pytest.mark.parametrize("value", [float("nan"), float("inf"), [float("-inf")], {"a": float("nan")}])
def test_nothing_is_written_that_could_not_be_read(value: JsonValue) -> None:
    """NaN and infinities raise when they are written, too."""
    with pytest.raises(ValueError, match="not JSON compliant"):
        dumps_compact(value)
