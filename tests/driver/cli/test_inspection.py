"""Contracts against served tools: what cannot be kept is an error, what should be known is a notice."""

from typing import Literal

import pytest

from driver.cli.inspection import Finding, ToolReport, inspect
from driver.config.providers import McpProviderTable, ToolTable
from store.records import JsonObject

TAKES_ID: JsonObject = {
    "type": "object",
    "properties": {"id": {"type": "string"}},
    "additionalProperties": False,
}


def only(served: JsonObject | None, *, declared: ToolTable | None = None, key: str = "meta") -> ToolReport:
    """Return the report of the tool `t`, served as `served`, and declared as `declared`."""
    provider = McpProviderTable(kind="mcp", argv=("x",), key=key)
    report = inspect(
        "p",
        provider,
        {"t": declared} if declared else {},
        {} if served is None else {"t": served},
    )
    (tool,) = report.tools
    assert report.healthy == all(finding.level == "notice" for finding in tool.findings)
    return tool


def test_a_declared_tool_that_is_served_has_no_findings() -> None:
    """All is well where the contract can be kept."""
    tool = only({"inputSchema": TAKES_ID}, declared=ToolTable(effect="read"))
    assert tool == ToolReport(name="t", declared=True, served=True, effect="read", findings=())


def test_an_undeclared_tool_is_a_write() -> None:
    """Nobody has to declare a tool, and should know what it is taken for."""
    tool = only({"inputSchema": TAKES_ID})
    assert (tool.declared, tool.served, tool.effect) == (False, True, "write")
    assert [finding.level for finding in tool.findings] == ["notice"]


def test_an_undeclared_tool_that_seems_to_read_is_suggested_as_a_read() -> None:
    """The hint decides nothing, and tells which line to write."""
    (finding,) = only({"inputSchema": TAKES_ID, "annotations": {"readOnlyHint": True}}).findings
    assert 'declare effect = "read"' in finding.message


@pytest.mark.parametrize(("hint", "effect"), [(True, "read"), (False, "write"), (None, "write")])
def test_an_undeclared_tool_is_what_a_trusted_provider_says(hint: bool | None, effect: str) -> None:
    """With `trust_annotations` the report says what the daemon will take it for."""
    provider = McpProviderTable(kind="mcp", argv=("x",), trust_annotations=True)
    definition: JsonObject = {"inputSchema": TAKES_ID, "annotations": {"readOnlyHint": hint}}
    (tool,) = inspect("p", provider, {}, {"t": definition}).tools
    (finding,) = tool.findings
    assert tool.effect == effect
    assert ("trust_annotations" in finding.message) == (effect == "read")


def test_a_declared_tool_that_is_not_served_is_an_error() -> None:
    """A contract for a tool that does not exist protects nothing."""
    tool = only(None, declared=ToolTable())
    assert not tool.served
    assert [finding.level for finding in tool.findings] == ["error"]


def test_a_name_that_was_mistyped_is_suggested() -> None:
    """The served tool with almost that name is the likely meaning."""
    provider = McpProviderTable(kind="mcp", argv=("x",))
    report = inspect(
        "p", provider, {"create_isue": ToolTable()}, {"create_issue": {"inputSchema": {"type": "object"}}}
    )
    assert not report.healthy
    assert [tool.name for tool in report.tools] == ["create_issue", "create_isue"]
    assert report.tools[1].findings == (
        Finding(level="error", message="declared, and not served: did you mean create_issue?"),
    )


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (None, "missing, or no JSON object"),
        (True, "missing, or no JSON object"),
        ({}, 'its type is not "object"'),
        ({"type": "array"}, 'its type is not "object"'),
        ({"type": "object", "required": "id"}, "'id' is not of type 'array'"),
    ],
)
def test_an_input_schema_that_is_wrong_is_an_error(schema: JsonObject | None, expected: str) -> None:
    """Arguments cannot be checked before the call where the schema itself is wrong."""
    definition: JsonObject = {} if schema is None else {"inputSchema": schema}
    (finding,) = only(definition, declared=ToolTable()).findings
    assert finding.level == "error"
    assert expected in finding.message


def test_an_output_schema_that_is_wrong_is_a_notice() -> None:
    """It costs a flag on the result, and no call."""
    (finding,) = only({"inputSchema": TAKES_ID, "outputSchema": {"type": 3}}, declared=ToolTable()).findings
    assert finding.level == "notice"


def test_a_schema_of_an_unknown_dialect_is_taken_for_the_newest() -> None:
    """A dialect that nobody knows is no reason to give up."""
    schema: JsonObject = {"$schema": "https://example.org/mine", "type": "object"}
    assert only({"inputSchema": schema}, declared=ToolTable()).findings == ()


def test_a_key_that_no_argument_takes_is_an_error() -> None:
    """Every call would be refused by the tool's own schema."""
    (finding,) = only({"inputSchema": TAKES_ID}, declared=ToolTable(), key="argument:request_id").findings
    assert finding.level == "error"
    assert '"request_id"' in finding.message


@pytest.mark.parametrize("key", ["argument:id", "meta", "none"])
def test_a_key_that_arrives_is_no_finding(key: str) -> None:
    """A declared argument takes the key, and `_meta` always does."""
    assert only({"inputSchema": TAKES_ID}, declared=ToolTable(), key=key).findings == ()


def test_an_open_schema_takes_any_argument() -> None:
    """A schema that does not forbid further arguments takes the key too."""
    definition: JsonObject = {"inputSchema": {"type": "object"}}
    assert only(definition, declared=ToolTable(), key="argument:request_id").findings == ()


@pytest.mark.parametrize(("hint", "levels"), [(False, ["notice"]), (True, []), (None, [])])
def test_a_read_that_the_provider_calls_a_write_is_a_notice(hint: bool | None, levels: list[str]) -> None:
    """The hint proves nothing, and two different opinions deserve a look."""
    definition: JsonObject = {"inputSchema": TAKES_ID, "annotations": {"readOnlyHint": hint}}
    tool = only(definition, declared=ToolTable(effect="read"))
    assert [finding.level for finding in tool.findings] == levels


# ------------------------------------------------------------ the calls that a contract makes itself

FINDS: JsonObject = {
    "type": "object",
    "properties": {"marker": {"type": "string"}, "state": {"type": "string"}},
    "required": ["marker"],
    "additionalProperties": False,
}


def made(
    found: JsonObject | None,
    kind: Literal["probe", "compensate"],
    arguments: JsonObject,
    *,
    key: str = "meta",
    trusted: bool = False,
) -> list[tuple[str, str]]:
    """Return the findings about `t`, whose contract calls `find`, which is served as `found`."""
    matches = {"matches": "result"} if kind == "probe" else {}
    table = ToolTable.model_validate({kind: {"tool": "find", "arguments": arguments, **matches}})
    provider = McpProviderTable(kind="mcp", argv=("x",), key=key, trust_annotations=trusted)
    served: dict[str, JsonObject] = {"t": {"inputSchema": {"type": "object"}}}
    if found is not None:
        served["find"] = found
    report = inspect("p", provider, {"t": table}, served)
    (tool,) = [tool for tool in report.tools if tool.name == "t"]
    return [(finding.level, finding.message) for finding in tool.findings]


@pytest.mark.parametrize("kind", ["probe", "compensate"])
def test_what_a_contract_calls_must_be_served(kind: Literal["probe", "compensate"]) -> None:
    """A probe that is needed, and cannot be asked, is found out before it is needed."""
    ((level, message),) = made(None, kind, {})
    assert level == "error"
    assert "calls find, which is not served" in message
    assert made({"inputSchema": {"type": "object"}}, kind, {}) == []


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({}, ['leaves out the argument "marker", which is required']),
        ({"marker": "=key", "titel": "x"}, ['sets the argument "titel", which is none']),
        ({"marker": "=key", "state": "open"}, []),
    ],
)
def test_what_a_contract_asks_must_fit_what_is_served(arguments: JsonObject, expected: list[str]) -> None:
    """Required arguments that the template leaves out, and those that the tool does not take."""
    found = [*made({"inputSchema": FINDS}, "probe", arguments)]
    found += made({"inputSchema": FINDS}, "compensate", arguments)
    assert [message for _, message in found] == [
        f"its {name} {fault} of find" for name in ("probe", "compensation") for fault in expected
    ]
    assert all(level == "error" for level, _ in found)


def test_a_compensation_carries_the_key_and_a_probe_does_not() -> None:
    """So the argument that carries it is the probe's to set; a compensation's configuration refuses it."""
    served: JsonObject = {"inputSchema": FINDS}
    assert made(served, "probe", {"marker": "=key"}, key="argument:marker") == []
    assert made(served, "compensate", {}, key="argument:marker") == []


@pytest.mark.parametrize(("trusted", "level"), [(True, "error"), (False, "notice")])
def test_a_probe_of_what_seems_to_write_is_named(*, trusted: bool, level: str) -> None:
    """A hint is an error where the provider is trusted, and else what somebody should know."""
    served: JsonObject = {"inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": False}}
    ((found, message),) = made(served, "probe", {}, trusted=trusted)
    assert found == level
    assert "says that it writes" in message
    assert made(served, "compensate", {}, trusted=trusted) == []
