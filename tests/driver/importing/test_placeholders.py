"""What stands for `${…}`."""

from pathlib import Path

import pytest

from driver.importing.placeholders import Expanded, Surroundings, expand, input_variable

AROUND = Surroundings(
    variables={"A": "a", "EMPTY": "", "HOME": "/home/mia", "MY_KEY": "k"},
    folder=Path("/home/agent/shop"),
    home=Path("/home/mia"),
    inputs={"my-key": "The key"},
)


@pytest.mark.parametrize(
    ("text", "filled", "foreign"),
    [
        ("plain $A {A}", "plain $A {A}", False),
        ("x${A}y", "xay", True),
        ("${env:A}", "a", True),
        ("{env:A}", "a", True),
        ("$A", "a", True),
        ("${A:-b}", "a", True),
        ("${NONE:-b c}", "b c", False),
        ("${EMPTY:-b}", "b", False),
        ("${EMPTY}", "", True),
        ("${OWN}", "own", True),
        ("${input:my-key}", "k", True),
        ("${HOME}/x", "/home/mia/x", False),
        ("${userHome}/${workspaceFolderBasename}", "/home/mia/shop", False),
        ("${workspaceFolder}${/}x", "/home/agent/shop/x", False),
        ("$${A}", "$a", True),
    ],
)
def test_a_placeholder_is_filled(text: str, filled: str, foreign: bool) -> None:
    """What came from a variable is foreign, and so a secret; folders and the file's own defaults are not."""
    assert expand(text, AROUND, {"OWN": "own"}) == Expanded(text=filled, foreign=foreign)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("${NONE}", "NONE is not set: set it in the environment"),
        ("$NONE", "NONE is not set"),
        ("${input:other}", "the client would ask for 'other': set OTHER in the environment"),
        ("${command:pick}", "nothing is known that stands for ${command:pick}"),
        ("{file:x}", "nothing is known that stands for ${file:x}"),
    ],
)
def test_what_cannot_be_filled_says_what_to_do(text: str, said: str) -> None:
    """Nothing is imported with a hole in it."""
    (missing,) = expand(f"{text}", AROUND, {}).missing
    assert said in missing


def test_what_a_client_would_ask_for_is_said_with_its_reason() -> None:
    """The person knows which key is meant."""
    around = Surroundings(variables={}, folder=Path("/"), home=Path("/"), inputs={"my-key": "The key"})
    assert "'my-key' (The key): set MY_KEY" in expand("${input:my-key}", around, {}).missing[0]


@pytest.mark.parametrize(("name", "variable"), [("a-b.c", "A_B_C"), ("…", "INPUT"), ("key", "KEY")])
def test_a_variable_stands_for_an_input(name: str, variable: str) -> None:
    """Its name is one that a shell can set."""
    assert input_variable(name) == variable
