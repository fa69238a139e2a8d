"""Holds what the configuration declares about tools against what their providers serve.

Part of `driver.cli`, pure: imports the configuration's models, `driver.core` and jsonschema.

An *error* is a contract that cannot be kept: a call would fail, or its key would not arrive. A *notice* is
what somebody should know who has not declared everything.
"""

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from jsonschema import Draft202012Validator, SchemaError
from jsonschema.validators import validator_for

from driver.config.providers import (
    CommonProviderTable,
    CompensateTable,
    McpProviderTable,
    ProbeTable,
    ToolTable,
)
from driver.core.attempts import NotSent
from driver.core.contracts import ArgumentKey, parse_key_carrier
from store.records import JsonObject, JsonValue

Level = Literal["error", "notice"]


NOT_DECLARED: Final = (
    "Not declared: each call is a write, and is never repeated by itself. A read? Its provider hints that it "
    'only reads: if so, declare effect = "read" in [providers.NAME.tools.TOOL].'
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was found about a tool."""

    level: Level
    message: str
    brief: str | None = None
    """What is said of it where many tools have the same: `NOT_DECLARED` says the rest, once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolReport:
    """One tool that is declared, or served, or both; `effect` is what the daemon takes its calls for.

    `served` is None where nobody can say which tools there are.
    """

    name: str
    declared: bool
    served: bool | None
    effect: Literal["read", "write"]
    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderReport:
    """One provider; `error` says why it could not be asked, and then there are no tools."""

    name: str
    error: str | None
    tools: tuple[ToolReport, ...] = ()

    @property
    def healthy(self) -> bool:
        """Whether every contract can be kept."""
        return self.error is None and not any(
            finding.level == "error" for tool in self.tools for finding in tool.findings
        )


def inspect(
    name: str,
    provider: CommonProviderTable,
    declared: Mapping[str, ToolTable],
    served: Mapping[str, JsonObject],
) -> ProviderReport:
    """Return what is to be said about each tool of the provider `name`, by the tools' names.

    `served` has each tool's definition (`inputSchema`, ...) as the provider lists it.
    """
    names = sorted(declared.keys() | served.keys())
    return ProviderReport(
        name=name,
        error=None,
        tools=tuple(_tool(tool, provider, declared.get(tool), served) for tool in names),
    )


def declared_only(
    name: str, declared: Mapping[str, ToolTable], refused: Mapping[str, NotSent] | None = None
) -> ProviderReport:
    """Return the report on the provider `name`, which can be reached, and lists no tools.

    `refused` has the tools no call of which can be made.
    """
    refusals = refused or {}
    errors = {tool: (Finding(level="error", message=item.message),) for tool, item in refusals.items()}
    tools = (
        ToolReport(name=tool, declared=True, served=None, effect=table.effect, findings=errors.get(tool, ()))
        for tool, table in sorted(declared.items())
    )
    return ProviderReport(name=name, error=None, tools=tuple(tools))


def unasked(name: str, refused: NotSent) -> ProviderReport:
    """Return the report on the provider `name`, which cannot be started or reached."""
    return ProviderReport(name=name, error=refused.message)


def _tool(
    name: str, provider: CommonProviderTable, table: ToolTable | None, served: Mapping[str, JsonObject]
) -> ToolReport:
    definition = served.get(name)
    findings = _missing(name, served) if definition is None else _findings(provider, table, definition)
    related = () if table is None else _related(provider, table, served)
    return ToolReport(
        name=name,
        declared=table is not None,
        served=definition is not None,
        effect=table.effect if table else _undeclared_effect(provider, definition),
        findings=(*findings, *related),
    )


def _undeclared_effect(
    provider: CommonProviderTable, definition: JsonObject | None
) -> Literal["read", "write"]:
    """What the daemon takes a tool for, from when on its provider has listed it."""
    trusted = isinstance(provider, McpProviderTable) and provider.trust_annotations
    hint = None if definition is None else _read_only_hint(definition)
    return "read" if trusted and hint is True else "write"


def _missing(name: str, served: Mapping[str, JsonObject]) -> Iterator[Finding]:
    near = difflib.get_close_matches(name, served, n=1)
    hint = f"did you mean {near[0]}?" if near else "is it the right provider, and the right version of it?"
    yield Finding(level="error", message=f"declared, and not served: {hint}")


def _findings(
    provider: CommonProviderTable, table: ToolTable | None, definition: JsonObject
) -> Iterator[Finding]:
    if table is None:
        yield _undeclared(provider, definition)
    elif table.effect == "read" and _read_only_hint(definition) is False:
        yield Finding(level="notice", message='declared effect = "read"; the provider hints that it writes')
    yield from _input(provider, definition.get("inputSchema"))
    output = definition.get("outputSchema")
    if output is not None and (wrong := _wrong_schema(output)):
        yield Finding(level="notice", message=f"its output schema is wrong: {wrong}")


def _related(
    provider: CommonProviderTable, table: ToolTable, served: Mapping[str, JsonObject]
) -> Iterator[Finding]:
    """Find what is wrong with the calls that the contract itself makes: its probe and its compensation."""
    if table.probe is not None:
        yield from _made(provider, "probe", table.probe, served)
    if table.compensate is not None:
        yield from _made(provider, "compensation", table.compensate, served)


def _made(
    provider: CommonProviderTable,
    name: Literal["probe", "compensation"],
    made: ProbeTable | CompensateTable,
    served: Mapping[str, JsonObject],
) -> Iterator[Finding]:
    definition = served.get(made.tool)
    if definition is None:
        (missing,) = _missing(made.tool, served)
        text = missing.message.removeprefix("declared, and not served: ")
        yield Finding(level="error", message=f"its {name} calls {made.tool}, which is not served: {text}")
        return
    if name == "probe" and _read_only_hint(definition) is False:
        trusted = isinstance(provider, McpProviderTable) and provider.trust_annotations
        message = f"its probe calls {made.tool}, of which the provider says that it writes"
        yield Finding(level="error" if trusted else "notice", message=message)
    for fault in _argument_faults(provider, made, definition.get("inputSchema"), keyed=name != "probe"):
        yield Finding(level="error", message=f"its {name} {fault} of {made.tool}")


def _argument_faults(
    provider: CommonProviderTable, made: ProbeTable | CompensateTable, schema: JsonValue, *, keyed: bool
) -> Iterator[str]:
    """What the schema of the called tool has against the arguments. A probe's call carries no key."""
    if not isinstance(schema, dict):
        return
    carrier = parse_key_carrier(provider.key)
    supplied = {carrier.name} if keyed and isinstance(carrier, ArgumentKey) else set[str]()
    required = schema.get("required")
    for argument in required if isinstance(required, list) else ():
        if isinstance(argument, str) and argument not in made.arguments and argument not in supplied:
            yield f'leaves out the argument "{argument}", which is required'
    for argument in made.arguments:
        if not _takes(schema, argument):
            yield f'sets the argument "{argument}", which is none'


def _undeclared(provider: CommonProviderTable, definition: JsonObject) -> Finding:
    if _undeclared_effect(provider, definition) == "read":
        message = "not declared: a read, because the provider says so and trust_annotations = true"
        return Finding(level="notice", message=message)
    text, brief = "not declared: each call is a write, and is never repeated by itself", "not declared"
    if _read_only_hint(definition) is True:
        text += '; the provider hints that it only reads: if so, declare effect = "read"'
        brief += "; a read?"
    return Finding(level="notice", message=text, brief=brief)


def _read_only_hint(definition: JsonObject) -> JsonValue:
    """The hint is the provider's own, and proves nothing."""
    annotations = definition.get("annotations")
    return annotations.get("readOnlyHint") if isinstance(annotations, dict) else None


def _input(provider: CommonProviderTable, schema: JsonValue) -> Iterator[Finding]:
    wrong = _wrong_schema(schema)
    if wrong is None and isinstance(schema, dict) and schema.get("type") != "object":
        wrong = 'its type is not "object"'
    if wrong:
        yield Finding(level="error", message=f"its input schema is wrong, so no call can be checked: {wrong}")
        return
    carrier = parse_key_carrier(provider.key)
    if isinstance(carrier, ArgumentKey) and not _takes(schema, carrier.name):
        yield Finding(
            level="error",
            message=f'takes no argument "{carrier.name}", which key = "{provider.key}" adds to each call',
        )


def _takes(schema: JsonValue, argument: str) -> bool:
    if not isinstance(schema, dict):
        return schema is True
    properties = schema.get("properties", {})
    named = isinstance(properties, dict) and argument in properties
    return named or schema.get("additionalProperties", True) is not False


def _wrong_schema(schema: JsonValue) -> str | None:
    """Return what is wrong with `schema`, None where nothing is."""
    if not isinstance(schema, dict):
        return "it is missing, or no JSON object"
    validator = validator_for(schema, default=Draft202012Validator)
    try:
        validator.check_schema(schema)
    except SchemaError as error:
        return error.message
    except RecursionError:
        return "it is nested too deeply"
    return None
