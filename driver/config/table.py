"""What all tables of the configuration have in common, and the walk through a tree of them.

Part of `driver.config`; imports `driver.config.errors`.
"""

from collections.abc import Iterator
from typing import cast

from pydantic import BaseModel, ConfigDict

from driver.config.errors import TablePath


class Table(BaseModel):
    """One table of the TOML file: no unknown keys, no conversions, and nothing changes it later."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    @classmethod
    def keys(cls) -> tuple[str, ...]:
        """Return the keys that the table may have, as the file writes them."""
        return tuple(field.alias or name for name, field in cls.model_fields.items())


def tables(
    table: Table, path: TablePath = (), outer: tuple[Table, ...] = ()
) -> Iterator[tuple[TablePath, tuple[Table, ...]]]:
    """Yield each table with its path, as a chain: the tables around it, the outermost first, and itself."""
    chain = (*outer, table)
    yield path, chain
    for key, value in vars(table).items():
        if isinstance(value, Table):
            yield from tables(value, (*path, key), chain)
        elif isinstance(value, dict):
            for name, item in cast("dict[str, object]", value).items():
                if isinstance(item, Table):
                    yield from tables(item, (*path, key, name), chain)
