"""What the contract knows and this version does not do yet: refused with its name, never silently ignored.

Part of `driver.config`; imports its models. `FEATURES` is a table: when something is built, its line goes.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Generic, TypeVar, cast

from driver.config.errors import Problem, TablePath
from driver.config.models import Config, ControlTable, DriverTable, SupervisorTable
from driver.config.providers import CommandToolTable, ToolTable
from driver.config.table import Table, tables

T = TypeVar("T", bound=Table)


@dataclass(frozen=True, slots=True)
class Feature(Generic[T]):
    """A use of `key` in tables of the kind `table`, and what can be written instead today."""

    table: type[T]
    key: str
    used: Callable[[T], bool]
    instead: str


FEATURES: Final = (
    Feature(DriverTable, "allow_self_approval", lambda driver: driver.allow_self_approval, "false"),
    Feature(Config, "gateway", lambda config: config.gateway is not None, "leave the table out"),
    Feature(ControlTable, "intent_ack", lambda control: control.intent_ack != "off", '"off"'),
    Feature(SupervisorTable, "model", lambda supervisor: supervisor.model != "rules", '"rules"'),
    Feature(CommandToolTable, "evidence", lambda tool: tool.evidence is not None, "leave it out"),
    Feature(ToolTable, "probe", lambda tool: tool.probe is not None, "leave the table out"),
    Feature(ToolTable, "compensate", lambda tool: tool.compensate is not None, "leave the table out"),
)


def unsupported(config: Config) -> Iterator[Problem]:
    """Yield one problem for each use of what is not built; wrong keys are passed over."""
    for path, chain in tables(config):
        table = chain[-1]
        for feature in cast("tuple[Feature[Table], ...]", FEATURES):
            if isinstance(table, feature.table) and _uses(feature, table):
                yield _refusal(feature, path, table)


def _refusal(feature: Feature[Table], path: TablePath, table: Table) -> Problem:
    """At the key, or at the table that the key is."""
    message = f"this version of effectd does not support it yet; supported: {feature.instead}"
    if isinstance(vars(table)[feature.key], Table):
        return Problem(table=(*path, feature.key), key=None, message=message, unsupported=True)
    return Problem(table=path, key=feature.key, message=message, unsupported=True)


def _uses(feature: Feature[Table], table: Table) -> bool:
    return feature.key in vars(table) and feature.used(table)
