"""Contracts from tool lists: hints and names may make them more careful, and never less."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driver.config.load import parse
from driver.config.providers import McpProviderTable
from driver.importing.proposing import PROPOSALS_MAX, Proposals, propose
from driver.importing.rendering import Answer
from store.records import JsonObject
from tests.driver.importing.sources import planned, rendered

ONE = '{"mcpServers": {"one": {"command": "x"}}}'
PATH = Path("/etc/effectd/effectd.toml")
HINTS = st.fixed_dictionaries(
    {},
    optional={
        name: st.sampled_from([True, False, None, "true", 1]) for name in ("readOnlyHint", "destructiveHint")
    },
)


def proposed(name: str, hints: JsonObject | None = None, *, trust: bool = False) -> tuple[str, str] | None:
    """Return the kind of proposal for one tool, and why; None where there is none."""
    proposals = propose({name: {"name": name, "annotations": hints or {}}}, trust_annotations=trust)
    return next(((one.kind, one.why) for one in proposals.contracts), None)


@pytest.mark.parametrize(
    ("name", "hints", "kind", "why"),
    [
        ("reset", {"destructiveHint": True}, "once-per-run", "destructiveHint is true"),
        ("delete_file", {}, "once-per-run", 'its name says "delete"'),
        ("deleteFile", {}, "once-per-run", 'its name says "delete"'),
        ("gmail.send", {}, "once-per-run", 'its name says "send"'),
        ("PAY-invoice", {}, "once-per-run", 'its name says "pay"'),
        (
            "send_mail",
            {"readOnlyHint": True},
            "once-per-run",
            'its name says "send", while readOnlyHint is true',
        ),
        (
            "remove",
            {"destructiveHint": False},
            "once-per-run",
            'its name says "remove", while destructiveHint is false',
        ),
        ("get_deleted_items", {}, "maybe-read", 'its name begins with "get": no proof'),
        ("status", {"readOnlyHint": True}, "maybe-read", "readOnlyHint is true: no proof"),
        (
            "list_orders",
            {"destructiveHint": True, "readOnlyHint": True},
            "maybe-read",
            "readOnlyHint is true",
        ),
    ],
)
def test_the_rule_stands_beside_the_proposal(name: str, hints: JsonObject, kind: str, why: str) -> None:
    """A person can judge it."""
    found = proposed(name, hints)
    assert found is not None
    assert found[0] == kind
    assert found[1].startswith(why)


@pytest.mark.parametrize("name", ["create_issue", "add", "sender_name", "", "undeletable"])
def test_what_says_nothing_stays_a_plain_write(name: str) -> None:
    """The default is careful enough."""
    assert proposed(name) is None


def test_trusted_annotations_decide() -> None:
    """Only where a person said so."""
    assert proposed("send_mail", {"readOnlyHint": True}, trust=True) == ("read", "readOnlyHint is true")
    assert proposed("remove", {"destructiveHint": False}, trust=True) is None
    assert proposed("get_it", trust=True) == ("maybe-read", 'its name begins with "get": no proof')


@given(name=st.sampled_from(["x", "get_x", "delete_x"]) | st.text(max_size=12), hints=HINTS)
def test_untrusted_hints_never_make_a_contract_less_careful(name: str, hints: JsonObject) -> None:
    """What is written without a person's word is a write in every case, once in a run or plain."""
    with_hints, without = proposed(name, hints), proposed(name)
    assert with_hints is None or with_hints[0] != "read"
    if without is not None and without[0] == "once-per-run":
        assert with_hints is not None
        assert with_hints[0] == "once-per-run"


@given(
    names=st.lists(st.text(max_size=20), max_size=8, unique=True),
    hints=HINTS,
    trust=st.booleans(),
)
def test_no_list_of_tools_makes_a_configuration_invalid(
    names: list[str], hints: JsonObject, trust: bool
) -> None:
    """Whatever a server calls its tools: names are its own, and nothing of them is obeyed."""
    served: dict[str, JsonObject] = {name: {"annotations": hints} for name in names}
    answer = Answer(proposals=propose(served, trust_annotations=trust))
    config = parse(rendered(planned(ONE), {"one": answer}), PATH)
    declared = config.providers["one"].tools
    assert set(declared) <= set(names)
    assert trust or all(tool.effect == "write" for tool in declared.values())


def test_a_proposal_is_what_the_configuration_then_says() -> None:
    """Once in a run for what destroys, a comment for what may read, and the others by name."""
    served: dict[str, JsonObject] = {name: {} for name in ("delete_it", "get_it", "make_it")}
    text = rendered(planned(ONE), {"one": Answer(proposals=propose(served, trust_annotations=False))})
    provider = parse(text, PATH).providers["one"]
    assert isinstance(provider, McpProviderTable)
    assert {name: tool.identical for name, tool in provider.tools.items()} == {"delete_it": "once-per-run"}
    assert provider.trust_annotations is False
    assert '# [providers.one.tools.get_it]  # its name begins with "get": no proof\n# effect = "read"' in text
    assert "never repeated by itself:\n# make_it\n" in text
    uncommented = text.replace("# [providers.one.tools.get_it]", "[providers.one.tools.get_it]").replace(
        '# effect = "read"', 'effect = "read"'
    )
    assert parse(uncommented, PATH).providers["one"].tools["get_it"].effect == "read"


def test_a_server_cannot_fill_the_file() -> None:
    """Beyond a bound, tools are plain writes, which needs no line."""
    served: dict[str, JsonObject] = {f"delete_{number}": {} for number in range(4_000)}
    served |= {"x" * 1_000: {}, "\n": {}}
    proposals = propose(served, trust_annotations=False)
    assert (len(proposals.contracts), proposals.unnamed) == (PROPOSALS_MAX, 2)
    text = rendered(planned(ONE), {"one": Answer(proposals=proposals)})
    assert len(text) < 100_000
    assert len(parse(text, PATH).providers["one"].tools) == PROPOSALS_MAX


def test_a_server_without_tools_gets_no_contracts() -> None:
    """And no words about any."""
    empty = propose({}, trust_annotations=False)
    assert empty == Proposals(contracts=(), others=(), unnamed=0)
    text = rendered(planned(ONE), {"one": Answer(proposals=empty)})
    assert text.endswith('argv = ["x"]\n')
