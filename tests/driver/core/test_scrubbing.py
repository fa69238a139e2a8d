"""Scrubbing: whoever quotes what was withheld, in whichever form, does not bring it back."""

import json
import time
from base64 import b64encode
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driver.core.redaction import MARKER
from driver.core.scrubbing import ANYWHERE_MIN, QUOTE_MIN, STEPS_MAX, WHOLE_MIN, WINDOWS_MAX, Scrubber
from store.records import JsonValue
from tests.driver.core.json_values import texts, values

TOKEN = "tok_9f8e7d6c5b4a"
SECRETS = st.text(st.characters(exclude_categories=["Cs"]), min_size=ANYWHERE_MIN).filter(
    lambda secret: len(secret.strip()) >= ANYWHERE_MIN
)
"""Whatever stands in a text around them, they are quoted by it. White space at their ends does not count."""


def scrubbed(text: str, *withheld: JsonValue) -> str:
    """What is left of `text` without quotes of these values."""
    return Scrubber(withheld).text(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"bad token {TOKEN}!", f"bad token {MARKER}!"),
        (f"{TOKEN}{TOKEN}", MARKER),
        (f"{TOKEN} or {TOKEN.upper()}", f"{MARKER} or {MARKER}"),
        (f"it began with {TOKEN[:QUOTE_MIN]}…", f"it began with {MARKER}…"),
        (f"…{TOKEN[-QUOTE_MIN:]} was its end", f"…{MARKER} was its end"),
        (f"<{TOKEN[2 : 2 + QUOTE_MIN]}>", f"<{MARKER}>"),
        (f"only {TOKEN[: QUOTE_MIN - 1]}", f"only {TOKEN[: QUOTE_MIN - 1]}"),
        ("nothing of it", "nothing of it"),
        ("", ""),
    ],
)
def test_a_quote_of_a_long_value_is_replaced(text: str, expected: str) -> None:
    """Whole or cut, in any letter case; the text around it stays."""
    assert scrubbed(text, TOKEN) == expected


def test_a_middling_value_is_quoted_by_all_of_it() -> None:
    """Between the two limits there is no part of it that tells enough."""
    value = "k3yk4yk5y"
    assert WHOLE_MIN <= len(value) < QUOTE_MIN
    assert scrubbed(f"key {value} is old", value) == f"key {MARKER} is old"
    assert scrubbed(f"key {value[:-1]} is old", value) == f"key {value[:-1]} is old"


@pytest.mark.parametrize("text", ["pin 4711 is wrong", "x4711", "04711", '{"pin": 4711}', "4711"])
def test_a_text_that_quotes_a_short_value_is_withheld(text: str) -> None:
    """A gap in the text would tell how long the value is, and the text around it which one."""
    assert scrubbed(text, "4711") == MARKER
    assert scrubbed(text, 4711) == MARKER


@pytest.mark.parametrize(
    ("value", "text", "quoted"),
    [
        ("7", "17 of 70", False),
        ("7", "n=7", True),
        ("7", "a7b", True),
        ("ab", "about", False),
        ("ab", "(AB)", True),
        ("ab", "ab1", True),
        ("é", "café", True),
        ("王", "用户王不存在", True),
        (1.5, "took 1.5 s", True),
        ("-", "a - b", False),
        ("  ", "a  b", False),
        (":::\r", "a:::\r", False),
        ("", "anything", False),
    ],
)
def test_a_very_short_value_must_stand_by_itself(value: JsonValue, text: str, quoted: bool) -> None:
    """Else one letter would withhold every text. Scripts without spaces, and signs, have no such edges."""
    assert (scrubbed(text, value) == MARKER) is quoted


@pytest.mark.parametrize("value", [True, False, None, [], {}, {"name": True}])
def test_what_tells_nothing_is_quoted_by_nothing(value: JsonValue) -> None:
    """`true` stands everywhere, and a schema's short keys are not secret."""
    text = "true, false and null by name"
    assert scrubbed(text, value) == text
    assert not Scrubber([value])


SPECIAL = 'p"ä & <b>\n\\/?'


@pytest.mark.parametrize(
    "form",
    [
        json.dumps(SPECIAL),
        json.dumps(SPECIAL, ensure_ascii=False),
        json.dumps(SPECIAL).upper(),
        repr(SPECIAL),
        quote(SPECIAL, safe=""),
        quote_plus(SPECIAL),
        b64encode(SPECIAL.encode()).decode(),
    ],
)
def test_a_value_is_found_as_others_write_it(form: str) -> None:
    """JSON, Python, URLs and Base64 each write the same value in another way."""
    shown = scrubbed(f"bad value: {form} (400)", SPECIAL)
    assert form[1:-1] not in shown
    assert shown.startswith("bad value: ")
    assert shown.endswith(" (400)")


def test_what_stands_inside_a_withheld_object_is_withheld() -> None:
    """Its texts and numbers, at any depth, and the keys that are too long to be a schema's."""
    withheld: JsonValue = {"who": [{"alice@example.com": {"card": 4111_1111_1111}}, "Grüße an alle"]}
    assert scrubbed("alice@example.com", withheld) == MARKER
    assert scrubbed("card 411111111111", withheld) == f"card {MARKER}"
    assert scrubbed("sagte: GRÜSSE, Grüße an alle", withheld) == f"sagte: GRÜSSE, {MARKER}"
    assert scrubbed("who card", withheld) == "who card"


def test_values_are_searched_through_and_keep_their_shape() -> None:
    """Texts, keys and numbers; booleans and null stay, and two keys do not become one."""
    scrubber = Scrubber([TOKEN, 4711])
    value: JsonValue = {
        TOKEN: 1,
        f" {TOKEN}": 2,
        f"{TOKEN} ": 3,
        "a": [4711, True, None, {"b": TOKEN}],
        "c": 1.25,
    }
    assert scrubber.value(value) == {
        MARKER: 1,
        f" {MARKER}": 2,
        f"{MARKER} ": 3,
        "a": [MARKER, True, None, {"b": MARKER}],
        "c": 1.25,
    }
    assert Scrubber(["4711"]).value({"4711": 1, "x4711": 2}) == {MARKER: 1, f"{MARKER} 2": 2}


def test_a_number_is_a_quote_of_a_text_and_the_reverse() -> None:
    """Who sends a number back as text, or in another notation of the same digits, quotes it."""
    assert Scrubber(["123456789012"]).value(123456789012) == MARKER
    assert Scrubber([123456789012]).value("no. 123456789012") == f"no. {MARKER}"
    assert Scrubber([10**5000]).value(10**5000) == MARKER


def test_a_marker_is_never_touched() -> None:
    """What is redacted already stays so, whatever the values are."""
    assert scrubbed(MARKER, "redacted", "red", "act") == MARKER


def test_letters_that_change_their_length_withhold_the_text() -> None:
    """In lower case `İ` is two characters: the places found are not those of the text."""
    assert scrubbed(f"İ {TOKEN}", TOKEN) == MARKER
    assert scrubbed("İ and nothing", TOKEN) == "İ and nothing"


def test_many_values_that_share_their_beginning_are_all_found() -> None:
    """A window that belongs to too many values is a quote by itself."""
    values = [f"https://example.com/{number:04}/end" for number in range(500)]
    scrubber = Scrubber([*values, *(f"ord-2024{number:03}" for number in range(500))])
    for value in values:
        assert scrubber.text(f"see {value}!") == f"see {MARKER}!"
    assert scrubber.text("ord-2024123 is open") == f"{MARKER} is open"
    assert scrubber.text("ord-2024999 is open") == "ord-2024999 is open"


def test_many_short_values_are_all_found() -> None:
    """Beyond the few that are looked for one by one, too."""
    scrubber = Scrubber([f"pin{number:03}" for number in range(300)])
    assert scrubber.text("it was pin123") == MARKER
    assert scrubber.text("it was pin999") == "it was pin999"


def test_a_huge_value_and_a_huge_text_cost_a_bounded_time() -> None:
    """Windows of large values stand further apart; texts beyond the budget are withheld unread."""
    huge = "".join(chr(0x4E00 + number % 5_000) + str(number) for number in range(200_000))
    began = time.process_time()
    scrubber = Scrubber([huge])
    assert len(scrubber._windows) <= WINDOWS_MAX + 1
    assert scrubber.text(f"[{huge}]") == f"[{MARKER}]"
    assert scrubber.text("x" * STEPS_MAX) == MARKER
    assert scrubber.text("x") == MARKER
    assert time.process_time() - began < 5


def test_a_few_values_leave_a_large_answer_readable() -> None:
    """A token of usual length is looked for in megabytes of text."""
    text = "lorem ipsum dolor " * 100_000
    scrubber = Scrubber([TOKEN])
    assert scrubber.text(text) == text
    assert scrubber.text(text + TOKEN) == text + MARKER


@given(secret=SECRETS, before=texts, after=texts)
def test_no_text_holds_the_value_afterwards(secret: str, before: str, after: str) -> None:
    """Whatever stands around it."""
    shown = scrubbed(f"{before}{secret}{after}", secret)
    assert secret.strip().lower() not in shown.replace(MARKER, "\0").lower()


@given(value=values)
def test_nothing_withheld_changes_nothing(value: JsonValue) -> None:
    """Without secrets, an answer stays as it came."""
    assert Scrubber([]).value(value) is value or Scrubber([]).value(value) == value


@given(value=values, secret=values)
def test_scrubbing_again_changes_nothing_more(value: JsonValue, secret: JsonValue) -> None:
    """What was looked through once is clean."""
    once = Scrubber([secret]).value(value)
    assert Scrubber([secret]).value(once) == once
