"""Tools of all providers in one list: names that clients take, and no two alike."""

import re

from hypothesis import given
from hypothesis import strategies as st

from driver.core.contracts import ToolName
from driver.gateway.names import NAME_MAX, exposed, parse

FITTING = re.compile(r"[A-Za-z0-9_-]{1,50}")

tools = st.builds(
    ToolName,
    st.from_regex(r"[a-z0-9][a-z0-9-]{0,30}", fullmatch=True),
    st.text(min_size=1, max_size=80),
)


@given(tools)
def test_a_name_is_one_that_clients_take(tool: ToolName) -> None:
    """Letters, digits, `_` and `-`, and room for what clients put in front."""
    assert FITTING.fullmatch(exposed(tool))
    assert len("mcp__effectd__" + exposed(tool)) <= 64


@given(st.lists(tools, max_size=20, unique=True))
def test_no_two_tools_have_one_name(found: list[ToolName]) -> None:
    """A name that had to be mended carries a part of the digest of the whole one."""
    assert len({exposed(tool) for tool in found}) == len(found)


def test_a_plain_name_is_plain() -> None:
    """Most names stay as they are, and say their tool again."""
    tool = ToolName("git-hub", "create_issue")
    assert exposed(tool) == "git-hub__create_issue"
    assert parse(exposed(tool)) == tool


def test_names_that_only_differ_in_what_is_mended_are_told_apart() -> None:
    """Two that would be cut, or mended, to the same are two."""
    pairs = (("a.b", "a/b"), ("x" * 80, "x" * 81), ("a b", "a_b"))
    for one, other in pairs:
        assert exposed(ToolName("p", one)) != exposed(ToolName("p", other))


def test_a_provider_cannot_take_the_names_of_our_own_tools() -> None:
    """One called `effectd` has all its tools mended."""
    assert exposed(ToolName("effectd", "operations")) != "effectd__operations"
    assert len(exposed(ToolName("effectd", "operations"))) <= NAME_MAX
