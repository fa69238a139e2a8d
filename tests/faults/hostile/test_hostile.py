"""The machinery of the lane: words that come again, a judge that is neither fooled nor too strict."""

import json
from importlib import import_module
from json import JSONDecoder
from random import Random

import pytest

from tests.faults.balance import Balance
from tests.faults.hostile import judge, liars, parsers, relays
from tests.faults.hostile.callers import lines
from tests.faults.hostile.decoders import DECODERS, PATCHED
from tests.faults.hostile.hearing import close_code, texts
from tests.faults.hostile.wire import garbage, handshake
from tests.faults.hostile.words import valid, word
from tests.system.test_bad_input import GARBAGE


def never() -> bool:
    """There is time."""
    return False


def test_the_same_number_gives_the_same_word() -> None:
    """So a broken promise can be replayed; another seed says something else."""
    for made in (word, garbage, handshake, lines, relays.lines):
        assert [made(7, number) for number in range(50)] == [made(7, number) for number in range(50)]
        assert [made(7, number) for number in range(50)] != [made(8, number) for number in range(50)]


@pytest.mark.parametrize("frame_type", sorted(judge.TYPES))
def test_what_the_schema_allows_is_a_frame(frame_type: str) -> None:
    """The judge takes what was not bent."""
    for number in range(50):
        frame = valid(Random(number), frame_type)
        if frame_type == "welcome":
            frame["acked_chain"] = "0" * 32
        assert judge.meaning(json.dumps(frame)) == frame


@pytest.mark.parametrize(("what", "text"), GARBAGE)
def test_known_garbage_is_no_frame(what: str, text: str | bytes) -> None:
    """Whatever the other tests call malformed, the judge calls so, where it is not a matter of the moment."""
    if what == "an acknowledgement of the future":
        assert judge.meaning(text)["type"] == "ack"
        return
    with pytest.raises(judge.NoFrame):
        judge.meaning(text)


@pytest.mark.parametrize(
    ("data", "heard"),
    [
        (b"\x81\x02hi", ["hi"]),
        (b"\x81\x7f\x00\x00\x00\x00\x00\x00\x00\x02hi", ["hi"]),
        (b"\x01\x01h\x89\x00\x80\x01i", ["hi"]),
        (b"\x81\x01a\x82\x01b\x81\x01c", ["a", "c"]),
        (b"\x81\x01a\xc1\x01b\x81\x01c", ["a"]),
        (b"\x81\x01a\x88\x00\x81\x01c", ["a"]),
        (b"\x81\x01a\x81\x02c", ["a"]),
        (b"\x81\x81maskx\x81\x01c", []),
        (b"\x80\x01a", []),
        (b"\x01\x01a\x81\x01b", []),
        (b"\x81\x01\xff\x81\x01c", []),
        (b"\x83\x01a\x81\x01c", []),
        (b"\x09\x00\x81\x01c", []),
    ],
)
def test_what_is_whole_before_a_fault_is_heard(data: bytes, heard: list[str]) -> None:
    """A call in a sound frame is one that may be made, whatever stands behind it."""
    assert list(texts(data)) == heard


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"\x88\x05\x03\xf3why", 1011),
        (b"\x89\x00\x88\x00", 1005),
        (b"\x81\x01a", None),
        (b"\xc1\x00\x88\x00", None),
    ],
)
def test_a_close_is_heard_with_its_code(data: bytes, code: int | None) -> None:
    """Whoever is told why a connection ends may say the same back."""
    assert close_code(data) == code


def test_parsers_and_sessions_hold_for_a_while() -> None:
    """A few of each, as every run of the tests has them."""
    balance = Balance()
    parsers.frames(balance, 1, range(300), never)
    parsers.lines(balance, 1, range(300), never)
    liars.conversations(balance, 1, range(300), never)
    assert balance.broken == []
    assert balance.tried >= 900
    assert balance.reached[liars.FUTURE] > 0


def test_a_parser_that_takes_duplicates_owes_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A control of the lane: whatever such a parser takes a text for is told, and never raised."""

    def twice(seed: int, number: int) -> str:
        del seed, number
        return '{"type":"command","type":"command","command_id":"c"}'

    strictjson = import_module("driver.core.strictjson")
    monkeypatch.setattr(strictjson, "_DECODER", JSONDecoder())
    monkeypatch.setattr(parsers, "word", twice)
    assert parsers.frame(Balance(), 1, 0) == "an answer is owed to nobody"


@pytest.mark.parametrize("name", sorted(DECODERS))
def test_a_lax_decoder_is_found_out(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Controls of the lane: whatever one takes that is none of it, some line shows."""
    jsonrpc = import_module("driver.providers.mcp.jsonrpc")
    for attribute in PATCHED:
        monkeypatch.setattr(jsonrpc, attribute, vars(jsonrpc)[attribute])
    DECODERS[name]()
    balance = Balance()
    parsers.lines(balance, 1, range(5_000), lambda: bool(balance.broken))
    assert balance.broken
