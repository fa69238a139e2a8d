"""What `effectd check` found, for people and for machines.

Part of `driver.cli`, pure: imports rich's values and what the check found.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from pydantic import JsonValue
from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from driver.cli.inspection import NOT_DECLARED, Finding, ProviderReport, ToolReport
from driver.cli.plain import plain
from driver.cli.proofs import Proof, declaration
from driver.cli.remarks import BY_HAND, paragraph, remark
from driver.cli.selftest import Status, Tested
from driver.cli.surroundings import Warned
from driver.config.errors import ConfigError, toml_name
from driver.config.models import Config
from driver.config.providers import McpProviderTable, ProbeTable
from driver.core.contracts import ToolName

_YES_NO: Final = {True: "yes", False: "no", None: "-"}
"""What is declared whole, as programs are, nobody is asked for."""
_STYLES: Final = {"error": "bold red", "notice": "yellow"}
_STATUS_STYLES: Final = {"failed": "bold red", "untested": "yellow", "passed": "green"}


_NOT_STARTED: Final = (
    "No provider was started: --connect holds the contracts against the tools that they serve."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeReport:
    """A declared probe: which tool it is about, which it asks, and whether it has passed its self-test."""

    tool: str
    asks: str
    status: Status
    detail: str
    passed_at: datetime | None


def probe_report(tool: str, table: ProbeTable, proof: Proof | None, tested: Tested | None) -> ProbeReport:
    """Return what is known of a probe: from the test that was just run, or else from an earlier one."""
    if proof is not None and proof.declaration != declaration(table):
        proof = None
    if tested is None or (tested.status == "untested" and proof is not None):
        passed = proof is not None
        tested = Tested(
            status="passed" if passed else "untested", detail=tested.detail if tested else _NOT_NOW[passed]
        )
    return ProbeReport(
        tool=tool,
        asks=f"{ToolName.parse(tool).provider}/{table.tool}",
        status=tested.status,
        detail=tested.detail,
        passed_at=None if proof is None else proof.passed_at,
    )


_NOT_NOW: Final = {
    True: "not tested now",
    False: "'effectd check --connect --selftest' runs it",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """A check of a valid configuration. `providers` is None where they were not asked."""

    path: Path
    config: Config
    warned: tuple[Warned, ...]
    providers: tuple[ProviderReport, ...] | None
    probes: tuple[ProbeReport, ...] = ()

    @property
    def healthy(self) -> bool:
        """Whether every contract can be kept, and no probe has failed, as far as was looked."""
        return all(provider.healthy for provider in self.providers or ()) and not any(
            probe.status == "failed" for probe in self.probes
        )


def lines(checked: Checked) -> Iterator[RenderableType]:
    """Yield what a person sees: the verdict, the warnings, and a table of tools, or how to get one."""
    yield _verdict(checked)
    for warned in checked.warned:
        yield remark("warning", "yellow", str(warned))
    if checked.providers is None:
        yield paragraph(_NOT_STARTED)
    for provider in checked.providers or ():
        if provider.error is not None:
            yield remark("error", "bold red", f"{provider.name}: {provider.error}")
    if any(_is_silent(checked.config, provider) for provider in checked.providers or ()):
        yield paragraph(BY_HAND)
    if any(provider.tools for provider in checked.providers or ()):
        yield _table(checked.providers or ())
    if any(finding.brief for finding in _findings(checked)):
        yield paragraph(NOT_DECLARED)
    if checked.probes:
        yield _probe_table(checked.probes)


def _is_silent(config: Config, provider: ProviderReport) -> bool:
    """Whether it is a server that was started here, and did not answer."""
    table = config.providers[provider.name]
    return provider.error is not None and isinstance(table, McpProviderTable) and table.argv is not None


def _findings(checked: Checked) -> Iterator[Finding]:
    for provider in checked.providers or ():
        for tool in provider.tools:
            yield from tool.findings


def _verdict(checked: Checked) -> Text:
    providers = len(checked.config.providers)
    tools = sum(len(provider.tools) for provider in checked.config.providers.values())
    counts = f": {_count(providers, 'provider')}, {_count(tools, 'tool')} declared"
    return Text.assemble(plain(str(checked.path)), " is ", ("valid", "bold green"), counts)


def _count(number: int, name: str) -> str:
    return f"{number} {name}" if number == 1 else f"{number} {name}s"


def _table(providers: Sequence[ProviderReport]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("tool", "declared", "served", "taken for", "findings"):
        table.add_column(heading, overflow="fold")
    for provider in providers:
        for tool in provider.tools:
            table.add_row(
                plain(f"{provider.name}/{tool.name}"),
                *(_YES_NO[known] for known in (tool.declared, tool.served)),
                f"a {tool.effect}",
                Text("\n").join(_finding(finding) for finding in tool.findings) or Text("ok", style="green"),
            )
    return table


def _probe_table(probes: Sequence[ProbeReport]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("probe of", "asks", "self-test"):
        table.add_column(heading, overflow="fold")
    for probe in probes:
        since = "" if probe.passed_at is None else f", {probe.passed_at:%Y-%m-%d %H:%M} UTC"
        said = Text.assemble(
            (f"{probe.status}{since}", _STATUS_STYLES[probe.status]), ": ", plain(probe.detail)
        )
        table.add_row(plain(probe.tool), plain(probe.asks), said)
    return table


def _finding(finding: Finding) -> Text:
    style = _STYLES[finding.level]
    if finding.brief is not None:
        return Text(finding.brief, style=style)
    return Text.assemble((finding.level, style), ": ", plain(finding.message))


def as_json(checked: Checked) -> JsonValue:
    """Return the whole check of a valid configuration."""
    return {
        "config": str(checked.path),
        "valid": True,
        "problems": [],
        "warnings": [
            {"table": toml_name(warned.table), "key": warned.key, "message": warned.message}
            for warned in checked.warned
        ],
        "healthy": checked.healthy,
        "providers": None
        if checked.providers is None
        else [_provider_json(provider) for provider in checked.providers],
        "probes": [_probe_json(probe) for probe in checked.probes],
    }


def invalid_as_json(error: ConfigError) -> JsonValue:
    """Return the check of a configuration that cannot be used."""
    return {
        "config": str(error.path),
        "valid": False,
        "problems": [
            {
                "table": toml_name(problem.table),
                "key": problem.key,
                "message": problem.message,
            }
            for problem in error.problems
        ],
        "warnings": [],
        "healthy": False,
        "providers": None,
        "probes": [],
    }


def _provider_json(provider: ProviderReport) -> JsonValue:
    return {
        "name": provider.name,
        "healthy": provider.healthy,
        "error": provider.error,
        "tools": [_tool_json(tool) for tool in provider.tools],
    }


def _probe_json(probe: ProbeReport) -> JsonValue:
    return {
        "tool": probe.tool,
        "asks": probe.asks,
        "status": probe.status,
        "detail": probe.detail,
        "passed_at": None if probe.passed_at is None else probe.passed_at.isoformat(),
    }


def _tool_json(tool: ToolReport) -> JsonValue:
    return {
        "name": tool.name,
        "declared": tool.declared,
        "served": tool.served,
        "effect": tool.effect,
        "findings": [{"level": finding.level, "message": finding.message} for finding in tool.findings],
    }
