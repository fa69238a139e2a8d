"""What the contract knows and this version does not do yet: refused by name.

Part of `driver.config`; imports its models. Nothing is ignored in silence. `FEATURES` is a table: when
something is built, its line goes.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from driver.config.errors import Problem, TablePath
from driver.config.models import Config
from driver.config.table import Table, tables

T = TypeVar("T", bound=Table)


@dataclass(frozen=True, slots=True)
class Feature(Generic[T]):
    """A use of `key` in tables of the kind `table`, and what can be written instead today."""

    table: type[T]
    key: str
    used: Callable[[T], bool]
    instead: str


FEATURES: Final[tuple[Feature[Table], ...]] = ()


def unsupported(config: Config) -> Iterator[Problem]:
    """Yield one problem for each use of what is not built; wrong keys are passed over."""
    for path, chain in tables(config):
        table = chain[-1]
        for feature in FEATURES:
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
