"""What `effectd check` found, for people and for machines.

Part of `driver.cli`, pure: imports rich's values and what the check found.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic import JsonValue
from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from driver.cli.inspection import Finding, ProviderReport, ToolReport
from driver.cli.plain import plain
from driver.cli.surroundings import Warned
from driver.config.errors import ConfigError, toml_name
from driver.config.models import Config

_YES_NO: Final = {True: "yes", False: "no", None: "?"}
_STYLES: Final = {"error": "bold red", "notice": "yellow"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """A check of a valid configuration. `providers` is None where they were not asked."""

    path: Path
    config: Config
    warned: tuple[Warned, ...]
    providers: tuple[ProviderReport, ...] | None

    @property
    def healthy(self) -> bool:
        """Whether every contract can be kept, as far as was looked."""
        return all(provider.healthy for provider in self.providers or ())


def lines(checked: Checked) -> Iterator[RenderableType]:
    """Yield what a person sees: the verdict, the warnings, and a table of tools, or how to get one."""
    yield _verdict(checked)
    for warned in checked.warned:
        yield Text.assemble(("warning  ", "yellow"), plain(str(warned)))
    if checked.providers is None:
        yield Text(
            "No provider was started: --connect holds the contracts against the tools that they serve."
        )
        return
    for provider in checked.providers:
        if provider.error is not None:
            yield Text.assemble(("error    ", "bold red"), plain(f"{provider.name}: {provider.error}"))
    if any(provider.tools for provider in checked.providers):
        yield _table(checked.providers)


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


def _finding(finding: Finding) -> Text:
    return Text.assemble((finding.level, _STYLES[finding.level]), ": ", plain(finding.message))


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
                "unsupported": problem.unsupported,
            }
            for problem in error.problems
        ],
        "warnings": [],
        "healthy": False,
        "providers": None,
    }


def _provider_json(provider: ProviderReport) -> JsonValue:
    return {
        "name": provider.name,
        "healthy": provider.healthy,
        "error": provider.error,
        "tools": [_tool_json(tool) for tool in provider.tools],
    }


def _tool_json(tool: ToolReport) -> JsonValue:
    return {
        "name": tool.name,
        "declared": tool.declared,
        "served": tool.served,
        "effect": tool.effect,
        "findings": [{"level": finding.level, "message": finding.message} for finding in tool.findings],
    }
