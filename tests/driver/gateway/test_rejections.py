"""What the SDK is not given: whoever waits for an answer gets one, however it calls its request."""

import json
from typing import Final

import pytest

from driver.gateway.rejections import rejection

IDS: Final = (
    "1",
    "-7",
    "1" * 40,
    '"x"',
    '"é"',
    '"\\u00e9"',
    '"a\\"b"',
    '"a\\\\"',
    '"' + "x" * 300 + '"',
)


@pytest.mark.parametrize("said", IDS)
@pytest.mark.parametrize("where", ["first", "last"])
def test_who_waits_is_answered_whatever_the_id_is(said: str, where: str) -> None:
    """It stands at the beginning of the message, or at its end."""
    rest = '"method":"tools/call","params":{"name":"x__y","arguments":{"id":3}}'
    text = (
        f'{{"jsonrpc":"2.0","id":{said},{rest}}}'
        if where == "first"
        else f'{{{rest},"jsonrpc":"2.0","id":{said}}}'
    )
    answer = rejection(text.encode(), "it is nested too deep")
    assert answer is not None
    assert answer.id == json.loads(said)


@pytest.mark.parametrize("said", ["null", "true", "1.5", "[1]", '"\\ud800"', '"\\q"', '"x', "01"])
def test_what_is_no_id_is_nobodys(said: str) -> None:
    """An answer to it would be one that nobody can read, or that is for somebody else."""
    text = f'{{"jsonrpc":"2.0","id":{said},"method":"tools/call","params":{{"arguments":{{"id":3}}}}}}'
    assert rejection(text.encode(), "it is no message") is None
