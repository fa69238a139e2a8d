"""What the contract knows and this version does not do yet: refused by name, or said to have no effect.

Part of `driver.config`; imports its models. `FEATURES` and `IDLE` are tables: when something is built, its
line goes. Nothing is ignored in silence. What changes how a call is carried out is refused; what would only
look after, or tidy up, what is recorded already is taken, so that a file may be written for a later version,
and whoever gives it is told.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Generic, TypeVar, cast

from driver.config.errors import Problem, TablePath
from driver.config.models import Config, ControlTable, DriverTable, SupervisorTable
from driver.config.providers import CommandToolTable
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
)


@dataclass(frozen=True, slots=True)
class Idle(Generic[T]):
    """A key that may be given, and that nothing reads yet; `why` says so."""

    table: type[T]
    key: str
    why: str


IDLE: Final = (Idle(Config, "supervisor", "this version has no supervisor: nobody triages"),)


def without_effect(config: Config) -> Iterator[Problem]:
    """Yield one notice for each key and table that was given, is valid, and does nothing yet."""
    for path, chain in tables(config):
        table = chain[-1]
        for idle in cast("tuple[Idle[Table], ...]", IDLE):
            if isinstance(table, idle.table) and idle.key in table.model_fields_set:
                yield _notice(idle, path, table)


def _notice(idle: Idle[Table], path: TablePath, table: Table) -> Problem:
    return _at(path, idle.key, table, f"without effect: {idle.why}")


def unsupported(config: Config) -> Iterator[Problem]:
    """Yield one problem for each use of what is not built; wrong keys are passed over."""
    for path, chain in tables(config):
        table = chain[-1]
        for feature in cast("tuple[Feature[Table], ...]", FEATURES):
            if isinstance(table, feature.table) and _uses(feature, table):
                yield _refusal(feature, path, table)


def _refusal(feature: Feature[Table], path: TablePath, table: Table) -> Problem:
    message = f"this version of effectd does not support it yet; supported: {feature.instead}"
    return _at(path, feature.key, table, message)


def _at(path: TablePath, key: str, table: Table, message: str) -> Problem:
    """At the key, or at the table that the key is."""
    if isinstance(vars(table)[key], Table):
        return Problem(table=(*path, key), key=None, message=message, unsupported=True)
    return Problem(table=path, key=key, message=message, unsupported=True)


def _uses(feature: Feature[Table], table: Table) -> bool:
    return feature.key in vars(table) and feature.used(table)
